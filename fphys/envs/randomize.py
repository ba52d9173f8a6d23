"""Domain randomisation: parameters drawn for every world and episode, without compiling anew.

Ranges are given by name. A path of the model, such as "body.mass", has the range of a factor: every element of that
leaf is multiplied by a number of its own. Four names are not of the model: "observation.noise", standard deviation
added to observations; "action.delay", steps by which actions are late, to the nearest; "push", a velocity [m/s] by
which bodies that are free are pushed sideways every second; "wind", a speed [m/s] of the air in a random horizontal
direction, which is added to ``opt.wind``.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ..model import Model
from ..model.structure import JointType

Array = jax.Array
Ranges = tuple[tuple[str, float, float], ...]
"""(name, low, high), in order."""

NOISE, DELAY, PUSH, WIND = "observation.noise", "action.delay", "push", "wind"
OTHERS = (NOISE, DELAY, PUSH, WIND)
POSITIVE = ("body.mass", "body.inertia", "opt.timestep")


def ranges(given: Mapping[str, tuple[float, float]] | Ranges) -> Ranges:
    """Checked ranges, hashable.

    Raises:
        ValueError: a range is not two finite numbers, or empty; one that is not of the model begins below zero, or one
            of masses, inertias or the time step does not begin above it.
    """
    items = given.items() if isinstance(given, Mapping) else [(name, ends) for name, *ends in given]
    found = tuple(sorted((name, *_ends(name, ends)) for name, ends in items))
    for name, low, high in found:
        if not low <= high:
            raise ValueError(f"randomize: the range of {name!r} is ({low}, {high}), the first must not be larger")
        if name in OTHERS and low < 0:
            raise ValueError(f"randomize: {name!r} is from {low} on, must not be negative")
        if name in POSITIVE and low <= 0:
            raise ValueError(f"randomize: a factor of {name!r} is from {low} on, must be positive")
        if name.rpartition(".")[2] in ("quat", "iquat"):
            raise ValueError(f"randomize: {name!r} are quaternions, which a factor would only make longer")
    return found


def _ends(name: str, ends: Any) -> tuple[float, float]:
    """Both ends of a range."""
    try:
        low, high = map(float, ends)
    except (TypeError, ValueError):
        raise ValueError(f"randomize: the range of {name!r} is {ends!r}, must be two numbers, (low, high)") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"randomize: the range of {name!r} is ({low}, {high}), both must be finite")
    return low, high


def draw(model: Model, given: Ranges, keys: Array, difficulty: Array) -> dict[str, Array]:
    """The parameters of one episode of each world.

    Args:
        keys: of the worlds, shape (world,).
        difficulty: shape (world,): at 0 nothing is varied, at 1 the whole range.

    Returns:
        The leaves of the model that differ from world to world, constants that follow from others included, by path;
        and the values of the other names. Shapes (world, ...).
    """
    if not given:
        return {}
    worlds, real = len(keys), model.qpos0.dtype
    if PUSH in [name for name, *_ in given] and not _free_dofs(model):
        raise ValueError('randomize: "push" is for bodies that are free, and the model has none')
    parts = jax.vmap(lambda key: jax.random.split(key, len(given)))(keys)
    changes, drawn = {}, {}
    for i, (name, low, high) in enumerate(given):
        neutral = 0.0 if name in OTHERS else 1.0
        low, high = (neutral + difficulty.astype(real) * (bound - neutral) for bound in (low, high))
        shape = () if name in OTHERS else leaf(model, name).shape[1:]
        share = jax.vmap(lambda key, shape=shape: jax.random.uniform(key, shape, real))(parts[:, i])
        low, high = (x.reshape(worlds, *[1] * len(shape)) for x in (low, high))
        value = low + share * (high - low)
        if name == WIND:
            wind = value[:, None] * _sideways(jax.vmap(jax.random.fold_in, (0, None))(parts[:, i], 1), real)
            changes["opt.wind"] = changes.get("opt.wind", model.opt.wind) + jnp.pad(wind, ((0, 0), (0, 1)))
        elif name in OTHERS:
            drawn[name] = value
        else:
            changes[name] = leaf(model, name) * value
    if changes:
        drawn |= differing(model, model.replace(changes))
    return drawn


def leaf(model: Model, path: str) -> Array:
    """A leaf by path."""
    group, _, name = path.partition(".")
    return getattr(getattr(model, group), name) if name else getattr(model, group)


def differing(old: Model, new: Model) -> dict[str, Array]:
    """The leaves of ``new`` that are other arrays than those of ``old``, by path."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(old), jax.tree.leaves(new), strict=True)
    return {jax.tree_util.keystr(path): b for (path, a), b in pairs if a is not b}


def with_parameters(model: Model, drawn: dict[str, Array]) -> Model:
    """The model with these leaves."""
    if not drawn:
        return model
    return jax.tree_util.tree_map_with_path(lambda path, x: drawn.get(jax.tree_util.keystr(path), x), model)


def longest_delay(given: Ranges) -> int:
    """Steps of the longest delay of actions, rounded as in :func:`late`, but halves up, so that every draw fits."""
    return max((int(high + 0.5) for name, _, high in given if name == DELAY), default=0)


def noisy(observation: Array, drawn: dict[str, Array], keys: Array) -> Array:
    """Observations with noise, if there is any."""
    if NOISE not in drawn:
        return observation
    each = jax.vmap(lambda key: jax.random.normal(key, observation.shape[1:], observation.dtype))(keys)
    return observation + drawn[NOISE][:, None] * each


def late(action: Array, history: Array, drawn: dict[str, Array]) -> tuple[Array, Array]:
    """The action that acts now, and the history (world, delay, action) with the newest first."""
    if DELAY not in drawn:
        return action, history
    both = jnp.concatenate([action[:, None], history], 1)
    delay = jnp.round(drawn[DELAY]).astype(jnp.int32)
    return jnp.take_along_axis(both, delay[:, None, None], 1)[:, 0], both[:, :-1]


def pushed(model: Model, qvel: Array, drawn: dict[str, Array], keys: Array, now: Array) -> Array:
    """Velocities after a push in a random direction of the plane, in the worlds where it is time."""
    if PUSH not in drawn:
        return qvel
    kick = jnp.where(now, drawn[PUSH], 0)[:, None] * _sideways(keys, qvel.dtype)
    for dof in _free_dofs(model):
        qvel = qvel.at[:, dof : dof + 2].add(kick)
    return qvel


def _sideways(keys: Array, real: Any) -> Array:
    """A horizontal direction for each key, (world, 2)."""
    angle = jax.vmap(lambda key: jax.random.uniform(key, (), real, 0, 2 * jnp.pi))(keys)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], 1)


def _free_dofs(model: Model) -> list[int]:
    """The first dof of each free joint."""
    joint = model.structure.joint
    return [int(dof) for dof, kind in zip(joint.dof, joint.type) if kind == JointType.FREE]


def merged(mask: Array, new: Any, old: Any) -> Any:
    """Arrays of ``new`` in the worlds of the mask, of ``old`` in the others."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (b.ndim - 1)), a, b), new, old)
