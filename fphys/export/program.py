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
        ExportError: the function contains a Warp operation or a callback; or the file cannot be written.
    """
    from jax import export

    trace(fn, examples)
    content = export.export(jax.jit(fn), platforms=platforms)(*examples).serialize()
    path = Path(path)
    try:
        path.write_bytes(_HEAD + hashlib.sha256(content).digest() + bytes(content))
    except (OSError, ValueError) as cause:  # a name that the system's encoding lacks is a ValueError
        raise ExportError(f"{path} cannot be written: {cause}; choose another folder or name") from cause
    return path


def load_program(path: str | os.PathLike[str]) -> Callable[..., Any]:
    """The function that :func:`save_program` wrote: jitted, for inputs of those shapes and types.

    Nothing is unpickled, and damage is seen by a checksum before anything is read. But a program is code: one that was
    forged, its checksum too, can end the process when it is read and do anything when it is called.

    Raises:
        ExportError: the file is missing, damaged, of a JAX that this one does not read, or something else.
    """
    from jax import export

    path = Path(path)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as cause:
        raise ExportError(f"{path} cannot be read: {cause}; see that the path is right") from cause
    if not content.startswith(_HEAD):
        raise ExportError(
            f"{path} was not written by fphys.export.save_program: it begins with {content[:8]!r}; save it so"
        )
    digest, program = content[len(_HEAD) : len(_HEAD) + 32], content[len(_HEAD) + 32 :]
    if hashlib.sha256(program).digest() != digest:
        raise ExportError(f"{path} is truncated or damaged ({len(content)} bytes): export the function again")
    try:
        return jax.jit(export.deserialize(bytearray(program)).call)
    except Exception as cause:  # whatever its reader stumbles over
        raise ExportError(
            f"{path} holds no program that JAX {jax.__version__} reads ({type(cause).__name__}: {cause}): export the "
            "function again with this version"
        ) from cause
