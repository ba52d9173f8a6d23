"""Compiled programs in files, which run without the code that made them: ``jax.export``."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from .errors import ExportError
from .trace import trace

_HEAD = b"fphys jax.export 1\n"


def save_program(
    path: str | os.PathLike[str],
    fn: Callable[..., Any],
    *examples: Any,
    batch: str | None = "batch",
    platforms: tuple[str, ...] | None = None,
) -> Path:
    """Write a function as StableHLO, for inputs of the examples' shapes and dtypes. Its closure is included.

    Args:
        path: where to write.
        fn: ``fn(*examples)`` returns arrays in tuples, lists and dictionaries. Named tuples come back as tuples.
        examples: arrays, or trees of arrays, that define shapes and dtypes.
        batch: name of the first axis of every array among the inputs, whose size stays open in the file; None fixes it.
        platforms: where it will run, ``("cpu", "cuda")``; by default the current platform.

    Raises:
        ExportError: the function contains a Warp operation or a callback, needs a batch of known size, or returns
            another class; or the file cannot be written.
    """
    from jax import export

    trace(fn, examples)
    first = export.symbolic_shape(batch) if batch else ()

    def spec(x: Any) -> jax.ShapeDtypeStruct:
        x = jnp.asarray(x)
        return jax.ShapeDtypeStruct((*first, *x.shape[1:]) if first and x.ndim else x.shape, x.dtype)

    def plain(*inputs: Any) -> Any:
        return _plain(fn(*inputs))

    try:
        exported = export.export(jax.jit(plain), platforms=platforms)(*jax.tree.map(spec, examples))
    except Exception as cause:
        if batch is None:
            raise
        raise ExportError(
            f"the function does not run with a first axis of open size: pass batch=None, and the file takes the "
            f"examples' sizes only; or build no shape from len(x) or int(x.shape[0]) ({type(cause).__name__}: {cause})"
        ) from cause
    try:
        content = exported.serialize()
    except ValueError as cause:
        raise ExportError(
            "the function takes or returns a class that jax.export cannot store: use tuples, lists and dictionaries "
            f"of arrays ({cause})"
        ) from cause
    path = Path(path)
    try:
        path.write_bytes(_HEAD + hashlib.sha256(content).digest() + bytes(content))
    except (OSError, ValueError) as cause:  # ValueError: the system cannot encode the file's name
        raise ExportError(f"{path} cannot be written: {cause}; choose another folder or name") from cause
    return path


def _plain(tree: Any) -> Any:
    """The tree with tuples in place of named tuples, whose classes a file cannot hold."""
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return (list if isinstance(tree, list) else tuple)(map(_plain, tree))
    return tree


def load_program(path: str | os.PathLike[str]) -> Callable[..., Any]:
    """Load a function that :func:`save_program` wrote: jitted, for inputs of those shapes and dtypes.

    It cannot be differentiated: the file has no derivative. To train on, save the weights, or use :func:`from_onnx`.

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
