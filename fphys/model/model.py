"""A model: everything continuous about a mechanism, as a pytree, beside its static structure.

Every leaf has a leading world axis of size 1 (shared by all worlds) or ``num_worlds`` (domain
randomisation). MuJoCo's names, its prefix being the group: ``body_mass`` is ``model.body.mass``.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import ModelError
from ..tree import Tree, pytree, static
from .structure import Structure

Array = jax.Array


@pytree
class Options(Tree):
    timestep: Array  # Time step [s], shape (1 | world,).
    gravity: Array  # Gravity [m/s^2], shape (1 | world, 3).
    magnetic: Array  # Magnetic flux density of the surroundings [T], shape (1 | world, 3).
    wind: Array  # Velocity of the medium [m/s], shape (1 | world, 3).
    # Without density and viscosity there is no medium, and neither has a gradient: start from a small positive value.
    density: Array  # Density of the medium [kg/m^3], shape (1 | world,).
    viscosity: Array  # Viscosity of the medium [Pa s], shape (1 | world,).
    impratio: Array  # Ratio of frictional to normal constraint impedance, shape (1 | world,).
    tolerance: Array  # Solver tolerance, shape (1 | world,).
    meaninertia: (
        Array  # Mean diagonal of the mass matrix [kg or kg m^2], scales the tolerance; derived, shape (1 | world,).
    )


@pytree
class Body(Tree):
    pos: Array  # Position in the parent's frame [m], shape (1 | world, body, 3).
    quat: Array  # Orientation in the parent's frame (w, x, y, z), shape (1 | world, body, 4).
    ipos: Array  # Centre of mass in the body's frame [m], shape (1 | world, body, 3).
    iquat: Array  # Principal axes in the body's frame (w, x, y, z), shape (1 | world, body, 4).
    mass: Array  # Mass [kg], shape (1 | world, body).
    inertia: Array  # Principal moments of inertia [kg m^2], shape (1 | world, body, 3).
    gravcomp: Array  # Fraction of gravity compensated, shape (1 | world, body).
    invweight0: Array  # Mean inverse inertia at qpos0, translation and rotation; derived, shape (1 | world, body, 2).


@pytree
class Joint(Tree):
    pos: Array  # Anchor in the body's frame [m], shape (1 | world, joint, 3).
    axis: Array  # Axis in the body's frame, unit, shape (1 | world, joint, 3).
    stiffness: Array  # Spring stiffness [N/m or N m/rad], shape (1 | world, joint).


@pytree
class Dof(Tree):
    armature: Array  # Rotor inertia [kg or kg m^2], shape (1 | world, dof).
    damping: Array  # Viscous damping [N s/m or N m s/rad], shape (1 | world, dof).
    invweight0: Array  # Diagonal of the inverse mass matrix at qpos0; derived, shape (1 | world, dof).


@pytree
class Geom(Tree):
    pos: Array  # Position in the body's frame [m], shape (1 | world, geom, 3).
    quat: Array  # Orientation in the body's frame (w, x, y, z), shape (1 | world, geom, 4).
    size: Array  # MuJoCo's size parameters [m], shape (1 | world, geom, 3).
    friction: Array  # Sliding [-], torsional [m], rolling [m] friction, shape (1 | world, geom, 3).
    solref: Array  # Reference (time constant [s], damping ratio; or -stiffness, -damping), shape (1 | world, geom, 2).
    solimp: Array  # Constraint impedance, shape (1 | world, geom, 5).
    solmix: Array  # Weight when two geoms' parameters are mixed, shape (1 | world, geom).
    margin: Array  # Distance below which a contact acts [m]; a pair's is the sum of two, shape (1 | world, geom).
    gap: Array  # Distance beyond the margin in which a contact is reported without force [m], shape (1 | world, geom).


@pytree
class Site(Tree):
    pos: Array  # Position in the body's frame [m], shape (1 | world, site, 3).
    quat: Array  # Orientation in the body's frame (w, x, y, z), shape (1 | world, site, 4).


@pytree
class Tendon(Tree):
    coef: Array  # Coefficient of each joint [m or m/rad], shape (1 | world, wrap).
    stiffness: Array  # Stiffness [N/m], shape (1 | world, tendon).
    damping: Array  # Damping [N s/m], shape (1 | world, tendon).
    lengthspring: Array  # Rest length interval [m], shape (1 | world, tendon, 2).


@pytree
class Actuator(Tree):
    gear: Array  # Transmission gear, shape (1 | world, actuator, 6).
    gainprm: Array  # Gain parameters (first three), shape (1 | world, actuator, 3).
    biasprm: Array  # Bias parameters (first three), shape (1 | world, actuator, 3).
    dynprm: Array  # Activation dynamics (first: time constant [s]), shape (1 | world, actuator, 3).
    ctrlrange: Array  # Range of the control, shape (1 | world, actuator, 2).
    forcerange: Array  # Range of the force [N or N m], shape (1 | world, actuator, 2).
    actrange: Array  # Range of the activation, shape (1 | world, actuator, 2).


@pytree
class Keyframes(Tree):
    """Named states of the file; each leaf's leading axis counts keyframes, not worlds."""

    qpos: Array  # shape (key, nq)
    qvel: Array  # shape (key, nv)
    act: Array  # shape (key, na)
    ctrl: Array  # shape (key, nu)
    time: Array  # shape (key,)
    mocap_pos: Array  # shape (key, nmocap, 3)
    mocap_quat: Array  # shape (key, nmocap, 4)


