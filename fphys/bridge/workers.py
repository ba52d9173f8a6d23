"""A private pool of threads that runs the ranges of worlds of one call side by side."""

import os
import queue
import threading
from collections.abc import Callable, Sequence

from ..errors import BridgeError

LANES_PER_RANGE = 4096
"""Fewest lanes, over all worlds, worth a thread: below it, handing over costs more than it saves."""

WORLDS_PER_RANGE = 64
"""Fewest worlds worth a thread, where a world has few lanes."""

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


def num_threads() -> int:
    """How many threads there are: those of the machine, or what ``FPHYS_THREADS`` says."""
    return int(os.environ.get("FPHYS_THREADS", 0)) or len(os.sched_getaffinity(0))


def num_ranges(worlds: int, lanes: int = 1) -> int:
    """How many ranges ``worlds`` of ``lanes`` each are split into: a fixed function of the machine and of these, so
    that results repeat bitwise."""
    fewest = min(WORLDS_PER_RANGE, max(1, LANES_PER_RANGE // max(lanes, 1)))
    return max(1, min(num_threads(), worlds // fewest))


def num_parts(worlds: int, lanes: int) -> int:
    """Into how many equal parts one large world may be cut, that each may have a thread; 1 for several worlds."""
    threads = num_threads()
    if worlds > 1 or lanes < threads * LANES_PER_RANGE:
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
