"""Joints of a USD stage as sequences of hinges, slides and balls, with their limits and drives.

A joint has a frame on each of its bodies. Its coordinates are zero where the frames coincide. The pose that a stage is
written in may be another one: then the coordinates of that pose are the joints' ``ref`` in MuJoCo.
"""

import dataclasses
from typing import Any

import numpy as np

from .structure import JointType
from .usd_shapes import rigid, rotation
from .usd_stage import Stage, pxr

FAR = 1e10  # of a limit that has one side
_UNIT = dict(zip("XYZ", np.eye(3), strict=True))
_OFF = 1e-4  # how far the bodies of a joint may be from it, unnoticed [m or rad]
_NONE = 1e30  # a force that limits nothing


@dataclasses.dataclass(frozen=True)
class Drive:
    """A spring and damper towards a target, or a motor if both are zero."""

    stiffness: float  # [N/m or N m/rad]
    damping: float
    position: float  # target [m or rad]
    velocity: float
    force: float  # the largest [N or N m]


@dataclasses.dataclass(frozen=True, eq=False)
class Dof:
    """One coordinate of a joint, or the three of a ball."""

    kind: JointType
    axis: np.ndarray  # in the frame of the joint
    label: str  # "" if it is the only one of its joint, otherwise as in "rotX"
    limit: tuple[float, float] | None
    drive: Drive | None

    @property
    def turns(self) -> bool:
        return self.kind == JointType.HINGE

    @property
    def locked(self) -> float | None:
        """Where its limits coincide; None if they do not."""
        low, high = self.limit or (0.0, 1.0)
        return low if low == high and self.kind != JointType.BALL else None


@dataclasses.dataclass(eq=False)
class Joint:
    """A joint between two bodies."""

    prim: Any
    ends: tuple[Any, Any]  # prims that it names, None for the world
    bodies: tuple[Any, Any]  # paths of the bodies that these belong to, None for the world
    frames: tuple[np.ndarray, np.ndarray]  # in the world as the stage is written, rigid, (4, 4)
    dofs: list[Dof]  # of which only inner ones may be locked
    free: bool  # whether it holds nothing
    touch: bool | None  # whether its bodies do; None if it does not say so in a file with MuJoCo's scene


def joint(usd: Stage, prim: Any, owner: Any) -> Joint | None:
    """A joint; None if it is off, or not simulated.

    Args:
        owner: gives the path of the body that a prim belongs to, None for the world.
    """
    if usd.get(prim, "physics:jointEnabled", True) is False:
        usd.leave(prim)
        return None
    for name in ("physics:breakForce", "physics:breakTorque"):
        if usd.get(prim, name, np.inf) < _NONE:
            usd.note(prim, f"its {name} is not read: joints do not break")
    found = _dofs(usd, prim)
    if found is None:
        return None
    ends, bodies, frames = [], [], []
    for side in "01":
        target = usd.targets(prim, f"physics:body{side}")[:1]
        local = np.eye(4)
        local[:3, :3] = rotation(usd.get(prim, f"physics:localRot{side}", np.array([1.0, 0, 0, 0])))
        local[:3, 3] = usd.get(prim, f"physics:localPos{side}", np.zeros(3))
        base = usd.transform(target[0]) if target else usd.world
        frame = rigid(base)
        frame = frame @ np.block([[local[:3, :3], np.zeros((3, 1))], [np.zeros(3), 1]])
        frame[:3, 3] = (base @ local[:, 3])[:3]
        frames.append(frame)
        ends.append(target[0] if target else None)
        bodies.append(owner(target[0]) if target else None)
    if bodies[0] == bodies[1]:
        raise usd.fault(prim, "it connects a body with itself" if bodies[0] else "it connects no moving body")
    free = [dof.kind for dof in found] == [JointType.SLIDE] * 3 + [JointType.BALL]
    free &= not any(dof.limit or dof.drive for dof in found)
    _fold(found, frames)
    touch = usd.get(prim, "physics:collisionEnabled", False) is True
    if usd.mujocos and not usd.has(prim, "physics:collisionEnabled"):
        touch = None
    return Joint(prim, (ends[0], ends[1]), (bodies[0], bodies[1]), (frames[0], frames[1]), found, free, touch)


