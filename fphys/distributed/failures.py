"""How often to save, on nodes that fail.

A checkpoint costs its writing, a failure costs what was done since the last one and the restart. Failures of a group
are those of any of its nodes: with N of them, one comes N times as often.
"""

import dataclasses
import math

import numpy as np

_MOST = 4000
"""Failures of a simulated run."""


@dataclasses.dataclass(frozen=True)
class Failures:
    """A group of nodes, as its failures see it. Times are in seconds."""

    mean: float
    """Mean time between failures of the group: of a node, divided by their number."""
    write: float
    """Time to write a checkpoint, in which nothing else goes on."""
    restart: float
    """Time from a failure to the first new update."""
    shape: float = 1.0
    """Of Weibull's distribution of the time between failures. 1 is without memory; at 0.7 to 0.8, as large machines
    have it (Schroeder & Gibson 2010), one failure soon follows another."""

    def __post_init__(self) -> None:
        for name in ("mean", "write", "shape"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, must be positive")
        if self.restart < 0:
            raise ValueError(f"restart is {self.restart}, must be 0 or more")


def young(failures: Failures) -> float:
    """The best interval to first order, sqrt(2 write mean) (Young 1974) [s]."""
    return math.sqrt(2 * failures.write * failures.mean)


def daly(failures: Failures) -> float:
    """The best interval to higher order (Daly 2006, equation 37) [s]; ``mean`` if writing takes twice that or more."""
    half = failures.write / (2 * failures.mean)
    if half >= 1:
        return failures.mean
    return young(failures) * (1 + math.sqrt(half) / 3 + half / 9) - failures.write


def expected(failures: Failures, interval: float) -> float:
    """The share of time that is work kept, for failures without memory (Daly 2006, equation 20).

    A segment of the interval and its checkpoint takes mean e^(restart / mean) (e^((interval + write) / mean) - 1).
    """
    mean = failures.mean
    return interval / (mean * math.exp(failures.restart / mean) * math.expm1((interval + failures.write) / mean))


def simulate(failures: Failures, interval: float, *, segments: int = 2000, trials: int = 64, seed: int = 0) -> float:
    """The share of time that is work kept, measured: runs of so many segments, with failures that are drawn.

    A segment counts once its checkpoint is written. The same seed draws the same failures for every interval. A run
    ends after 4,000 failures, also if few or no segments are done by then.

    Raises:
        ValueError: the interval is not positive.
    """
    if not interval > 0:
        raise ValueError(f"interval is {interval}, must be positive")
    draws, scale = np.random.default_rng(seed), failures.mean / math.gamma(1 + 1 / failures.shape)
    remaining, clock = np.full(trials, segments), np.zeros(trials)
    before = 0.0  # the first start is no restart
    for _ in range(_MOST):
        if not (runs := remaining > 0).any():
            break
        gap = scale * draws.weibull(failures.shape, trials)
        done = np.clip((gap - before) // (interval + failures.write), 0, remaining).astype(int)
        ended = done == remaining
        clock += np.where(runs, np.where(ended, before + done * (interval + failures.write), gap), 0)
        remaining = np.where(runs, remaining - done, 0)
        before = failures.restart
    return float((segments - remaining).sum() * interval / clock.sum())


def choose(failures: Failures, *, length: float = 300.0, seed: int = 0) -> float:
    """The interval with the largest share of kept work in a simulation [s].

    Intervals from a quarter of Daly's to four times that are tried, on the same failures.

    Args:
        length: of the simulated runs, in mean times between failures.

    Raises:
        ValueError: failures come so soon that no checkpoint is ever written.
    """
    tried = daly(failures) * np.geomspace(0.25, 4, 41)
    count = lambda interval: max(1, round(length * failures.mean / interval))  # noqa: E731
    kept = [simulate(failures, interval, segments=count(interval), seed=seed) for interval in tried]
    if not any(kept):
        raise ValueError(
            f"no checkpoint was written in {_MOST} failures: writing takes {failures.write:g} s, a restart "
            f"{failures.restart:g} s, and failures come every {failures.mean:g} s; write faster, or take fewer nodes"
        )
    return float(tried[int(np.argmax(kept))])
