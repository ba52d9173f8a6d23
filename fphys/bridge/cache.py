"""The folder of compiled kernels: checksums beside the binaries, and a temporary folder if it cannot be written."""

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import warp as wp

from ..errors import BridgeError
from .private import init_kernel_cache

LEAST_FREE = 2**24
"""Free bytes that a folder needs: about the size of all kernels of one model."""

SECONDS_TO_SEAL = 60.0
"""How long a binary without a checksum is trusted: the process that built it is about to load and seal it."""

_read_only: list[Path] = []


def start() -> None:
    """Start Warp, with a temporary cache if its own cannot be used."""
    try:
        init_kernel_cache(wp.config.kernel_cache_dir)
    except OSError as error:
        use_temporary(str(error))
    wp.init()


def folder() -> Path:
    """Where compiled kernels are kept; each is named by its content and compiled once."""
    return Path(str(wp.config.kernel_cache_dir))


def make_room() -> None:
    """Make sure that kernels can be compiled: on a full disk the compiler would end the process.

    Raises:
        BridgeError: neither the cache nor a temporary folder can be written.
    """
    if problem := _problem(folder()):
        use_temporary(problem)


@functools.cache
def use_temporary(problem: str) -> None:
    """Compile into a temporary folder from now on, and say why. Binaries in the old cache are still used."""
    unusable = folder()
    try:
        temporary = tempfile.mkdtemp(prefix="fphys-kernels-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        second_problem = _problem(Path(temporary))
    except OSError as error:
        second_problem = str(error)
    if second_problem:
        raise BridgeError(
            f"neither the kernel cache {unusable} ({problem}) nor a temporary folder ({second_problem}) can be "
            "used: give WARP_CACHE_PATH a folder that can be written"
        )
    _read_only.append(unusable)
    init_kernel_cache(temporary)
    print(
        f"fphys: the kernel cache {unusable} cannot be used ({problem}): this process compiles kernels into a "
        "temporary folder. Give WARP_CACHE_PATH a folder that can be written, and kernels are compiled once",
        file=sys.stderr,
        flush=True,
    )


def is_whole(binary: Path) -> bool:
    """Whether a binary exists and, as far as we can tell, is intact."""
    found = [source for source in _read_only if _matches(source / binary.relative_to(folder()))]
    if not binary.exists() and found:
        shutil.copytree(found[0] / binary.parent.name, binary.parent, dirs_exist_ok=True)
    return _matches(binary)


def seal(binary: Path) -> None:
    """Write a binary's checksum beside it, unless there is one."""
    with contextlib.suppress(OSError):  # a cache that this process may only read
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
        return _is_new(binary)
    except (OSError, UnicodeDecodeError):
        return False


def _is_new(binary: Path) -> bool:
    """Whether another process may have just built it and is about to seal it."""
    try:
        return time.time() - binary.stat().st_mtime < SECONDS_TO_SEAL
    except OSError:
        return False


def _checksum_file(binary: Path) -> Path:
    return binary.with_suffix(binary.suffix + ".checksum")


def _checksum(binary: Path) -> str:
    with binary.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
