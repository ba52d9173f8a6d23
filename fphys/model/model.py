"""A model: everything continuous about a mechanism, as a pytree, beside its static structure.

Every leaf has a leading world axis of size 1 (shared by all worlds) or ``num_worlds`` (domain
randomisation). Names are MuJoCo's, with its prefix as the group: ``body_mass`` is ``model.body.mass``.
"""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..tree import pytree, static
from ..units import si
from .kinds import kinds
from .leaves import (
    Actuator,
    Body,
    Dof,
    Equality,
    Geom,
    HeightField,
    Joint,
    Keyframes,
    Options,
    Pair,
    Site,
    Tendon,
)
from .sound import require_sound
from .structure import Structure

Array = jax.Array


@pytree
class Model:
    """A mechanism. Load one with :func:`fphys.load`. All leaves get gradients; the groups give shapes and units."""

    opt: Options  # Time step, gravity, medium, solver.
    body: Body  # Masses, inertias, frames.
    joint: Joint  # Anchors, axes, springs, limits.
    dof: Dof  # Armature, damping, dry friction.
    geom: Geom  # Shapes and their contact.
    hfield: HeightField  # Sizes and heights.
    pair: Pair  # Contacts that the file names.
    equality: Equality  # Connections, welds, couplings.
    site: Site  # Marked frames.
    tendon: Tendon  # Tendons and their wraps.
    actuator: Actuator  # Gears, gains, ranges.
    key: Keyframes  # Named states of the file.
    qpos0: Array  # Reference position [m, rad or unit quaternion], shape (1 | world, nq).
    qpos_spring: Array  # Rest position of joint springs [m, rad or unit quaternion], shape (1 | world, nq).
    structure: Structure = static()  # What never changes: topology, names, discrete choices.

    def replace(
        self, changes: Mapping[str, Any] | None = None, *, derived: str = "recomputed", **groups: Any
    ) -> "Model":
        """A model with some leaves changed; traceable and differentiable.

        Args:
            changes: path to value, as in ``{"body.mass": m, "geom.friction": mu}``. A value has the
                leaf's shape, with a leading axis of 1 (all worlds alike) or num_worlds; the leading 1
                may be omitted. One number fills a leaf with a number for each body, joint and so on. It may be
                a quantity (:mod:`fphys.units`) if the leaf has a single unit. Whole groups may be given by
                keyword instead.
            derived: "recomputed" updates the constants that follow from mass, inertia, geometry and
                armature (``body.invweight0``, ``dof.invweight0``, ``tendon.invweight0``,
                ``tendon.length0``, ``opt.meaninertia``, muscles' ``actuator.acc0``, the volumes in ``geom.fluid``, the
                second anchors of ``connect`` in ``equality.data``), as MuJoCo's
                ``mj_setConst``, and rest lengths ``tendon.lengthspring`` that neither the file nor a ``replace`` gave,
                as loading the changed file would; "frozen" keeps them, as editing MuJoCo's raw fields does.
                What ``changes`` gives of them is kept as given, with its gradient. The next replace that recomputes
                overwrites it, as ``mj_setConst`` does, but for rest lengths: to give them sets ``tendon.follows`` to
                0, and they stay from then on; 1 undoes it. In groups given by keyword all of them are recomputed.

        Raises:
            ModelError: there is no such leaf, or no mechanism can have this value (not finite, a time step or mass
                that is not positive) and it is known on the host. If it is traced, the affected worlds skip the
                step, with ``Status.BADPARAM``. ValueError: a shape does not fit. TypeError: a type or dtype does not;
                UnitError: a kind.
        """
        if derived not in ("recomputed", "frozen"):
            raise ValueError(f'derived is {derived!r}, must be "recomputed" or "frozen"')
        fields: dict[str, Any] = dict(groups)
        for group, value in fields.items():
            if group not in {f.name for f in dataclasses.fields(self)}:
                raise ModelError(
                    f"the model has no group {group!r}: leaves are given by path, as in {{'body.mass': m}}"
                )
            if not isinstance(value, kind := type(getattr(self, group))):
                raise TypeError(
                    f"{group} is {value!r}, must be a {kind.__name__} as in the model: leaves are given by path, "
                    "as in {'opt.timestep': h}"
                )
        for path, value in (changes or {}).items():
            group, _, leaf = path.partition(".")
            old = self._leaf(path)
            value = _fit(path, _bare(self.structure, path, value), old)
            base = fields.get(group, getattr(self, group))
            fields[group] = dataclasses.replace(base, **{leaf: value}) if leaf else value
        touched = {*(changes or {}), *groups}
        if "tendon.lengthspring" in touched and "tendon.follows" not in touched:
            given = fields["tendon"].lengthspring
            fields["tendon"] = fields["tendon"].replace(follows=jnp.zeros(given.shape[:2], given.dtype))
        model = dataclasses.replace(self, **fields)
        many = {name: count for name, count in world_counts(model).items() if count > 1}
        if len(set(many.values())) > 1:
            (one, few), (other, more) = min(many.items(), key=lambda x: x[1]), max(many.items(), key=lambda x: x[1])
            raise ValueError(f"{one} has {few} worlds and {other} {more}: all leaves of one row a world have as many")
        _require_sound(model, touched)
        if derived == "frozen":
            return model
        if not any(s in touched or s.split(".")[0] in touched for s in derived_sources(self.structure)):
            return model
        new = _recompute[0](model)
        _require_sound(new, {"opt.meaninertia", "dof.invweight0"})
        return _with_leaves(new, model, changes or {})

    def _leaf(self, path: str) -> Array:
        value: Any = self
        for part in path.split("."):
            value = getattr(value, part, None) if dataclasses.is_dataclass(value) else None
        if not hasattr(value, "shape"):
            paths = [
                jax.tree_util.keystr(p, simple=True, separator=".")
                for p, _ in jax.tree_util.tree_leaves_with_path(self)
            ]
            if path.startswith("opt.") and hasattr(self.structure, part):
                raise ModelError(
                    f"{path} is static, a part of the compiled program: change it in the file, or in the mujoco.MjSpec "
                    "that fphys.load is given"
                )
            near = difflib.get_close_matches(path, paths, n=1)
            raise ModelError(
                f"the model has no leaf {path!r}"
                + (f": did you mean {near[0]!r}?" if near else f"; it has {', '.join(paths)}")
            )
        return value

    def names(self, kind: str) -> tuple[str, ...]:
        """Names by index: of "body", "joint", "geom", "site", "tendon", "actuator", "key", "sensor" or "camera".

        What has no name has an empty one.

        Raises:
            ModelError: there is no such kind.
        """
        if kind not in self.structure.names:
            raise ModelError(f"kind is {kind!r}: choose one of {', '.join(self.structure.names)}")
        return self.structure.names[kind]

    def id(self, kind: str, name: str) -> int:
        """Index of the element of a kind with this name: ``model.id("body", "torso")``.

        Raises:
            ModelError: there is no such kind, or no such name.
        """
        names = self.names(kind)
        if not name or name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            known = ", ".join(filter(None, names)) or "none with a name"
            hint = f": did you mean {near[0]!r}?" if near else f"; it has {known}"
            raise ModelError(f"the model has no {kind} {name!r}{hint}")
        return names.index(name)

    def sensor_slice(self, name: str) -> slice:
        """The columns of a sensor's readings: ``fphys.sensors(...)[:, model.sensor_slice("gyro")]``.

        Raises:
            ModelError: there is no such sensor.
        """
        sensor, i = self.structure.sensor, self.id("sensor", name)
        return slice(int(sensor.adr[i]), int(sensor.adr[i] + sensor.dim[i]))


