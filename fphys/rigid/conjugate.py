"""The constraint solver of mechanisms too large for matrices, and the solve with its Hessian for the backward pass."""

from typing import Any

import numpy as np

from ..bridge import kernels
from ..model import Model, State
from . import articulated as AB
from . import launches as L
from .contact import Pairs


def _arguments(
    model: Model, mass: AB.Inertias, candidate: Any, setting: L.Setting
) -> tuple[list[np.ndarray], list[Any]]:
    """Structure and inputs that both kernels take."""
    s, contacts = model.structure, setting.contacts
    row_dof = np.concatenate([s.friction.dof, s.joint.dof[s.limit.joint]]).astype(np.int32)
    structure = [*AB.tree(model), row_dof, s.geom.pair, s.geom.pair_condim, s.geom.body, s.body.frame]
    inputs = [*mass, setting.frames.pos, *setting.rows]
    return structure, [*inputs, candidate, contacts.pair, setting.row, contacts.pos, contacts.frame]


def _scratch(launch: Any, model: Model, state: State, setting: L.Setting) -> list[Any]:
    s, t, w, nr = model.structure, L.types(state.qpos), launch.worlds, setting.rows.weight.shape[1]
    vectors = [launch.scratch((w, n), t.real) for n in (s.nv, s.nv, s.nv, s.nv, nr, nr, s.nv)]
    bodies = [launch.scratch((w, s.nbody), kind) for kind in (t.motion, t.wrench, t.mat33, t.mat33, t.mat33)]
    factor = [launch.scratch((w, s.nv), kind) for kind in (t.wrench, t.real)]
    slot = launch.scratch(setting.row.shape, t.integer)
    return [*vectors, *bodies, *factor, slot, launch.scratch((w, nr), t.real)]


def newton(
    launch: Any,
    model: Model,
    state: State,
    pairs: Pairs,
    mass: AB.Inertias,
    setting: L.Setting,
    force: Any,
    qacc: Any,
    found: list[Any],
) -> None:
    """Launch the solver; ``found``: residual, iterations and status."""
    s, t, w = model.structure, L.types(state.qpos), launch.worlds
    structure, inputs = _arguments(model, mass, pairs.candidate, setting)
    rest = [launch.scratch((w, n), t.real) for n in (s.nv, s.nv, s.nv, s.nv, setting.rows.weight.shape[1])]
    launch(
        kernels(state.qpos.dtype, "rigid.conjugate").newton,
        dim=w,
        inputs=[*structure, s.iterations, s.ls_iterations, model.opt.tolerance, model.opt.meaninertia, pairs.friction]
        + [*inputs, force, state.warmstart],
        outputs=[qacc, *_scratch(launch, model, state, setting), *rest, *found],
    )


def solve(
    launch: Any, model: Model, state: State, pairs: Pairs, setting: L.Setting, qacc: Any, right: Any, out: Any
) -> None:
    """out = H^-1 right with the Hessian at the accelerations ``qacc``."""
    mass = AB.inertias(launch, model, state, setting.frames, implicit=False)
    structure, inputs = _arguments(model, mass, pairs.candidate, setting)
    launch(
        kernels(state.qpos.dtype, "rigid.conjugate").solve,
        dim=launch.worlds,
        inputs=[*structure, pairs.friction, *inputs, qacc, right],
        outputs=[out, *_scratch(launch, model, state, setting)],
    )


def restore(launch: Any, model: Model, state: State, pairs: Pairs, setting: L.Setting, qacc: Any, out: Any) -> None:
    """out = -J^T f at the accelerations ``qacc``."""
    mass = AB.inertias(launch, model, state, setting.frames, implicit=False)
    structure, inputs = _arguments(model, mass, pairs.candidate, setting)
    launch(
        kernels(state.qpos.dtype, "rigid.conjugate").restoring_forces,
        dim=launch.worlds,
        inputs=[*structure, pairs.friction, *inputs, qacc],
        outputs=[out, *_scratch(launch, model, state, setting)],
    )
