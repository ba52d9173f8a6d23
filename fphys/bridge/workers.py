"""A private pool of threads that runs the ranges of worlds of one call side by side."""

import os
import queue
import threading
from collections.abc import Callable, Sequence

from ..errors import BridgeError

WORLDS_PER_RANGE = 64
"""Fewest worlds worth a thread: below it, handing over costs more than it saves."""

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


def num_ranges(worlds: int) -> int:
    """How many ranges ``worlds`` is split into: a fixed function of the machine, so results repeat bitwise."""
    threads = int(os.environ.get("FPHYS_THREADS", 0)) or len(os.sched_getaffinity(0))
    return max(1, min(threads, worlds // WORLDS_PER_RANGE))


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
