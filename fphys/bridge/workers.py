"""How the worlds of one call are split into blocks, and a private team of threads that runs them side by side."""

import ctypes
import itertools
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import BridgeError
from . import driver

WORLDS_PER_THREAD = 64
"""Fewest worlds worth a thread: below it, handing over costs more than it saves."""
LANES_PER_PART = 4096
"""Fewest particles, say, of one world worth a thread."""
BLOCK_BYTES = 1 << 18
"""Memory of one block's worlds: what one launch writes is still in the core's cache when the next one reads it."""
PATIENCE = 8000
"""Looks at a mailbox before a thread goes to sleep: some 200 microseconds, longer than XLA takes between two calls."""
PARTS_PER_THREAD = 4
"""Most jobs that a call's blocks are dealt into for each thread: one that is held up leaves its share to the others."""
BLOCKS_PER_PART = 4
"""Fewest blocks worth such a job: each has scratch memory of its own, which its first block brings into the cache."""
NAP = 5e-5
"""Seconds between two looks of a caller whose patience is over."""

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def refuse_fork() -> None:
    """Raise in a process forked from one that has used the bridge: its threads are gone and it would hang."""
    if _forked:
        raise BridgeError(
            "this process was forked after fphys was imported, and JAX and its threads do not survive a fork: "
            'start workers with multiprocessing.get_context("spawn")'
        )


class Blocks(NamedTuple):
    """Blocks of equal size, one after another."""

    number: int  # of the first block
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
        held: bytes of a world at one time, which are to fit the cache.
        touched: bytes of a world in all, which say how much there is to do.
    """
    threads = num_threads()
    fitting = -(-worlds * held // BLOCK_BYTES)
    if fitting > threads:
        fitting = -(-fitting // threads) * threads  # the same number for each
    worthwhile = max(worlds // WORLDS_PER_THREAD, -(-worlds * touched // BLOCK_BYTES))
    return min(worlds, max(1, fitting, min(threads, worthwhile)))


def shares(worlds: int, blocks: int) -> list[list[Blocks]]:
    """The blocks of each job. The first blocks may be one world larger than the others."""
    size, larger = divmod(worlds, blocks)
    threads = num_threads()
    each = min(PARTS_PER_THREAD, blocks // BLOCKS_PER_PART // threads) if threads > 1 else 1
    count = min(blocks, threads * max(1, each))  # the same number for each
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
    """Into how many equal parts one large world may be cut, that each may have a thread; 1 for several worlds."""
    threads = num_threads()
    if worlds > 1 or lanes < threads * LANES_PER_PART:
        return 1
    return next(parts for parts in range(threads, 0, -1) if lanes % parts == 0)


class Queue(NamedTuple):
    """Jobs, as :mod:`fphys.bridge.driver` reads them, and how many threads may work at them."""

    words: Any
    threads: int


def make_queue(jobs: Sequence[int]) -> Queue:
    """A queue of jobs that are given by their addresses."""
    words = (ctypes.c_uint64 * (2 + len(jobs)))(0, len(jobs), *jobs)
    return Queue(words, min(len(jobs), num_threads()))


class Team:
    """Threads that do a call's jobs with its caller. They stay awake for a moment after each call."""

    def __init__(self) -> None:
        self._members: list[tuple[Any, threading.Semaphore]] = []  # mailbox, and what wakes its thread
        self._lock = threading.Lock()

    def run(self, queue: Queue, *buffers: int) -> None:
        """Run all jobs of a queue on one XLA call's buffers, each by whoever comes to it first, and wait for them.

        While the team works for another caller, this one does all of its jobs itself. A queue serves one call at a
        time.
        """
        native, address, helpers = driver.load(), ctypes.addressof(queue.words), queue.threads - 1
        queue.words[0] = 0
        if helpers < 1 or not self._lock.acquire(blocking=False):
            native.drive(address, *buffers)
            return
        try:
            self._grow(helpers)
            for box, wake in self._members[:helpers]:
                native.post(ctypes.addressof(box), address, *buffers)
                if box[-1] == driver.ASLEEP:
                    wake.release()
            native.drive(address, *buffers)
        finally:  # an interrupt, too, leaves no thread at work on XLA's buffers
            for box, _ in self._members:
                native.watch(ctypes.addressof(box), PATIENCE)
                while box[0] == driver.BUSY:  # its thread may wait for a processor
                    time.sleep(NAP)
            self._lock.release()

    def _grow(self, threads: int) -> None:
        while len(self._members) < threads:
            box, wake = (ctypes.c_uint64 * 6)(driver.ASLEEP), threading.Semaphore(0)
            name = f"fphys-{len(self._members)}"
            threading.Thread(target=self._serve, args=(box, wake), name=name, daemon=True).start()
            self._members.append((box, wake))

    def _serve(self, box: Any, wake: threading.Semaphore) -> None:
        native = driver.load()
        while wake.acquire():
            native.serve(ctypes.addressof(box), PATIENCE)
