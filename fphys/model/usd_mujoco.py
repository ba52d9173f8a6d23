"""What MuJoCo's, Newton's and PhysX's schemas say beyond UsdPhysics: options, joints' constants and actuators."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .structure import JointType
from .usd_couplings import Named
from .usd_joints import FAR, Placed
from .usd_stage import Stage
from .validate import DISABLE_BITS

_TOKENS = {
    "integrator": ("euler", "rk4", "implicit", "implicitfast", "discrete"),
    "cone": ("pyramidal", "elliptic"),
    "jacobian": ("dense", "sparse", "auto"),
    "solver": ("pgs", "cg", "newton"),
}
_OPTIONS = "ccd_iterations ccd_tolerance density impratio integrator cone jacobian solver iterations ls_iterations"
_OPTIONS += " ls_tolerance magnetic noslip_iterations noslip_tolerance timestep tolerance viscosity wind"
_LIMITED = {"false": 0, "true": 1, "auto": 2}
_KINDS = {
    "gainType": ("gaintype", ("fixed", "affine", "muscle")),
    "biasType": ("biastype", ("none", "affine", "muscle")),
    "dynType": ("dyntype", ("none", "integrator", "filter", "filterexact", "muscle")),
}
_JOINT = {
    "margin": "margin",
    "solreflimit": "solref_limit",
    "solimplimit": "solimp_limit",
    "solreffriction": "solref_friction",
    "solimpfriction": "solimp_friction",
    "springdamper": "springdamper",
}
_NONE = 1e30
_REFUSED = (
    "NewtonActuator",
    "PhysxMimic",
    "PhysxTendon",
    "PhysxDeformable",
)
_TRANSMISSION = {"joint": 0, "jointinparent": 1, "slidercrank": 2, "tendon": 3, "site": 4}  # mjtTrn


def add_options(usd: Stage, spec: Any) -> None:
    """Set gravity, time step and other options, and refuse schemas that have no meaning here."""
    scenes = usd.scenes
    up = np.array([0.0, 0, 1])
    gravity, step = -9.81 * up, None
    spec.compiler.degree = False
    for prim in usd.prims:
        kind = str(prim.GetTypeName())
        if kind == "MjcKeyframe":
            usd.note(prim, "a keyframe is not read")
        for schema in [kind, *usd.schemas(prim)]:
            if schema.startswith(_REFUSED):
                usd.refuse(prim, f"{schema}: it is not read yet; MJCF can say it")
    for scene in scenes[1:]:
        usd.note(scene, f"only the first scene counts, <{scenes[0].GetPath()}>")
        usd.leave(scene)
    for scene in scenes[:1]:
        direction = usd.get(scene, "physics:gravityDirection", np.zeros(3))
        size = usd.get(scene, "physics:gravityMagnitude", -np.inf)
        size = 9.81 if size < 0 else size * usd.length
        if np.any(direction):
            turned = usd.world[:3, :3] @ direction
            up = -turned / np.linalg.norm(turned)
        gravity = -size * up * (usd.get(scene, "newton:gravityEnabled", True) is not False)
        rate = 1000.0 if "NewtonSceneAPI" in usd.schemas(scene) else 0.0  # the default of Newton's schema
        rate = usd.get(scene, "newton:timeStepsPerSecond", usd.get(scene, "physxScene:timeStepsPerSecond", rate))
        step = 1 / rate if rate > 0 else None
        _set_options(usd, scene, spec)
    spec.option.gravity = gravity
    if step is not None and not usd.has(scenes[0], "mjc:option:timestep"):
        spec.option.timestep = step


def _set_options(usd: Stage, scene: Any, spec: Any) -> None:
    iterations = usd.get(scene, "newton:maxSolverIterations", -1.0)
    if iterations > 0:
        spec.option.iterations = int(iterations)
    for name in _OPTIONS.split():
        if usd.has(scene, f"mjc:option:{name}"):
            own = getattr(spec.option, name)
            if name in _TOKENS:
                value = _TOKENS[name].index(usd.get(scene, f"mjc:option:{name}", "", _TOKENS[name]))
            else:
                value = usd.get(scene, f"mjc:option:{name}", own)
            setattr(spec.option, name, int(value) if isinstance(own, int) else value)
    for name, bit in DISABLE_BITS.items():
        if usd.get(scene, f"mjc:flag:{name}", True) is False:
            spec.option.disableflags |= bit
    usd.put(scene, "mjc:compiler:setTotalMass", spec.compiler, "settotalmass")
    spec.compiler.autolimits = usd.get(scene, "mjc:compiler:autoLimits", True)


def add_joint(usd: Stage, body: Any, prim: Any, one: Placed, name: str) -> None:
    """Add a coordinate of a joint to a body of a spec, with the constants that MuJoCo's and Newton's schemas give."""
    dof = one.dof
    turns = dof.kind != JointType.SLIDE
    effort = usd.mass * usd.length * (usd.length if turns else 1.0)
    heavy = usd.mass * (usd.length**2 if turns else 1.0)
    unit = np.pi / 180 if turns else usd.length
    new = body.add_joint(name=name, type=int(dof.kind), axis=one.axis, pos=one.anchor)
    new.armature = usd.get(prim, "newton:armature", usd.get(prim, "physxJoint:armature", 0.0)) * heavy
    new.armature = usd.get(prim, "mjc:armature", new.armature)
    damping = usd.get(prim, "newton:damping", 0.0) * effort / unit
    new.damping[0] = usd.get(prim, "mjc:damping", damping)
    new.frictionloss = usd.get(prim, "mjc:frictionloss", usd.get(prim, "newton:friction", 0.0) * effort)
    new.stiffness[0] = usd.get(prim, "mjc:stiffness", 0.0)
    angle = np.pi / 180 if dof.turns and _in_degrees(usd) else 1.0
    new.ref = one.ref
    if usd.has(prim, "mjc:ref"):
        new.ref = usd.get(prim, "mjc:ref", 0.0) * angle
    new.springref = usd.get(prim, "mjc:springref", 0.0) * angle
    for attribute, ours in _JOINT.items():
        usd.put(prim, f"mjc:{attribute}", new, ours)
    new.limited = int(dof.limit is not None)
    if dof.limit is not None:
        new.range = dof.limit
    low, high = (usd.get(prim, f"mjc:actuatorfrcrange:{end}", 0.0) for end in ("min", "max"))
    new.actfrclimited = _LIMITED[usd.get(prim, "mjc:actuatorfrclimited", "auto", _LIMITED)]
    new.actfrcrange = (low, high)
    new.actgravcomp = usd.get(prim, "mjc:actuatorgravcomp", False) is True


def _in_degrees(usd: Stage) -> bool:
    """Whether angles of MuJoCo's schema are degrees, as in MJCF."""
    return not usd.scenes or usd.get(usd.scenes[0], "mjc:compiler:angle", "degree") == "degree"


