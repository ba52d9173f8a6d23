"""What an observation holds, and what a control means."""

import dataclasses

from ..errors import ModelError

MODES = ("torque", "position", "velocity")
LINK = ("x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "wx", "wy", "wz")
"""Columns of a link: position [m], orientation, velocity of its origin [m/s], angular velocity [rad/s], world axes."""


@dataclasses.dataclass(frozen=True)
class ObservationSpec:
    """What ``world.observe`` puts side by side: joints' positions, their velocities, links, sensors, in this order.

    A name may leave out the thing that it belongs to, "tip" for "arm/tip", where no other ends so.
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
    """What the columns of a control are: torques, or targets that a PD law of :func:`fphys.control.pd` drives to.

    *torque*: u = control [N or N m]. *position*: u = kp (control - q) - kd qdot. *velocity*: u = kd (control - qdot).
    Files' own actuators take no part.
    """

    mode: str = "torque"  # or "position", or "velocity"
    joints: tuple[str, ...] | str = "all"  # hinges and slides, in the order of the columns
    kp: float | tuple[float, ...] = 100.0  # [N/m or N m/rad], a number or one for each joint
    kd: float | tuple[float, ...] = 10.0  # [N s/m or N m s/rad], a number or one for each joint
    limit: float | tuple[float, ...] | None = None  # of force or torque [N or N m]; None: what the files say

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ModelError(f"ActionSpec: mode is {self.mode!r}, must be one of {', '.join(MODES)}")
        if isinstance(self.joints, str) and self.joints != "all":
            raise ModelError(f'ActionSpec: joints is {self.joints!r}, must be "all" or a tuple of names')
