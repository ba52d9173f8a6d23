"""Convex hulls of the meshes that may touch."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from .pairs import CONVEX, HFIELDS
from .structure import GeomType, Hulls

_PARTS = {GeomType.SPHERE: 1, GeomType.CAPSULE: 3, GeomType.ELLIPSOID: 1, GeomType.CYLINDER: 33, GeomType.BOX: 26}
"""Parts with which a geom can touch, as counted in ``kernels/rigid/collide/parts.py``."""
_PATCHES = 4096 * 5, 2 * 5
"""How many cases a feature distinguishes for each pair of parts: with a curved geom, and without."""
_PRISM = 20 * 256, 20 * 2
"""The same for height fields, for each prism."""
_FLAT = 2e-7
"""How far corners of a flat side may lie off its plane, in units of the hull: the accuracy of float32."""


def read_hulls(m: Any, pair: np.ndarray) -> Hulls:
    """The hulls of the meshes among the geoms that may touch."""
    touching = np.unique(pair)
    geoms = touching[m.geom_type[touching] == GeomType.MESH]
    first, radius = np.full(m.ngeom, -1, np.int32), np.zeros(m.ngeom)
    radius[geoms] = m.geom_rbound[geoms]
    own_verts, own_edges, own_faces = (np.zeros((m.ngeom, n), np.int32) for n in (2, 2, 3))
    ends: list[tuple[int, int]] = []
    vert, normal = [np.zeros((0, 3))], [np.zeros((0, 3))]
    neighbours: list[np.ndarray] = []  # of every vertex
    meeting: list[list[int]] = []  # faces of every vertex
    corners: list[np.ndarray] = []  # of every face
    merged: list[int] = []
    for mesh in np.unique(m.geom_dataid[geoms]):
        base, below, edges_below = len(neighbours), len(corners), len(ends)
        users = geoms[m.geom_dataid[geoms] == mesh]
        graph = m.mesh_graph[m.mesh_graphadr[mesh] :]  # vertices, triangles; edges and id of each vertex; both lists
        n, (start, ids) = graph[0], graph[2 : 2 + 2 * graph[0]].reshape(2, -1)
        edges, triangles = np.split(graph[2 + 2 * n :][: n + 6 * graph[1]], [n + 3 * graph[1]])
        local = np.full(m.mesh_vertnum[mesh], -1)
        local[ids] = np.arange(n)
        own = slice(m.mesh_polyadr[mesh], m.mesh_polyadr[mesh] + m.mesh_polynum[mesh])
        sizes = zip(m.mesh_polyvertadr[own], m.mesh_polyvertnum[own], strict=True)
        sides = [local[m.mesh_polyvert[a : a + k]] for a, k in sizes]
        points = m.mesh_vert[m.mesh_vertadr[mesh] + ids].astype(np.float64)
        flat, bent, normals, side = _faces(points - points.mean(axis=0), sides, local[triangles].reshape(-1, 3))
        vert.append(points)
        normal.append(normals)
        neighbours += [e[: np.argmax(e < 0)] + base for e in (edges[a:] for a in start)]
        ends += [(v, int(w)) for v in range(base, len(neighbours)) for w in neighbours[v] if v < w]
        meeting += [[] for _ in range(n)]
        for f, around in enumerate(flat):
            for v in around:
                meeting[base + v].append(below + f)
        for v in range(n):
            if not meeting[base + v]:  # only slivers meet here, which have no normal: take the nearest face
                gaps = [abs((points[v] - points[around[0]]) @ out) for around, out in zip(flat, normals, strict=False)]
                meeting[base + v].append(below + int(np.argmin(gaps)))
        corners += [around + base for around in [*flat, *bent]]
        merged += [below + f for f in side]
        first[users] = base
        own_verts[users] = base, len(neighbours)
        own_edges[users] = edges_below, len(ends)
        own_faces[users] = below, below + len(flat), len(corners)
    edge, neighbour = _ragged(neighbours)
    number = {pair: e for e, pair in enumerate(ends)}
    leaving = [number[min(v, int(w)), max(v, int(w))] for v, row in enumerate(neighbours) for w in row]
    corner, around = _ragged(corners)
    at, faces = _ragged(meeting)
    hulls = Hulls(
        vert=np.concatenate(vert),
        edge=edge,
        neighbour=neighbour,
        leaving=np.array(leaving, np.int32),
        ends=np.array(ends, np.int32).reshape(-1, 2),
        normal=np.concatenate(normal),
        corner=corner,
        corners=around,
        meeting=at,
        faces=faces,
        merged=np.array(merged, np.int32),
        first=first,
        own_verts=own_verts,
        own_edges=own_edges,
        own_faces=own_faces,
        radius=radius,
    )
    _require_countable(m, pair, hulls.names)
    return hulls


def _require_countable(m: Any, pair: np.ndarray, parts: np.ndarray) -> None:
    """Refuse hulls and height fields so fine that an int32 cannot number all pairs of parts that may touch."""
    fine = np.isin(m.geom_type[pair], (GeomType.HFIELD, GeomType.MESH)).any(1)
    for a, b in pair[fine]:
        kinds = GeomType(m.geom_type[a]), GeomType(m.geom_type[b])
        if kinds not in CONVEX and kinds not in HFIELDS:
            continue
        sizes = [
            int(parts[g]) if kind == GeomType.MESH else _PARTS.get(kind, 1)
            for g, kind in zip((a, b), kinds, strict=True)
        ]
        curved = bool({GeomType.ELLIPSOID, GeomType.CYLINDER} & set(kinds))
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


def _faces(
    vert: np.ndarray, sides: list[np.ndarray], triangles: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, list[int]]:
    """The faces of a hull about the origin, its sides that are not quite flat, the normals of both, the side of each.

    MuJoCo merges triangles into one side if they turn by no more than about 1e-3 rad. Contacts on it use the normals of
    the triangles, but the side counts as flat where another rests on it. Faces are the flat sides, and the triangles
    that belong to none of them.
    """
    slack = _FLAT * float(np.ptp(vert, axis=0).max())
    flat, bent, within = [], [], np.zeros(len(triangles), bool)
    for side in sides:
        height = np.abs(_heights(vert, side))
        if height[side].max() <= slack:
            flat.append(side)
            within |= (height[triangles] <= slack).all(axis=1)
        else:
            bent.append(side)
    loose = [t for t in triangles[~within] if _heights(vert, t).max() <= slack]  # excludes those without area (NaN)
    faces = [*flat, *loose]
    normals = np.stack([_normal(vert, f) for f in [*faces, *bent]])
    of = np.arange(len(normals))
    whole = np.concatenate([of[: len(flat)], of[len(faces) :]])
    for k in range(len(flat), len(faces)):
        of[k] = whole[np.argmax(normals[whole] @ normals[k])]
    return faces, bent, normals, of.tolist()


def _heights(vert: np.ndarray, face: np.ndarray) -> np.ndarray:
    """How far the vertices of a hull lie above one of its faces."""
    return (vert - vert[face[0]]) @ _normal(vert, face)


def _normal(vert: np.ndarray, face: np.ndarray) -> np.ndarray:
    """Unit normal of a face of a hull about the origin; MuJoCo rounds corners to float32 after it computes normals."""
    x = vert[face] - vert[face[0]]
    normal = np.cross(x, np.roll(x, -1, axis=0)).sum(axis=0)
    length = np.linalg.norm(normal)
    return normal * (np.sign(normal @ vert[face[0]]) / length) if length > 0 else np.full(3, np.nan)


def _ragged(rows: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths, concatenated: where each starts, and their elements."""
    start = np.cumsum([0, *map(len, rows)])
    return start.astype(np.int32), np.concatenate([np.zeros(0), *rows]).astype(np.int32)
