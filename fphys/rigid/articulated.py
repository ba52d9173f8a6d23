"""Articulated inertias of mechanisms too large for a dense mass matrix: M x = f and M x, linear in the bodies."""

import functools
from typing import Any, NamedTuple

import numpy as np

from ..bridge import kernels
from ..model import Model, State
from ..model.structure import Structure
from . import launches as L


class Inertias(NamedTuple):
    """The mass matrix, body by body; spatial vectors are about each body's own origin."""

    axis: Any  # motion that each dof causes, (world, nv)
    diagonal: Any  # armature and implicit damping, (world, nv)
    offset: Any  # from the parent's origin, (world, nbody)
    turn: Any  # blocks of the spatial inertia, (world, nbody)
    mixed: Any
    shift: Any


class Articulation(NamedTuple):
    """What takes the place of a factor of the mass matrix."""

    axis: Any
    offset: Any
    gain: Any  # (world, nv)
    pivot: Any  # (world, nv)


@functools.cache
def body_dofs(structure: Structure) -> np.ndarray:
    """First dof and number of dofs of every body, (nbody, 2)."""
    count = np.bincount(structure.dof.body, minlength=structure.nbody)
    return np.stack([np.cumsum(count) - count, count], 1).astype(np.int32)


def tree(model: Model) -> list[np.ndarray]:
    """What the kernels start with."""
    return [model.structure.body.parent, body_dofs(model.structure)]


def inertias(launch: Any, model: Model, state: State, frames: L.Frames, *, implicit: bool) -> Inertias:
    """The mass matrix; ``implicit``: with the joints' damping over a time step."""
    s, t, w = model.structure, L.types(state.qpos), launch.worlds
    k = kernels(state.qpos.dtype, "rigid.articulated")
    axis = L.dof_axes(launch, model, state, frames, own=True)
    diagonal = launch.scratch((w, s.nv), t.real)
    parameters = [model.dof.armature, model.dof.damping, model.opt.timestep]
    damper = L.switches(model)[1] * implicit
    launch(k.diagonal, dim=(w, s.nv), inputs=[damper, *parameters], outputs=[diagonal])
    blocks = [launch.scratch((w, s.nbody), kind) for kind in (t.vec3, t.mat33, t.mat33, t.mat33)]
    body = [model.body.ipos, model.body.iquat, model.body.mass, model.body.inertia]
    inputs = [s.body.frame, s.body.parent, *body, *frames]
    launch(k.body_inertias, dim=(w, s.nbody), inputs=inputs, outputs=blocks)
    return Inertias(axis, diagonal, *blocks)


def articulate(launch: Any, model: Model, state: State, given: Inertias) -> Articulation:
    """The articulated inertias."""
    s, t, w = model.structure, L.types(state.qpos), launch.worlds
    scratch = [launch.scratch((w, s.nbody), t.mat33) for _ in range(3)]
    found = [launch.scratch((w, s.nv), kind) for kind in (t.wrench, t.real)]
    kernel = kernels(state.qpos.dtype, "rigid.articulated").articulate
    launch(kernel, dim=w, inputs=[*tree(model), *given], outputs=[*scratch, *found])
    return Articulation(given.axis, given.offset, *found)


def solve(launch: Any, model: Model, factor: Articulation, force: Any, out: Any) -> None:
    """out = M^-1 force."""
    scratch = launch.scratch((launch.worlds, model.structure.nbody), L.types(force).motion)
    kernel = kernels(force.dtype, "rigid.articulated").solve
    launch(kernel, dim=launch.worlds, inputs=[*tree(model), *factor, force], outputs=[scratch, out])


def multiply(launch: Any, model: Model, given: Inertias, x: Any, out: Any) -> None:
    """out = M x."""
    t, shape = L.types(x), (launch.worlds, model.structure.nbody)
    scratch = [launch.scratch(shape, t.motion), launch.scratch(shape, t.wrench)]
    kernel = kernels(x.dtype, "rigid.articulated").multiply
    launch(kernel, dim=launch.worlds, inputs=[*tree(model), *given, x], outputs=[*scratch, out])
