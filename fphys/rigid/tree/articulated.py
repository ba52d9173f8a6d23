"""Articulated inertias for mechanisms too large for a dense mass matrix: M x = f and M x, linear in the bodies."""

from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.structure import Structure, memo
from .. import stages


class Inertias(NamedTuple):
    """The mass matrix, body by body; spatial vectors are about each body's own origin."""

    axis: Any  # motion that each dof causes, (world, nv)
    diagonal: Any  # armature and implicit damping, (world, nv)
    offset: Any  # from the parent's origin, (world, nbody)
    turn: Any  # blocks of the spatial inertia, (world, nbody)
    mixed: Any
    shift: Any


class Tree(NamedTuple):
    """Bodies and dofs, in the form that the kernels take."""

    parent: np.ndarray
    dofs: np.ndarray
    axis: Any
    offset: Any


class Factor(NamedTuple):
    """What replaces a factor of the mass matrix."""

    gain: Any  # (world, nv)
    pivot: Any  # (world, nv)


class Articulation(NamedTuple):
    """A mass matrix to solve with."""

    tree: Tree
    factor: Factor


@memo
def body_dofs(structure: Structure) -> np.ndarray:
    """First dof and number of dofs of every body, (nbody, 2)."""
    count = np.bincount(structure.dof.body, minlength=structure.nbody)
    return np.stack([np.cumsum(count) - count, count], 1).astype(np.int32)


def tree(model: Model, given: Inertias) -> Tree:
    """The tree that the inertias belong to."""
    return Tree(model.structure.body.parent, body_dofs(model.structure), given.axis, given.offset)


def factor(launch: Any, model: Model, like: Any) -> Factor:
    """Buffers for a factor."""
    t, shape = stages.types(like), (launch.worlds, model.structure.nv)
    return Factor(launch.scratch(shape, t.wrench), launch.scratch(shape, t.real))


def inertias(launch: Any, model: Model, state: State, frames: stages.Frames, *, implicit: bool) -> Inertias:
    """The mass matrix; ``implicit``: with the joints' damping over a time step."""
    s, t, w = model.structure, stages.types(state.qpos), launch.worlds
    k = kernels(state.qpos.dtype, "rigid.tree.articulated")
    axis = stages.dof_axes(launch, model, frames, own=True)
    diagonal = launch.scratch((w, s.nv), t.real)
    parameters = [model.dof.armature, model.dof.damping, model.opt.timestep]
    damper = stages.switches(model)[1] * implicit
    launch(k.diagonal, dim=(w, s.nv), inputs=[damper, *parameters], outputs=[diagonal])
    blocks = [launch.scratch((w, s.nbody), kind) for kind in (t.vec3, t.mat33, t.mat33, t.mat33)]
    body = [model.body.ipos, model.body.iquat, model.body.mass, model.body.inertia]
    inputs = [s.body.frame, s.body.parent, *body, *frames]
    launch(k.body_inertias, dim=(w, s.nbody), inputs=inputs, outputs=blocks)
    return Inertias(axis, diagonal, *blocks)


def articulate(launch: Any, model: Model, state: State, given: Inertias) -> Articulation:
    """The articulated inertias."""
    t, shape = stages.types(state.qpos), (launch.worlds, model.structure.nbody)
    blocks = [launch.scratch(shape, t.mat33) for _ in range(3)]
    found = Articulation(tree(model, given), factor(launch, model, state.qpos))
    kernel = kernels(state.qpos.dtype, "rigid.tree.articulated").articulate
    launch(kernel, dim=launch.worlds, inputs=[found.tree, given], outputs=[*blocks, found.factor])
    return found


def solve(launch: Any, model: Model, given: Articulation, force: Any, out: Any) -> None:
    """out = M^-1 force."""
    scratch = launch.scratch((launch.worlds, model.structure.nbody), stages.types(force).motion)
    kernel = kernels(force.dtype, "rigid.tree.articulated").solve
    launch(kernel, dim=launch.worlds, inputs=[*given, force], outputs=[scratch, out])


def multiply(launch: Any, model: Model, given: Inertias, x: Any, out: Any) -> None:
    """out = M x."""
    t, shape = stages.types(x), (launch.worlds, model.structure.nbody)
    scratch = [launch.scratch(shape, t.motion), launch.scratch(shape, t.wrench)]
    kernel = kernels(x.dtype, "rigid.tree.articulated").multiply
    launch(kernel, dim=launch.worlds, inputs=[tree(model, given), given, x], outputs=[*scratch, out])