def _fold(dofs: list[Dof], frames: list[np.ndarray]) -> None:
    """Take the locked coordinates at both ends of a joint into its frames."""
    while dofs and (at := dofs[0].locked) is not None:
        frames[0] = frames[0] @ _move(dofs.pop(0), 1.0, at, np.eye(4))
    while dofs and (at := dofs[-1].locked) is not None:
        frames[1] = frames[1] @ _move(dofs.pop(), 1.0, -at, np.eye(4))


def _dofs(usd: Stage, prim: Any) -> list[Dof] | None:
    kind = str(prim.GetTypeName())
    match kind:
        case "PhysicsFixedJoint":
            return []
        case "PhysicsRevoluteJoint" | "PhysicsPrismaticJoint":
            axis, turns = usd.get(prim, "physics:axis", "X", "XYZ"), kind == "PhysicsRevoluteJoint"
            low, high = usd.get(prim, "physics:lowerLimit", -np.inf), usd.get(prim, "physics:upperLimit", np.inf)
            dof = _dof(usd, prim, "angular" if turns else "linear", turns, axis, low, high)
            return [dataclasses.replace(dof, label="")] if dof else []
        case "PhysicsSphericalJoint":
            cones = [usd.get(prim, f"physics:coneAngle{i}Limit", -1.0) for i in (0, 1)]
            usd.ask(prim, "physics:axis")
            if cones[0] != cones[1]:
                usd.refuse(prim, f"a spherical joint with an elliptic cone of {cones[0]} and {cones[1]} degrees")
            limit = (0.0, float(np.radians(cones[0]))) if 0 <= cones[0] < 180 else None
            if limit:
                usd.note(prim, "its cone bounds the whole rotation, with that about its own axis")
            return [Dof(JointType.BALL, _UNIT["X"], "", limit, None)]
        case "PhysicsJoint":
            return _six(usd, prim)
    usd.refuse(prim, f"a joint of type {kind}; fixed, revolute, prismatic, spherical and D6 joints are")
    return None


def _six(usd: Stage, prim: Any) -> list[Dof]:
    """The coordinates of a D6 joint: slides along its axes, then hinges about x, y and z; free turns are a ball."""
    found = []
    for turns in (False, True):
        for axis in "XYZ":
            token = f"{'rot' if turns else 'trans'}{axis}"
            low = usd.get(prim, f"limit:{token}:physics:low", -np.inf)
            high = usd.get(prim, f"limit:{token}:physics:high", np.inf)
            if dof := _dof(usd, prim, token, turns, axis, low, high):
                found.append(dof)
    if usd.has(prim, "limit:distance:physics:high") or usd.has(prim, "limit:distance:physics:low"):
        usd.refuse(prim, "a limit of the distance between two bodies")
    turning = [dof for dof in found if dof.turns]
    if len(turning) == 3 and not any(dof.limit or dof.drive for dof in turning):
        found = [*found[:-3], Dof(JointType.BALL, _UNIT["X"], "rot", None, None)]
    return found


def _dof(usd: Stage, prim: Any, token: str, turns: bool, axis: str, low: float, high: float) -> Dof | None:
    """A coordinate, None if it is locked at zero: its lower limit is above the upper one, or both are zero."""
    unit = np.pi / 180 if turns else usd.length
    drive = _drive(usd, prim, token, turns, unit)
    if low > high or (low == high and not 0 < abs(low) < _NONE):
        return None
    limit = None
    if low > -_NONE or high < _NONE:
        limit = (max(low, -FAR) * unit if low > -_NONE else -FAR, high * unit if high < _NONE else FAR)
    kind = JointType.HINGE if turns else JointType.SLIDE
    return Dof(kind, _UNIT[axis], token, limit, drive)


