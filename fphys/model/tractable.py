"""Models that MuJoCo compiles but that fphys takes long to prepare: pairs of very many geoms, and very fine hulls."""

from typing import Any

import numpy as np

from ..errors import ModelError
from .structure import GeomType

MAX_PAIRS = 2**23
"""Pairs of geoms that may touch, before bodies are excluded: those of 4,096 balls. They take 0.5 GB and 7 s."""
MAX_SQUARES = 2**27
"""Sum of the squared vertex counts of all hulls: one of 11,585, or thirty of 2,000. One of 6,000 takes 3 s."""


def require_tractable(m: Any, disabled: frozenset[str], label: str) -> None:
    """Raise ModelError if contacts between a compiled model's geoms would take long to prepare."""
    reach = np.stack([m.geom_contype, m.geom_conaffinity, m.body_treeid[m.geom_bodyid] < 0], -1)
    kinds, number = np.unique(reach, axis=0, return_counts=True)
    types, affinities, static = kinds.T
    meeting = 0
    for i in range(len(kinds)):
        may = ((types[i] & affinities) | (types & affinities[i])) != 0
        meeting += int(number[i]) * int(number[may & ((static[i] & static) == 0)].sum())
    if meeting > 2 * MAX_PAIRS:
        raise ModelError(
            f"{label}: its {m.ngeom} geoms make {meeting // 2} pairs that may touch, more than the {MAX_PAIRS} "
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
