"""Time of every stage: the driver counts the processor's ticks of each launch while it is asked to."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from . import driver
from .plan import Program

_TICKS = 1  # the word of a program's table that says where its ticks are added
_known: list[tuple[Program, np.ndarray]] = []
_counts: dict[int, np.ndarray] | None = None


def add(programs: Iterable[Program], tables: Iterable[np.ndarray]) -> None:
    """Make programs and their tables known."""
    for program, table in zip(programs, tables, strict=True):
        _known.append((program, table))
        if _counts is not None:
            _count(len(_known) - 1)


@contextlib.contextmanager
def stage_times() -> Iterator[dict[str, float]]:
    """Measure, on the CPU, how long every launch of every operation takes.

    Yields:
        A dictionary that is filled when the context ends: name of the stage ("operation.module.kernel", with
        ".adjoint" where it runs backwards) to seconds of processor time, over all threads, longest first. What
        operations run inside the context counts, so let it hold nothing but calls that are compiled already and
        blocked on. Counting costs some 20 ns a launch and block.

    Raises:
        RuntimeError: another one is active: it counts for the whole process.

    Example:
        >>> with fphys.bridge.stage_times() as times:  # doctest: +SKIP
        ...     jax.block_until_ready(step(model, state, ctrl))
    """
    global _counts
    if _counts is not None:
        raise RuntimeError("stage_times is active already: it counts for the whole process, one at a time")
    times: dict[str, float] = {}
    _counts = {}
    for number in range(len(_known)):
        _count(number)
    probe, start = driver.ticks(), time.perf_counter()
    try:
        yield times
    finally:
        per_second = (driver.ticks() - probe) / (time.perf_counter() - start)
        counts, _counts = _counts, None
        total: dict[str, int] = defaultdict(int)
        for number, ticks in counts.items():
            program, table = _known[number]
            table[_TICKS] = 0
            for (launch, adjoint), n in zip(program.plan.launches, ticks.tolist(), strict=True):
                module = launch.kernel.module.name.split(".", 1)[-1]
                stage = f"{program.plan.name}.{module}.{launch.kernel.key}" + ".adjoint" * adjoint
                total[stage] += n
        ranked = sorted(total.items(), key=lambda item: -item[1])
        times.update((stage, n / per_second) for stage, n in ranked if n)


def _count(number: int) -> None:
    assert _counts is not None
    program, table = _known[number]
    _counts[number] = np.zeros(len(program.plan.launches), np.uint64)
    table[_TICKS] = _counts[number].ctypes.data
