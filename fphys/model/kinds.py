"""Kinds of a model's numbers and loads, for arrays whose numbers share one kind; quantities are checked by them."""

from typing import TYPE_CHECKING, Any

import jax.core
import numpy as np

from .. import units
from ..units import Kind
from .structure import JointType, Structure

if TYPE_CHECKING:
    from .model import Model

Kinds = tuple[Kind, ...]

_LEAVES = {
    "opt.timestep": units.duration,
    "opt.gravity": units.acceleration,
    "opt.wind": units.velocity,
    "opt.density": units.density,
    "opt.viscosity": units.viscosity,
    "opt.softness": units.length,
    "body.mass": units.mass,
    "body.inertia": units.inertia,
    "tendon.stiffness": units.stiffness,
    "tendon.damping": units.damping,
    "tendon.armature": units.mass,
    "tendon.frictionloss": units.force,
    "tendon.actfrcrange": units.force,
}
_LENGTHS = ("body.pos", "body.ipos", "joint.pos", "geom.pos", "geom.size", "geom.margin", "geom.gap", "pair.margin")
_LENGTHS += ("pair.gap", "site.pos", "tendon.lengthspring", "tendon.range", "tendon.margin", "tendon.length0")
_LENGTHS += ("actuator.cranklength", "actuator.lengthrange")
BY_JOINT = {
    "joint.stiffness": (units.stiffness, units.angular_stiffness),
    "joint.range": (units.length, units.angle),
    "joint.margin": (units.length, units.angle),
    "joint.actfrcrange": (units.force, units.torque),
    "dof.armature": (units.mass, units.inertia),
    "dof.damping": (units.damping, units.angular_damping),
    "dof.frictionloss": (units.force, units.torque),
    "qpos": (units.length, units.angle),
    "qvel": (units.velocity, units.angular_velocity),
    "force": (units.force, units.torque),
}
"""Kinds for slides, and for hinges."""

_ALIASES = {"qpos0": "qpos", "qpos_spring": "qpos"}
_NONE, _FIXED, _AFFINE, _DIRECT = 0, 0, 1, (0, 1)  # MuJoCo's mjDYN_NONE, mjGAIN_FIXED, mjBIAS_AFFINE, mjTRN_JOINT*


def kinds(structure: Structure, path: str) -> Kinds:
    """The kind of a leaf of a model, or of an array of a state or load; empty if its parts differ or have no unit."""
    path = _ALIASES.get(path, path)
    if path in _LENGTHS:
        return (units.length,)
    if path in _LEAVES:
        return (_LEAVES[path],)
    slide, hinge = BY_JOINT.get(path, (None, None))
    types = {JointType(int(joint)) for joint in structure.joint.type}
    turning = {JointType.HINGE} if path == "qpos" else {JointType.HINGE, JointType.BALL}
    if not types or slide is None or hinge is None:
        return ()
    return (slide,) if types == {JointType.SLIDE} else (hinge,) if types <= turning else ()


def bare_ctrl(model: "Model", ctrl: Any) -> Any:
    """Controls as a bare array: forces or torques of motors, targets of servos, all of one kind and without gears.

    Raises:
        UnitError: the quantity is of another kind, or the actuators' gains and gears are not known to be like that.
    """
    if not isinstance(ctrl, units.Quantity | units.Reading):
        return ctrl
    given = model.actuator.gear, model.actuator.gainprm, model.actuator.biasprm
    if any(isinstance(leaf, jax.core.Tracer) for leaf in given):
        raise units.UnitError(
            "ctrl is a quantity, and the model is traced, so that the actuators' gears are not known: let the "
            "jitted function close over the model, or pass ctrl.value, which is then in the actuators' units"
        )
    a, (gear, gain, bias) = model.structure.actuator, map(np.asarray, given)
    direct = np.isin(a.transmission, _DIRECT) & (a.dynamics == _NONE) & (a.gain == _FIXED)
    direct &= (gear[..., 0] == 1).all(0)
    gain, (position, rate) = gain[..., 0], (bias[..., 1], bias[..., 2])
    motor = direct & (a.bias == _NONE) & (gain == 1).all(0)
    servo = direct & (a.bias == _AFFINE) & (position == -gain).all(0)
    speed = direct & (a.bias == _AFFINE) & (position == 0).all(0) & (rate == -gain).all(0)
    found = [path for path, which in (("force", motor), ("qpos", servo), ("qvel", speed)) if which.size and which.all()]
    return units.si(ctrl, kinds(model.structure, found[0]) if found else (), "ctrl")
