"""The scaling model: its pieces against formulas and simulations, and the interval of checkpoints against Daly's."""

import math

import numpy as np
import pytest

from fphys.distributed.failures import Failures, choose, daly, expected, simulate, young
from fphys.distributed.scaling import (
    Cluster,
    Link,
    Update,
    efficiency,
    gather_seconds,
    predict,
    reduce_seconds,
    slowest,
    throughput,
)

FAST, SLOW = Link(1e-6, 1e11), Link(1e-5, 1e9)
CLUSTER = Cluster(FAST, SLOW, 8)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 10_000])
def test_the_slowest_of_many(count: int):
    """Exactly 0, 1/sqrt(pi) and 3/(2 sqrt(pi)); else a simulation, to four of its standard errors."""
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi)}
    if count in known:
        assert slowest(count) == pytest.approx(known[count], abs=1e-5)
    else:
        drawn = np.random.default_rng(0).standard_normal((400, count)).max(1)
        assert slowest(count) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / 20)


def test_messages_take_latency_or_bandwidth():
    assert reduce_seconds(1e6, CLUSTER, 1) == gather_seconds(1e6, CLUSTER, 1) == 0
    # In a node: a large one by the ring, 2 (n - 1) / n bytes; a small one by the tree, 2 log2(n) latencies.
    assert reduce_seconds(1e10, CLUSTER, 8) == pytest.approx(2 * 7 / 8 * 1e10 / 1e11, rel=1e-3)
    assert reduce_seconds(1, CLUSTER, 8) == pytest.approx(2 * 3 * 1e-6, rel=1e-3)
    # Between nodes, each device sends an eighth.
    more = reduce_seconds(1e10, CLUSTER, 16) - reduce_seconds(1e10, CLUSTER, 8)
    assert more == pytest.approx(1e10 / 8 / 1e9, rel=1e-3)
    assert gather_seconds(1e6, CLUSTER, 80) == pytest.approx(72e6 / 1e9, rel=0.02)


def ring(n: int, size: int, link: Link) -> float:
    """An all-reduce by a ring, acted out: when each device has its whole sum."""
    clock = np.zeros(n)
    for _ in range(2 * (n - 1)):
        clock = np.maximum(clock, np.roll(clock, 1)) + link.latency + size / n / link.bandwidth
    return clock.max()


def test_a_ring_takes_what_it_takes_step_by_step():
    assert reduce_seconds(1e9, Cluster(SLOW, SLOW, 8), 8) == pytest.approx(ring(8, 10**9, SLOW))


def test_an_update_waits_for_the_slowest_in_each_round():
    """Acted out: 16 devices, 25 rounds of random length, and a wait after each; to 2 %."""
    update = Update(100, 1.0, 0.05, ((4, 25),))
    lengths = np.random.default_rng(0).normal(1 / 25, 0.05 / 5, (400, 25, 16))  # their sum has a deviation of 0.05
    parts = predict(update, CLUSTER, 16)
    assert parts.own + parts.wait == pytest.approx(lengths.max(2).sum(1).mean(), rel=0.02)
    assert parts.wait > 0.3 and predict(update, CLUSTER, 1).total == pytest.approx(1.0, abs=1e-4)
    assert throughput(update, CLUSTER, 16) == pytest.approx(16 * 100 * efficiency(update, CLUSTER, 16), rel=1e-4)
    with pytest.raises(ValueError, match="devices is 0"):
        predict(update, CLUSTER, 0)


FAILING = Failures(3 * 3600.0, 60.0, 300.0)


@pytest.mark.parametrize("interval", [300.0, 1100.0, 5000.0])
def test_simulated_failures_cost_what_is_expected(interval: float):
    """Within 1 %: the simulation has some 10,000 failures."""
    assert simulate(FAILING, interval) == pytest.approx(expected(FAILING, interval), rel=0.01)


@pytest.mark.parametrize(("mean", "write"), [(10_800.0, 60.0), (1_800.0, 120.0)])
def test_the_interval_that_is_chosen_is_dalys_where_failures_have_no_memory(mean: float, write: float):
    failing = Failures(mean, write, 300.0)
    assert choose(failing) == pytest.approx(daly(failing), rel=0.2)  # the optimum is flat: 20 % cost less than 0.3 %
    best = expected(failing, daly(failing))
    assert expected(failing, choose(failing)) > 0.997 * best
    steps = daly(failing) * np.geomspace(0.5, 2, 101)
    assert max(expected(failing, x) for x in steps) < best * (1 + 2e-4)
    assert young(failing) == pytest.approx(math.sqrt(2 * mean * write))


def test_failures_that_follow_each_other_cost_less_between():
    """Weibull's 0.7, with the same mean: more of them in restarts, so that more time is left; but it is simulated."""
    bursts = Failures(FAILING.mean, FAILING.write, FAILING.restart, 0.7)
    assert simulate(bursts, 4400.0) > 1.02 * simulate(FAILING, 4400.0)


def test_failures_that_come_before_anything_is_written_are_refused(monkeypatch: pytest.MonkeyPatch):
    """Gaps of e^10 means do not come. Old or new, a simulation ends."""
    monkeypatch.setattr("fphys.distributed.failures._MOST", 50)
    with pytest.raises(ValueError, match="no checkpoint was written in 50 failures: writing takes 5000 s"):
        choose(Failures(100.0, 5000.0, 0.0))


@pytest.mark.parametrize("wrong", [{"mean": 0.0}, {"write": -1.0}, {"restart": -1.0}, {"shape": 0.0}])
def test_impossible_failures_are_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
        Failures(**({"mean": 1.0, "write": 1.0, "restart": 1.0} | wrong))
    with pytest.raises(ValueError, match="interval is 0"):
        simulate(FAILING, 0)
