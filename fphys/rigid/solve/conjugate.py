"""The constraint solver for mechanisms too large for matrices, and the solve with its Hessian for the backward pass."""

from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from .. import stages
from ..tree import articulated
from .contact import Pairs


class Problem(NamedTuple):
    """What the kernels take, as their structures."""

    tree: articulated.Tree
    inertia: articulated.Inertias
    rows: dict[str, Any]

    @classmethod
    def of(
        cls, launch: Any, model: Model, state: State, pairs: Pairs, mass: articulated.Inertias, setting: Any
    ) -> "Problem":
        """The constraints' rows: first those of single joints, then those of contacts."""
        s, contacts = model.structure, setting.contacts
        slot = launch.scratch(setting.row.shape, stages.types(state.qpos).integer)
        locate = kernels(state.qpos.dtype, "rigid.solve.matrix_free").locate
        launch(locate, dim=setting.row.shape, inputs=[pairs.candidate, contacts.pair], outputs=[slot])
        rows = {
            "row_dof": np.concatenate([s.friction.dof, s.joint.dof[s.limit.joint]]).astype(np.int32),
            "pair": s.geom.pair,
            "pair_dim": s.geom.pair_condim,
            "geom_body": s.geom.body,
            "body_frame": s.body.frame,
            "friction": pairs.friction,
            "frame_pos": setting.motions.frames.pos,
            "contact_pair": contacts.pair,
            "contact_slot": slot,
            "contact_row": setting.row,
            "pos": contacts.pos,
            "frame": contacts.frame,
        }
        return cls(articulated.tree(model, mass), mass, rows | setting.rows._asdict())


def _scratch(launch: Any, model: Model, state: State, setting: Any) -> dict[str, Any]:
    """Working memory of a solve."""
    s, t, w, nr = model.structure, stages.types(state.qpos), launch.worlds, setting.rows.weight.shape[1]
    dofs = dict.fromkeys(("residual", "preconditioned", "direction", "product", "diagonal"), (s.nv, t.real))
    rows = dict.fromkeys(("stiffness", "change"), (nr, t.real))
    blocks = dict.fromkeys(("turn", "mixed", "shift"), (s.nbody, t.mat33))
    bodies = {"body": (s.nbody, t.motion), "load": (s.nbody, t.wrench)}
    return {name: launch.scratch((w, n), kind) for name, (n, kind) in (dofs | rows | blocks | bodies).items()}


def newton(
    launch: Any,
    model: Model,
    state: State,
    pairs: Pairs,
    mass: articulated.Inertias,
    setting: Any,
    force: Any,
    qacc: Any,
    found: Any,
) -> None:
    """Launch the solver; ``setting``: constraint.Setting, ``found``: constraint.SolverReport."""
    s, t, nr = model.structure, stages.types(state.qpos), setting.rows.weight.shape[1]
    problem = Problem.of(launch, model, state, pairs, mass, setting)
    rest = [launch.scratch((launch.worlds, n), t.real) for n in (nr, s.nv, s.nv, s.nv, s.nv, nr)]
    launch(
        kernels(state.qpos.dtype, "rigid.solve.conjugate").newton,
        dim=launch.worlds,
        inputs=[s.iterations, s.ls_iterations, model.opt.tolerance, model.opt.meaninertia, *problem, force]
        + [state.warmstart],
        outputs=[
            articulated.factor(launch, model, state.qpos),
            _scratch(launch, model, state, setting),
            qacc,
            *rest,
            *found,
        ],
    )


def solve(launch: Any, model: Model, state: State, pairs: Pairs, setting: Any, qacc: Any, right: Any, out: Any) -> None:
    """out = H^-1 right with the Hessian at the accelerations ``qacc``."""
    mass = articulated.inertias(launch, model, state, setting.motions.frames, implicit=False)
    error = launch.scratch(setting.rows.weight.shape, stages.types(state.qpos).real)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.conjugate").solve,
        dim=launch.worlds,
        inputs=[*Problem.of(launch, model, state, pairs, mass, setting), qacc, right],
        outputs=[articulated.factor(launch, model, state.qpos), _scratch(launch, model, state, setting), out, error],
    )


def restore(launch: Any, model: Model, state: State, pairs: Pairs, setting: Any, qacc: Any, out: Any) -> None:
    """out = -J^T f at the accelerations ``qacc``."""
    mass = articulated.inertias(launch, model, state, setting.motions.frames, implicit=False)
    error = launch.scratch(setting.rows.weight.shape, stages.types(state.qpos).real)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.conjugate").restoring_forces,
        dim=launch.worlds,
        inputs=[*Problem.of(launch, model, state, pairs, mass, setting), qacc],
        outputs=[_scratch(launch, model, state, setting), out, error],
    )
