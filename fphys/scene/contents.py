"""What the files of a compiled scene ask for that an engine may lack."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..model.structure import JointType


def acts(m: Any, t: int) -> bool:
    """Whether a tendon pulls by itself."""
    return bool(
        m.tendon_limited[t] or np.any(m.tendon_stiffness[t]) or np.any(m.tendon_damping[t]) or m.tendon_frictionloss[t]
    )


def disabled(m: Any) -> Iterator[str]:
    """Flags of the option element that leave out what the scene has. Gravity is not among them: it is zero then."""
    present = {
        "equality": m.neq > 0,
        "frictionloss": np.any(m.dof_frictionloss) or np.any(m.tendon_frictionloss),
        "limit": np.any(m.jnt_limited) or np.any(m.tendon_limited),
        "contact": m.npair > 0 or np.count_nonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0)) > 1,
        "spring": np.any(m.jnt_stiffness) or np.any(m.tendon_stiffness),
        "damper": np.any(m.dof_damping) or np.any(m.tendon_damping),
    }
    present["constraint"] = any(present[name] for name in ("equality", "frictionloss", "limit", "contact"))
    for name, there in present.items():
        if there and m.opt.disableflags & _FLAGS[name]:
            yield f'<flag {name}="disable"/>: take what it leaves out from the file'


_FLAGS = {
    name: 1 << bit
    for bit, name in enumerate(("constraint", "equality", "frictionloss", "limit", "contact", "spring", "damper"))
}


def others(m: Any) -> Iterator[str]:
    """Tendons, pairs, what is flexible, a medium, and flags."""
    pulled = [t for t in range(m.ntendon) if acts(m, t)]
    counts = {
        "tendons with springs, damping, limits or friction": len(pulled),
        "contact pairs of their own (contact/pair)": m.npair,
        "flexible bodies (flex)": m.nflex,
    }
    yield from (f"{count} {what}" for what, count in counts.items() if count)
    if m.opt.density or m.opt.viscosity or m.opt.wind.any():
        yield "option density, viscosity or wind: a medium around the bodies"
    yield from disabled(m)


def polynomials(m: Any) -> Iterator[str]:
    """Joints whose springs or dampers are not linear."""
    for j in range(m.njnt):
        dof = m.jnt_dofadr[j]
        dofs = slice(dof, dof + {JointType.FREE: 6, JointType.BALL: 3}.get(JointType(int(m.jnt_type[j])), 1))
        if np.any(m.jnt_stiffnesspoly[j]) or np.any(m.dof_dampingpoly[dofs]):
            yield f"joint {m.joint(j).name!r}: a spring or damping that is a polynomial"
