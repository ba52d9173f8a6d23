"""The benchmark harness never times a wrong result, and its reports are correct."""

import dataclasses
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.bench import Case, Workload, main
from fphys.bench.measure import QUICK, Effort, measure
from fphys.bench.report import prefixed, row, seconds
from fphys.bench.run import groups, select


def doubled(worlds):
    x = np.arange(8.0 * worlds).reshape(worlds, 8)

    def validate(y):
        if not np.array_equal(y, 2 * x):
            raise ValueError("y is not 2 x")

    return Workload(lambda x: 2 * x, (x,), validate)


def wrong(worlds):
    return dataclasses.replace(doubled(worlds), fn=lambda x: 2.001 * x)


def broken(worlds):
    raise RuntimeError("the asset is missing")


def sleeping(sleep):
    """A case with a known duration: the host sleeps during the call."""

    def wait(x):
        time.sleep(sleep)
        return np.asarray(x)

    def setup(worlds):
        x = np.ones(worlds)
        return Workload(
            lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x), (x,), lambda y: None
        )

    return setup


RIGHT = Case("array.double", doubled, worlds=(1, 4, 1000))


def run(tmp_path, cases, *args, **kwargs):
    """Exit code and report."""
    path = tmp_path / "results" / "bench.json"
    code = main(*args, cases=cases, json_path=path, quick=True, **kwargs)
    return code, json.loads(path.read_text())


def test_report(tmp_path, capsys):
    code, report = run(tmp_path, [RIGHT], worlds=(1, 1000))
    assert code == 0
    assert report["complete"] is True
    assert report["precision"] == "float64"
    assert report["device"]["platform"] == jax.default_backend()
    assert report["versions"]["jax"] == jax.__version__
    assert report["versions"]["warp-lang"]
    assert report["date"].endswith("+00:00")
    few, many = report["results"]
    assert (few["case"], few["worlds"], many["worlds"]) == ("array.double", 1, 1000)
    assert 0 < many["q1"] <= many["median_s"] <= many["q3"] < 1
    assert many["steps_per_s"] == pytest.approx(1000 / many["median_s"])
    assert many["samples"] >= QUICK.fewest
    assert many["compile_s"] > 0
    assert (many["bytes"]["argument"], many["bytes"]["output"]) == (64000, 64000)
    assert many["bytes"]["total"] == 128000 + many["bytes"]["temp"]
    assert many["rss_peak_bytes"] > 1e7
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:3] == ["case", "worlds", "median"]
    assert table[2].split()[:2] == ["array.double", "1,000"]


@pytest.mark.parametrize(
    ("setup", "text"), [(wrong, "ValueError: y is not 2 x"), (broken, "RuntimeError: the asset is")]
)
def test_a_wrong_result_is_not_timed_and_the_others_are(tmp_path, capsys, setup, text):
    code, report = run(tmp_path, [RIGHT, Case("array.bad", setup, relative_to="array.double")], worlds=(4,))
    right, bad = report["results"]
    assert code == 1
    assert (right["valid"], bad["valid"]) == (True, False)
    assert bad["error"].startswith(text)
    assert right["median_s"] is not None
    assert bad["median_s"] is None
    assert bad["steps_per_s"] is None
    out, err = capsys.readouterr()
    assert "INVALID" in out.splitlines()[2]
    assert f"INVALID array.bad, 4 worlds: {text}" in err


def test_an_invalid_reference_leaves_the_ratio_open(tmp_path):
    code, report = run(tmp_path, [Case("bad", wrong), Case("good", doubled, relative_to="bad")], worlds=(2,))
    assert code == 1
    assert report["results"][1]["valid"] is True
    assert report["results"][1]["ratio"] is None


def test_times_and_ratio_are_right():
    """20 ms and 60 ms of sleep: the time of the whole call, not of the dispatch."""
    cases = [Case("short", sleeping(0.02)), Case("long", sleeping(0.06), steps=3, relative_to="short")]
    short, long = measure(cases, 2, Effort(warmup=0, budget=0.5, sample=5e-3))
    assert short.error is None
    assert long.error is None
    assert 0.02 < short.median_s < 0.04
    assert 2 < long.ratio < 4
    assert long.steps_per_s == pytest.approx(3 * 2 / long.median_s)
    assert short.calls_per_sample == 1
    (several,) = measure(cases[:1], 2, Effort(warmup=0, budget=0, sample=0.09, fewest=2))
    assert several.calls_per_sample == 5 and 0.02 < several.median_s < 0.04