def _with_leaves(model: Model, other: Model, paths: Iterable[str]) -> Model:
    """The model with the leaves of another at these paths."""
    for path in paths:
        group, _, leaf = path.partition(".")
        value = getattr(other, group)
        if leaf:
            value = dataclasses.replace(getattr(model, group), **{leaf: getattr(value, leaf)})
        model = dataclasses.replace(model, **{group: value})
    return model


def _require_sound(model: Model, touched: set[str]) -> None:
    paths = [jax.tree_util.keystr(p, simple=True, separator=".") for p, _ in jax.tree.leaves_with_path(model)]
    require_sound(model, [path for path in paths if path in touched or path.split(".")[0] in touched])


DERIVED_SOURCES = frozenset(
    {"body.mass", "body.inertia", "body.ipos", "body.iquat", "body.pos", "body.quat"}
    | {"joint.pos", "joint.axis", "dof.armature", "tendon.coef", "equality.data", "qpos0"}
)
"""Leaves that the derived constants of every model depend on."""

_PATHS = frozenset({"tendon.armature", "tendon.follows", "site.pos", "geom.pos", "geom.quat", "geom.size"})
_PATHS |= {"qpos_spring"}
_TRANSMISSIONS = frozenset({"site.pos", "site.quat", "actuator.gear", "actuator.cranklength"})


def derived_sources(structure: Structure) -> frozenset[str]:
    """Leaves that a model's derived constants depend on, including those of tendons and muscles if there are any."""
    muscles = structure.muscles.any()
    sizes = {"geom.size"} if structure.geom.fluid.size else set()
    return DERIVED_SOURCES | sizes | (_PATHS if structure.ntendon else set()) | (_TRANSMISSIONS if muscles else set())


_recompute: list[Callable[[Model], Model]] = []


def derive_by(rule: Callable[[Model], Model]) -> Callable[[Model], Model]:
    """Register the rule that recomputes derived constants; it needs the dynamics, which import this module."""
    _recompute[:] = [rule]
    return rule


def _bare(structure: Structure, path: str, value: Any) -> Any:
    return si(value, kinds(structure, path), path)


def world_counts(model: Model) -> dict[str, int]:
    """Number of rows of every leaf that may have one row per world, by path; keyframes have none."""
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(model)
    }
    return {name: leaf.shape[0] for name, leaf in leaves.items() if not name.startswith("key.") and np.ndim(leaf)}


def _fit(path: str, value: Any, old: Array) -> Array:
    """The value as an array with a world axis, checked against the leaf that it replaces."""
    if not isinstance(value, jax.Array):
        try:
            value = jnp.array(value, old.dtype)  # a copy: asarray would alias NumPy's memory
        except (TypeError, ValueError) as error:
            raise TypeError(f"{path} is {value!r}: give a number, or an array of shape {old.shape}") from error
    if value.dtype != old.dtype:
        raise TypeError(f"{path} is {value.dtype}, the model is {old.dtype}: cast it, for nothing is cast silently")
    if value.ndim == 0 and old.ndim == 2 and not path.startswith("opt."):  # one number for each body, joint, ...
        value = jnp.broadcast_to(value, old.shape[1:])
    if value.shape == old.shape[1:]:
        value = value[None]
    if value.shape[1:] != old.shape[1:] or value.ndim != old.ndim:
        raise ValueError(
            f"{path} has shape {value.shape}, needs (1 | num_worlds, {', '.join(map(str, old.shape[1:]))})"
        )
    return value
