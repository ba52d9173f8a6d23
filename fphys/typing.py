"""Shapes in signatures, and checked where the user asks for it.

A function says what it takes in jaxtyping's notation, ``Float[Array, "batch classes"]``, under :func:`shaped`. The
check is off by default and then costs nothing but a look at a flag. It is switched on by ``FPHYS_SHAPES=1``, by
``shapes = true`` under ``[fphys]`` in ``fphys.toml``, or for a while by ``with checked():``. It looks at shapes and
dtypes only, so that under ``jit`` it takes place while tracing.
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
"""What a signature admits: JAX's arrays (traced ones too) and NumPy's."""

VARIABLE = "FPHYS_SHAPES"
F = TypeVar("F", bound=Callable[..., Any])

_asked: contextvars.ContextVar[bool | None] = contextvars.ContextVar("fphys_shapes", default=None)

__all__ = ["Array", "Bool", "Float", "Int", "Num", "ShapeError", "Shaped", "checked", "shaped"]


class ShapeError(FphysError, ValueError):
    """An argument's shape or dtype does not fit the signature; the text names it, and the shapes of the others."""


@contextlib.contextmanager
def checked(on: bool = True) -> Iterator[None]:
    """Check shapes inside the block (or, with ``on=False``, do not), whatever environment and file say."""
    token = _asked.set(on)
    try:
        yield
    finally:
        _asked.reset(token)


def shaped(function: F) -> F:
    """Decorator: check arguments and result against their jaxtyping annotations where that is switched on.

    A name such as ``batch`` stands for the same size throughout one call. Annotations of other kinds are not looked at.

    Raises:
        ShapeError: when the function is called, checked, with an array that does not fit.
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
    """Raise if a value does not fit; else note what it is, for the next one's message."""
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
