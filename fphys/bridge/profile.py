"""Time of every stage: on request, the driver counts the processor's ticks of each launch."""

import contextlib
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from . import driver
from .plan import Program

_TICKS = 1  # the word of a program that says where its ticks are added
_known: weakref.WeakSet[Program] = weakref.WeakSet()
_counts: dict[Program, np.ndarray] | None = None


def add(programs: Iterable[Program]) -> None:
    """Register programs."""
    for program in programs:
        _known.add(program)
        if _counts is not None:
            _count(program)


@contextlib.contextmanager
def stage_times() -> Iterator[dict[str, float]]:
    """Measure, on the CPU, how long every launch of every operation takes.

    Yields:
        A dictionary that is filled when the context ends: name of the stage ("operation.module.kernel", with
        ".adjoint" if it runs backwards) to seconds of processor time, summed over all threads, longest first. All
        operations that run inside the context count, so call only functions that are already compiled, and block on
        their results. Counting costs some 20 ns per launch and block.

    Raises:
        RuntimeError: another such context is active: it counts for the whole process.

    Example:
        >>> with fphys.bridge.stage_times() as times:  # doctest: +SKIP
        ...     jax.block_until_ready(step(model, state, ctrl))
    """
    global _counts
    if _counts is not None:
        raise RuntimeError("stage_times is active already: it counts for the whole process, one at a time")
    times: dict[str, float] = {}
    _counts = {}
    for program in list(_known):
        _count(program)
    ticks = driver.load().ticks
    probe, start = ticks(), time.perf_counter()
    try:
        yield times
    finally:
        per_second = (ticks() - probe) / (time.perf_counter() - start)
        counts, _counts = _counts, None
        total: dict[str, int] = defaultdict(int)
        for program, count in counts.items():
            program.words[_TICKS] = 0
            for (launch, adjoint), n in zip(program.plan.launches, count.tolist(), strict=True):
                module = launch.kernel.module.name.split(".", 1)[-1]
                stage = f"{program.plan.name}.{module}.{launch.kernel.key}" + ".adjoint" * adjoint
                total[stage] += n
        ranked = sorted(total.items(), key=lambda item: -item[1])
        times.update((stage, n / per_second) for stage, n in ranked if n)


def _count(program: Program) -> None:
    assert _counts is not None
    _counts[program] = np.zeros(len(program.plan.launches), np.uint64)
    program.words[_TICKS] = _counts[program].ctypes.data
