"""A compiled function's program in a file, called without the code that made it: ``jax.export``."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from .errors import ExportError
from .trace import trace

_HEAD = b"fphys jax.export 1\n"


def save_program(
    path: str | os.PathLike[str], fn: Callable[..., Any], *examples: Any, platforms: tuple[str, ...] | None = None
) -> Path:
    """Write a function as StableHLO, for inputs of the examples' shapes and types; what it closes over goes along.

    Args:
        platforms: where it is to run, ``("cpu", "cuda")``; by default where it is now.

    Raises:
        ExportError: the function contains a Warp operation or a callback.
    """
    from jax import export

    trace(fn, examples)
    content = export.export(jax.jit(fn), platforms=platforms)(*examples).serialize()
    path = Path(path)
    path.write_bytes(_HEAD + hashlib.sha256(content).digest() + bytes(content))
    return path


def load_program(path: str | os.PathLike[str]) -> Callable[..., Any]:
    """The function that :func:`save_program` wrote: jitted, for inputs of those shapes and types.

    Raises:
        ExportError: the file is missing, damaged, or something else; nothing of it is run or unpickled.
    """
    from jax import export

    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise ExportError(f"{path} cannot be read: {cause}") from cause
    if not content.startswith(_HEAD):
        raise ExportError(f"{path} was not written by fphys.export.save_program: it begins with {content[:8]!r}")
    digest, program = content[len(_HEAD) : len(_HEAD) + 32], content[len(_HEAD) + 32 :]
    if hashlib.sha256(program).digest() != digest:
        raise ExportError(f"{path} is truncated or damaged ({len(content)} bytes): export the function again")
    return jax.jit(export.deserialize(bytearray(program)).call)
