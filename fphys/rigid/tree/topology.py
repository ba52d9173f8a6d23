"""What kernels need to know of a mechanism's tree: which dofs move which bodies, and patterns of sparse matrices."""

from typing import NamedTuple

import numpy as np

from ...model import Model
from ...model.structure import Structure, memo


class Pattern(NamedTuple):
    """Sparsity pattern, row by row, of a matrix with one column per dof."""

    adr: np.ndarray  # (row + 1,) entries of row r are adr[r]:adr[r + 1]
    row: np.ndarray  # (entry,)
    dof: np.ndarray  # (entry,)


def make_pattern(mask: np.ndarray) -> Pattern:
    """The pattern of a boolean matrix, (row, nv)."""
    row, dof = np.nonzero(mask)
    adr = np.concatenate([[0], np.cumsum(mask.astype(bool).sum(1))])
    return Pattern(*(x.astype(np.int32) for x in (adr, row, dof)))


def packed_size(nv: int) -> int:
    """Number of entries in a packed lower triangle."""
    return nv * (nv + 1) // 2


def columns(model: Model, dof: np.ndarray) -> np.ndarray:
    """The columns where the entries of dofs are in the rows of the constraint Jacobian."""
    return np.zeros_like(dof) if model.structure.sparse else dof


def dof_origin(model: Model) -> np.ndarray:
    """The frame at whose origin each dof's motion is expressed: that of its tree's root body."""
    s = model.structure
    return s.body.frame[s.body.root[s.dof.body]]


def body_origin(model: Model) -> np.ndarray:
    """The frame of the root of each body's tree."""
    s = model.structure
    return s.body.frame[s.body.root]


class Bodies(NamedTuple):
    """Bodies' frames, and the dofs that move them, as kernels take them."""

    frame: np.ndarray  # (nbody,)
    origin: np.ndarray  # (nbody,) frame of the root of its tree: the reference point of its motion
    last_dof: np.ndarray  # (nbody,) the outermost dof that moves it, or -1
    dof_parent: np.ndarray  # (nv,) the next dof towards the root, or -1
    dof_origin: np.ndarray  # (nv,) frame of the root of its tree


def bodies(model: Model) -> Bodies:
    """In a sparse model no dof moves a body: its rows have no entries for the dofs of contacts."""
    s = model.structure
    last = np.full(s.nbody, -1, np.int32) if s.sparse else last_dof(model)
    return Bodies(s.body.frame, body_origin(model), last, s.dof.parent, dof_origin(model))


def last_dof(model: Model) -> np.ndarray:
    """The outermost dof that moves each body, or -1."""
    s = model.structure
    out = np.full(s.nbody, -1, np.int32)
    for b in range(1, s.nbody):
        own = np.flatnonzero(s.dof.body == b)
        out[b] = own[-1] if own.size else out[s.body.parent[b]]
    return out


def branches(model: Model) -> np.ndarray:
    """Whether two dofs lie on one branch of the tree, (nv, nv). Not read in a sparse model: its rows have one dof."""
    s = model.structure
    if s.sparse:
        return np.ones((1, 1), np.int32)
    out = np.eye(s.nv, dtype=np.int32)
    for d in range(s.nv):
        j = s.dof.parent[d]
        while j >= 0:
            out[d, j] = out[j, d] = 1
            j = s.dof.parent[j]
    return out


@memo
def ancestry(structure: Structure) -> np.ndarray:
    """Which dofs move which bodies, int, (nbody, nv)."""
    out = np.zeros((structure.nbody, structure.nv), np.int32)
    for b in range(1, structure.nbody):
        out[b] = out[structure.body.parent[b]]
        out[b, structure.dof.body == b] = 1
    return out