@pytree
class Model:
    """A mechanism. Load one with :func:`fphys.load`."""

    opt: Options
    body: Body
    joint: Joint
    dof: Dof
    geom: Geom
    site: Site
    tendon: Tendon
    actuator: Actuator
    key: Keyframes
    qpos0: Array  # Reference position, shape (1 | world, nq).
    qpos_spring: Array  # Rest position of joint springs, shape (1 | world, nq).
    structure: Structure = static()

    def replace(
        self, changes: Mapping[str, Any] | None = None, *, derived: str = "recomputed", **groups: Any
    ) -> "Model":
        """A model with some leaves changed; traceable and differentiable.

        Args:
            changes: path to value, as in ``{"body.mass": m, "geom.friction": mu}``. A value has the
                leaf's shape, with a leading axis of 1 (all worlds alike) or num_worlds; the leading 1
                may be left out. Whole groups may be given by keyword instead.
            derived: "recomputed" lets the constants that follow from mass, inertia, geometry and
                armature follow (``body.invweight0``, ``dof.invweight0``, ``opt.meaninertia``), as
                MuJoCo's ``mj_setConst``; "frozen" leaves them, as MuJoCo's raw field edits do.

        Raises:
            ModelError: no such leaf. ValueError: a shape does not fit. TypeError: a dtype does not.
        """
        if derived not in ("recomputed", "frozen"):
            raise ValueError(f'derived is {derived!r}, must be "recomputed" or "frozen"')
        fields: dict[str, Any] = dict(groups)
        for path, value in (changes or {}).items():
            group, _, leaf = path.partition(".")
            old = self._leaf(path)
            value = _fit(path, value, old)
            base = fields.get(group, getattr(self, group))
            fields[group] = dataclasses.replace(base, **{leaf: value}) if leaf else value
        model = dataclasses.replace(self, **fields)
        if derived == "frozen":
            return model
        touched = {*(changes or {}), *groups}
        follows = any(source in touched or source.split(".")[0] in touched for source in DERIVED_SOURCES)
        return _recompute[0](model) if follows else model

    def _leaf(self, path: str) -> Array:
        value: Any = self
        for part in path.split("."):
            value = getattr(value, part, None) if dataclasses.is_dataclass(value) else None
        if not hasattr(value, "shape"):
            paths = [
                jax.tree_util.keystr(p, simple=True, separator=".")
                for p, _ in jax.tree_util.tree_leaves_with_path(self)
            ]
            near = difflib.get_close_matches(path, paths, n=1)
            raise ModelError(
                f"the model has no leaf {path!r}"
                + (f": did you mean {near[0]!r}?" if near else f"; it has {', '.join(paths)}")
            )
        return value

    def names(self, kind: str) -> tuple[str, ...]:
        """Names by index: of "body", "joint", "geom", "site", "tendon", "actuator", "key", "sensor" or "camera"."""
        if kind not in self.structure.names:
            raise ModelError(f"kind is {kind!r}: choose one of {', '.join(self.structure.names)}")
        return self.structure.names[kind]

    def id(self, kind: str, name: str) -> int:
        """Index of the element of a kind that has a name: ``model.id("body", "torso")``."""
        names = self.names(kind)
        if not name or name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            known = ", ".join(filter(None, names)) or "none with a name"
            hint = f": did you mean {near[0]!r}?" if near else f"; it has {known}"
            raise ModelError(f"the model has no {kind} {name!r}{hint}")
        return names.index(name)

    def sensor_slice(self, name: str) -> slice:
        """Where a sensor's readings lie: ``fphys.sensors(...)[:, model.sensor_slice("gyro")]``."""
        sensor, i = self.structure.sensor, self.id("sensor", name)
        return slice(int(sensor.adr[i]), int(sensor.adr[i] + sensor.dim[i]))


DERIVED_SOURCES = frozenset(
    {"body.mass", "body.inertia", "body.ipos", "body.iquat", "body.pos", "body.quat"}
    | {"joint.pos", "joint.axis", "dof.armature", "qpos0"}
)
"""Leaves that the derived constants depend on."""

_recompute: list[Callable[[Model], Model]] = []


def derive_by(rule: Callable[[Model], Model]) -> Callable[[Model], Model]:
    """Register the rule that recomputes derived constants; it needs the dynamics, which stand above the model."""
    _recompute[:] = [rule]
    return rule


def _fit(path: str, value: Any, old: Array) -> Array:
    """The value as an array with a world axis, checked against the leaf that it replaces."""
    if not isinstance(value, jax.Array):
        value = jnp.asarray(value, old.dtype)
    if value.dtype != old.dtype:
        raise TypeError(f"{path} is {value.dtype}, the model is {old.dtype}: cast it, for nothing is cast silently")
    if value.shape == old.shape[1:]:
        value = value[None]
    if value.shape[1:] != old.shape[1:] or value.ndim != old.ndim:
        raise ValueError(
            f"{path} has shape {value.shape}, needs (1 | num_worlds, {', '.join(map(str, old.shape[1:]))})"
        )
    return value
