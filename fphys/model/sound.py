"""Parameters that no mechanism can have: refused if their values are known, masked out if they are traced."""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from .source import leaf_values
from .structure import GeomType
from .validate import FRICTIONS, MINIMUM, body_faults, leaf_title
from .whitelist import LEAVES

if TYPE_CHECKING:
    from .model import Model

Array = jax.Array

_SHOWN = 5  # how many faults of a leaf an error names, and at least how many of the bodies
_NOT_NEGATIVE = (*FRICTIONS, "opt.softness")
_POSITIVE = ("opt.timestep", "opt.impratio", "opt.meaninertia", "dof.invweight0", "geom.size")
_BODY = ("body.mass", "body.inertia")
_STEPPED = (*(path for path in LEAVES if not path.startswith("key.")), "opt.softness")
"""Leaves that a step reads."""


def leaf(model: "Model", path: str) -> Any:
    return functools.reduce(getattr, path.split("."), model)


def require_sound(model: "Model", paths: Iterable[str]) -> None:
    """Raise ModelError on the host if leaves are not finite, or no time step, mass or inertia; traced ones pass."""
    m, faults = model.structure.source, []
    known = {p: np.asarray(x) for p in (*paths, *_BODY) if not isinstance(x := leaf(model, p), jax.core.Tracer)}

    def report(world: Any, worlds: int, text: str) -> None:
        faults.append(f"world {world}: {text}" if worlds > 1 else text)

    for path in known.keys() & set(paths):
        values = known[path]
        for bad in np.argwhere(~np.isfinite(values))[:_SHOWN]:
            row = None if path.startswith("opt.") else bad[1]
            title = leaf_title(m, LEAVES.get(path, path), row)
            report(bad[0], len(values), f"{title} is {values[tuple(bad)]}, must be finite")
        if path in _NOT_NEGATIVE:
            for bad in np.argwhere(values < 0)[:_SHOWN]:
                title = leaf_title(m, LEAVES.get(path, path), None if path.startswith("opt.") else bad[1])
                report(bad[0], len(values), f"{title} is {values[tuple(bad)]}, must not be negative")
        if path in _POSITIVE:
            for bad in np.argwhere((values <= 0) & _positive(m, path))[:_SHOWN]:
                title = leaf_title(m, LEAVES.get(path, path), None if path.startswith("opt.") else bad[1])
                report(bad[0], len(values), f"{title} is {values[tuple(bad)]}, must be positive")
    if not faults and set(_BODY) & set(paths) and known.keys() >= set(_BODY):
        mass, inertia = (known[path] for path in _BODY)
        least = [np.where(x >= MINIMUM, MINIMUM, 0.0) for x in (m.body_mass, m.body_inertia)]
        light = (mass < least[0]).any(1) | (inertia < least[1]).any((1, 2))  # only these need a closer look
        for world in np.flatnonzero(light):
            for fault in body_faults(m, mass[world % len(mass)], inertia[world % len(inertia)]):
                report(world, light.size, fault)
            if len(faults) >= _SHOWN:
                break
    if faults:
        raise ModelError("the model is not physical:\n" + "\n".join(f"  {fault}" for fault in dict.fromkeys(faults)))


def _positive(m: Any, path: str) -> np.ndarray:
    """Which numbers of a leaf must be positive: all; of sizes those that were at loading, not a plane's or mesh's."""
    solid = (m.geom_type > GeomType.HFIELD) & (m.geom_type < GeomType.MESH)
    return ((m.geom_size > 0) & solid[:, None])[None] if path == "geom.size" else np.array(True)


def _least_frictions(model: "Model") -> dict[str, np.ndarray]:
    """Lower bounds of frictions: zero, and none where friction has no constraint row and so no effect."""
    loaded = {p: leaf_values(model.structure.source, p) for p in FRICTIONS}
    least = {p: np.where((x > 0) | p.endswith(".friction"), 0.0, -np.inf) for p, x in loaded.items() if x.size}
    return {p: x.astype(model.qpos0.dtype) for p, x in least.items()}


@jax.jit
def screen_model(model: "Model") -> tuple["Model", Array]:
    """Find worlds with unsound parameters.

    A parameter is unsound if it is not finite; a time step, impratio, size or inverse inertia if it is not positive; a
    friction if it is negative; a mass or inertia if it is negative, or zero where nothing else gives the body inertia.

    Returns:
        The model, and which worlds are unsound, bool, shape (1 | world,). If parameters that all worlds share are
        unsound, they keep their values and get no gradient: all worlds are unsound then, and no result is used.
    """
    values = _marked(jax.lax.stop_gradient(model))
    none = jnp.zeros(0, model.qpos0.dtype)
    shared = jnp.isfinite(jnp.concatenate([none, *(x.reshape(-1) for x in values.values() if len(x) == 1)])).all()
    own = [x.reshape(len(x), -1) for x in values.values() if len(x) > 1]
    every = shared[None]
    if own:  # sums are finite if their terms are, and a product with ones is XLA's fastest sum
        every = every & jnp.isfinite(sum(x @ jnp.ones(x.shape[1], x.dtype) for x in own))

    def screened(path: Any, x: Array) -> Array:
        if len(x) > 1 or _name(path) not in values:
            return x
        return jnp.where(shared, x, jax.lax.stop_gradient(x))

    return jax.tree_util.tree_map_with_path(screened, model), ~every


def as_loaded(model: "Model", worlds: Array) -> "Model":
    """The model with the parameters that it was loaded with in these worlds, for leaves with one row per world.

    There they get no gradient, and do not spoil what worlds share.
    """

    def replaced(path: Any, x: Array) -> Array:
        if len(x) == 1 or (name := _name(path)) not in _STEPPED:
            return x
        loaded = np.asarray(leaf_values(model.structure.source, name), x.dtype)
        return jnp.where(worlds.reshape(-1, *[1] * (x.ndim - 1)), loaded, x)

    return jax.tree_util.tree_map_with_path(replaced, model)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _marked(model: "Model") -> dict[str, Array]:
    """Every leaf that a step reads, with NaN in place of values that are negative or zero but must not be."""
    body = model.structure.body
    moving = np.isin(np.arange(body.weld.size), model.structure.joint.body)
    alone = moving & (np.bincount(body.weld, minlength=body.weld.size) == 1)
    least = np.select([body.weld == 0, alone], [-np.inf, MINIMUM], 0.0).astype(model.qpos0.dtype)  # static: any value
    values = {path: x for path in _STEPPED if (x := leaf(model, path)).size}
    for path, sound in {
        **{p: (x > 0) | ~_positive(model.structure.source, p) for p in _POSITIVE if (x := leaf(model, p)).size},
        **{p: leaf(model, p) >= least for p, least in _least_frictions(model).items()},
        "body.mass": model.body.mass >= least[None],
        "body.inertia": model.body.inertia >= least[None, :, None],
    }.items():
        values[path] = jnp.where(sound, values[path], jnp.nan)
    return values
