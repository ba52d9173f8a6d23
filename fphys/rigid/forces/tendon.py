"""The launches of tendons: lengths, velocities and Jacobians of fixed and spatial tendons."""

from typing import Any, NamedTuple

import numpy as np

from ...model import Model, State
from ...model.structure import Structure, memo
from .. import stages
from ..tree import topology

Buffer = Any

JOINT, PULLEY, SITE, SPHERE, CYLINDER = 1, 2, 3, 4, 5
"""MuJoCo's mjtWrap."""


class Segments(NamedTuple):
    """The pieces of spatial tendons, each between two sites, in the order of the tendons."""

    site: np.ndarray  # (segment, 2)
    geom: np.ndarray  # (segment,) geom that it may wrap around, or -1
    shape: np.ndarray  # (segment,) SPHERE, CYLINDER or 0
    side: np.ndarray  # (segment,) side site, or -1
    pulley: np.ndarray  # (segment,) wrap of the pulley that divides the tension, or -1
    body: np.ndarray  # (segment, 3) bodies that it pulls on: first site's, geom's, second site's
    adr: np.ndarray  # (ntendon + 1,) segments of tendon t are adr[t]:adr[t + 1]


@memo
def segments(structure: Structure) -> Segments:
    """Cut the paths into segments; a pulley starts a new branch of its tendon."""
    s, tendon = structure, structure.tendon
    found, adr = [], [0]
    for t in range(s.ntendon):
        pulley, before = -1, -1
        for i in range(tendon.adr[t], tendon.adr[t + 1]):
            if tendon.kind[i] == PULLEY:
                pulley, before = i, -1
            elif tendon.kind[i] == SITE:
                if before >= 0:
                    found.append((before, i, pulley))
                before = i
        adr.append(len(found))
    rows = []
    for a, b, pulley in found:
        around = a + 1 if b - a == 2 else -1
        geom, side, shape = -1, -1, 0
        if around >= 0:
            geom, side, shape = tendon.object[around], tendon.side[around], tendon.kind[around]
        x, y = tendon.object[a], tendon.object[b]
        middle = s.geom.body[geom] if geom >= 0 else s.site.body[x]
        rows.append([x, y, geom, shape, side, pulley, s.site.body[x], middle, s.site.body[y]])
    table = np.array(rows, np.int32).reshape(-1, 9)
    geom, shape, side, pulley = np.ascontiguousarray(table[:, 2:6].T)
    ends, body = np.ascontiguousarray(table[:, :2]), np.ascontiguousarray(table[:, 6:])
    return Segments(ends, geom, shape, side, pulley, body, np.array(adr, np.int32))


@memo
def pattern(structure: Structure) -> topology.Pattern:
    """Which dofs change which tendon's length."""
    s, cut = structure, segments(structure)
    moves = topology.ancestry(s)
    mask = np.zeros((s.ntendon, s.nv), bool)
    for t in range(s.ntendon):
        for i in range(s.tendon.adr[t], s.tendon.adr[t + 1]):
            if s.tendon.kind[i] == JOINT:
                mask[t, s.joint.dof[s.tendon.object[i]]] = True
        for n in range(cut.adr[t], cut.adr[t + 1]):
            ends = moves[cut.body[n]]
            mask[t] |= ends.any(0) & ~ends.all(0)  # a dof that moves all ends alike does not change the length
    return topology.make_pattern(mask)


def _of_joints(structure: Structure, index: np.ndarray) -> np.ndarray:
    """A per-joint index (for example the first dof) for each wrap; -1 for wraps that are not joints."""
    tendon = structure.tendon
    joint = tendon.kind == JOINT
    return np.where(joint, index[np.where(joint, tendon.object, 0)], -1).astype(np.int32)


class Tendons(NamedTuple):
    length: Buffer  # (world, ntendon)
    velocity: Buffer  # (world, ntendon)
    jacobian: Buffer  # (world, entry), the entries of :func:`pattern`


