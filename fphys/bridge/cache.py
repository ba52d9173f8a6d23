"""The folder of compiled kernels: checksums beside the binaries, and a temporary folder where it cannot be written."""

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import warp as wp
from warp._src.build import init_kernel_cache

from ..errors import BridgeError

LEAST_FREE = 2**24
"""Free bytes that a folder needs: about what all kernels of one model take."""

_read_only: list[Path] = []


def start() -> None:
    """Start Warp with a cache that can be written: its own, or else a temporary one that ends with the process.

    Kernels that its own cache holds are still used.
    """
    try:
        init_kernel_cache(wp.config.kernel_cache_dir)
        problem = _problem(folder())
    except OSError as error:
        problem = str(error)
    if problem:
        use_temporary(problem)
    wp.init()


def folder() -> Path:
    """Where compiled kernels are kept; each is named by its content and compiled once."""
    return Path(str(wp.config.kernel_cache_dir))


@functools.cache
def use_temporary(problem: str) -> None:
    """Compile into a temporary folder from here on, and say why."""
    unusable = folder()
    try:
        temporary = tempfile.mkdtemp(prefix="fphys-kernels-")
    except OSError as error:
        raise BridgeError(
            f"neither the kernel cache {unusable} ({problem}) nor a temporary folder ({error}) can be written: give "
            "WARP_CACHE_PATH a folder that can"
        ) from error
    _read_only.append(unusable)
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    init_kernel_cache(temporary)
    print(
        f"fphys: the kernel cache {unusable} cannot be used ({problem}): this process compiles kernels into a "
        "temporary folder. Give WARP_CACHE_PATH a folder that can be written, and kernels are compiled once",
        file=sys.stderr,
        flush=True,
    )


def is_whole(binary: Path) -> bool:
    """Whether a binary is there and, as far as can be known, as it was built."""
    found = [source for source in _read_only if _matches(source / binary.relative_to(folder()))]
    if not binary.exists() and found:
        shutil.copytree(found[0] / binary.parent.name, binary.parent, dirs_exist_ok=True)
    return _matches(binary)


def seal(binary: Path) -> None:
    """Write a binary's checksum beside it, where there is none."""
    with contextlib.suppress(OSError):  # a cache that is read by others only
        if not _checksum_file(binary).exists():
            part = binary.with_suffix(f".{os.getpid()}.part")
            part.write_text(_checksum(binary), encoding="ascii")
            part.replace(_checksum_file(binary))


def discard(binary: Path) -> None:
    """Remove a module whose binary cannot be used."""
    if binary.exists():
        shutil.rmtree(binary.parent, ignore_errors=True)


def _problem(path: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"fphys")
        free = shutil.disk_usage(path).free
    except OSError as error:
        return str(error)
    return f"only {free >> 20} MiB are free" if free < LEAST_FREE else ""


def _matches(binary: Path) -> bool:
    try:
        return _checksum_file(binary).read_text(encoding="ascii") == _checksum(binary)
    except FileNotFoundError:
        return binary.exists()  # built, but not sealed yet
    except (OSError, UnicodeDecodeError):
        return False


def _checksum_file(binary: Path) -> Path:
    return binary.with_suffix(binary.suffix + ".checksum")


def _checksum(binary: Path) -> str:
    with binary.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
