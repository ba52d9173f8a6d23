"""Models that MuJoCo compiles but that fphys takes long to prepare: pairs of very many geoms, and very fine hulls."""

from typing import Any

import numpy as np

from ..errors import ModelError
from .caps import MAX_TREE
from .pairs import is_sparse, meetings, reach
from .structure import GeomType

MAX_PAIRS = 2**23
"""Pairs of geoms that may touch, before bodies are excluded: those of 4,096 balls. They take 0.5 GB and 7 s. In a
sparse model, which lists none, pairs of their kinds."""
MAX_SQUARES = 2**27
"""Sum of the squared vertex counts of all hulls: one of 11,585, or thirty of 2,000. One of 6,000 takes 3 s."""


def require_tractable(m: Any, disabled: frozenset[str], label: str) -> None:
    """Raise ModelError if contacts between a compiled model's geoms would take long to prepare."""
    sparse = is_sparse(m, disabled)
    if not sparse and m.nv > MAX_TREE:
        raise ModelError(
            f"{label}: its {m.nv} degrees of freedom, more than {MAX_TREE}, make a mass matrix of "
            f"{4e-9 * m.nv**2:.1f} GB: let it be sparse (docs/decisions/0013-many-bodies.md)"
        )
    found = meetings(reach(m, disabled), m.geom_type)
    meeting = found.number.size if sparse else int(found.number.sum())
    if meeting > MAX_PAIRS:
        what = "pairs of kinds" if sparse else "pairs"
        raise ModelError(
            f"{label}: its {m.ngeom} geoms make {meeting} {what} that may touch, more than the {MAX_PAIRS} "
            "that are looked through: keep those apart that never meet, by contype and conaffinity"
        )
    own = np.unique(m.geom_dataid[m.geom_type == GeomType.MESH]) if "contact" not in disabled else []
    vertices = {int(i): int(m.mesh_graph[m.mesh_graphadr[i]]) for i in own if m.mesh_graphadr[i] >= 0}
    if sum(n**2 for n in vertices.values()) > MAX_SQUARES:
        finest = max(vertices, key=lambda i: vertices[i])
        raise ModelError(
            f"{label}: the hulls of {len(vertices)} meshes have {sum(vertices.values())} vertices, too many; "
            f'most has mesh "{m.mesh(finest).name}", {vertices[finest]}: give the meshes a maxhullvert, 64 for example'
        )