@pytest.mark.alone
def test_short_calls_share_a_sample():
    (result,) = measure([RIGHT], 1, QUICK)
    assert result.median_s is not None
    assert result.calls_per_sample * result.median_s > 1e-3
    assert result.calls_per_sample > 1


def test_leftover_work_is_not_in_the_next_sample():
    """Like threads that spin: the first case stays busy for 15 ms, and the second has to wait for it."""
    until = 0.0

    def first():
        nonlocal until
        time.sleep(0.005)
        until = time.perf_counter() + 0.015

    def second():
        time.sleep(max(0.005, until - time.perf_counter()))

    cases = [
        Case(name, lambda worlds, fn=fn: Workload(fn, (), lambda y: None, jit=False))
        for name, fn in (("first", first), ("second", second))
    ]
    _, result = measure(cases, 1, Effort(warmup=0, budget=0.3, sample=5e-3))
    assert result.median_s is not None
    assert result.median_s < 0.01


def test_compilation_is_not_in_the_samples():
    def setup(worlds):
        def fn(x):
            time.sleep(0.2)  # at trace time
            return x

        return Workload(fn, (np.ones(worlds),), lambda y: None)

    (result,) = measure([Case("slow.to.compile", setup)], 1, QUICK)
    assert result.compile_s is not None
    assert result.compile_s > 0.2
    assert result.q3 is not None
    assert result.q3 < 0.1


CASES = [
    Case("a.base", doubled, tags=("small",)),
    Case("b.other", doubled),
    Case("a.next", doubled, relative_to="a.base"),
    Case("a.last", doubled, relative_to="a.next"),
    Case("c.alone", doubled, worlds=()),
]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, ["a.base", "b.other", "a.next", "a.last", "c.alone"]),
        ("other", ["b.other"]),
        ("last", ["a.base", "a.next", "a.last"]),
        ("*.base", ["a.base"]),
        ("small", ["a.base"]),
        ("nothing", []),
    ],
)
def test_filter(pattern, names):
    assert [case.name for case in select(CASES, pattern)] == names


def test_cases_that_are_compared_run_together():
    assert [[c.name for c in group] for group in groups(CASES)] == [
        ["a.base", "a.next", "a.last"],
        ["b.other"],
        ["c.alone"],
    ]


def test_lists_that_contradict_themselves_are_refused():
    with pytest.raises(ValueError, match="two benchmark cases are called a"):
        select([Case("a", doubled), Case("a", doubled)], None)
    with pytest.raises(ValueError, match="relative to b: no earlier case"):
        select([Case("a", doubled, relative_to="b"), Case("b", doubled)], None)


def test_no_match_lists_the_cases(capsys):
    assert main("nothing", cases=CASES) == 2
    assert "b.other" in capsys.readouterr().err


def test_quick_says_that_it_leaves_large_cases_out(capsys):
    assert main(quick=True, cases=[Case("big", broken, tags=("large",))]) == 2
    assert "without --quick" in capsys.readouterr().err


def test_list_runs_nothing(capsys):
    assert main(list_only=True, cases=[Case("bad", broken)]) == 0
    assert capsys.readouterr().out.split()[0] == "bad"


def test_worlds(tmp_path):
    assert [r["worlds"] for r in run(tmp_path, [RIGHT])[1]["results"]] == [1, 4]  # quick: at most 64
    large = dataclasses.replace(RIGHT, worlds=(4096,))
    assert [r["worlds"] for r in run(tmp_path, [large])[1]["results"]] == [64]
    assert [r["worlds"] for r in run(tmp_path, [RIGHT], worlds=(3, 100))[1]["results"]] == [3, 100]
    assert [r["worlds"] for r in run(tmp_path, CASES[-1:], worlds=(3, 100))[1]["results"]] == [1]


def test_memory_stays_between_calls(tmp_path, monkeypatch):
    """Otherwise a third of a large case's time is the system's, which maps and clears pages at every call."""
    kept = []
    monkeypatch.setattr("fphys.train.keep_memory", lambda: kept.append(True))
    run(tmp_path, [RIGHT])
    assert kept == [True]


def test_what_was_measured_survives_an_interruption(tmp_path):
    def interrupted(worlds):
        raise KeyboardInterrupt

    path = tmp_path / "bench.json"
    with pytest.raises(KeyboardInterrupt):
        main(cases=[RIGHT, Case("stopped", interrupted)], json_path=path, quick=True, worlds=(1,))
    report = json.loads(path.read_text())
    assert report["complete"] is False
    assert [r["case"] for r in report["results"]] == ["array.double"]
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]