def pulls(launch: Any, model: Model, state: State, frames: stages.Frames, out: Buffer | None = None) -> Buffer:
    """What each segment does to its bodies, wrenches about their trees' origins, (world, segment, 3, 6)."""
    return _segments(launch, model, state, frames, out)[1]


def _segments(
    launch: Any, model: Model, state: State, frames: stages.Frames, pull: Buffer | None = None
) -> tuple[Buffer, Buffer]:
    """Length of each segment and its pulls, (world, segment), (world, segment, 3, 6)."""
    s, cut = model.structure, segments(model.structure)
    t = stages.types(state.qpos)
    dim = (launch.worlds, cut.geom.size)
    length, pull = launch.scratch(dim, t.real), pull or launch.scratch((*dim, 3), t.wrench)
    if cut.geom.size:
        launch(
            stages.modules(state.qpos).tendon.tendon_segments,
            dim=dim,
            inputs=[cut.site, cut.geom, cut.shape, cut.side, cut.pulley, topology.body_origin(model)[cut.body]]
            + [s.body.frame[s.site.body], s.body.frame[s.geom.body]]
            + [model.tendon.coef, model.site.pos, model.geom.pos, model.geom.quat, model.geom.size, *frames],
            outputs=[length, pull],
        )
    return length, pull


def tendons(
    launch: Any, model: Model, state: State, frames: stages.Frames, axes: Buffer, length: Buffer | None = None
) -> Tendons:
    """Length, velocity and Jacobian of every tendon."""
    s, cut = model.structure, segments(model.structure)
    real = stages.types(state.qpos).real
    entry = pattern(s)
    length = length or launch.scratch((launch.worlds, s.ntendon), real)
    jacobian = launch.scratch((launch.worlds, entry.row.size), real)
    if not s.ntendon:
        return Tendons(length, length, jacobian)
    segment_length, pull = _segments(launch, model, state, frames)
    _sum(launch, model, state, segment_length, length)
    if entry.row.size:
        launch(
            stages.modules(state.qpos).tendon.tendon_jacobian,
            dim=(launch.worlds, entry.row.size),
            inputs=[
                entry.row,
                entry.dof,
                s.tendon.adr,
                _of_joints(s, s.joint.dof),
                cut.adr,
                cut.body,
                topology.ancestry(s),
            ]
            + [model.tendon.coef, pull, axes],
            outputs=[jacobian],
        )
    return Tendons(length, stages.row_products(launch, entry, jacobian, state.qvel), jacobian)


def _sum(launch: Any, model: Model, state: State, segment_length: Buffer, out: Buffer) -> None:
    s = model.structure
    launch(
        stages.modules(state.qpos).tendon.tendon_lengths,
        dim=(launch.worlds, s.ntendon),
        inputs=[s.tendon.adr, _of_joints(s, s.joint.qpos), segments(s).adr, model.tendon.coef]
        + [state.qpos, segment_length],
        outputs=[out],
    )


def lengths(launch: Any, model: Model, state: State, frames: stages.Frames) -> Buffer:
    """Only the length of every tendon, (world, ntendon)."""
    length = launch.scratch((launch.worlds, model.structure.ntendon), stages.types(state.qpos).real)
    _sum(launch, model, state, _segments(launch, model, state, frames)[0], length)
    return length


def rates(launch: Any, model: Model, ten: Tendons, rate: Buffer) -> Buffer:
    """Rates of the lengths for given rates of the dofs, (world, ntendon)."""
    return stages.row_products(launch, pattern(model.structure), ten.jacobian, rate)


def dense_jacobian(launch: Any, model: Model, ten: Tendons, out: Buffer | None = None) -> Buffer:
    """d(length)/d(dof) with its zeros, (world, ntendon, nv); an output that is given must be zeroed before."""
    s = model.structure
    if out is None:
        out = launch.scratch((launch.worlds, s.ntendon, s.nv), stages.types(ten.length).real, zeroed=True)
    stages.dense_rows(launch, pattern(s), ten.jacobian, out)
    return out
