"""Throughput on many devices, predicted from measured pieces.

An update takes the time of a device's own work, of the slowest device in each round between two messages, and of the
messages. All worlds belong to a device, so the first does not grow with the devices; the second grows as the largest of
many random numbers does, and the third as the latency of a path through all of them.
"""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Link:
    """What a message takes: ``latency + bytes / bandwidth``, from one device to another."""

    latency: float
    """[s]"""
    bandwidth: float
    """Of a device, in one direction [B/s]."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes of several devices."""

    inside: Link
    """Between devices of a node."""
    between: Link
    """Between nodes."""
    per_node: int = 8
    """Devices of a node."""


@dataclasses.dataclass(frozen=True)
class Update:
    """What one device does in an update."""

    steps: int
    """Environment steps."""
    seconds: float
    """Time of its own work, without any message."""
    jitter: float = 0.0
    """Standard deviation of this time from update to update and from device to device, relative to it."""
    reduced: tuple[tuple[int, int], ...] = ()
    """Its all-reduces: size in bytes, and how many of that size."""
    gathered: tuple[tuple[int, int], ...] = ()
    """Its all-gathers: bytes that each device gives, and how many."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """Seconds of an update."""

    own: float
    """Work of a device."""
    wait: float
    """For the slowest."""
    messages: float

    @property
    def total(self) -> float:
        """Sum of all parts [s]."""
        return self.own + self.wait + self.messages


def predict(update: Update, cluster: Cluster, devices: int) -> Parts:
    """The time of an update on so many devices, each with its own worlds.

    Raises:
        ValueError: there is no device.
    """
    if devices < 1:
        raise ValueError(f"devices is {devices}, must be at least 1")
    sent = sum(count * reduce_seconds(size, cluster, devices) for size, count in update.reduced)
    sent += sum(count * gather_seconds(size, cluster, devices) for size, count in update.gathered)
    rounds = max(1, sum(count for _, count in (*update.reduced, *update.gathered)))
    # The work between two messages has 1/rounds of the variance, so the waits add up to sqrt(rounds) times one.
    wait = update.seconds * update.jitter * math.sqrt(rounds) * slowest(devices)
    return Parts(update.seconds, wait, sent)


def throughput(update: Update, cluster: Cluster, devices: int) -> float:
    """Environment steps a second of all devices."""
    return devices * update.steps / predict(update, cluster, devices).total


def efficiency(update: Update, cluster: Cluster, devices: int) -> float:
    """Throughput relative to that many times one device's: weak scaling."""
    return predict(update, cluster, 1).total / predict(update, cluster, devices).total


def reduce_seconds(size: float, cluster: Cluster, devices: int) -> float:
    """An all-reduce of ``size`` bytes: scattered in each node, reduced between nodes, gathered in each node.

    Rings take 2 (n - 1) latencies and 2 (n - 1) / n of the bytes (Patarasu & Yuan 2009), double binary trees
    2 log2(n) latencies and twice the bytes (Sanders, Speck & Traeff 2009). The faster one counts, as in NCCL.
    """
    inside = min(devices, cluster.per_node)
    return _reduce(size, cluster.inside, inside) + _reduce(size / inside, cluster.between, -(-devices // inside))


def _reduce(size: float, link: Link, n: int) -> float:
    if n == 1:
        return 0.0
    ring = 2 * (n - 1) * link.latency + 2 * (n - 1) / n * size / link.bandwidth
    tree = 2 * math.ceil(math.log2(n)) * link.latency + 2 * size / link.bandwidth
    return min(ring, tree)


def gather_seconds(size: float, cluster: Cluster, devices: int) -> float:
    """An all-gather: each device gives ``size`` bytes and gets those of all, so that bytes grow with the devices.

    Recursive doubling takes log2(n) latencies (Thakur, Rabenseifner & Gropp 2005). All bytes but the node's own come
    over the slower link.
    """
    inside = min(devices, cluster.per_node)
    nodes = -(-devices // inside)
    steps = lambda n: math.ceil(math.log2(n))  # noqa: E731
    own = steps(inside) * cluster.inside.latency + (inside - 1) * size / cluster.inside.bandwidth
    others = steps(nodes) * cluster.between.latency + (nodes - 1) * inside * size / cluster.between.bandwidth
    return own + others


def slowest(count: int) -> float:
    """The mean of the largest of ``count`` standard normal numbers: 0 of one, 0.56 of two, 3.85 of ten thousand."""
    x = np.linspace(-9, 9, 4001)
    below = np.array([0.5 * math.erfc(-t / math.sqrt(2)) for t in x]) ** count
    return float(((x[1:] + x[:-1]) / 2 * np.diff(below)).sum())
