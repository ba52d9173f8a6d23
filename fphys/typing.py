"""Shapes in signatures, checked on request.

A function decorated with :func:`shaped` states its shapes in jaxtyping's notation, ``Float[Array, "batch classes"]``.
The check is off by default and then costs only a flag's look-up. Turn it on with ``FPHYS_SHAPES=1``, with
``shapes = true`` under ``[fphys]`` in ``fphys.toml``, or for a block with ``with checked():``. It only uses shapes and
dtypes, so under ``jit`` it runs while tracing.
"""

import contextlib
import contextvars
import functools
import inspect
import os
import typing
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jaxtyping
import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped

from .config import config_file, read_config
from .errors import FphysError

if typing.TYPE_CHECKING:
    Array = jax.Array
else:
    Array = jax.Array | np.ndarray
"""What signatures accept: JAX arrays, traced ones too, and NumPy arrays."""

VARIABLE = "FPHYS_SHAPES"
F = TypeVar("F", bound=Callable[..., Any])

_asked: contextvars.ContextVar[bool | None] = contextvars.ContextVar("fphys_shapes", default=None)

__all__ = ["Array", "Bool", "Float", "Int", "Num", "ShapeError", "Shaped", "checked", "shaped"]


class ShapeError(FphysError, ValueError):
    """An argument's shape or dtype does not fit the signature; the message names it and the other arguments' shapes."""


@contextlib.contextmanager
def checked(on: bool = True) -> Iterator[None]:
    """Check shapes inside the block, or with ``on=False`` do not, regardless of the environment and the file."""
    token = _asked.set(on)
    try:
        yield
    finally:
        _asked.reset(token)


def shaped(function: F) -> F:
    """Decorator: check arguments and result against their jaxtyping annotations, if the check is on.

    A name such as ``batch`` stands for the same size throughout one call. Other annotations are ignored.

    Raises:
        ShapeError: the function is called, with the check on, with an array that does not fit.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _on():
            return function(*args, **kwargs)
        wanted = typing.get_type_hints(function)
        seen: list[str] = []
        with jaxtyping.jaxtyped("context"):
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                _check(function.__qualname__, name, value, wanted.get(name), seen)
            result = function(*args, **kwargs)
            _check(function.__qualname__, "the result", result, wanted.get("return"), seen)
        return result

    return typing.cast(F, wrapper)


def _on() -> bool:
    asked = _asked.get()
    if asked is not None:
        return asked
    if VARIABLE in os.environ:
        return os.environ[VARIABLE] not in ("", "0")
    return _file_says(os.getcwd())


@functools.cache
def _file_says(folder: str) -> bool:
    path = config_file(folder)
    return bool(path and read_config(path).get("shapes"))


def _check(function: str, name: str, value: Any, annotation: Any, seen: list[str]) -> None:
    """Raise if a value does not fit; otherwise record it for the messages of later arguments."""
    options = typing.get_args(annotation) or (annotation,)
    shapes = [option for option in options if hasattr(option, "dim_str")]
    if not shapes:
        return
    spec = f"{shapes[0].__name__.split('[')[0]} of shape ({', '.join(shapes[0].dim_str.split())})"
    if not any(isinstance(value, option) for option in options if isinstance(option, type)):
        others = f", where {'; '.join(seen)}" if seen else ""
        raise ShapeError(f"{function}: {name} is {_describe(value)}, must be {spec}{others}")
    if value is not None:
        seen.append(f"{name} is {_describe(value)}, as {spec}")


def _describe(value: Any) -> str:
    if not hasattr(value, "shape"):
        return f"{type(value).__name__} {value!r:.40}"
    return f"{value.dtype} of shape {tuple(value.shape)}"