def _drive(usd: Stage, prim: Any, token: str, turns: bool, unit: float) -> Drive | None:
    """DriveAPI of a coordinate: per degree or per unit of length in the file."""
    physics = pxr("UsdPhysics")
    if not prim.HasAPI(physics.DriveAPI, token):
        return None

    def get(name: str, default: float) -> float:
        return usd.get(prim, f"drive:{token}:physics:{name}", default)

    effort = usd.mass * usd.length * (usd.length if turns else 1.0)
    if usd.get(prim, f"drive:{token}:physics:type", "force") == "acceleration":
        usd.refuse(prim, f'a drive ({token}) of accelerations: give forces (type = "force")')
    found = Drive(
        stiffness=get("stiffness", 0.0) * effort / unit,
        damping=get("damping", 0.0) * effort / unit,
        position=get("targetPosition", 0.0) * unit,
        velocity=get("targetVelocity", 0.0) * unit,
        force=get("maxForce", np.inf) * effort,
    )
    if found.stiffness < 0 or found.damping < 0 or found.force < 0:
        raise usd.fault(prim, f"its drive ({token}) has a negative stiffness, damping or maxForce")
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """A coordinate of a joint, as MuJoCo has it."""

    dof: Dof
    axis: np.ndarray  # in the child
    anchor: np.ndarray  # in the child [m]
    ref: float  # in the pose that the stage is written in


def place(usd: Stage, own: Joint, child: int, parent: np.ndarray, body: np.ndarray) -> tuple[np.ndarray, list[Placed]]:
    """The pose of a child in its parent, and the coordinates between them, from the parent to the child.

    Args:
        child: which of the joint's bodies it is.
        parent, body: the poses of both in the world as the stage is written, rigid, (4, 4).
    """
    first, last = own.frames[1 - child], own.frames[child]
    between = np.linalg.inv(own.frames[0]) @ own.frames[1]
    steps = [(dof, 1.0, value) for dof, value in zip(own.dofs, _coordinates(own, between), strict=True)]
    if child == 0:
        steps = [(dof, -1.0, value) for dof, _, value in reversed(steps)]
    moves = [_move(dof, sign, value, between if child else np.linalg.inv(between)) for dof, sign, value in steps]
    whole = np.linalg.multi_dot([np.eye(4), *moves, np.eye(4)]) if moves else np.eye(4)
    reach = np.linalg.inv(parent) @ first @ whole @ np.linalg.inv(last) @ body
    gap = np.linalg.inv(first @ whole) @ last
    if max(np.abs(gap[:3, 3]).max(), np.abs(gap[:3, :3] - np.eye(3)).max()) > _OFF:
        usd.note(own.prim, "its bodies do not fit together as they are written: the second one is moved to the joint")
    placed, after = [], np.linalg.inv(body) @ last
    for (dof, sign, value), move in reversed(list(zip(steps, moves, strict=True))):
        if dof.locked is None:
            placed.insert(0, Placed(dof, sign * after[:3, :3] @ dof.axis, after[:3, 3].copy(), value))
        after = after @ np.linalg.inv(move)
    return reach, placed


def _coordinates(own: Joint, between: np.ndarray) -> list[float]:
    """The coordinates of a joint whose second frame has this pose in the first."""
    r = between[:3, :3]
    locked: dict[str, Any] = {dof.label: dof.locked for dof in own.dofs if dof.locked is not None}
    side = np.copysign(1.0, np.cos(locked.get("rotY", 0.0)))
    turns = (
        np.arctan2(-side * r[1, 2], side * r[2, 2]),
        np.arcsin(np.clip(r[0, 2], -1, 1)),
        np.arctan2(-side * r[0, 1], side * r[0, 0]),
    )
    hinges = [dof for dof in own.dofs if dof.turns]
    if len(hinges) == 1 and hinges[0].axis[1]:
        turns = (0.0, np.arctan2(r[0, 2], r[0, 0]), 0.0)
    values = [
        {JointType.HINGE: turns @ d.axis, JointType.SLIDE: between[:3, 3] @ d.axis}.get(d.kind, 0.0) for d in own.dofs
    ]
    values = [locked.get(dof.label, value) for dof, value in zip(own.dofs, values, strict=True)]
    return [float(value) if abs(value) > 1e-7 else 0.0 for value in values]


def _move(dof: Dof, sign: float, value: float, between: np.ndarray) -> np.ndarray:
    """The motion of a coordinate, (4, 4)."""
    out = np.eye(4)
    if dof.kind == JointType.SLIDE:
        out[:3, 3] = sign * value * dof.axis
    elif dof.kind == JointType.BALL and not dof.limit:
        out[:3, :3] = between[:3, :3]  # its coordinate is counted from the pose that is written
    elif dof.turns:
        out[:3, :3] = rotation([np.cos(value / 2), *(sign * np.sin(value / 2) * dof.axis)])
    return out
