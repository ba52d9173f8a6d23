"""The speed of a training on 1 to 10,000 devices is predicted, and how often it should save.

What one device does is given as options, or measured: `--bench FILE` takes it from what `fphys bench distributed
--json FILE` wrote, and compares what two and four processes took there with the prediction. Without it, no time is
measured: docs/scaling.md says where each default comes from. Failures are simulated.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from fphys.distributed import failures, scaling
from fphys.runs import Run

from . import expect_positive


@dataclasses.dataclass(frozen=True)
class Config:
    bench: Path | None = None
    """A file of `fphys bench distributed --json`, whose PPO replaces the next six options."""
    steps: int = 8192
    """Environment steps of a device in an update: 256 worlds, 32 steps each."""
    seconds: float = 1.0
    """Time of a device's own work in an update [s]; assumed."""
    jitter: float = 0.02
    """Standard deviation of that time, relative to it; assumed."""
    reduce_bytes: int = 44_364
    """Size of an all-reduce: that of a gradient of PPO for HalfCheetah-v5."""
    reductions: int = 66
    """All-reduces of an update of PPO: 32 of gradients, the others of a few numbers."""
    gather_bytes: int = 884_736
    """What a device gives to all others in an update: in PPO, what its worlds saw."""
    per_node: int = 8
    """Devices of a node, as a DGX H100 has them."""
    latency_inside: float = 3e-6
    """Of a message in a node [s]; NCCL's model has 0.6e-6 to 4e-6 for NVLink."""
    bandwidth_inside: float = 450e9
    """Of a device in a node [B/s], as NVLink of an H100 in one direction."""
    latency: float = 10e-6
    """Of a message between nodes [s]; NCCL's model has 2.7e-6 to 14e-6 for networks."""
    bandwidth: float = 50e9
    """Of a device between nodes [B/s]: one adapter of 400 Gb/s each."""
    node_hours: float = 6300.0
    """Mean time between failures of a node [h]; 419 in 54 days on 2,048 nodes (Dubey et al. 2024) are 6,300."""
    write: float = 30.0
    """Time to write a checkpoint [s]; assumed."""
    restart: float = 300.0
    """Time from a failure to the next update [s]; assumed."""
    shape: float = 0.7
    """Of Weibull's distribution of the time between failures (Schroeder & Gibson 2010); 1 has no memory."""
    most: int = 10_000
    """The largest number of devices."""
    seed: int = 0
    """Of the failures."""

    def __post_init__(self) -> None:
        expect_positive(self, "jitter", "reduce_bytes", "reductions", "gather_bytes", "restart")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Predict, simulate, and compare the interval found with Daly's."""
    reduced, gathered = ((config.reduce_bytes, config.reductions),), ((config.gather_bytes, 1),)
    gathered = gathered if config.gather_bytes else ()
    update, compared = scaling.Update(config.steps, config.seconds, config.jitter, reduced, gathered), {}
    if config.bench:
        update, compared = measured(json.loads(config.bench.read_text(encoding="utf-8")))
    inside = scaling.Link(config.latency_inside, config.bandwidth_inside)
    cluster = scaling.Cluster(inside, scaling.Link(config.latency, config.bandwidth), config.per_node)
    counts = np.unique(np.geomspace(1, config.most, 41).round().astype(int))
    rows = []
    for count in run.progress(counts):
        nodes = -(-count // config.per_node)
        failing = failures.Failures(3600 * config.node_hours / nodes, config.write, config.restart, config.shape)
        kept = failures.simulate(failing, failures.daly(failing), segments=500, seed=config.seed)
        rows.append((scaling.efficiency(update, cluster, int(count)), kept))
        run.log(int(count), efficiency=rows[-1][0], kept=kept, with_failures=rows[-1][0] * kept)
    efficiency, kept = np.array(rows).T
    chosen = failures.choose(failing, seed=config.seed)
    share = [failures.simulate(failing, interval, seed=config.seed) for interval in (chosen, failures.daly(failing))]
    parts = scaling.predict(update, cluster, config.most)
    run.plot("scaling", lambda axes: draw(axes, counts, efficiency, kept))
    return {
        "success": share[0] >= 0.99 * share[1],
        "devices": config.most,
        "steps_per_second": float(scaling.throughput(update, cluster, config.most) * kept[-1]),
        "efficiency": float(efficiency[-1]),
        "own_seconds": parts.own,
        "wait_seconds": parts.wait,
        "message_seconds": parts.messages,
        "hours_between_failures": failing.mean / 3600,
        "interval_seconds": chosen,
        "daly_seconds": failures.daly(failing),
        "kept": share[0],
    } | compared


def measured(report: dict[str, Any]) -> tuple[scaling.Update, dict[str, float]]:
    """PPO's update as two processes measured it; and what two and four took beside what the model says, in seconds.

    Raises:
        ValueError: the file lacks a case.
    """
    rows = {row["case"]: row for row in sorted(report["results"], key=lambda row: row["worlds"]) if row["valid"]}
    small = {row["case"]: row for row in sorted(report["results"], key=lambda row: -row["worlds"]) if row["valid"]}
    wanted = ("distributed.ppo.one", "distributed.ppo.two", "distributed.ppo.messages", "distributed.reduce")
    if missing := [name for name in wanted if name not in rows]:
        raise ValueError(f"the benchmark has no valid {', '.join(missing)}: fphys bench distributed --json FILE")
    one, two, sent, large = (rows[name] for name in wanted)
    each = lambda row: 4 * row["worlds"] / row["steps_per_s"]  # noqa: E731
    latency = each(small["distributed.reduce"]) / 2  # of two processes, an all-reduce takes two
    bandwidth = 4 * large["worlds"] / max(each(large) - 2 * latency, 1e-9)
    spread = (one["q3"] - one["q1"]) / 1.349 / one["median_s"] * one["calls_per_sample"] ** 0.5
    kinds = {
        kind: tuple((size, n) for k, size, n in sent["sent"] if k == kind) for kind in ("all-reduce", "all-gather")
    }
    gathered = tuple((size // 2, count) for size, count in kinds["all-gather"])  # what each of the two gives
    steps = round(one["steps_per_s"] * one["median_s"])
    update = scaling.Update(steps, one["median_s"], spread, kinds["all-reduce"], gathered)
    link = scaling.Link(latency, bandwidth)
    found = {"latency": latency, "bandwidth": bandwidth, "jitter": spread}
    for count, row in ((2, two), (4, rows.get("distributed.ppo.four"))):
        if row:
            shared = -(-count // report["device"]["cores"])  # processes of a core
            own = dataclasses.replace(update, seconds=shared * update.seconds)
            found |= {f"measured_{count}": row["median_s"]}
            found |= {f"predicted_{count}": scaling.predict(own, scaling.Cluster(link, link), count).total}
    return update, found


def draw(axes: Any, counts: np.ndarray, efficiency: np.ndarray, kept: np.ndarray) -> None:
    axes.plot(counts, efficiency, linewidth=1.5, label="messages and stragglers")
    axes.plot(counts, efficiency * kept, linewidth=1.5, label="with failures")
    axes.set(xscale="log", xlabel="devices [-]", ylabel="rate of a device, relative to one alone", ylim=(0, 1.05))
