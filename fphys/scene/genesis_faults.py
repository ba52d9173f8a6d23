"""What Genesis, or its reader of MJCF, lacks of a compiled scene."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..model.structure import JointType
from .contents import others, polynomials


def require_simulated(m: Any, things: Sequence[str]) -> None:
    """Raise UnsupportedError with everything of a compiled scene that Genesis does not simulate.

    Args:
        m: a ``mujoco.MjModel``.
        things: names of the scene's rigid things.
    """
    faults = [*_weights(m, things), *_joints(m), *polynomials(m), *others(m)]
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise UnsupportedError(
            f"the back end 'genesis' cannot simulate this scene:\n{listed}\nTake the native back end, which can"
        )


def held_up(m: Any, thing: str) -> float:
    """The share of the weight of a thing's bodies that is held up, gravcomp, which is the same for all of them."""
    found = _weighing(m, thing)
    return float(m.body_gravcomp[found[0]]) if found else 0.0


def _weighing(m: Any, thing: str) -> list[int]:
    """The bodies of a thing that move and have mass."""
    own = [b for b in range(1, m.nbody) if m.body(b).name == thing or m.body(b).name.startswith(f"{thing}/")]
    return [b for b in own if m.body_weldid[b] and m.body_mass[b] > 0]


def _weights(m: Any, things: Sequence[str]) -> Iterator[str]:
    for thing in things:
        found = _weighing(m, thing)
        if len(set(m.body_gravcomp[found].tolist())) > 1:
            values = ", ".join(f"{m.body_gravcomp[b]:g} of {m.body(b).name!r}" for b in found)
            yield f"gravcomp {values}: Genesis holds up the same share of all bodies of a thing"


def _joints(m: Any) -> Iterator[str]:
    for j in range(m.njnt):
        name, kind, at = m.joint(j).name, m.jnt_type[j], m.jnt_qposadr[j]
        if kind == JointType.BALL and m.jnt_limited[j]:
            yield f"joint {name!r}: a ball with a limit; three hinges have them"
        if m.jnt_stiffness[j]:
            if kind == JointType.FREE:
                yield f"joint {name!r}: stiffness of what floats freely"
            elif kind != JointType.BALL and not np.isclose(m.qpos_spring[at], m.qpos0[at]):
                yield f"joint {name!r}: springref {m.qpos_spring[at]:g}, ref {m.qpos0[at]:g}: springs rest at ref"
