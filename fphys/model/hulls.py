"""Convex hulls of the meshes that may touch."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from .pairs import BOX, CAPSULE, CONVEX, CYLINDER, ELLIPSOID, HFIELD, HFIELDS, MESH, SPHERE
from .structure import Hulls

_PARTS = {SPHERE: 1, CAPSULE: 3, ELLIPSOID: 1, CYLINDER: 33, BOX: 26}
"""Parts that a geom can touch with, as ``kernels/rigid/parts.py`` counts them."""
_PATCHES = 4096 * 5, 2 * 5
"""What a feature tells apart beside the parts: with a curved geom, and without."""
_PRISM = 20 * 256, 20 * 2
"""The same of height fields, for each prism."""


def read_hulls(m: Any, pair: np.ndarray) -> Hulls:
    """The hulls of the meshes among the geoms that may touch."""
    touching = np.unique(pair)
    geoms = touching[m.geom_type[touching] == MESH]
    first, radius = np.full(m.ngeom, -1, np.int32), np.zeros(m.ngeom)
    radius[geoms] = m.geom_rbound[geoms]
    own_verts, own_edges, own_faces = (np.zeros((m.ngeom, 2), np.int32) for _ in range(3))
    ends: list[tuple[int, int]] = []
    vert, outward = [np.zeros((0, 3))], [np.zeros((0, 3))]
    neighbours: list[np.ndarray] = []  # of every vertex
    corners: list[np.ndarray] = []  # of every face
    for mesh in np.unique(m.geom_dataid[geoms]):
        base = len(neighbours)
        users = geoms[m.geom_dataid[geoms] == mesh]
        first[users] = base
        own_edges[users, 0], own_faces[users, 0] = len(ends), len(corners)
        graph = m.mesh_graph[m.mesh_graphadr[mesh] :]  # vertices, faces, then for each vertex: edges, its id; edges
        n, (start, ids) = graph[0], graph[2 : 2 + 2 * graph[0]].reshape(2, -1)
        vert.append(m.mesh_vert[m.mesh_vertadr[mesh] + ids])
        edges = (graph[2 + 2 * n + a :] for a in start)
        own_verts[users] = base, base + n
        neighbours += [e[: np.argmax(e < 0)] + base for e in edges]
        own = slice(m.mesh_polyadr[mesh], m.mesh_polyadr[mesh] + m.mesh_polynum[mesh])
        outward.append(m.mesh_polynormal[own])
        local = np.full(m.mesh_vertnum[mesh], -1)
        local[ids] = np.arange(n) + base
        sizes = zip(m.mesh_polyvertadr[own], m.mesh_polyvertnum[own], strict=True)
        ends += [(v, int(w)) for v in range(base, base + n) for w in neighbours[v] if v < w]
        corners += [local[m.mesh_polyvert[a : a + k]] for a, k in sizes]
        own_edges[users, 1], own_faces[users, 1] = len(ends), len(corners)
    faces: list[list[int]] = [[] for _ in neighbours]
    for f, around in enumerate(corners):
        for v in around:
            faces[v].append(f)
    sizes = [own[:, 1] - own[:, 0] for own in (own_verts, own_edges, own_faces)]
    _require_countable(m, pair, np.sum(sizes, axis=0))
    edge, neighbour = _ragged(neighbours)
    number = {pair: e for e, pair in enumerate(ends)}
    leaving = [number[min(v, int(w)), max(v, int(w))] for v, row in enumerate(neighbours) for w in row]
    corner, flat = _ragged(corners)
    meeting, found = _ragged(faces)
    points = np.concatenate(vert).astype(np.float64)
    return Hulls(
        vert=points,
        edge=edge,
        neighbour=neighbour,
        leaving=np.array(leaving, np.int32),
        ends=np.array(ends, np.int32).reshape(-1, 2),
        normal=_normals(points, corners, np.concatenate(outward)),
        corner=corner,
        corners=flat,
        meeting=meeting,
        faces=found,
        first=first,
        own_verts=own_verts,
        own_edges=own_edges,
        own_faces=own_faces,
        radius=radius,
    )


def _require_countable(m: Any, pair: np.ndarray, parts: np.ndarray) -> None:
    """Refuse hulls and height fields so fine that an int32 does not name all pairs of parts that may touch."""
    fine = np.isin(m.geom_type[pair], (HFIELD, MESH)).any(1)
    for a, b in pair[fine]:
        kinds = int(m.geom_type[a]), int(m.geom_type[b])
        if kinds not in CONVEX and kinds not in HFIELDS:
            continue
        sizes = [int(parts[g]) if kind == MESH else _PARTS.get(kind, 1) for g, kind in zip((a, b), kinds, strict=True)]
        curved = bool({ELLIPSOID, CYLINDER} & set(kinds))
        patches, what, cure = _PATCHES[not curved], "parts", "give the meshes a maxhullvert"
        if kinds in HFIELDS:
            field = m.geom_dataid[a]
            sizes = [
                2 * int(m.hfield_nrow[field]) * int(m.hfield_ncol[field]),
                min(sizes[1], 5) if curved else sizes[1],
            ]
            patches, what, cure = _PRISM[not curved], "prisms", f"cut the height field into several; {cure}"
        if sizes[0] * sizes[1] * patches >= 2**31:
            names = [f'geom "{m.geom(int(g)).name or g}"' for g in (a, b)]
            raise UnsupportedError(
                f"{names[0]} ({sizes[0]} {what}) and {names[1]} ({sizes[1]} parts): they have more pairs of parts "
                f"than contacts can name: {cure}"
            )


def _normals(vert: np.ndarray, corners: list[np.ndarray], outward: np.ndarray) -> np.ndarray:
    """Unit normals of the faces as the vertices lie; MuJoCo rounds these to float32 after it makes its normals."""
    out = np.zeros((len(corners), 3))
    for f, around in enumerate(corners):
        x = vert[around] - vert[around[0]]
        normal = np.cross(x, np.roll(x, -1, axis=0)).sum(axis=0)
        out[f] = normal / np.linalg.norm(normal) * np.sign(normal @ outward[f])
    return out


def _ragged(rows: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths, one after another: where each starts, and their elements."""
    start = np.cumsum([0, *map(len, rows)])
    return start.astype(np.int32), np.concatenate([np.zeros(0), *rows]).astype(np.int32)
