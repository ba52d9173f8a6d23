"""The experiment predicts what the model predicts, and finds how often to save."""

import numpy as np
import pytest

from fphys.distributed import failures
from fphys.distributed import scaling as model
from fphys.experiments import scaling
from fphys.experiments.scaling import Config


def test_ten_thousand_devices(play):
    metrics, history = play(scaling, Config(), video=False)
    assert metrics["success"]
    messages = ((Config.reduce_bytes, Config.reductions),), ((Config.gather_bytes, 1),)
    update = model.Update(8192, Config.seconds, Config.jitter, *messages)
    cluster = model.Cluster(model.Link(3e-6, 450e9), model.Link(10e-6, 50e9))
    wanted = model.efficiency(update, cluster, 10_000)
    assert metrics["efficiency"] == pytest.approx(wanted)
    assert metrics["steps_per_second"] == pytest.approx(
        model.throughput(update, cluster, 10_000) * history["history/kept"][-1]
    )
    failing = failures.Failures(3600 * 6300 / 1250, 30.0, 300.0, 0.7)
    assert metrics["hours_between_failures"] == pytest.approx(failing.mean / 3600)
    assert 0.5 < metrics["interval_seconds"] / failures.daly(failing) < 2
    assert (np.diff(history["history/efficiency"]) <= 1e-12).all() and (np.diff(history["history/kept"]) < 0.01).all()


def test_impossible_pieces_are_refused():
    with pytest.raises(ValueError, match="--seconds is 0"):
        Config(seconds=0.0)


def result(case: str, worlds: int, median: float, rate: float, **more: object) -> dict[str, object]:
    row = {"case": f"distributed.{case}", "worlds": worlds, "valid": True, "median_s": median, "steps_per_s": rate}
    return row | {"q1": 0.99 * median, "q3": 1.01 * median, "calls_per_sample": 4} | more


def test_the_pieces_of_a_benchmark_are_taken():
    """One with a latency of 50 us and 1 GB/s, on two cores."""
    sent = [["all-gather", 8_000_000, 1], ["all-reduce", 40_000, 32]]
    large = 2 * 50e-6 + 4e6 / 1e9
    rows = [
        result("ppo.one", 256, 2.0, 8192 / 2),
        result("ppo.two", 256, 2.2, 2 * 8192 / 2.2),
        result("ppo.four", 256, 4.4, 4 * 8192 / 4.4),
        result("ppo.messages", 256, 0.01, 256 / 0.01, sent=sent),
        result("reduce", 64, 0.002, 4 * 64 / 100e-6),
        result("reduce", 1_000_000, 20 * large, 4e6 / large),
    ]
    report = {"device": {"cores": 2}, "results": rows}
    update, found = scaling.measured(report)
    assert (update.steps, update.seconds, update.reduced) == (8192, 2.0, ((40_000, 32),))
    assert update.gathered == ((4_000_000, 1),) and update.jitter == pytest.approx(0.02 / 1.349 * 2)
    assert found["latency"] == pytest.approx(50e-6) and found["bandwidth"] == pytest.approx(1e9)
    wait = 2.0 * update.jitter * 33**0.5 * 0.5642
    messages = 32 * (2 * 50e-6 + 40_000 / 1e9) + 50e-6 + 4e6 / 1e9
    assert found["predicted_2"] == pytest.approx(2.0 + wait + messages, rel=1e-4)
    assert found["predicted_4"] > 4.0 and (found["measured_2"], found["measured_4"]) == (2.2, 4.4)
    with pytest.raises(ValueError, match=r"no valid distributed\.ppo\.messages"):
        scaling.measured({**report, "results": [row for row in rows if "messages" not in row["case"]]})
