"""What the functions of an environment return, and its options: checked when JAX traces."""

from typing import Any, get_args

import jax.numpy as jnp
import numpy as np

from ..model.arguments import whole_number
from .drive import Mode
from .randomize import OTHERS, ranges

GAINS = {"position": "kp", "velocity": "kd"}


def expect_options(env: Any) -> None:
    """Refuse options that cannot work.

    Raises:
        ValueError: a count, an action mode, a gain or a range. ModelError: the model has no leaf of a range's name.
    """
    for count in ("num_envs", "frame_skip", "max_episode_steps"):
        value = getattr(env, count)
        if value is not None and whole_number(count, value) < 1:
            raise ValueError(f"{count} is {value}, must be at least 1")
    mode = env.action_mode
    if mode not in get_args(Mode):
        raise ValueError(f'action_mode is {mode!r}, must be "ctrl", "position" or "velocity"')
    if (gain := GAINS.get(mode)) and not getattr(env, gain) > 0:
        raise ValueError(f"action_mode={mode!r} needs a positive gain {gain}: without it nothing moves")
    if not isinstance(env.randomize, tuple):
        raise ValueError(
            f"randomize is a {type(env.randomize).__name__}; give a class randomize=fphys.envs.ranges(...): "
            "only fphys.envs.make takes a dictionary or True"
        )
    for path, *_ in ranges(env.randomize):
        if path not in OTHERS:
            env.model._leaf(path)


def expect_reward(env: Any, found: Any, worlds: int) -> None:
    """Refuse what is not a reward of every world and a dictionary of terms.

    Raises:
        TypeError: the message says what it is, and what it must be.
    """
    where = function_name(env, "reward")
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], dict):
        raise TypeError(f"{where} must return the reward and a dictionary of its terms, which may be empty: (r, {{}})")
    expect_array(where, "the reward", found[0], (worlds,), jnp.floating)
    for name, term in found[1].items():
        if np.shape(term)[:1] != (worlds,):
            raise TypeError(f"{where}: the term {name!r} has shape {np.shape(term)}, must begin with ({worlds},)")


def expect_array(where: str, what: str, x: Any, shape: tuple[int | None, ...], kind: Any) -> None:
    """Refuse another shape or type; None in the shape is any number.

    Raises:
        TypeError: the message says which.
    """
    same = len(np.shape(x)) == len(shape) and all(m in (None, n) for n, m in zip(np.shape(x), shape))
    if not same or not jnp.issubdtype(jnp.result_type(x), kind):
        wanted = ", ".join("n" if n is None else str(n) for n in shape) + "," * (len(shape) == 1)
        name = "bool" if kind is jnp.bool_ else "of floating point"
        raise TypeError(
            f"{where}: {what} has shape {np.shape(x)} and is {jnp.result_type(x)}; it must have shape ({wanted}), "
            f"one for each world, and be {name}"
        )


def expect_late(env: Any, action: Any, history: Any) -> None:
    """Refuse an action that does not fit those that are still to act, (world, delay, ...).

    Raises:
        ValueError: the message gives both shapes.
    """
    wanted = history.shape[:1] + history.shape[2:]
    if history.shape[1] and np.shape(action) != wanted:
        raise ValueError(f"{type(env).__name__}.step: action has shape {np.shape(action)}, must be {wanted}")


def expect_observation(env: Any, x: Any, worlds: int) -> None:
    """Refuse what is not one row for each world."""
    expect_array(function_name(env, "observation"), "the observation", x, (worlds, None), jnp.floating)


def expect_terminated(env: Any, x: Any, worlds: int) -> None:
    """Refuse what is not one bool for each world."""
    expect_array(function_name(env, "terminated"), "its result", x, (worlds,), jnp.bool_)


def function_name(env: Any, function: str) -> str:
    return f"{type(env).__name__}.{function}"
