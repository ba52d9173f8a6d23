"""What a GPU does in a call, from JAX's trace: its kernels, and the calls of CUDA that the host makes."""

import collections
import gzip
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gpu_work import Put, observed, particles, rigid

CALL = re.compile(r"cu(da)?[A-Z]\w*")
"""Names of CUDA's functions in a trace."""


class Trace(NamedTuple):
    """One call."""

    seconds: float  # with the tracing
    kernels: "collections.Counter[str]"  # seconds of each, over all streams
    busy: float  # seconds in which a kernel or a copy runs on any stream
    calls: "collections.Counter[str]"  # of CUDA, by the host; and copies, as the GPU counts them


def traced(call: Callable[[], Any]) -> Trace:
    """Call and watch."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with jax.profiler.trace(folder):
            call()
        seconds = time.perf_counter() - start
        return read(Path(folder), seconds)


def read(folder: Path, seconds: float) -> Trace:
    """A trace that JAX has written."""
    kernels: collections.Counter[str] = collections.Counter()
    calls: collections.Counter[str] = collections.Counter()
    spans: list[tuple[float, float]] = []
    for file in folder.rglob("*.trace.json.gz"):
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
        devices = {e["pid"] for e in events if e.get("name") == "process_name" and "/device:" in e["args"]["name"]}
        streams = {
            (e["pid"], e["tid"])
            for e in events
            if e.get("name") == "thread_name" and e["pid"] in devices and "Stream" in e["args"]["name"]
        }
        for event in (e for e in events if e.get("ph") == "X"):
            name = event["name"]
            if (event["pid"], event.get("tid")) in streams:
                kernels[name] += event["dur"] * 1e-6
                spans.append((event["ts"] * 1e-6, (event["ts"] + event["dur"]) * 1e-6))
                calls[name] += name.startswith("Memcpy")
            elif event["pid"] not in devices and CALL.fullmatch(name):
                calls[name] += 1
    return Trace(seconds, kernels, covered(spans), +calls)


def covered(spans: list[tuple[float, float]]) -> float:
    """How long at least one of the spans lasts."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def profile(put: Put, small: bool) -> int:
    """The longest kernels of a call, and how long the GPU was busy."""
    from fphys.bench.measure import prepare

    cases, worlds = next(rigid(small))
    chosen = [(case, worlds) for case in cases if "fphys" in case.name]
    chosen += [(case, 1) for group in particles("1k" if small else "1M", "step", "step_grad") for case in group]
    for case, worlds in chosen:
        prepared = prepare(case, worlds)
        prepared.call()
        seconds, total, busy, _ = traced(prepared.call)
        ranked = total.most_common(25)
        put({"case": case.name, "worlds": worlds, "seconds": seconds, "busy": busy, "kernels": ranked})
        print(f"{case.name}, {worlds:,}: {seconds * 1e3:.2f} ms, kernels {busy * 1e3:.2f} ms", flush=True)
        for kernel, took in ranked[:10]:
            print(f"    {took * 1e6:10.1f} us  {kernel}", flush=True)
    return 0


def trace(put: Put, small: bool) -> int:
    """A short and a long scan of an ant's steps, which differ in nothing but kernels; and observations."""
    from fphys.bench.measure import prepare

    worlds, lengths = (4, (2, 4)) if small else (1024, (10, 100))
    short, long = (scan(worlds, length) for length in lengths)
    seconds = fastest(long)
    few, many = traced(short), traced(long)
    calls = {name: [few.calls[name], many.calls[name]] for name in sorted(few.calls | many.calls)}
    tell(put, "trace.ant.scan", worlds, calls, steps=lengths, seconds=seconds, busy=many.busy)
    worlds = 4 if small else 4096
    for case in (case for group in observed(small) for case in group):
        call = prepare(case, worlds).call
        seconds, seen = fastest(call), traced(call)
        tell(put, case.name, worlds, {name: [n] for name, n in seen.calls.items()}, seconds=seconds, busy=seen.busy)
    return 0


def scan(worlds: int, length: int) -> Callable[[], Any]:
    """A compiled scan of so many steps, which has run."""
    import jax
    import jax.numpy as jnp

    from fphys.bench import engines

    work = engines.ours("ant", "shipped", worlds)
    model, state, ctrls = work.args
    args = jax.device_put((model, state, jnp.tile(ctrls, (-(-length // len(ctrls)), 1, 1))[:length]))
    compiled = jax.jit(work.fn).lower(*args).compile()
    return lambda: jax.block_until_ready(compiled(*args))


def fastest(call: Callable[[], Any], calls: int = 5) -> float:
    """Seconds of the fastest of some calls, after two that may record graphs."""
    times = []
    for _ in range(2 + calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times[2:])


def tell(put: Put, name: str, worlds: int, calls: dict[str, list[int]], **more: Any) -> None:
    put({"case": name, "worlds": worlds, "valid": True, "calls": calls, **more})
    print(f"{name}, {worlds:,}: {more['seconds'] * 1e3:.3f} ms, busy {more['busy'] * 1e3:.3f} ms", flush=True)
    for call, counts in calls.items():
        print(f"    {' '.join(f'{n:7,}' for n in counts)}  {call}", flush=True)
