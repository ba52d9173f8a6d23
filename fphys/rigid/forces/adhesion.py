"""Adhesion actuators: their pulls at contacts, and the virtual power of these pulls.

An adhesion's force is split equally among all contacts of its body, including those within the gap, and acts against
their normals whatever the gear: MuJoCo's transmission ``body``. It is one of the smooth forces; the contacts push back
against it.
"""

from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.structure import Structure, memo
from .. import stages
from ..collide.collision import Contacts
from ..collide.pairs import pair_list
from ..tree import topology
from . import actuation, tendon

Buffer = Any


class Adhesions(NamedTuple):
    """Which actuators adhere, and the bodies that they pull on."""

    actuator: np.ndarray  # (n,)
    body: np.ndarray  # (n,)


@memo
def adhesions(structure: Structure) -> Adhesions:
    a = structure.actuator
    index = np.flatnonzero(a.transmission == actuation.BODY).astype(np.int32)
    return Adhesions(index, a.target[index])


def adheres(model: Model, loads: stages.Loads) -> bool:
    """Whether any active actuator is an adhesion."""
    return stages.actuated(model, loads) and adhesions(model.structure).actuator.size > 0


def _pulls(
    launch: Any, model: Model, state: State, loads: stages.Loads, frames: stages.Frames, axes: Buffer, pair: Buffer
) -> Buffer:
    """Pull of every contact, (world, contact) [N]."""
    force = actuation.drives(
        launch, model, state, loads.ctrl, frames, axes, tendon.tendons(launch, model, state, frames, axes)
    ).force
    pull = launch.scratch(pair.shape, stages.types(force).real)
    launch(
        kernels(state.qpos.dtype, "rigid.forces.adhesion").contact_pulls,
        dim=pair.shape,
        inputs=[*adhesions(model.structure), pair_list(model), pair, force],
        outputs=[pull],
    )
    return pull


def add_adhesion(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    motions: stages.Motions,
    contacts: Contacts,
    force: Buffer,
) -> Buffer:
    """Generalised forces plus those of adhesions, (world, nv)."""
    s, frames, axes = model.structure, motions.frames, motions.axes
    if not (adheres(model, loads) and contacts.pair.shape[1]):
        return force
    out = launch.scratch(force.shape, stages.types(force).real)
    pull = _pulls(launch, model, state, loads, frames, axes, contacts.pair)
    launch(
        kernels(state.qpos.dtype, "rigid.forces.adhesion").add_pulls,
        dim=launch.worlds,
        inputs=[pair_list(model), topology.last_dof(model), s.dof.parent, topology.dof_origin(model)]
        + [contacts.pair, contacts.pos, contacts.frame, pull, frames.pos, axes, force],
        outputs=[out],
    )
    return out


def adhesion_power(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    contacts: Contacts,
    motions: stages.Motions,
    out: Buffer,
) -> None:
    """Virtual power of the pulls, (world, contact)."""
    s, frames = model.structure, motions.frames
    axes = stages.dof_axes(launch, model, frames)
    pull = _pulls(launch, model, state, loads, frames, axes, contacts.pair)
    launch(
        kernels(state.qpos.dtype, "rigid.forces.adhesion").pull_power,
        dim=contacts.pair.shape,
        inputs=[pair_list(model), s.body.frame, topology.body_origin(model)]
        + [contacts.pair, contacts.pos, contacts.frame, pull, frames.pos, motions.trial],
        outputs=[out],
    )
