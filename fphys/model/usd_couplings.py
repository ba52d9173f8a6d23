"""What couples bodies or joints of a USD stage across its tree: welds and connections, mimic joints, and tendons."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .structure import CONNECT, JOINT, WELD, JointType
from .usd_joints import Joint
from .usd_shapes import quaternion
from .usd_stage import Stage

_NEAR = 0.1  # between the points of a hinge at the origin of both bodies [m]
_AS_JOINT, _AS_SITE = 3, 6  # mjtObj
_LIMITED = {"false": 0, "true": 1, "auto": 2}
_TENDON = {
    "springlength": "springlength",
    "frictionloss": "frictionloss",
    "solreffriction": "solref_friction",
    "solimpfriction": "solimp_friction",
    "solreflimit": "solref_limit",
    "solimplimit": "solimp_limit",
    "armature": "armature",
    "margin": "margin",
}


@dataclasses.dataclass(frozen=True)
class Named:
    """Names in the spec, by path."""

    joints: dict[Any, str]
    turning: dict[Any, bool]  # whether each of them is an angle
    zero: dict[Any, float]  # its ref
    sites: dict[Any, str]
    geoms: dict[Any, str]
    tendons: dict[Any, str] = dataclasses.field(default_factory=dict)


def is_coupling(usd: Stage, own: Joint) -> bool:
    """Whether a joint couples two bodies of the tree, rather than being a part of the tree."""
    outside = usd.get(own.prim, "physics:excludeFromArticulation", False) is True
    outside |= any(schema.startswith("MjcEquality") and "Joint" not in schema for schema in usd.schemas(own.prim))
    return outside and can_couple(own)


def can_couple(own: Joint) -> bool:
    """Whether a weld or connections can hold what a joint holds: all, all but turns, or all but one turn."""
    if not own.dofs:
        return True
    first, *more = own.dofs
    return not more and not first.drive and (first.turns or (first.kind == JointType.BALL and not first.limit))


def add_coupling(usd: Stage, spec: Any, own: Joint, bodies: list[tuple[Any, np.ndarray]], name: str) -> None:
    """Add a weld, a connection, or two connections along a hinge's axis, between sites on each body.

    Args:
        bodies: the two bodies in the spec, and their poses in the world as the stage is written, rigid, (4, 4).
    """
    kind = CONNECT if own.dofs else WELD
    if own.dofs and own.dofs[0].limit:
        usd.note(own.prim, "its limits are not read: it couples bodies beside the tree")
    places = {"": np.zeros(3)}
    if own.dofs and own.dofs[0].turns:  # as far apart as the bodies are large
        arms = [np.linalg.norm(pose[:3, 3] - frame[:3, 3]) for (_, pose), frame in zip(bodies, own.frames, strict=True)]
        half = 0.5 * own.dofs[0].axis * (max(arms) or _NEAR)
        places = {"-": -half, "+": half}
    for mark, place in places.items():
        for i, ((body, pose), frame) in enumerate(zip(bodies, own.frames, strict=True)):
            local = np.linalg.inv(pose) @ frame
            body.add_site(name=f"{name}{mark}:{i}", pos=(local @ [*place, 1])[:3], quat=quaternion(local[:3, :3]))
        sites = {"name1": f"{name}{mark}:0", "name2": f"{name}{mark}:1"}
        new = spec.add_equality(name=f"{name}{mark}", type=kind, objtype=_AS_SITE, **sites)
        new.data[:] = 0
        if kind == WELD:
            new.data[10] = usd.get(own.prim, "mjc:torqueScale", 1.0)
        _soften(usd, own.prim, new)


def add_mimics(usd: Stage, spec: Any, named: Named) -> None:
    """Add equalities of joints that follow others: q = a + b p in the file's units, and MuJoCo's higher powers."""
    for prim in usd.prims:
        ours = "MjcEqualityJointAPI" in usd.schemas(prim)
        also = usd.targets(prim, "mjc:target") if ours else []
        leaders = usd.targets(prim, "newton:mimicJoint") or also
        if not leaders:
            continue
        if usd.get(prim, "newton:mimicEnabled", True) is False:
            usd.ask(prim, "newton:mimicCoef0", "newton:mimicCoef1")
            continue
        follower, leader = prim.GetPath(), leaders[0].GetPath()
        if follower not in named.joints or leader not in named.joints:
            usd.refuse(prim, "a mimic joint, one of whose joints has not exactly one coordinate")
            continue
        turns = named.turning[follower], named.turning[leader]
        unit = [np.pi / 180 if turn else usd.length for turn in turns]
        shift = usd.get(prim, "newton:mimicCoef0", 0.0) * unit[0]
        ratio = usd.get(prim, "newton:mimicCoef1", 1.0) * (1.0 if turns[0] == turns[1] else unit[0] / unit[1])
        if not ours:  # MuJoCo counts both coordinates from their zeros
            shift += ratio * named.zero[leader] - named.zero[follower]
        data = [usd.get(prim, f"mjc:coef{i}", other) for i, other in enumerate((shift, ratio, 0.0, 0.0, 0.0))]
        pair = {"name1": named.joints[follower], "name2": named.joints[leader]}
        new = spec.add_equality(type=JOINT, objtype=_AS_JOINT, **pair)
        new.data[:] = [*data, *[0.0] * (len(new.data) - 5)]
        _soften(usd, prim, new)


def _soften(usd: Stage, prim: Any, new: Any) -> None:
    for name in ("solref", "solimp"):
        usd.put(prim, f"mjc:{name}", new, name)


def add_tendons(usd: Stage, spec: Any, named: Named, name_of: Callable[[Any], str]) -> None:
    """Add the tendons of MuJoCo's schema.

    Args:
        named: the new names go into its tendons.
        name_of: a new name for a prim.
    """
    for prim in usd.prims:
        if str(prim.GetTypeName()) != "MjcTendon":
            continue
        targets = [target.GetPath() for target in usd.targets(prim, "mjc:path")]
        sides = [named.sites.get(target.GetPath(), "") for target in usd.targets(prim, "mjc:sideSites")]
        order = [int(i) for i in _list(usd, prim, "mjc:path:indices", np.arange(len(targets)))]
        known = {**named.joints, **named.sites, **named.geoms}
        missing = [path for path in targets if path not in known]
        if missing or not order or min(order) < 0 or max(order) >= len(targets):
            usd.refuse(prim, f"a tendon along {missing[0] if missing else 'nothing'}; joints, sites and colliders are")
            continue
        new = spec.add_tendon(name=name_of(prim))
        named.tendons[prim.GetPath()] = new.name
        path = [targets[i] for i in order]
        if usd.get(prim, "mjc:type", "spatial") == "fixed":
            coefficients = _list(usd, prim, "mjc:path:coef", np.ones(len(path)))
            for place, coefficient in zip(path, coefficients, strict=False):
                new.wrap_joint(known[place], float(coefficient))
        else:
            _lead(usd, prim, new, path, named, sides)
        _tune(usd, prim, new)


def _list(usd: Stage, prim: Any, name: str, default: np.ndarray) -> np.ndarray:
    """Numbers of any length; the default if there are none."""
    found = usd.get(prim, name, np.zeros(0))
    return found if len(found) else default


def _lead(usd: Stage, prim: Any, new: Any, path: list[Any], named: Named, sides: list[str]) -> None:
    """Lead a spatial tendon past its sites and geoms, with a pulley between segments."""
    segments = [int(i) for i in _list(usd, prim, "mjc:path:segments", np.zeros(len(path)))]
    divisors = _list(usd, prim, "mjc:path:divisors", np.ones(max(segments, default=0) + 1))
    beside = [int(i) for i in _list(usd, prim, "mjc:sideSites:indices", -np.ones(len(path)))]
    if segments and not 0 <= min(segments) <= max(segments) < len(divisors):
        raise usd.fault(prim, "mjc:path:segments names a segment that mjc:path:divisors does not have")
    before = 0
    for i, place in enumerate(path):
        segment = segments[i] if i < len(segments) else before
        if segment != before or (i == 0 and divisors[0] != 1):
            new.wrap_pulley(float(divisors[segment]))
        before = segment
        if place in named.sites:
            new.wrap_site(named.sites[place])
        else:
            side = beside[i] if i < len(beside) else -1
            new.wrap_geom(named.geoms[place], sides[side] if 0 <= side < len(sides) else "")


def _tune(usd: Stage, prim: Any, new: Any) -> None:
    """Set a tendon's constants."""
    for attribute, ours in _TENDON.items():
        usd.put(prim, f"mjc:{attribute}", new, ours)
    new.stiffness[0] = usd.get(prim, "mjc:stiffness", 0.0)
    new.damping[0] = usd.get(prim, "mjc:damping", 0.0)
    new.limited = _LIMITED[usd.get(prim, "mjc:limited", "auto", _LIMITED)]
    new.range = [usd.get(prim, f"mjc:range:{end}", 0.0) for end in ("min", "max")]
    new.actfrclimited = _LIMITED[usd.get(prim, "mjc:actuatorfrclimited", "auto", _LIMITED)]
    new.actfrcrange = [usd.get(prim, f"mjc:actuatorfrcrange:{end}", 0.0) for end in ("min", "max")]
