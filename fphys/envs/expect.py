"""What the functions of an environment return, and its options: checked when JAX traces."""

from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from ..model.arguments import whole_number
from ..rigid.last import LastSolve
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
    env._expect_options()


def expect_number(env: Any, name: str, low: float = 0.0, high: float = np.inf, positive: bool = False) -> None:
    """Refuse an option that is no number between two ends, or not larger than 0.

    Raises:
        ValueError: the message names the option.
    """
    value = getattr(env, name)
    fine = isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value)
    if not fine or not low <= value <= high or (positive and not value > 0):
        least = ", and positive" if positive else f" of at least {low:g}" if np.isfinite(low) else ""
        most = f" and at most {high:.6g}" if np.isfinite(high) else ""
        raise ValueError(f"{type(env).__name__}: {name} is {value!r}, must be a finite number{least}{most}")


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


def expected_action(env: Any, action: Any, history: Any) -> jax.Array:
    """An action that fits those that are still to act, (world, delay, ...); lists and NumPy's arrays are cast.

    Raises:
        ValueError: another shape. TypeError: another type; the message gives both shapes and types.
    """
    shape, real = history.shape[:1] + history.shape[2:], history.dtype
    given = action if isinstance(action, jax.Array | np.ndarray) else jnp.asarray(action)
    loose = not isinstance(action, jax.Array) and jnp.issubdtype(jnp.result_type(given), jnp.floating)
    same = np.shape(given) == shape
    if same and (loose or given.dtype == real):
        return jnp.asarray(given, real)
    where, found = function_name(env, "step"), f"{np.shape(given)} and is {given.dtype}"
    raise (TypeError if same else ValueError)(f"{where}: action has shape {found}, must be {shape}, {real}")


def expected_matter(env: Any, matter: Any, worlds: int) -> tuple[Any, ...]:
    """The states of media, each with arrays of as many worlds.

    Raises:
        TypeError: the message says what it is, and what it must be.
    """
    where = function_name(env, "matter")
    if not isinstance(matter, tuple) or hasattr(matter, "_fields"):
        raise TypeError(f"{where} returned {_named(matter)}, must return a tuple of states, one for each medium")
    for i, medium in enumerate(matter):
        if not hasattr(medium, "status"):
            raise TypeError(
                f"{where}: the state of medium {i} is {_named(medium)}, without the fault bits `status` of a world: "
                "give what a solver's init returns"
            )
        counts = {np.shape(x)[:1] for x in jax.tree.leaves(medium)}
        if counts != {(worlds,)}:
            raise TypeError(
                f"{where}: the arrays of medium {i} begin with {sorted(counts)}, must begin with ({worlds},): one row "
                "for each world"
            )
    return matter


def expected_advance(env: Any, found: Any, before: tuple[Any, tuple[Any, ...]]) -> tuple[Any, Any, LastSolve]:
    """The next states, of the kinds and shapes that they had ``before``, and the step's last solve.

    Raises:
        TypeError: the message says what it is, and what it must be.
    """
    where = function_name(env, "advance")
    if not isinstance(found, tuple) or len(found) != 3 or not isinstance(found[2], LastSolve):
        raise TypeError(
            f"{where} returned {_named(found)}, must return the bodies' state, the tuple of the matter's states, and "
            "the step's last solve, fphys.rigid.last.unsolved(physics) if it is not known"
        )
    for name, old, new in zip(("bodies' state", "matter"), before, found):
        if _layout(new) != _layout(old):
            raise TypeError(f"{where}: the {name} must keep its classes, shapes and types: {_difference(old, new)}")
    return found


def expect_points(env: Any, state: Any) -> None:
    """Refuse what is not a dictionary of particles, (world, n, 3).

    Raises:
        TypeError: the message says what it is, and what it must be.
    """
    where, found = function_name(env, "points"), jax.eval_shape(env.points, state)
    if not isinstance(found, dict):
        raise TypeError(f'{where} returned {_named(found)}, must return a dictionary by name, such as {{"water": x}}')
    for name, x in found.items():
        expect_array(where, f"{name!r}", x, (len(state.length), None, 3), jnp.floating)


def _layout(tree: Any) -> Any:
    """Classes, shapes and types of a pytree."""
    return jax.tree.structure(tree), [(np.shape(x), jnp.result_type(x)) for x in jax.tree.leaves(tree)]


def _difference(old: Any, new: Any) -> str:
    """How two pytrees of other layouts differ, in words."""
    if jax.tree.structure(old) != jax.tree.structure(new):
        return f"it is {_named(new)} with other static fields or parts than {_named(old)} before"
    pairs = zip(jax.tree_util.tree_leaves_with_path(new), jax.tree.leaves(old))
    path, x, y = next((path, x, y) for (path, x), y in pairs if _layout(x) != _layout(y))
    was, now = (f"shape {np.shape(a)} and type {jnp.result_type(a)}" for a in (y, x))
    return f"{jax.tree_util.keystr(path)} has {now}, had {was}"


def _named(value: Any) -> str:
    """What a value is, in words."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(_named, value))})"
    return "None" if value is None else f"a {type(value).__name__}"


def expect_observation(env: Any, x: Any, worlds: int) -> None:
    """Refuse what is not one array with one row for each world.

    Raises:
        TypeError: the message says what it is, and what it must be.
    """
    where = function_name(env, "observation")
    if not jax.tree_util.all_leaves([x]):
        raise TypeError(
            f"{where}: the observation is {_named(x)}, must be one array, ({worlds}, n), for networks take one row of "
            "numbers: join its parts, jnp.concatenate([position, velocity], -1)"
        )
    expect_array(where, "the observation", x, (worlds, None), jnp.floating)


def expect_terminated(env: Any, x: Any, worlds: int) -> None:
    """Refuse what is not one bool for each world."""
    expect_array(function_name(env, "terminated"), "its result", x, (worlds,), jnp.bool_)


def function_name(env: Any, function: str) -> str:
    return f"{type(env).__name__}.{function}"
