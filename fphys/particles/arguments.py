"""Arguments of particle solvers: numbers and arrays, with or without the world axis, in one precision."""

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

Array = jax.Array

EMPTY = -1
"""The material of a slot without a particle: it touches nothing and stands still (:mod:`fphys.particles.flow`)."""


OVERFLOW = "a source had no empty slot for a particle (flow.Tally.lost): give init more of material EMPTY, or a drain"
"""What a world's status SLOT_OVERFLOW means."""


def array(name: str, value: Any, dtype: Any = None) -> Array:
    """The value as an array; numbers (NumPy's own, and those that JAX traces) and lists take the dtype.

    Raises:
        TypeError: it is an array of another dtype, or no number.
    """
    given = getattr(value, "dtype", None)
    if given is None or isinstance(value, float | int) or getattr(value, "weak_type", False):
        try:
            return jnp.asarray(value, dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is {value!r}: give a number or an array") from error
    if dtype is not None and given != dtype:
        raise TypeError(f"{name} is {given}, the particles are {dtype}: cast it, for nothing is cast silently")
    return jnp.asarray(value)


def several(given: Any) -> tuple[Any, ...]:
    """Names or numbers as a tuple; one alone is a tuple of one."""
    return (given,) if isinstance(given, str) or not np.iterable(given) else tuple(given)


def kind_of(value: Any) -> str:
    """The name of a value's type, with its module: solvers have laws of the same names."""
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def expect_real(name: str, x: Array) -> None:
    """Refuse another precision than the kernels have; TypeError by name."""
    if x.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"{name} are {x.dtype}: make them float32 or float64, which decides the precision")


def row(name: str, value: Any, tail: tuple[int, ...], dtype: Any, vector: bool = False) -> Array:
    """A parameter with its world axis, shape (1 | world, *tail), from a number, (*tail) or that shape.

    Args:
        vector: it has a direction, so that the only single number allowed is zero.

    Raises:
        ValueError: another shape. TypeError: another dtype.
    """
    value = array(name, value, dtype)
    if value.ndim == 0:
        if vector and (number := known(value)) is not None and number[0] != 0:
            raise ValueError(f"{name} is {number[0]}, and has a direction: give a vector of shape {tail[-1:]}")
        return jnp.broadcast_to(value, (1, *tail))
    if value.shape == tail:
        return value[None]
    if value.shape[1:] != tail:
        raise ValueError(f"{name} has shape {value.shape}, must be a number, {tail}, or {('1 | num_worlds', *tail)}")
    return value


def each(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """A quantity of the particles, shape (world, particle), from a number, (particle,) or (1 | world, 1 | particle)."""
    value = array(name, value, dtype)
    value = value.reshape((1,) * (2 - value.ndim) + value.shape) if value.ndim < 2 else value
    if value.ndim != 2 or any(n not in (1, size) for n, size in zip(value.shape, shape, strict=True)):
        raise ValueError(f"{name} has shape {value.shape}, must fit (num_worlds, n) = {shape}")
    return jnp.broadcast_to(value, shape)


def load(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """A load on the particles, None for zero; axes 0 and 1 may have size 1.

    Raises:
        ValueError: another shape. TypeError: another dtype.
    """
    if value is None:
        return jnp.zeros((1, 1, *shape[2:]), dtype)
    value = array(name, value, dtype)
    sizes = [(size, 1) for size in shape[:2]] + [(size,) for size in shape[2:]]
    if value.ndim != len(shape) or any(n not in allowed for n, allowed in zip(value.shape, sizes, strict=True)):
        raise ValueError(f"{name} has shape {value.shape}, must be {shape}; axes 0 and 1 may have size 1")
    return value


def expect_kinds(verb: str, params: Any, state: Any, kind: type, state_kind: type) -> None:
    """Refuse parameters and states of another solver; ``verb`` is the function's name, such as "mpm.step".

    Raises:
        TypeError: naming both types.
    """
    if not isinstance(params, kind) or not isinstance(state, state_kind):
        solver, _, name = verb.partition(".")
        given = f"({type(params).__name__}, {type(state).__name__})"
        raise TypeError(f"{name} takes ({solver}.Params, {solver}.State, ...), got {given}")


def expect_fields(state: Any, tails: dict[str, tuple[int, ...]], integers: tuple[str, ...], init: str) -> None:
    """Refuse a state whose fields do not have the same worlds and particles as its positions.

    Args:
        tails: for each field, the shape after (world, particle).
        integers: the fields that are int32; the others have the positions' dtype.

    Raises:
        ValueError: a shape. TypeError: a dtype.
    """
    size, real = state.x.shape[:2], state.x.dtype
    for name, tail in tails.items():
        value, wanted = getattr(state, name), (*size, *tail)
        if np.shape(value) != wanted:
            raise ValueError(
                f"state.{name} has shape {np.shape(value)}, needs {wanted}, like state.x: change every field of a "
                f"state together, or begin with {init}"
            )
        if value.dtype != (np.int32 if name in integers else real):
            raise TypeError(f"state.{name} is {value.dtype}, needs {np.dtype(np.int32 if name in integers else real)}")
    if np.shape(state.status) != size[:1]:
        raise ValueError(f"state.status has shape {np.shape(state.status)}, needs {size[:1]}, one for each world")


def known(*values: Any) -> list[np.ndarray] | None:
    """The values on the host, or None if any of them is traced."""
    if any(isinstance(value, jax.core.Tracer) for value in values):
        return None
    return [np.asarray(value) for value in values]