def test_profile_prints_the_time_of_each_stage(tmp_path, monkeypatch, capsys):
    from fphys.bench.cases import CASES

    monkeypatch.chdir(tmp_path)
    assert main("double-pendulum.step_grad", cases=CASES, quick=True, worlds=(1,), profile=True) == 0
    out = capsys.readouterr().out
    assert "rigid.tree.kinematics.frame_poses" in out and ".adjoint" in out


def test_profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(cases=[RIGHT], quick=True, worlds=(1,), profile=True) == 0
    assert list((tmp_path / "runs" / "profile" / "array.double-1").rglob("*.xplane.pb"))


def test_numbers_are_formatted():
    assert [seconds(s) for s in (2.5, 0.0123, 4.56e-5, 7.1e-8)] == ["2.5 s", "12.3 ms", "45.6 us", "71 ns"]
    assert [prefixed(x) + "B" for x in (12, 1.5e3, 2e6, 3.456e9, 4e12)] == ["12 B", "1.5 kB", "2 MB", "3.46 GB", "4 TB"]


def test_target_stands_beside_the_ratio():
    (base, result) = measure([RIGHT, Case("b", doubled, relative_to="array.double", target=3.0)], 1, QUICK)
    assert row(result).endswith(f"{result.ratio:.2f} x array.double (target <= 3)")
    assert row(base).endswith("B")


def test_import_is_light():
    code = "import sys, fphys; known = set(sys.modules); import fphys.bench; print(*(set(sys.modules) - known))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert set(child.stdout.split()) <= {"fphys.bench", "fphys.bench.case", "fphys.bench.run", "fnmatch"}


@pytest.mark.parametrize(
    "pattern",
    ["device", "bridge", "rigid.[dfa]*.step*", "rigid.*.100.step*", "*.1k.step*"]
    + [pytest.param("rollout", marks=pytest.mark.slow)],
)
def test_own_cases_run_and_are_valid(tmp_path, pattern):
    """fphys's cases in float64, whose validation requires gradients to be right to 1e-6."""
    path = tmp_path / "bench.json"
    code = main(pattern, json_path=path, quick=True, worlds=(5,))
    results = json.loads(path.read_text())["results"]
    assert [r["error"] for r in results if not r["valid"]] == []
    assert code == 0
    assert len(results) >= 2


def test_validation_of_the_physics_can_fail():
    from fphys.bench.cases import CASES

    by_name = {case.name: case for case in CASES}
    forward = by_name["rigid.double-pendulum.step"].setup(3)
    states = forward.fn(*forward.args)
    forward.validate(states)
    with pytest.raises(ValueError, match=r"state\.qvel against a few worlds"):
        forward.validate(dataclasses.replace(states, qvel=states.qvel.at[0, 1, 0].multiply(1 + 1e-9)))
    with pytest.raises(ValueError, match=r"state\.qpos against a few worlds"):
        forward.validate(dataclasses.replace(states, qpos=jnp.flip(states.qpos, axis=1)))

    backward = by_name["rigid.double-pendulum.step_grad"].setup(3)
    grads = backward.fn(*backward.args)
    backward.validate(grads)
    for i in range(3):
        scaled = [g * (1 + 1e-5 * (k == i)) for k, g in enumerate(grads)]
        with pytest.raises(ValueError, match=f"gradient {i} against differences"):
            backward.validate(tuple(scaled))


def test_functions_without_jit_are_called_directly(tmp_path):
    def setup(worlds):
        def fn(x):
            assert isinstance(x, list)
            return sum(x)

        def validate(total):
            if total != 6:
                raise ValueError("the sum is wrong")

        return Workload(fn, ([1, 2, 3],), validate, jit=False)

    code, report = run(tmp_path, [Case("list.sum", setup, worlds=(1,))])
    assert code == 0 and report["results"][0]["valid"] and report["results"][0]["bytes"] is None


@pytest.mark.extra("gymnasium")
def test_peers_start_from_the_same_states_and_are_compared(tmp_path, capsys):
    """MuJoCo in C against itself, and fphys next to it."""
    file = tmp_path / "found.json"
    code = main("ant.euler.mujoco_1_thread", worlds=(8,), quick=True, peers=True, json_path=file)
    printed, found = capsys.readouterr().out, json.loads(file.read_text())
    assert code == 0 and [r["accuracy"] for r in found["results"]] == [1.0, 1.0]
    assert "100.0% agree" in printed and "x ant.euler.fphys" in printed
    placed = found["fphys"]["leads"] | found["fphys"]["follows"]
    assert placed == {"ant.euler.mujoco_1_thread, 8": found["results"][1]["ratio"]}
    assert "fphys is" in printed and ("left out: ovphysx" in printed) == ("ovphysx" in found["absent"])
