"""The constraint solver for mechanisms too large for matrices, and the solve with its Hessian for the backward pass."""

from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.pairs import pair_kinds
from ...model.structure import Structure, memo
from .. import stages
from ..collide.pairs import pair_list
from ..tree import articulated
from . import links
from .contact import Pairs
from .equality import Bonds


@memo
def moving_root(structure: Structure) -> np.ndarray:
    """The first moving body of each body's tree, (nbody,); 0 for a body that does not move."""
    root = np.zeros(structure.nbody, np.int32)
    moves = articulated.body_dofs(structure)[:, 1] > 0
    for body, parent in enumerate(structure.body.parent):
        root[body] = root[parent] or (body if moves[body] else 0)
    return root


class Parameters(NamedTuple):
    """The parameters of the constraints, combined."""

    pairs: Pairs
    bonds: Bonds


class Problem(NamedTuple):
    """What the kernels take, as their structures."""

    tree: articulated.Tree
    inertia: articulated.Inertias
    rows: dict[str, Any]

    @classmethod
    def of(
        cls, launch: Any, model: Model, state: State, given: Parameters, mass: articulated.Inertias, setting: Any
    ) -> "Problem":
        """The constraints' rows: those of single joints, of links and of contacts."""
        s, contacts, own, pairs = model.structure, setting.contacts, links.links(model.structure), given.pairs
        rows = {
            "first": s.nrow,
            "couplings": couplings(s.nbody, setting.row.shape[1]) + own.couplings,
            "elliptic": int(s.elliptic),
            "impratio": model.opt.impratio,
            "root": moving_root(s),
            "joint_row": own.single_row,
            "row_dof": own.single_dof,
            "row_body": s.dof.body[own.single_dof].astype(np.int32),
            "link_row": own.row,
            "link_start": own.start,
            "term_body": own.body,
            "term_base": own.base,
            "term_column": own.column,
            "base": links.bases(launch, model, state, given.bonds.weld, setting.motions.frames, mass),
            "pairs": pair_list(model),
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
    dim = pair_kinds(s).most_dim
    own = links.links(s)
    most = couplings(bodies, contacts) + own.couplings
    # of each dof 2 spatial vectors and 13 numbers, of each body 14 and 3; of each coupling a block and twice six pulls
    ints = 24 * bodies + 5 + nv + 11 * contacts + 3 * s.nrow + rows + own.body.size + 4 * own.couplings + 8 * most
    numbers = 29 * nv + 115 * bodies + 8 * rows + s.nrow + (5 + 16 * dim) * contacts + 8 * own.body.size + 144 * most
    numbers += 36 * contacts * s.elliptic
    return [launch.scratch((launch.worlds, ints), t.integer), launch.scratch((launch.worlds, numbers), t.real)]


def newton(
    launch: Any,
    model: Model,
    state: State,
    given: Parameters,
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
        + [*Problem.of(launch, model, state, given, mass, setting), force, state.warmstart],
        outputs=[*_scratch(launch, model, setting), qacc, *found],
    )


def solve(
    launch: Any, model: Model, state: State, given: Parameters, setting: Any, qacc: Any, right: Any, out: Any
) -> None:
    """out = H^-1 right with the Hessian at the accelerations ``qacc``."""
    mass = articulated.inertias(launch, model, state, setting.motions.frames, implicit=False)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.islands").solve,
        dim=launch.worlds,
        inputs=[*Problem.of(launch, model, state, given, mass, setting), qacc, right],
        outputs=[*_scratch(launch, model, setting), out],
    )


def restore(launch: Any, model: Model, state: State, given: Parameters, setting: Any, qacc: Any, out: Any) -> None:
    """out = -J^T f at the accelerations ``qacc``."""
    mass = articulated.inertias(launch, model, state, setting.motions.frames, implicit=False)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.islands").restoring_forces,
        dim=launch.worlds,
        inputs=[*Problem.of(launch, model, state, given, mass, setting), qacc],
        outputs=[*_scratch(launch, model, setting), out],
    )
