"""Compensated gravity of joints with MuJoCo's ``actuatorgravcomp``: their actuators carry it, within their ranges.

The bodies' loads hold all compensation. That of these joints is subtracted, and added to the force of their actuators;
as in MuJoCo, it is lost if nothing is actuated.
"""

from typing import Any

import numpy as np

from ...bridge import kernels, warp_op
from ...model import Model, State
from ...model.structure import Structure
from .. import stages
from ..tree import topology


def count(structure: Structure) -> int:
    """How many dofs have actuators that carry weight."""
    return carrying(structure).size


def carrying(structure: Structure) -> np.ndarray:
    """These dofs."""
    return np.flatnonzero(structure.joint.actgravcomp[structure.dof.joint]).astype(np.int32)


def numbers(structure: Structure) -> np.ndarray:
    """(nv,) index of every dof among these, or -1."""
    out = np.full(structure.nv, -1, np.int32)
    out[carrying(structure)] = np.arange(count(structure))
    return out


def _module(state: State) -> Any:
    return kernels(state.qpos.dtype, "rigid.forces.gravcomp")


def weights(launch: Any, model: Model, state: State, frames: stages.Frames, axes: Any, out: Any = None) -> Any:
    """The force that carries the compensated weight, (world, dof); ``axes`` are about the trees' origins."""
    s = model.structure
    out = out or launch.scratch((launch.worlds, count(s)), stages.types(state.qpos).real)
    if count(s):
        inputs = [carrying(s), topology.ancestry(s), stages.masses(model), stages.medium(launch, model, state)]
        launch(_module(state).carried_weights, dim=out.shape, inputs=[*inputs, frames, axes], outputs=[out])
    return out


def subtract(launch: Any, model: Model, state: State, frames: stages.Frames, axes: Any, force: Any) -> Any:
    """Generalised force less these weights, (world, nv)."""
    if not count(model.structure):
        return force
    out = launch.scratch(force.shape, stages.types(state.qpos).real)
    inputs = [numbers(model.structure), force, weights(launch, model, state, frames, axes)]
    launch(_module(state).subtract_weights, dim=force.shape, inputs=inputs, outputs=[out])
    return out


def power(launch: Any, model: Model, state: State, frames: stages.Frames, axes: Any, trial: Any, out: Any) -> None:
    """Virtual power of the subtracted weights, (world, dof)."""
    inputs = [carrying(model.structure), weights(launch, model, state, frames, axes), trial]
    launch(_module(state).weight_power, dim=out.shape, inputs=inputs, outputs=[out])


def _carry(launch: Any, model: Model, state: State, out: Any) -> None:
    frames = stages.frame_poses(launch, model, state)
    weights(launch, model, state, frames, stages.dof_axes(launch, model, frames), out)


carried_weights = warp_op(_carry, lambda m, state: stages.numbers(state, count(m.structure)), name="carried weight")
"""The force that carries the compensated weight [N or N m], shape (world, dof); all arguments get gradients."""
