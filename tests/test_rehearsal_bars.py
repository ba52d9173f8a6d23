"""What the results of a GPU say of the project's bars, and what a trace and a plan say of a call."""

import gzip
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from fphys.bench.mixed import mixed_cases

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
bars, parts, results, trace, work = (
    importlib.import_module(name) for name in ("gpu_bars", "gpu", "gpu_results", "gpu_trace", "gpu_work")
)


def line(part: str, case: str, worlds: int = 1, **fields: object) -> dict[str, object]:
    return {"part": part, "case": case, "worlds": worlds, "valid": True, **fields}


def verdict(says: str, *lines: dict[str, object]) -> str:
    """The row of the one bar that says so, from its figure on."""
    (row,) = [row for row in bars.rows(lines, True) if says in row]
    return re.sub(r" {2,}", "  ", row).partition("  ")[2]


def test_speedups_are_the_processors_time_over_the_gpus():
    own = [line("speed.bridge", "device.matmul5000.processor", ratio=120.0)]
    own += [line("speed.bridge", "device.matmul5000.default", ratio=0.5)]
    table = bars.rows(own, True)
    rows = [row for i, row in enumerate(table) if "5000" in row or "5000" in table[i - 1]]
    assert [row.split()[-3:] for row in rows] == [["166", "120", "MISSED"], ["166", "240", "holding"]]
    assert verdict("1000^2") == ">= 25  not measured"


def test_a_gain_of_two_is_half_the_time():
    assert verdict("bfloat16", line("speed.mixed", "mixed.gpt1024.bfloat16", 32, ratio=0.5)) == ">= 2  2  holding"
    assert verdict("float16 with", line("speed.mixed", "mixed.gpt1024.float16", 32, ratio=0.6)) == ">= 2  1.67  MISSED"


def test_training_holds_only_if_all_models_do():
    def both(model: str, ours: float) -> list[dict[str, object]]:
        batch = bars.TRAINED[model]
        times = {"torch_eager": 1.0, "torch_compile": 0.5, "fphys": ours}
        return [line("speed.training", f"train.{model}.{x}", batch, median_s=s) for x, s in times.items()]

    found = [x for model in bars.TRAINED for x in both(model, 0.8)]
    assert verdict("beside torch", *found) == ">= 1  1.25  holding (mlp)"
    assert verdict("beside torch", *found[:6]) == ">= 1  1.25  2 of 7 measured (mlp)"
    assert verdict("compiled torch", *found[:6]) == ">= 1  0.625  MISSED (mlp)"
    assert verdict("beside torch", *found, *both("gpt", 1.25)) == ">= 1  0.8  MISSED (gpt)"


def test_what_is_measured_of_bodies_and_clouds():
    pure = line("speed.envs", "env.ant.pure", 1024, steps_per_s=6e5, used_bytes=9 << 30)
    assert verdict("1,024 Ant-v5, environment", pure) == ">= 500 k  600 k  holding"
    assert verdict("memory of 1,024", pure) == "<= 8 G  9.66 G  MISSED"
    assert verdict("memory of 1,024", line("speed.envs", "env.ant.pure", 1024, device_peak_bytes=2e8)).endswith(
        "holding"
    )
    assert verdict("131,072 ants", line("speed.rigid", "ant.shipped.fphys", 131_072, steps_per_s=9e5)).endswith(
        "measured"
    )
    assert verdict("131,072 ants", line("speed.float64", "ant.shipped.fphys", 131_072, steps_per_s=9e5)).endswith(
        "holding"
    )
    step = line("speed.matter", "particles.mpm.1M.step", median_s=1e-3, moved_bytes=2e9, steps_per_s=1e9)
    assert verdict("MPM: share", step, line("speed.bridge", "device.copy.large", steps_per_s=4e12)) == "0.5  given"
    grads = [line("speed.matter", f"particles.{k}.1M.step_grad", ratio=r) for k, r in (("mpm", 3.0), ("sph", 4.1))]
    assert verdict("gradients of", *grads).startswith("<= 4  4.1  MISSED (particles.sph")


def test_observations_are_as_slow_as_the_slowest():
    seen = [line("speed.envs", name, 4096, median_s=5e-5) for name in bars.OBSERVED]
    assert verdict("4,096 worlds observed", *seen).startswith("<= 100 u  50 u  holding")
    seen += [line("speed.envs", "env.ant.links", 4096, median_s=2e-4)]
    assert verdict("4,096 worlds observed", *seen) == "<= 100 u  200 u  MISSED (env.ant.links)"


