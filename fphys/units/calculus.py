"""Vectors, roots and gradients of quantities."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp

from .kinds import (
    angle,
    angular_momentum,
    angular_velocity,
    energy,
    force,
    known,
    length,
    momentum,
    number,
    over,
    times,
    torque,
    velocity,
)
from .quantity import Quantity, kind_of, labelled, si, value_of

_DOT = {(force, length): energy, (momentum, velocity): energy}
_DOT |= {(b, a): c for (a, b), c in _DOT.items()}
_CROSS = {
    (length, force): torque,
    (length, momentum): angular_momentum,
    (angular_velocity, angular_momentum): torque,
}


def dot(a: Any, b: Any) -> Any:
    """Inner products along the last axis, shape (..., n) to (...). Force by displacement gives energy [J].

    Gradients flow to both.
    """
    kinds = kind_of(a), kind_of(b)
    return labelled((value_of(a) * value_of(b)).sum(-1), _DOT.get(kinds) or times(*kinds))


def cross(a: Any, b: Any) -> Any:
    """Cross products, shape (..., 3). Lever arm by force, in this order, gives torque [N m]. Gradients flow to both."""
    kinds = kind_of(a), kind_of(b)
    return labelled(jnp.cross(value_of(a), value_of(b)), _CROSS.get(kinds) or times(*kinds))


def norm(a: Any) -> Any:
    """Lengths of vectors along the last axis, shape (..., n) to (...). The gradient is NaN at zero."""
    return labelled(jnp.linalg.norm(value_of(a), axis=-1), kind_of(a))


def sqrt(a: Any) -> Any:
    """Square roots; of m^2/s^2, a velocity. Gradients flow to the argument."""
    if kind_of(a) == number:
        return jnp.sqrt(a)
    return labelled(jnp.sqrt(value_of(a)), known(tuple(Fraction(x) / 2 for x in kind_of(a).dims)))


def sin(a: Any) -> Any:
    """Sine of an angle [rad]. Raises UnitError for other kinds. Gradients flow to the angle."""
    return jnp.sin(si(a, angle, "the argument of sin"))


def cos(a: Any) -> Any:
    """Cosine of an angle [rad]. Raises UnitError for other kinds. Gradients flow to the angle."""
    return jnp.cos(si(a, angle, "the argument of cos"))


def wrench(force_part: Any, torque_part: Any) -> jax.Array:
    """Join force and torque, both (..., 3), to the bare (..., 6) that :func:`fphys.step` takes. Gradients flow to both.

    Raises:
        UnitError: the arguments are not a force [N] and a torque [N m].
    """
    parts = si(force_part, force, "the wrench's force"), si(torque_part, torque, "the wrench's torque")
    return jnp.concatenate(jnp.broadcast_arrays(*map(jnp.asarray, parts)), -1)


def value_and_grad(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Any:
    """``jax.value_and_grad`` with units: energy differentiated by length is a force, by angle a torque.

    ``jax.grad`` itself would give each gradient the kind of its argument.

    Args:
        fn: returns a scalar, a quantity or bare. Its arguments are trees of quantities and arrays.

    Returns:
        As ``jax.value_and_grad``. Each gradient has the value's kind divided by its argument's.
    """

    def plain(*args: Any, **kwargs: Any) -> Any:
        out = fn(*args, **kwargs)
        value, aux = out if has_aux else (out, None)
        return value_of(value), (value, aux)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        (_, (value, aux)), grads = jax.value_and_grad(plain, argnums, has_aux=True)(*args, **kwargs)
        top = kind_of(value)
        label = lambda leaf: labelled(value_of(leaf), over(top, kind_of(leaf)))  # noqa: E731
        grads = jax.tree.map(label, grads, is_leaf=lambda leaf: isinstance(leaf, Quantity))
        return ((value, aux) if has_aux else value), grads

    return wrapped


def grad(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Any:
    """``jax.grad`` with units: see :func:`value_and_grad`."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, grads = value_and_grad(fn, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapped
