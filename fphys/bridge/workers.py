"""How the worlds of one call are split into blocks, and a private team of threads that runs the blocks in parallel."""

import ctypes
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from . import driver

WORLDS_PER_THREAD = 64
"""Fewest worlds worth a thread: below it, handing over work costs more than it saves."""
LANES_PER_PART = 4096
"""Fewest lanes (for example particles) of one world worth a thread."""
BLOCK_BYTES = 1 << 18
"""Memory of one block's worlds: what one launch writes is still in the core's cache when the next launch reads it."""
PARTS_PER_THREAD = 4
"""Most jobs per thread that a call's blocks are dealt into: a thread that is held up leaves its share to the others."""
BLOCKS_PER_PART = 4
"""Fewest blocks worth such a job: each job has its own scratch memory, which its first block brings into the cache."""
MOST_HELPERS = 1024
"""Most threads in a team."""


class Blocks(NamedTuple):
    """Blocks of equal size, one after another."""

    number: int  # index of the first block
    start: int  # its first world
    size: int  # worlds in a block
    count: int


def num_threads() -> int:
    """Threads that one call may use: ``FPHYS_THREADS``, or the cores that this process may run on."""
    asked = os.environ.get("FPHYS_THREADS", "0")
    if not asked.isdecimal():
        raise ValueError(f"FPHYS_THREADS is {asked!r}: give a number of threads, or 0 for one a core")
    return int(asked) or len(os.sched_getaffinity(0))


def num_blocks(worlds: int, held: int, touched: int) -> int:
    """How many blocks ``worlds`` are split into: a fixed function of the machine, so results repeat bitwise.

    Args:
        held: bytes of a world that are in use at one time, which should fit the cache.
        touched: bytes of a world in total, a measure of the work.
    """
    threads = num_threads()
    fitting = -(-worlds * held // BLOCK_BYTES)
    if fitting > threads:
        fitting = -(-fitting // threads) * threads  # the same number for each thread
    worthwhile = max(worlds // WORLDS_PER_THREAD, -(-worlds * touched // BLOCK_BYTES))
    return min(worlds, max(1, fitting, min(threads, worthwhile)))


def shares(worlds: int, blocks: int) -> list[list[Blocks]]:
    """The blocks of each job. The first blocks may be one world larger than the others."""
    size, larger = divmod(worlds, blocks)
    threads = num_threads()
    each = min(PARTS_PER_THREAD, blocks // BLOCKS_PER_PART // threads) if threads > 1 else 1
    count = min(blocks, threads * max(1, each))  # the same number for each thread
    bounds = [i * blocks // count for i in range(count + 1)]
    parts = []
    for first, last in itertools.pairwise(bounds):
        middle = min(max(first, larger), last)
        runs = [
            Blocks(first, first * (size + 1), size + 1, middle - first),
            Blocks(middle, middle * size + larger, size, last - middle),
        ]
        parts.append([run for run in runs if run.count])
    return parts


def num_parts(worlds: int, lanes: int) -> int:
    """How many equal parts one large world may be cut into, so that each may have a thread; 1 for several worlds.

    Where JAX's default is a GPU, whose threads share a world as it is, there is one part on the CPU, too.
    """
    threads = num_threads() if jax.default_backend() == "cpu" else 1
    if worlds > 1 or lanes < threads * LANES_PER_PART:
        return 1
    return next(parts for parts in range(threads, 0, -1) if lanes % parts == 0)


class Queue(NamedTuple):
    """Jobs, as ``native.h`` reads them, and how many threads may help the caller with them."""

    words: Any
    helpers: int


def make_queue(jobs: Sequence[int]) -> Queue:
    """A queue of the jobs at these addresses."""
    words = (ctypes.c_uint64 * (2 + len(jobs)))(0, len(jobs), *jobs)
    return Queue(words, min(len(jobs), num_threads()) - 1)


class Team:
    """Threads that do a call's jobs together with its caller. They stay awake for a moment after each call.

    The native code finds them in ``table``.
    """

    def __init__(self, table: driver.Team | None = None) -> None:
        self.table = driver.Team() if table is None else table
        self._members = (ctypes.POINTER(driver.Mailbox) * MOST_HELPERS)()
        self.table.members = ctypes.cast(self._members, type(self.table.members))
        self._lock = threading.Lock()

    def grow(self, helpers: int) -> None:
        """Start threads until there are at least this many helpers."""
        with self._lock:
            for number in range(self.table.size, min(helpers, MOST_HELPERS)):
                box = driver.Mailbox(driver.ASLEEP)
                driver.make_semaphore(box)
                self._members[number] = ctypes.pointer(box)
                serve = driver.load().serve
                threading.Thread(target=serve, args=(box,), name=f"fphys-{number}", daemon=True).start()
                self.table.size = number + 1

    def asleep(self) -> bool:
        """Whether no thread is awake."""
        return all(self._members[i].contents.state == driver.ASLEEP for i in range(self.table.size))
