"""Numbers of a configuration with which no agent can learn."""

import math
from collections.abc import Callable
from typing import Any

import jax

from ..distributed import WORLD
from ..model.arguments import whole_number

_COUNTS = (
    *("steps", "horizon", "epochs", "minibatches", "critic_epochs", "critic_minibatches", "critics"),
    *("batch_size", "capacity"),
)
_WHOLE = (*_COUNTS, "warmup", "levels")
_RATES = ("learning_rate", "critic_rate", "temperature_rate", "temperature", "value_weight", "warmup")
_SHARES = ("discount", "lam", "follow", "tau", "explore", "explore_until", "critic_rate_end")
_BOUNDS = ("clip", "max_grad_norm", "limit")
_OTHERS = ("entropy_weight", "wanted_entropy", "log_std", "least_log_std")
_RANGES: dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]] = {
    "at least 1": (_COUNTS, lambda x: x >= 1),
    "finite and not negative": (_RATES, lambda x: math.isfinite(x) and x >= 0),
    "from 0 to 1": (_SHARES, lambda x: 0 <= x <= 1),
    "positive": (_BOUNDS, lambda x: x > 0),
    "finite": (_OTHERS, math.isfinite),
}


def expect_numbers(config: Any) -> None:
    """Refuse numbers out of range, of those that the configuration has. A schedule is not looked into.

    Raises:
        ValueError: the message names the number. TypeError: a number is not whole that must be.
    """
    for name in _WHOLE:
        if hasattr(config, name):
            whole_number(name, getattr(config, name))
    for wanted, (names, fits) in _RANGES.items():
        for name in names:
            value = getattr(config, name, None)
            if isinstance(value, (int, float)) and not fits(value):
                raise ValueError(f"{name} is {value}, must be {wanted}")
    widths = config.hidden
    if not isinstance(widths, tuple | list) or any(whole_number("a width in hidden", w) < 1 for w in widths):
        raise ValueError(f"hidden is {widths!r}, must be a tuple of widths of at least 1, such as (64, 64)")


def expect_minibatches(name: str, minibatches: int, worlds: int, horizon: int, least: int = 1) -> None:
    """Refuse minibatches that are too small, or do not divide evenly among the devices of the mesh.

    Args:
        name: of the setting. minibatches: its value. worlds, horizon: whose product is split.
        least: examples that a minibatch needs.

    Raises:
        ValueError: the message says which number of minibatches would do.
    """
    seen = worlds * horizon
    devices = jax.sharding.get_abstract_mesh().shape.get(WORLD, 1)

    def fits(number: int) -> bool:
        return not seen % number and seen // number >= least and not seen // number % devices

    if fits(minibatches):
        return
    fix = next((f"take {name} = {n}, or more" for n in range(minibatches, 0, -1) if fits(n)), "take more")
    fix += f" worlds or a longer horizon{f', and a multiple of {devices} worlds' if devices > 1 else ''}"
    what = f"an iteration sees {worlds} worlds x {horizon} steps = {seen}, which"
    if seen % minibatches:
        raise ValueError(f"{what} does not split into {minibatches} minibatches: {fix}")
    raise ValueError(
        f"{what} splits into {minibatches} minibatches of {seen // minibatches}: they must have at least {least}"
        f"{f' and divide evenly among {devices} devices' if devices > 1 else ''}: {fix}"
    )


def expect_steps(steps: int | None) -> int | None:
    """The number of steps, if it is given.

    Raises:
        ValueError: it is below 1. TypeError: it is not a whole number.
    """
    if steps is not None and whole_number("steps", steps) < 1:
        raise ValueError(f"steps is {steps}, must be at least 1")
    return steps
