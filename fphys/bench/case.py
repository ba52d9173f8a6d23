"""What a benchmark case is."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Workload:
    """Something to time: a pure function, its arguments, and how to tell that its result is right.

    The arguments are passed rather than closed over, so that XLA can neither fold them into the
    program nor leave them out of the memory that it reports.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    validate: Callable[[Any], float | None]  # raises if the result is wrong, before anything is timed; its accuracy
    jit: bool = True  # False: not JAX's; called as it is, and done when it returns


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the benchmark, for each number of worlds."""

    name: str  # dotted, the stage's name last: "rigid.ant.step"
    setup: Callable[[int], Workload]  # from the number of worlds
    steps: int = 1  # units of work per call and world
    unit: str = "steps"
    worlds: tuple[int, ...] = (1, 64, 1024, 8192)  # empty: the case does not depend on it
    relative_to: str | None = None  # name of the case whose time this one's is divided by
    target: float | None = None  # the largest ratio that the project allows itself
    tags: tuple[str, ...] = ()