def add_motor(spec: Any, name: str, one: Placed) -> list[float]:
    """Add the servo or motor of a drive, and return the control that is its target; nothing without a drive.

    With stiffness k and damping d, the force is k (u - q) - d (q' - v): u is the control, v the target velocity.
    Without stiffness it is d (u - q'), and without both it is u.
    """
    drive = one.dof.drive
    if drive is None or drive.force == 0:
        return []
    new = spec.add_actuator(name=name, target=name, trntype=_TRANSMISSION["joint"])
    gain, bias = np.zeros(10), np.zeros(10)
    gain[0] = drive.stiffness or drive.damping or 1.0
    bias[:3] = drive.damping * drive.velocity if drive.stiffness else 0.0, -drive.stiffness, -drive.damping
    new.gainprm, new.biasprm, new.biastype = gain, bias, int(bool(drive.stiffness or drive.damping))
    if drive.force < _NONE:
        new.forcelimited, new.forcerange = 1, (-drive.force, drive.force)
    return [drive.position if drive.stiffness else drive.velocity if drive.damping else 0.0]


def add_actuators(usd: Stage, spec: Any, named: Named, name_of: Callable[[Any], str]) -> list[float]:
    """Add the actuators of MuJoCo's schema; a zero control for each.

    Args:
        named: what they may act on.
        name_of: a new name for a prim.
    """
    made = []
    for prim in usd.prims:
        if str(prim.GetTypeName()) != "MjcActuator":
            continue
        target = [path.GetPath() for path in usd.targets(prim, "mjc:target")]
        new = spec.add_actuator(name=name_of(prim))
        inside = "inparent" if usd.get(prim, "mjc:jointInParent", False) is True else ""
        kinds = {f"joint{inside}": named.joints, "site": named.sites, "tendon": named.tendons}
        found = [(kind, names[path]) for kind, names in kinds.items() for path in target if path in names]
        if len(target) != 1 or len(found) != 1:
            usd.refuse(prim, "an actuator of what is neither a joint, a site nor a tendon")
            continue
        new.target, new.trntype = found[0][1], _TRANSMISSION[found[0][0]]
        for relation, ours in (("mjc:refSite", "refsite"), ("mjc:sliderSite", "slidersite")):
            for site in usd.targets(prim, relation):
                setattr(new, ours, named.sites.get(site.GetPath(), ""))
                if ours == "slidersite":
                    new.trntype = _TRANSMISSION["slidercrank"]
        for attribute, (ours, kinds) in _KINDS.items():
            kind = usd.get(prim, f"mjc:{attribute}", kinds[0])
            if kind not in kinds:
                usd.refuse(prim, f"an actuator whose {attribute} is {kind}")
                continue
            setattr(new, ours, kinds.index(kind))
        for attribute, ours in (("gainPrm", "gainprm"), ("biasPrm", "biasprm"), ("dynPrm", "dynprm"), ("gear", "gear")):
            value = usd.get(prim, f"mjc:{attribute}", np.zeros(0))
            if len(value) > len(getattr(new, ours)):
                raise usd.fault(prim, f"mjc:{attribute} has {len(value)} numbers")
            if len(value):
                setattr(new, ours, np.pad(value, (0, len(getattr(new, ours)) - len(value))))
        for what in ("ctrl", "force", "act"):
            setattr(new, f"{what}limited", _LIMITED[usd.get(prim, f"mjc:{what}Limited", "auto", _LIMITED)])
            ends = [usd.get(prim, f"mjc:{what}Range:{end}", 0.0) for end in ("min", "max")]
            setattr(new, f"{what}range", np.clip(ends, -FAR, FAR))
        new.lengthrange = [usd.get(prim, f"mjc:lengthRange:{end}", 0.0) for end in ("min", "max")]
        new.actdim = int(usd.get(prim, "mjc:actDim", -1.0))
        new.actearly = usd.get(prim, "mjc:actEarly", False) is True
        new.cranklength = usd.get(prim, "mjc:crankLength", 0.0)
        new.inheritrange = usd.get(prim, "mjc:inheritRange", 0.0)
        made.append(0.0)
    return made
