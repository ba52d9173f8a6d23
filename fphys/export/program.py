"""Compiled programs in files, which run without the code that made them: ``jax.export``."""

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
    """Write a function as StableHLO, for inputs of the examples' shapes and dtypes. Its closure is included.

    Args:
        platforms: where it will run, ``("cpu", "cuda")``; by default the current platform.

    Raises:
        ExportError: the function contains a Warp operation or a callback, or the file cannot be written.
    """
    from jax import export

    trace(fn, examples)
    content = export.export(jax.jit(fn), platforms=platforms)(*examples).serialize()
    path = Path(path)
    try:
        path.write_bytes(_HEAD + hashlib.sha256(content).digest() + bytes(content))
    except (OSError, ValueError) as cause:  # ValueError: the system cannot encode the file's name
        raise ExportError(f"{path} cannot be written: {cause}; choose another folder or name") from cause
    return path


def load_program(path: str | os.PathLike[str]) -> Callable[..., Any]:
    """Load a function that :func:`save_program` wrote: jitted, for inputs of those shapes and dtypes.

    Nothing is unpickled, and a checksum detects damage before anything is read. But a program is code. A forged file
    with a matching checksum can end the process when it is read, and do anything when it is called.

    Raises:
        ExportError: the file is missing or damaged, is from a JAX version that this one cannot read, or is not such a
            file.
    """
    from jax import export

    path = Path(path)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as cause:
        raise ExportError(f"{path} cannot be read: {cause}; check the path") from cause
    if not content.startswith(_HEAD):
        raise ExportError(f"{path} was not written by fphys.export.save_program: it begins with {content[:8]!r}")
    digest, program = content[len(_HEAD) : len(_HEAD) + 32], content[len(_HEAD) + 32 :]
    if hashlib.sha256(program).digest() != digest:
        raise ExportError(f"{path} is truncated or damaged ({len(content)} bytes): export the function again")
    try:
        return jax.jit(export.deserialize(bytearray(program)).call)
    except Exception as cause:  # whatever jax.export raises
        raise ExportError(
            f"{path} holds no program that JAX {jax.__version__} can read ({type(cause).__name__}: {cause}): export "
            "the function again with this version"
        ) from cause
