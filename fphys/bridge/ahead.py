"""Kernels compiled for a GPU that is not here, in the form of Warp's cache: ``python -m fphys.bridge.ahead 90 FOLDER``.

Warp's wheel holds NVIDIA's compiler, which needs no GPU. A process there finds the binaries with
WARP_CACHE_PATH=FOLDER, if it has the same fphys and the same Warp; the version of Python does not matter.
"""

import argparse
import concurrent.futures
import importlib.util
import multiprocessing
import os
import shutil
import struct
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import warp as wp

from . import cache
from .precision import PACKAGES, kernels
from .start import start_warp


class Resources(NamedTuple):
    """What one thread of a compiled kernel takes."""

    registers: int
    stack: int  # bytes of local memory; the driver reserves them for every thread that a GPU can hold


def names() -> list[str]:
    """The files of ``fphys.kernels`` that have kernels, as dotted names."""
    spec = importlib.util.find_spec("fphys.kernels")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = sorted(path for path in folder.rglob("*.py") if "@wp.kernel" in path.read_text(encoding="utf-8"))
    return [".".join(path.relative_to(folder).with_suffix("").parts) for path in files]


def build(dtype: str, name: str, arch: int, folder: str | os.PathLike[str]) -> Path:
    """Compile a file of kernels, with adjoints, unless it is there. Returns the binary, sealed with its checksum.

    Args:
        dtype: ``float32`` or ``float64``.
        name: one of :func:`names`.
        arch: the compute capability, such as 90.
        folder: of the cache; a folder in it is named after Warp's version.

    Raises:
        RuntimeError: the kernels do not compile. The compiler's messages are on standard error.
    """
    start_warp()
    found = [k for k in vars(kernels(dtype, name)).values() if isinstance(k, wp.Kernel)]
    (module,) = {kernel.module for kernel in found if kernel.module.name.endswith(name)}
    try:
        return build_module(module, arch, folder)
    except Exception as error:
        raise RuntimeError(f"{name} in {dtype} does not compile for sm_{arch}: {error}") from error


def build_module(module: Any, arch: int, folder: str | os.PathLike[str]) -> Path:
    """Compile one of Warp's modules, unless it is there. Returns the binary."""
    home = Path(folder) / wp.config.version / module.get_module_identifier()
    (binary,) = wp.compile_aot_module(module, arch=arch, module_dir=home, use_ptx=False)
    cache.seal(binary)
    for source in home.glob("*.cu"):
        source.unlink()
    return binary


class Built(NamedTuple):
    """What became of a file of kernels."""

    dtype: str
    name: str
    binary: Path | None
    seconds: float  # of processor time
    fault: str  # why there is no binary


def build_all(
    arch: int,
    folder: str | os.PathLike[str],
    wanted: Sequence[str] | None = None,
    processes: int = 1,
    limit: float = 1800.0,
) -> Generator[Built, None, None]:
    """Compile every file of kernels in both precisions; yields what became of each as it is finished.

    Who stops, by Ctrl-C or by closing the iterator, ends the compilers that run.

    Args:
        arch, folder: of :func:`build`.
        wanted: some of :func:`names`; all by default.
        processes: how many run at a time. A compiler takes up to 2 GB.
        limit: seconds after which a file is given up.
    """
    jobs = [(dtype, name) for name in wanted or names() for dtype in PACKAGES]
    running: set[BaseProcess] = set()
    pool = concurrent.futures.ThreadPoolExecutor(processes)
    futures = [pool.submit(_build_apart, running, limit, *job, arch, folder) for job in jobs]
    try:
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
    finally:  # also after Ctrl-C: a compiler would go on for minutes
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in futures):
            for process in tuple(running):
                process.kill()
            time.sleep(0.05)


