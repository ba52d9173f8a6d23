"""The constraint solver for mechanisms too large for matrices, and the solve with its Hessian for the backward pass."""

from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.structure import Structure, memo
from .. import stages
from ..tree import articulated
from .contact import Pairs


@memo
def moving_root(structure: Structure) -> np.ndarray:
    """The first moving body of each body's tree, (nbody,); 0 for a body that does not move."""
    root = np.zeros(structure.nbody, np.int32)
    moves = articulated.body_dofs(structure)[:, 1] > 0
    for body, parent in enumerate(structure.body.parent):
        root[body] = root[parent] or (body if moves[body] else 0)
    return root


class Problem(NamedTuple):
    """What the kernels take, as their structures."""

    tree: articulated.Tree
    inertia: articulated.Inertias
    rows: dict[str, Any]

    @classmethod
    def of(cls, model: Model, pairs: Pairs, mass: articulated.Inertias, setting: Any) -> "Problem":
        """The constraints' rows: first those of single joints, then those of contacts."""
        s, contacts = model.structure, setting.contacts
        dof = np.concatenate([s.friction.dof, s.joint.dof[s.limit.joint]]).astype(np.int32)
        rows = {
            "couplings": couplings(s.nbody, setting.row.shape[1]),
            "root": moving_root(s),
            "row_dof": dof,
            "row_body": s.dof.body[dof].astype(np.int32),
            "pair": s.geom.pair,
            "pair_dim": s.geom.pair_condim,
            "geom_body": s.geom.body,
            "body_frame": s.body.frame,
            "candidate": pairs.candidate,
            "friction": pairs.friction,
            "frame_pos": setting.motions.frames.pos,
            "contact_pair": contacts.pair,
            "contact_row": setting.row,
            "pos": contacts.pos,
            "frame": contacts.frame,
        }
        return cls(articulated.tree(model, mass), mass, rows | setting.rows._asdict())


def couplings(bodies: int, contacts: int) -> int:
    """Most pairs of bodies that an island may couple, those of contacts and what elimination adds: two of each body and
    one of every other contact. An island that needs more is solved by conjugate gradients."""
    return min(bodies * (bodies - 1) // 2, 2 * bodies + contacts // 2)


def _scratch(launch: Any, model: Model, setting: Any) -> list[Any]:
    """Working memory of a solve, integers and numbers, enough for all bodies in one island."""
    s, t, rows = model.structure, stages.types(setting.rows.weight), setting.rows.weight.shape[1]
    contacts, bodies, nv = setting.row.shape[1], s.nbody, s.nv
    dim = int(s.geom.pair_condim.max(initial=0))
    most = couplings(bodies, contacts)
    # of each dof 2 spatial vectors and 13 numbers, of each body 14 and 3; of each coupling a block and twice six pulls
    ints = 23 * bodies + 3 + nv + 10 * contacts + 3 * s.nrow + rows + 8 * most
    numbers = 29 * nv + 115 * bodies + 7 * rows + s.nrow + (5 + 16 * dim) * contacts + 144 * most
    return [launch.scratch((launch.worlds, ints), t.integer), launch.scratch((launch.worlds, numbers), t.real)]


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
    s = model.structure
    launch(
        kernels(state.qpos.dtype, "rigid.solve.islands").newton,
        dim=launch.worlds,
        inputs=[s.iterations, s.ls_iterations, model.opt.tolerance, model.opt.meaninertia]
        + [*Problem.of(model, pairs, mass, setting), force, state.warmstart],
        outputs=[*_scratch(launch, model, setting), qacc, *found],
    )


def solve(launch: Any, model: Model, state: State, pairs: Pairs, setting: Any, qacc: Any, right: Any, out: Any) -> None:
    """out = H^-1 right with the Hessian at the accelerations ``qacc``."""
    mass = articulated.inertias(launch, model, state, setting.motions.frames, implicit=False)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.islands").solve,
        dim=launch.worlds,
        inputs=[*Problem.of(model, pairs, mass, setting), qacc, right],
        outputs=[*_scratch(launch, model, setting), out],
    )


def restore(launch: Any, model: Model, state: State, pairs: Pairs, setting: Any, qacc: Any, out: Any) -> None:
    """out = -J^T f at the accelerations ``qacc``."""
    mass = articulated.inertias(launch, model, state, setting.motions.frames, implicit=False)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.islands").restoring_forces,
        dim=launch.worlds,
        inputs=[*Problem.of(model, pairs, mass, setting), qacc],
        outputs=[*_scratch(launch, model, setting), out],
    )
