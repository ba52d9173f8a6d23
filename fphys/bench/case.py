"""The definition of a benchmark case."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Workload:
    """Something to time: a pure function, its arguments, and a check of its result.

    Arguments are passed instead of closed over, so that XLA cannot fold them into the program, and
    counts them in the memory that it reports.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    validate: Callable[[Any], float | None]  # raises if the result is wrong; returns its accuracy, if there is one
    jit: bool = True  # False: not a JAX function; called directly, and finished when it returns
    sent: tuple[tuple[str, int, int], ...] | None = None  # between processes in a call: kind, bytes, how many


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the benchmark, for each number of worlds."""

    name: str  # dotted, with the stage last: "rigid.ant.step"
    setup: Callable[[int], Workload]  # takes the number of worlds
    steps: int = 1  # units of work per call and world
    unit: str = "steps"
    worlds: tuple[int, ...] = (1, 64, 1024, 8192)  # empty if the case does not depend on the number of worlds
    relative_to: str | None = None  # name of the case to divide this one's time by
    target: float | None = None  # the largest ratio that the project accepts
    tags: tuple[str, ...] = ()