def _build_apart(
    running: set[BaseProcess], limit: float, dtype: str, name: str, arch: int, folder: str | os.PathLike[str]
) -> Built:
    """Compile in a process of its own: nothing else ends a compiler."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fphys.bridge"])  # a process starts at once: its imports are done
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(sender, dtype, name, arch, folder), daemon=True)
    process.start()
    running.add(process)
    sender.close()
    binary, seconds, fault = None, float("nan"), f"not compiled in {limit:.0f} s"
    try:
        if receiver.poll(limit):
            binary, seconds, fault = receiver.recv()
    except EOFError:
        process.join(10)
        fault = f"the compiler ended with exit code {process.exitcode}; if it is -9, there may be no memory left"
    running.discard(process)
    process.kill()
    process.join()
    return Built(dtype, name, binary, seconds, fault)


def _tell(sender: Connection, *job: Any) -> None:
    """Compile, and send the binary, the seconds, and what went wrong."""
    try:
        binary, fault = build(*job), ""
    except Exception as error:
        binary, fault = None, str(error)
    sender.send((binary, time.process_time(), fault))


def resources(binary: str | os.PathLike[str]) -> dict[str, Resources]:
    """Registers and stack of each kernel in a binary, from its ELF sections.

    Source: the section ``.nv.info`` is a list of records (format, attribute, size, value); those about a function hold
    its symbol's number and the value. The attributes are those that ``cuobjdump -elf`` prints.
    """
    data = Path(binary).read_bytes()
    registers, frame = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
    symbols, found = _symbols(data), dict[int, dict[int, int]]()
    for kind, attribute, value in _records(_section(data, b".nv.info")):
        if kind == 4 and attribute in (registers, frame):  # a value with a size of its own
            number, count = struct.unpack("<II", value)
            found.setdefault(number, {})[attribute] = count
    return {symbols[n]: Resources(v[registers], v.get(frame, 0)) for n, v in found.items() if registers in v}


def _records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, at)
        value = data[at + 4 : at + 4 + size] if kind == 4 else b""
        yield kind, attribute, value
        at += 4 + len(value)


def _sections(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Name, entry size and content of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    names = headers[names_at][4]
    for name, kind, _, _, offset, length, *_, entry in headers:
        start = names + name
        yield data[start : data.index(b"\0", start)], entry, b"" if kind == 8 else data[offset : offset + length]


def _section(data: bytes, name: bytes) -> bytes:
    return next((content for found, _, content in _sections(data) if found == name), b"")


def _symbols(data: bytes) -> list[str]:
    texts, table = _section(data, b".strtab"), _section(data, b".symtab")
    starts = (struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24))
    return [texts[start : texts.index(b"\0", start)].decode() for start in starts]


def table(done: Iterable[Built]) -> str:
    """A row for each file: those without a binary first, then the slowest."""
    rows = [f"{'seconds':>7} {'KiB':>6} {'stack':>6} {'registers':>9}  file"]
    for one in sorted(done, key=lambda one: (one.binary is not None, -one.seconds)):
        size, stack, registers = "-", "-", "-"
        if one.binary is not None:
            found = resources(one.binary).values()
            size, stack = one.binary.stat().st_size >> 10, max(r.stack for r in found)
            registers = max(r.registers for r in found)
        row = f"{one.seconds:>7.1f} {size:>6} {stack:>6} {registers:>9}  {one.dtype} {one.name} {one.fault}"
        rows.append(row.rstrip())
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile all kernels, with progress, and print one table of them. Returns 1 if some do not compile, otherwise 0.

    Older versions of fphys' own kernels are removed from the folder, unless only some files are asked for.
    """
    parser = argparse.ArgumentParser(prog="python -m fphys.bridge.ahead", description=__doc__)
    parser.add_argument("arch", type=int, help="compute capability: 90 for an H100 or H200")
    parser.add_argument("folder", help="of the cache")
    parser.add_argument("names", nargs="*", help="files of fphys.kernels, such as rigid.solve.newton; all by default")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which a file is given up")
    given: Any = parser.parse_args(arguments)
    start, done = time.perf_counter(), list[Built]()
    total = len(PACKAGES) * len(given.names or names())
    for one in build_all(given.arch, given.folder, given.names, given.processes, given.limit):
        done.append(one)
        said = one.fault or f"{one.seconds:.0f} s"
        print(f"{len(done)}/{total} {one.dtype} {one.name}: {said}", file=sys.stderr, flush=True)
    binaries = [one.binary for one in done if one.binary is not None]
    print(table(done))
    size = sum(binary.stat().st_size for binary in binaries) / 2**20
    print(f"{len(binaries)} of {total} files in {time.perf_counter() - start:.0f} s, {size:.1f} MiB")
    if len(binaries) < total:
        print(f"{total - len(binaries)} files of kernels are not compiled: see the first rows", file=sys.stderr)
        return 1
    if not given.names:
        remove_others(binaries, in_order=False)
    return 0


def remove_others(binaries: Sequence[Path], in_order: bool) -> None:
    """Remove other versions of fphys' own kernels from a cache: those of ``fphys.bridge.ordered``, or the others."""
    kept = {binary.parent for binary in binaries}
    for folder in {folder.parent for folder in kept}:
        for other in folder.glob("wp_fphys_kernels_*"):
            if other not in kept and (".in_order_" in other.name) == in_order:
                shutil.rmtree(other)


if __name__ == "__main__":
    sys.exit(main())
