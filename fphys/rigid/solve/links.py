"""Links: rows of a sparse model that are linear in the motions of several bodies, see ``kernels/rigid/solve/links.py``.

They are the rows of equalities, of tendons and of the limits of balls. The rows of single dofs and of contacts are not
among them.
"""

from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.structure import CONNECT, EQUALITY_ROWS, JOINT, WELD, JointType, Structure, memo
from .. import stages
from ..forces import tendon
from ..tree import articulated, topology
from .equality import Welds, of_welds

Terms = list[tuple[int, int, int]]
"""Of each term the body, the number of its base, and the column of its factor in the row: -1 for the factor 1."""


class Links(NamedTuple):
    """The links of a model: terms ``start[i]:start[i + 1]`` belong to link i. Bases: three of each segment of a tendon,
    two of each row of a connection or weld, then two of each dof."""

    row: np.ndarray
    start: np.ndarray
    body: np.ndarray  # of each term
    base: np.ndarray
    column: np.ndarray
    weld: np.ndarray  # first base of each connection or weld
    first_dof: int  # first base of the dofs
    dof: np.ndarray
    wrap: np.ndarray  # which wrap of a tendon the dof stands for, or -1
    single_row: np.ndarray  # rows of single dofs
    single_dof: np.ndarray
    width: int  # entries of a row

    @property
    def couplings(self) -> int:
        """Most pairs of bodies that links couple."""
        size = np.diff(self.start)
        return int((size * (size - 1) // 2).sum())


@memo
def links(structure: Structure) -> Links:
    """The links and the rows of single dofs, in the order of all rows."""
    s, cut = structure, tendon.segments(structure)
    held = [EQUALITY_ROWS[int(t)] for t in s.equality.type if t in (CONNECT, WELD)]
    weld = 3 * cut.geom.size + 2 * np.cumsum([0, *held])
    dofs: list[tuple[int, int]] = []

    def of_dof(dof: int, column: int, wrap: int = -1) -> Terms:
        base, body = int(weld[-1]) + 2 * len(dofs), int(s.dof.body[dof])
        dofs.append((dof, wrap))
        return [(body, base, column), (int(s.body.parent[body]), base + 1, column)]

    def of_tendon(t: int, column: int) -> Terms:
        wraps = [i for i in range(*s.tendon.adr[t : t + 2]) if s.tendon.kind[i] == tendon.JOINT]
        joints = [of_dof(int(s.joint.dof[s.tendon.object[i]]), column, i) for i in wraps]
        pulls = [(int(cut.body[n, k]), 3 * n + k, column) for n in range(*cut.adr[t : t + 2]) for k in range(3)]
        return [*chain.from_iterable(joints), *pulls]

    def of_equality(e: int) -> list[Terms]:
        kind, pair = int(s.equality.type[e]), [int(i) for i in s.equality.object[e]]
        if kind in (CONNECT, WELD):
            bodies = [int(s.site.body[i]) for i in pair] if s.equality.site[e] else pair
            first = int(weld[np.isin(s.equality.type[:e], (CONNECT, WELD)).sum()])
            return [[(b, first + 2 * k + i, -1) for i, b in enumerate(bodies)] for k in range(EQUALITY_ROWS[kind])]
        two = enumerate(i for i in pair if i >= 0)
        each = [of_dof(int(s.joint.dof[i]), k) if kind == JOINT else of_tendon(i, k) for k, i in two]
        return [list(chain.from_iterable(each))]

    def of_limit(joint: int) -> Terms | int:
        dof = int(s.joint.dof[joint])
        ball = s.joint.type[joint] == JointType.BALL
        return list(chain.from_iterable(of_dof(dof + k, k) for k in range(3))) if ball else dof

    every: list[Terms | int] = [terms for e in range(s.equality.type.size) for terms in of_equality(e)]
    every += [int(d) for d in s.friction.dof] + [of_tendon(int(t), 0) for t in s.friction.tendon]
    every += [of_limit(int(j)) for j in s.limit.joint] + [of_tendon(int(t), 0) for t in s.limit.tendon]
    own = [(row, terms) for row, terms in enumerate(every) if not isinstance(terms, int)]
    single = [(row, dof) for row, dof in enumerate(every) if isinstance(dof, int)]
    body, base, column = _columns([term for _, terms in own for term in terms], 3)
    dof, wrap = _columns(dofs, 2)
    single_row, single_dof = _columns(single, 2)
    return Links(
        row=np.array([row for row, _ in own], np.int32),
        start=np.cumsum([0, *(len(terms) for _, terms in own)]).astype(np.int32),
        body=body,
        base=base,
        column=column,
        weld=weld[:-1].astype(np.int32),
        first_dof=int(weld[-1]),
        dof=dof,
        wrap=wrap,
        single_row=single_row,
        single_dof=single_dof,
        width=1 + max(0, int(column.max(initial=0))),
    )


def _columns(rows: list[Any], count: int) -> list[np.ndarray]:
    return [np.ascontiguousarray(x) for x in np.array(rows, np.int32).reshape(-1, count).T]


def bases(
    launch: Any, model: Model, state: State, given: Welds, frames: stages.Frames, inertia: articulated.Inertias
) -> Any:
    """The bases of all terms, wrenches about the bodies' own origins, (world, base, 6)."""
    s, own, w = model.structure, links(model.structure), launch.worlds
    k = kernels(state.qpos.dtype, "rigid.solve.links")
    out = launch.scratch((w, own.first_dof + 2 * own.dof.size), stages.types(state.qpos).wrench)
    if s.ntendon:
        body = tendon.segments(s).body
        inputs = [body, topology.bodies(model), tendon.pulls(launch, model, state, frames), frames.pos]
        launch(k.pull_bases, dim=(w, *body.shape), inputs=inputs, outputs=[out])
    if own.weld.size:
        inputs = [own.weld, topology.bodies(model), of_welds(model, given)[0], frames]
        launch(k.weld_bases, dim=(w, own.weld.size), inputs=inputs, outputs=[out])
    if own.dof.size:
        inputs = [own.first_dof, own.dof, s.dof.body[own.dof], own.wrap, model.tendon.coef]
        inputs += [articulated.tree(model, inertia)]
        launch(k.dof_bases, dim=(w, own.dof.size), inputs=inputs, outputs=[out])
    return out


def moments(launch: Any, model: Model, state: State) -> Any:
    """What stands for the tendons' Jacobian: the rows hold multiples of tendons, (world, ntendon, 1)."""
    out = launch.scratch((launch.worlds, model.structure.ntendon, 1), stages.types(state.qpos).real)
    launch(kernels(state.qpos.dtype, "rigid.solve.links").fill_ones, dim=out.shape, inputs=[], outputs=[out])
    return out
