"""What PhysX, or the stage that is written for it, lacks of a compiled scene."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..model.structure import GeomType, JointType
from .contents import others, polynomials

_ROLLING = 4  # condim from which on contacts resist turning


def require_simulated(m: Any, felt: dict[str, str]) -> None:
    """Raise UnsupportedError with everything of a compiled scene that PhysX does not simulate.

    Args:
        m: a ``mujoco.MjModel``.
        felt: bodies of contact sensors by the sensor's name.
    """
    faults = [*_bodies(m), *_joints(m), *polynomials(m), *_geoms(m)]
    faults += [f"{m.neq} equality constraints"] if m.neq else []
    faults += others(m)
    faults += [
        f"{name!r}, Contact on {body!r}: it does not move, and PhysX would add up the contacts of all worlds"
        for name, body in felt.items()
        if not m.body_weldid[m.body(body).id]
    ]
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise UnsupportedError(f"the back end 'physx' cannot simulate this scene:\n{listed}")


def _bodies(m: Any) -> Iterator[str]:
    for b in range(1, m.nbody):
        name = m.body(b).name
        if m.body_mocapid[b] >= 0:
            yield f"body {name!r}: mocap bodies are moved from outside"
        if m.body_gravcomp[b]:
            yield f"body {name!r}: gravcomp, a weight that is held up"
        if m.body_weldid[b] == b and m.body_mass[np.flatnonzero(m.body_weldid == b)].sum() <= 0:
            yield f"body {name!r}: it moves and has no mass"


def _joints(m: Any) -> Iterator[str]:
    for j in range(m.njnt):
        name, kind, dof = m.joint(j).name, m.jnt_type[j], m.jnt_dofadr[j]
        dofs = slice(dof, dof + {JointType.FREE: 6, JointType.BALL: 3}.get(JointType(int(kind)), 1))
        if kind == JointType.BALL and (m.jnt_limited[j] or m.jnt_stiffness[j]):
            yield f"joint {name!r}: a ball with a limit or a spring; three hinges have them"
        if kind == JointType.BALL and m.body_jntnum[m.jnt_bodyid[j]] > 1:
            yield f"joint {name!r}: a ball beside other joints of its body"
        if kind == JointType.FREE and (m.jnt_stiffness[j] or m.dof_damping[dofs].any() or m.dof_armature[dofs].any()):
            yield f"joint {name!r}: stiffness, damping or armature of what floats freely"
        if kind == JointType.FREE and m.dof_frictionloss[dofs].any():
            yield f"joint {name!r}: frictionloss of what floats freely"


def _geoms(m: Any) -> Iterator[str]:
    touching = (m.geom_contype != 0) | (m.geom_conaffinity != 0)
    for g in np.flatnonzero(touching):
        name = m.geom(g).name or f"of body {m.body(m.geom_bodyid[g]).name}"
        kind = GeomType(int(m.geom_type[g]))
        if kind in (GeomType.ELLIPSOID, GeomType.SDF):
            yield f"geom {name!r}: PhysX has no {kind.name.lower()}; its convex hull as a mesh is possible"
        if m.geom_condim[g] >= _ROLLING:
            yield f"geom {name!r}: condim {m.geom_condim[g]}, friction against turning; 3 is possible"
        if m.geom_margin[g] or m.geom_gap[g]:
            yield f"geom {name!r}: margin or gap: contacts act where shapes touch"
    if len(set(m.geom_priority[touching].tolist())) > 1:
        yield "geoms with different priorities: the larger friction holds"