def test_the_names_of_the_bars_are_those_of_cases():
    known = work.known()
    assert set(bars.OBSERVED) <= known.keys()
    assert {f"mixed.gpt1024.{kind}" for kind in ("bfloat16", "float16")} <= {
        case.name for case in mixed_cases("gpt1024")
    }
    assert {model: known[f"train.{model}.fphys"].worlds[-1] for model in bars.TRAINED} == bars.TRAINED
    assert {f"device.{n}.{k}" for n in ("matmul5000", "conv224") for k in ("processor", "default")} <= known.keys()
    assert known["device.conv224"].worlds == (8,) and known["env.ant.pure"].worlds[-1] == 4096
    assert {part.name for part in parts.PARTS} >= {"speed.envs", "speed.mixed", "speed.float64", "trace", "ordered"}


def test_a_scan_is_judged_by_what_more_steps_add():
    calls = {"cuStreamSynchronize": [3, 3], "cuGraphLaunch": [1, 1], "cuMemcpyDtoHAsync_v2": [0, 90]}
    scan = line("trace", "trace.ant.scan", 1024, calls=calls, busy=0.95, seconds=1.0)
    assert verdict("wait for the host", scan) == "<= 0  90  MISSED"
    assert verdict("record no more", scan) == "<= 0  0  holding"
    assert verdict("without a kernel", scan) == "<= 0.1  50 m  holding"
    unseen = line("trace", "trace.ant.scan", 1024, calls={}, busy=0.0, seconds=1.0)
    assert verdict("wait for the host", unseen) == verdict("without a kernel", unseen).replace("0.1", "0")
    assert verdict("without a kernel", unseen) == "<= 0.1  not measured"
    seen = line("trace", "env.ant.links", 4096, calls={"cuMemcpyDtoHAsync_v2": [1]})
    assert verdict("copies to the host", seen) == "<= 0  1  MISSED"


def test_tests_decide_by_their_last_outcome():
    ten: list[dict[str, object]] = [
        {"part": "ordered", "test": f"test_ten_runs_repeat[{i}]", "outcome": "passed"} for i in range(9)
    ]
    assert verdict("ten runs", *ten).startswith("<= 0  0  holding")
    assert verdict("ten runs", *ten[:3], ten[3] | {"outcome": "failed"}).startswith("<= 0  1  MISSED (test_ten")
    assert verdict("recorded once", {"part": "cuda", "test": "test_a_loop_is_recorded_once", "outcome": "skipped"}) == (
        "<= 0  not measured"
    )


def test_without_a_device_the_table_says_so():
    assert all(row.endswith("no device") for row in bars.rows([], False)[1:])


EVENTS = [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "M", "pid": 1, "tid": 7, "name": "thread_name", "args": {"name": "Stream #7(Compute)"}},
    {"ph": "M", "pid": 1, "tid": 8, "name": "thread_name", "args": {"name": "Stream #8(MemcpyD2H)"}},
    {"ph": "M", "pid": 1, "tid": 9, "name": "thread_name", "args": {"name": "XLA Ops"}},
    {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}},
    {"ph": "X", "pid": 1, "tid": 7, "ts": 0, "dur": 10, "name": "solve"},
    {"ph": "X", "pid": 1, "tid": 7, "ts": 20, "dur": 10, "name": "solve"},
    {"ph": "X", "pid": 1, "tid": 8, "ts": 25, "dur": 10, "name": "MemcpyD2H"},
    {"ph": "X", "pid": 1, "tid": 9, "ts": 0, "dur": 99, "name": "fusion"},
    {"ph": "X", "pid": 2, "tid": 1, "ts": 0, "dur": 1, "name": "cuStreamSynchronize"},
    {"ph": "X", "pid": 2, "tid": 1, "ts": 0, "dur": 1, "name": "current_trace"},
]


def test_a_trace_is_read(tmp_path):
    (tmp_path / "a.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": EVENTS}).encode()))
    found = trace.read(tmp_path, 1.0)
    assert found.kernels == pytest.approx({"solve": 20e-6, "MemcpyD2H": 10e-6})
    assert found.busy == pytest.approx(25e-6)
    assert found.calls == {"MemcpyD2H": 1, "cuStreamSynchronize": 1}


def test_bytes_of_a_step_are_those_of_its_arrays():
    """More with a gradient, and at least each particle's position and velocity, read and written."""
    for group in work.particles("1k", "step", "step_grad"):
        step, gradient = (work.moved_bytes(case, 1) for case in group)
        assert 4 * 3 * 4 * 1000 * work.steps(group[0]) < step < gradient < 10 * step
