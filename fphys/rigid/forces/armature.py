"""The launches of tendons' armature: inertia m that moves with a length l(q), l' = J v.

It adds J^T m J to the mass matrix and J^T m J' v to the bias (MuJoCo's ``tendon_armature``), for tendons whose armature
is not zero at loading. Like MuJoCo, we leave out the matrix's entries for dofs on different branches of the tree: a
tendon between two branches keeps only each branch's own part. Such a tendon wraps around no geom.
"""

from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.structure import Structure, memo
from .. import stages
from ..tree import topology
from . import tendon

Buffer = Any


class Heavy(NamedTuple):
    """The tendons that have armature, and their segments."""

    tendon: np.ndarray  # (heavy,)
    adr: np.ndarray  # (heavy + 1,) segments of tendon r are segment[adr[r]:adr[r + 1]]
    segment: np.ndarray


@memo
def heavy(structure: Structure) -> Heavy:
    """The tendons that had armature when the model was loaded."""
    which, adr = np.flatnonzero(structure.tendon.heavy), tendon.segments(structure).adr
    segments = [np.arange(adr[t], adr[t + 1]) for t in which]
    ends = np.cumsum([0, *map(len, segments)])
    return Heavy(*(np.asarray(x, np.int32) for x in (which, ends, np.concatenate([[], *segments]))))


def count(structure: Structure) -> int:
    """How many tendons have armature."""
    return int(structure.tendon.heavy.sum())


def _rows(model: Model, ten: tendon.Tendons) -> tuple[list[Any], list[Any]]:
    """The indices of the entries of the rows, and their values."""
    s = model.structure
    names = [topology.branches(model), heavy(s).tendon, tendon.pattern(s).adr, tendon.pattern(s).dof]
    return names, [model.tendon.armature, ten.jacobian]


def drifts(
    launch: Any,
    model: Model,
    state: State,
    frames: stages.Frames,
    axes: Buffer,
    velocity: Buffer,
    drift: Buffer | None = None,
) -> Buffer:
    """J' v: the acceleration of the lengths when no dof accelerates, (world, heavy)."""
    s, t, w = model.structure, stages.types(state.qpos), launch.worlds
    k = kernels(state.qpos.dtype, "rigid.forces.armature")
    own, cut = heavy(s), tendon.segments(s)
    drift = drift or launch.scratch((w, own.tendon.size), t.real, zeroed=not own.segment.size)
    if not own.segment.size:
        return drift
    still = launch.scratch((w, s.frame.parent.size), t.motion, zeroed=True)
    weightless = launch.scratch((w,), t.vec3, zeroed=True)
    bias = stages.frame_acceleration(launch, model, state, weightless, axes, velocity, still)
    each = launch.scratch((w, own.segment.size), t.real)
    launch(
        k.segment_drifts,
        dim=(w, own.segment.size),
        inputs=[own.segment, cut.site, cut.pulley, topology.body_origin(model)[cut.body], s.body.frame[s.site.body]]
        + [model.tendon.coef, model.site.pos, *frames, velocity, bias],
        outputs=[each],
    )
    launch(k.tendon_drifts, dim=(w, own.tendon.size), inputs=[own.adr, each], outputs=[drift])
    return drift


def add_inertia(
    launch: Any, model: Model, state: State, frames: stages.Frames, axes: Buffer, matrix: Any, out: Any
) -> None:
    """M + J^T m J, packed."""
    names, values = _rows(model, tendon.tendons(launch, model, state, frames, axes))
    launch(
        kernels(state.qpos.dtype, "rigid.forces.armature").add_inertia,
        dim=launch.worlds,
        inputs=[model.structure.dof.parent, *names, *values, matrix],
        outputs=[out],
    )


def add_force(
    launch: Any,
    model: Model,
    state: State,
    poses: tuple[stages.Frames, Any],
    velocity: Any,
    qacc: Any,
    force: Any,
    out: Any,
) -> None:
    """Force + J^T m (J a + J' v), (world, nv)."""
    names, values = _rows(model, tendon.tendons(launch, model, state, *poses))
    drift = drifts(launch, model, state, *poses, velocity)
    launch(
        kernels(state.qpos.dtype, "rigid.forces.armature").add_inertia_force,
        dim=launch.worlds,
        inputs=[*names, *values, drift, qacc, force],
        outputs=[out],
    )


def armature_power(launch: Any, model: Model, ten: tendon.Tendons, drift: Any, rates: stages.Rates, out: Any) -> None:
    """l . J^T m (J a + J' v) of each tendon, (world, heavy).

    Args:
        drift: J' v; None leaves it out.
        rates: a and l of the dofs.
    """
    names, values = _rows(model, ten)
    size = (launch.worlds, count(model.structure))
    if drift is None:
        drift = launch.scratch(size, stages.types(ten.length).real, zeroed=True)
    launch(
        kernels(ten.length.dtype, "rigid.forces.armature").armature_power,
        dim=size,
        inputs=[*names, *values, drift, *rates, tendon.rates(launch, model, ten, rates.trial)],
        outputs=[out],
    )
