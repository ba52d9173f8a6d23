"""The contents of an observation, and the meaning of a control."""

import dataclasses

import numpy as np

from .. import units
from ..errors import ModelError
from ..model.kinds import BY_JOINT

MODES = ("torque", "position", "velocity")
LINK = ("x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "wx", "wy", "wz")
"""Columns of a link: position [m], orientation, velocity of its origin [m/s], angular velocity [rad/s], world axes."""

LIKE = {
    "kp": "joint.stiffness",
    "kd": "dof.damping",
    "limit": "force",
    "torque": "force",
    "position": "qpos",
    "velocity": "qvel",
}
"""An action's numbers, and controls by mode, have the same kind as these arrays of a model."""

GAINS = ("kp", "kd", "limit")


@dataclasses.dataclass(frozen=True)
class ObservationSpec:
    """What ``world.observe`` concatenates: joints' positions, their velocities, links, sensors, in this order.

    A name may omit the thing that it belongs to, "tip" for "arm/tip", if no other name ends in the same way.
    """

    joints: tuple[str, ...] | str = ()  # hinges and slides by name, or "all": position and velocity of each
    links: tuple[str, ...] = ()  # bodies, or sites of MJCF: LINK's 13 columns each
    sensors: tuple[str, ...] = ()  # by name, not cameras

    def __post_init__(self) -> None:
        for name in ("joints", "links", "sensors"):
            value = getattr(self, name)
            if isinstance(value, str) and (name, value) != ("joints", "all"):
                raise ModelError(f"ObservationSpec: {name} is {value!r}, must be a tuple of names: ({value!r},)")
            object.__setattr__(self, name, value if isinstance(value, str) else tuple(value))


@dataclasses.dataclass(frozen=True)
class ActionSpec:
    """The columns of a control: torques, or targets for the PD law of :func:`fphys.control.pd`.

    *torque*: u = control [N or N m]. *position*: u = kp (control - q) - kd qdot. *velocity*: u = kd (control - qdot).
    Actuators in the files are not used.
    """

    mode: str = "torque"  # or "position", or "velocity"
    joints: tuple[str, ...] | str = "all"  # hinges and slides, in the order of the columns
    kp: float | tuple[float, ...] = 100.0  # [N/m or N m/rad], a number or one for each joint
    kd: float | tuple[float, ...] = 10.0  # [N s/m or N m s/rad], a number or one for each joint
    limit: float | tuple[float, ...] | None = None  # of force or torque, both ways [N or N m]; None: what the files say

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ModelError(f"ActionSpec: mode is {self.mode!r}, must be one of {', '.join(MODES)}")
        if isinstance(self.joints, str) and self.joints != "all":
            raise ModelError(f'ActionSpec: joints is {self.joints!r}, must be "all" or a tuple of names')
        for name in GAINS:
            given = getattr(self, name)
            numbers = units.si(given, BY_JOINT[LIKE[name]], f"ActionSpec.{name}")
            if given is not None and not (np.asarray(numbers, float) >= 0).all():
                raise ModelError(f"ActionSpec: {name} is {given}, must be zero or more")
