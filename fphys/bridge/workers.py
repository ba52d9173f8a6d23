"""How the worlds of one call are split into blocks, and a private pool of threads that runs them side by side."""

import itertools
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import BridgeError

WORLDS_PER_THREAD = 64
"""Fewest worlds worth a thread: below it, handing over costs more than it saves."""
LANES_PER_PART = 4096
"""Fewest particles, say, of one world worth a thread."""
BLOCK_BYTES = 1 << 18
"""Memory of one block's worlds: what one launch writes is still in the core's cache when the next one reads it."""

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
    return int(os.environ.get("FPHYS_THREADS", 0)) or len(os.sched_getaffinity(0))


def num_blocks(worlds: int, bytes_per_world: int) -> int:
    """How many blocks ``worlds`` are split into: a fixed function of the machine, so results repeat bitwise."""
    threads = num_threads()
    fitting = -(-worlds * bytes_per_world // BLOCK_BYTES)
    if fitting > threads:
        fitting = -(-fitting // threads) * threads  # the same number for each
    return min(worlds, max(1, fitting, min(threads, worlds // WORLDS_PER_THREAD)))


def shares(worlds: int, blocks: int) -> list[list[Blocks]]:
    """The blocks of each thread. The first blocks may be one world larger than the others."""
    size, larger = divmod(worlds, blocks)
    threads = min(num_threads(), blocks)
    bounds = [i * blocks // threads for i in range(threads + 1)]
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


class Pool:
    """Threads that wait for jobs; the caller does the first job itself."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], queue.SimpleQueue]] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()

    def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run all jobs and wait for them; the first error of any is raised."""
        if len(jobs) == 1:
            jobs[0]()
            return
        self._grow(len(jobs) - 1)
        done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        for job in jobs[1:]:
            self._jobs.put((job, done))
        errors = []
        try:
            jobs[0]()
        finally:
            errors = [done.get() for _ in jobs[1:]]
        for error in errors:
            if error is not None:
                raise error

    def _grow(self, threads: int) -> None:
        with self._lock:
            while self._threads < threads:
                threading.Thread(target=self._work, name=f"fphys-{self._threads}", daemon=True).start()
                self._threads += 1

    def _work(self) -> None:
        while True:
            job, done = self._jobs.get()
            try:
                job()
                done.put(None)
            except Exception as error:
                done.put(error)
