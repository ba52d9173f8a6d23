"""The harness: compile, validate, warm up, time in turns, record memory."""

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..bridge import interruptible, stage_times
from .case import Case

_LONG = 10.0  # a call of this many seconds needs no warm call before it: page faults do not matter then
_REST = 2e-2  # seconds between samples: torch's threads keep spinning for up to 7 ms on cores that the next case needs


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure."""

    warmup: float = 0.2  # seconds of warm-up per case
    budget: float = 2.0  # seconds of samples per case
    sample: float = 5e-2  # least seconds per sample, filled with consecutive calls, as a program makes them
    fewest: int = 5
    most: int = 200


QUICK = Effort(warmup=0.0, budget=0.2, sample=5e-3, fewest=3, most=20)


@dataclasses.dataclass(frozen=True)
class Result:
    """One line of the report. Times are in seconds per call, memory in bytes."""

    case: str
    worlds: int
    unit: str
    valid: bool
    error: str | None = None
    accuracy: float | None = None  # returned by the validation: the share of worlds that agree with a reference
    median_s: float | None = None
    q1: float | None = None
    q3: float | None = None
    samples: int = 0
    calls_per_sample: int = 0
    steps_per_s: float | None = None
    compile_s: float | None = None  # tracing, compiling and the first call
    bytes: dict[str, int] | None = None  # XLA's argument, output and temp sizes, and their total
    sent: tuple[tuple[str, int, int], ...] | None = None  # between processes in a call: kind, bytes, how many
    rss_peak_bytes: int | None = None  # of the process, so far
    device_peak_bytes: int | None = None  # of the accelerator, so far
    stages: dict[str, float] | None = None  # seconds of every launch in one call, over all threads, if requested
    relative_to: str | None = None
    ratio: float | None = None  # median over rounds of this case's time divided by the reference's
    target: float | None = None


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A compiled and validated case."""

    call: Callable[[], Any]
    compile_s: float
    bytes: dict[str, int] | None
    accuracy: float | None = None
    sent: tuple[tuple[str, int, int], ...] | None = None


def measure(cases: Sequence[Case], worlds: int, effort: Effort, profile: str | None = None) -> list[Result]:
    """Measure cases that are compared with each other. They take turns, so a machine that slows down
    slows all of them. Only the ratios within one run count."""
    prepared: dict[str, Prepared] = {}
    errors: dict[str, str] = {}
    for case in cases:
        try:
            with interruptible():
                prepared[case.name] = prepare(case, worlds)
        except Exception as error:
            errors[case.name] = f"{type(error).__name__}: {error}"
    with interruptible():
        times, calls = _take_turns(prepared, effort)
    stages: dict[str, dict[str, float]] = {}
    if profile:
        for name, case in prepared.items():
            _trace(case.call, f"{profile}/{name}-{worlds}")
            with stage_times() as stages[name]:
                case.call()

    results = []
    for case in cases:
        if case.name in errors:
            results.append(Result(case.name, worlds, case.unit, valid=False, error=errors[case.name]))
            continue
        mine, reference = times[case.name], times.get(case.relative_to or "")
        q1, median, q3 = statistics.quantiles(mine, n=4, method="inclusive")
        results.append(
            Result(
                case=case.name,
                worlds=worlds,
                unit=case.unit,
                valid=True,
                accuracy=prepared[case.name].accuracy,
                median_s=median,
                q1=q1,
                q3=q3,
                samples=len(mine),
                calls_per_sample=calls[case.name],
                steps_per_s=case.steps * worlds / median,
                compile_s=prepared[case.name].compile_s,
                bytes=prepared[case.name].bytes,
                sent=prepared[case.name].sent,
                rss_peak_bytes=_rss_peak(),
                device_peak_bytes=_device_peak(),
                stages=stages.get(case.name),
                relative_to=case.relative_to,
                ratio=statistics.median(a / b for a, b in zip(mine, reference, strict=True)) if reference else None,
                target=case.target,
            )
        )
    return results


def prepare(case: Case, worlds: int) -> Prepared:
    """Compile a case, run it once and validate the result. Raises if it is wrong."""
    workload = case.setup(worlds)
    if not workload.jit:
        start = time.perf_counter()
        result = workload.fn(*workload.args)
        compile_s = time.perf_counter() - start
        found = workload.validate(result)
        return Prepared(lambda: workload.fn(*workload.args), compile_s, None, found, workload.sent)
    args = jax.block_until_ready(jax.device_put(workload.args))
    start = time.perf_counter()
    compiled = jax.jit(workload.fn).lower(*args).compile()
    result = jax.block_until_ready(compiled(*args))
    compile_s = time.perf_counter() - start
    found = workload.validate(result)
    return Prepared(lambda: jax.block_until_ready(compiled(*args)), compile_s, _program_bytes(compiled), found)


def _take_turns(prepared: dict[str, Prepared], effort: Effort) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds per call of each case, one sample per round, after a rest; and the number of calls in a sample.

    An uncounted call precedes each sample unless calls are long. It finds memory as another case left it and waits for
    page faults. A program that makes its calls one after another does not.
    """
    fastest = {name: _warm_up(case.call, effort) for name, case in prepared.items()}
    calls = {name: max(1, math.ceil(effort.sample / seconds)) for name, seconds in fastest.items()}
    times: dict[str, list[float]] = {name: [] for name in prepared}
    end = time.perf_counter() + effort.budget * len(prepared)
    for rounds in range(effort.most if prepared else 0):
        if rounds >= effort.fewest and time.perf_counter() > end:
            break
        for name, case in prepared.items():
            time.sleep(_REST)
            if fastest[name] < _LONG:
                case.call()
            start = time.perf_counter()
            for _ in range(calls[name]):
                case.call()
            times[name].append((time.perf_counter() - start) / calls[name])
    return times, calls


def _warm_up(call: Callable[[], Any], effort: Effort) -> float:
    """Call for the warm-up time, and at least twice and for a sample's length. Returns the fastest call's time."""
    fastest, start, count = math.inf, time.perf_counter(), 0
    while count < 2 or time.perf_counter() - start < max(effort.warmup, effort.sample):
        begin = time.perf_counter()
        call()
        fastest, count = min(fastest, time.perf_counter() - begin), count + 1
    return max(fastest, 1e-9)


def _program_bytes(compiled: Any) -> dict[str, int] | None:
    """The memory that XLA plans for the program, if the back end reports it."""
    memory = compiled.memory_analysis()
    if memory is None:
        return None
    parts = {kind: int(getattr(memory, f"{kind}_size_in_bytes")) for kind in ("argument", "output", "temp")}
    return parts | {"total": sum(parts.values())}


def _rss_peak() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _device_peak() -> int | None:
    stats = jax.devices()[0].memory_stats()
    return stats.get("peak_bytes_in_use") if stats else None


def _trace(call: Callable[[], Any], folder: str) -> None:
    with jax.profiler.trace(folder):
        for _ in range(3):
            call()
