"""Several processes, and Ray, as benchmark cases: weak scaling, what messages cost, and what an actor costs.

The number of worlds is that of each process, which has a core of its own, if there are as many. Two processes do what
one would do with all their worlds. A case "messages" sends what an update sends, and does nothing else.
"""

import functools
import importlib.util
from typing import Any

import numpy as np

from ..distributed import on_host
from ..distributed.actors import Actors
from . import group
from .case import Case, Workload
from .group import Answer, Group, Request

EFFICIENCY = {"worlds": 0.95, "ppo": 0.9, "shac": 0.9}
"""What the project accepts of two processes: steps a second, relative to twice those of one."""
SIZES = {"worlds": (1024,), "ppo": (256,), "shac": (256,)}
OVERHEAD = 1.05
"""What the project accepts of an actor of Ray: time of a rollout, relative to that in a process of its own."""


def distributed_cases() -> list[Case]:
    """Two processes relative to one, four as well, their messages; and an actor of Ray, if it is installed."""
    found = []
    for name, bar in EFFICIENCY.items():
        one, steps = f"distributed.{name}.one", group.HORIZON
        some: dict[str, Any] = {"worlds": SIZES[name], "tags": ("distributed",)}
        found.append(Case(one, functools.partial(together, name, 1), steps, **some))
        some["relative_to"] = one
        found.append(
            Case(f"distributed.{name}.two", functools.partial(together, name, 2), 2 * steps, target=1 / bar, **some)
        )
        found.append(Case(f"distributed.{name}.messages", functools.partial(messages, name), unit="worlds", **some))
        some["tags"] += ("large",)
        found.append(Case(f"distributed.{name}.four", functools.partial(together, name, 4), 4 * steps, **some))
    reduce, sizes = functools.partial(messages, "reduce"), (64, 1 << 20)
    found.append(Case("distributed.reduce", reduce, 4 * group.TIMES, "B", sizes, tags=("distributed",)))
    if importlib.util.find_spec("ray"):
        some = {"worlds": (1024,), "tags": ("distributed", "ray")}
        found.append(Case("distributed.rollout.process", rollout_in_process, group.HORIZON, **some))
        some |= {"relative_to": "distributed.rollout.process", "target": OVERHEAD}
        found.append(Case("distributed.rollout.actor", rollout_in_actor, group.HORIZON, **some))
    return found


@functools.cache
def processes(count: int, pinned: bool = True) -> Group:
    """The processes of all cases that take as many."""
    return Group(count, pinned)


def together(name: str, count: int, worlds: int) -> Workload:
    """A program in ``count`` processes; of one, the first of two, while the other sleeps."""
    run, request = processes(max(2, count)), Request(name, count * worlds, count)

    def validate(found: Answer) -> None:
        _same(found, processes(2)(Request(name, count * worlds)))

    return Workload(lambda: run(request), (), validate, jit=False)


def messages(name: str, worlds: int) -> Workload:
    """What two processes send in one call of a program, alone; of "reduce", so many numbers."""
    request = Request(f"{name} messages", 2 * worlds, 2)

    def validate(found: Answer) -> None:
        if set(found.scalars.values()) != {1.0}:
            raise ValueError("numbers that were sent have changed on the way")

    sent = () if name == "reduce" else processes(2)(Request(name, 2 * worlds, 2)).sent.items()
    listed = tuple((message.kind, message.bytes, count) for message, count in sent)
    return Workload(lambda: processes(2)(request), (), validate, jit=False, sent=listed or None)


def rollout_in_process(worlds: int) -> Workload:
    """A rollout in a process of its own, on one thread, without Ray."""
    request = Request("rollout", worlds)
    return Workload(lambda: processes(1, pinned=False)(request), (), lambda found: None, jit=False)


def rollout_in_actor(worlds: int) -> Workload:
    """The same in an actor of Ray, which gets states and weights, and returns what it saw."""
    work, (shared, part) = group.rollout(worlds)
    actors, shared, part = Actors(work, 1), on_host(shared), on_host(part)

    def validate(found: Any) -> None:
        reward = processes(1, pinned=False)(Request("rollout", worlds)).scalars["reward"]
        _same(Answer({"reward": float(np.mean(found[0][2].reward))}, {}), Answer({"reward": reward}, {}))

    return Workload(lambda: actors(shared, [part]), (), validate, jit=False)


def _same(found: Answer, wanted: Answer) -> None:
    """Raise unless the scalars agree, to what contacts and updates make of rounding in float32.

    PPO's moments are sums over devices, so their last digit differs, and with it every action. A cheetah's 160 steps
    amplify it: 1 % of the reward of 8 worlds was seen. Tests compare calmer worlds to 1e-6.
    """
    for name, value in wanted.scalars.items():
        if not np.isclose(found.scalars[name], value, rtol=2e-2, atol=1e-3, equal_nan=True):
            raise ValueError(f"{name} is {found.scalars[name]:g}, in one process {value:g}")
