"""Convex hulls of the meshes that may touch."""

from typing import Any, NamedTuple

import numpy as np

from ..errors import UnsupportedError
from .pairs import CONVEX, HFIELDS, lower_first, met, of_kinds
from .sensors import measured_pairs
from .structure import GeomType, Hulls, Ints

_PARTS = {GeomType.SPHERE: 1, GeomType.CAPSULE: 3, GeomType.ELLIPSOID: 1, GeomType.CYLINDER: 7, GeomType.BOX: 26}
"""Parts with which a geom can touch, as counted in ``kernels/rigid/collide/parts.py``."""
_NAMES = _PARTS | {GeomType.CYLINDER: 32, GeomType.CAPSULE: 4}
"""Parts or corners of flat sides, whichever are more."""
_PATCHES = 4096, 2
"""How many cases a feature distinguishes for each pair of parts: with a curved geom, and without."""
_KINDS = 7
"""Kinds of points of flat sides on one another."""
_PRISM = 20 * 256, 20 * 2
"""Cases for each prism of a height field and part of the geom."""
_FLAT = 2e-7
"""How far corners of a flat side may lie off its plane, in units of the hull: the accuracy of float32."""
_BLOCK = 2**22
"""Heights that are computed at a time."""


class _Hull(NamedTuple):
    """The hull of one mesh; see ``Hulls``, with lists of lists as a start and the elements."""

    vert: np.ndarray
    edge: Ints
    neighbour: Ints
    leaving: Ints
    ends: Ints
    normal: np.ndarray
    level: np.ndarray
    corner: Ints
    corners: Ints
    meeting: Ints
    faces: Ints
    beside: Ints
    sides: Ints
    merged: Ints
    flat: int  # how many of the faces are parts


def read_hulls(m: Any, disabled: frozenset[str]) -> Hulls:
    """The hulls of the meshes among the geoms that may touch, or whose distance a sensor measures."""
    pair, touching = met(m, disabled)
    measured = np.concatenate([pair[:0], *(measured_pairs(m, i) for i in range(m.nsensor))])
    measured = lower_first(measured, m.geom_type)
    measured = measured[of_kinds(measured, m.geom_type)[1] > 0]
    pair, touching = np.concatenate([pair, measured]), np.union1d(touching, measured)
    geoms = touching[m.geom_type[touching] == GeomType.MESH]
    first, radius = np.full(m.ngeom, -1, np.int32), np.zeros(m.ngeom)
    radius[geoms] = m.geom_rbound[geoms]
    own_verts, own_edges, own_faces = (np.zeros((m.ngeom, n), np.int32) for n in (2, 2, 3))
    found = [_read(m, mesh) for mesh in np.unique(m.geom_dataid[geoms])]
    ends = np.cumsum([[0, 0, 0], *([len(h.vert), len(h.ends), len(h.normal)] for h in found)], axis=0)
    for mesh, h, start, end in zip(np.unique(m.geom_dataid[geoms]), found, ends, ends[1:], strict=False):
        users = geoms[m.geom_dataid[geoms] == mesh]
        first[users] = start[0]
        own_verts[users], own_edges[users] = zip(start[:2], end[:2], strict=True)
        own_faces[users] = start[2], start[2] + h.flat, end[2]
    verts, edges, faces = ends[:-1].T

    def joined(name: str, offset: Any = None) -> np.ndarray:
        rows = [np.zeros((0, *_EMPTY.get(name, ())))] + [getattr(h, name) for h in found]
        offsets = [0, *(np.zeros(len(found), int) if offset is None else offset)]
        return np.concatenate([row + k for row, k in zip(rows, offsets, strict=True)])

    def starts(name: str) -> np.ndarray:
        return np.cumsum(np.concatenate([[0], *(np.diff(getattr(h, name)) for h in found)]))

    whole = {
        "edge": starts("edge"),
        "neighbour": joined("neighbour", verts),
        "leaving": joined("leaving", edges),
        "ends": joined("ends", verts),
        "corner": starts("corner"),
        "corners": joined("corners", verts),
        "meeting": starts("meeting"),
        "faces": joined("faces", faces),
        "beside": starts("beside"),
        "sides": joined("sides", faces),
        "merged": joined("merged", faces),
    }
    hulls = Hulls(
        vert=joined("vert"),
        normal=joined("normal"),
        level=joined("level"),
        first=first,
        own_verts=own_verts,
        own_edges=own_edges,
        own_faces=own_faces,
        radius=radius,
        **{name: x.astype(np.int32) for name, x in whole.items()},
    )
    _require_countable(m, pair, hulls)
    return hulls


_EMPTY = {"vert": (3,), "normal": (3,), "level": (3,), "ends": (2,)}
"""Shapes of the rows of lists that are not of numbers."""


def _require_countable(m: Any, pair: np.ndarray, hulls: Hulls) -> None:
    """Refuse hulls and height fields so fine that an int32 cannot number all pairs of parts that may touch."""
    kinds = m.geom_type[pair]
    fine = np.isin(kinds, (GeomType.HFIELD, GeomType.MESH)).any(1)
    known = np.zeros((GeomType.SDF + 1, GeomType.SDF + 1), bool)
    known[tuple(zip(*(CONVEX | HFIELDS), strict=True))] = True
    a, b = pair[fine & known[kinds[:, 0], kinds[:, 1]]].T
    mesh = m.geom_type == GeomType.MESH
    parts, names = (
        np.where(mesh, of_hull, [table.get(kind, 1) for kind in m.geom_type]).astype(np.int64)
        for of_hull, table in ((hulls.parts, _PARTS), (hulls.names, _NAMES))
    )
    curved = np.isin(m.geom_type, (GeomType.ELLIPSOID, GeomType.CYLINDER))
    field = m.geom_type[a] == GeomType.HFIELD
    needed = parts[a] * parts[b] * np.where(curved[a] | curved[b], *_PATCHES) + _KINDS * names[a] * names[b]
    if field.any():
        own = m.geom_dataid[a[field]]
        prisms = 2 * m.hfield_nrow[own].astype(np.int64) * m.hfield_ncol[own]
        touching = np.where(m.geom_type[b[field]] == GeomType.CYLINDER, 5, parts[b[field]])
        needed[field] = prisms * touching * np.where(curved[b[field]], *_PRISM)
    for k in np.flatnonzero(needed >= 2**31)[:1]:
        what, cure = "parts", "give the meshes a maxhullvert"
        sizes = [int(parts[a[k]]), int(parts[b[k]])]
        if field[k]:
            grid = m.geom_dataid[a[k]]
            sizes[0] = 2 * int(m.hfield_nrow[grid]) * int(m.hfield_ncol[grid])
            what, cure = "prisms", f"cut the height field into several; {cure}"
        first, second = (f'geom "{m.geom(int(g)).name or g}"' for g in (a[k], b[k]))
        raise UnsupportedError(
            f"{first} ({sizes[0]} {what}) and {second} ({sizes[1]} parts): they have more pairs of parts "
            f"than contacts can name: {cure}"
        )


def _read(m: Any, mesh: int) -> _Hull:
    """The hull of a mesh.

    MuJoCo merges triangles into one side if they turn by no more than about 1e-3 rad. Contacts on it use the normals of
    the triangles, but the side counts as flat where another rests on it. Faces are the flat sides, and the triangles
    that belong to none of them; after them come the sides that are not quite flat.
    """
    graph = m.mesh_graph[m.mesh_graphadr[mesh] :]  # vertices, triangles; edges and id of each vertex; both lists
    n, (start, ids) = graph[0], graph[2 : 2 + 2 * graph[0]].reshape(2, -1)
    edges, triangles = np.split(graph[2 + 2 * n :][: n + 6 * graph[1]], [n + 3 * graph[1]])
    local = np.full(m.mesh_vertnum[mesh], -1)
    local[ids] = np.arange(n)
    triangles = local[triangles].reshape(-1, 3)
    own = slice(m.mesh_polyadr[mesh], m.mesh_polyadr[mesh] + m.mesh_polynum[mesh])
    corner, corners = _picked(m.mesh_polyvert, m.mesh_polyvertadr[own], m.mesh_polyvertnum[own])
    corners = local[corners]
    points = m.mesh_vert[m.mesh_vertadr[mesh] + ids].astype(np.float64)
    centred = points - points.mean(axis=0)
    slack = _FLAT * float(np.ptp(points, axis=0).max())
    normals = _normals(centred, corner, corners)
    heights = np.abs(np.einsum("ij,ij->i", centred[corners] - centred[corners[_each(corner)]], normals[_owner(corner)]))
    flat = np.maximum.reduceat(heights, corner[:-1]) <= slack  # false for a side without area (NaN)
    loose = triangles[~_alone(triangles, corner, corners, flat)]
    loose = loose[~_within(centred, loose, corner, corners, normals, flat, slack)]
    level = _normals(centred, *_rows(loose))
    outside = [h.max(axis=0) for _, h in _heights(centred, loose[:, 0], level)]
    kept = np.concatenate([np.zeros(0), *outside]) <= slack  # false for a triangle without area (NaN)
    loose, level = loose[kept], level[kept]
    number = np.empty(len(normals), int)  # of a side among the faces
    number[flat], number[~flat] = np.arange(flat.sum()), np.arange((~flat).sum()) + flat.sum() + len(loose)
    order = np.argsort(number)
    before = int(flat.sum())
    merged = np.arange(len(normals) + len(loose))
    merged[before : before + len(loose)] = number[_around(loose, level, corner, corners, normals)]
    places = np.split(order, [before])
    lists = [_picked(corners, corner[k], np.diff(corner)[k]) for k in places]
    whole = [_rows(loose), *lists]
    sizes = np.concatenate([np.diff(whole[k][0]) for k in (1, 0, 2)])
    corner, corners = np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([whole[k][1] for k in (1, 0, 2)])
    sides = m.mesh_polynormal[own]
    parts = before + len(loose)
    normal = np.concatenate([normals[places[0]], level, normals[places[1]]])
    meeting, faces = _meeting(points, corner[: parts + 1], corners[: corner[parts]], normal)
    at = m.mesh_vertadr[mesh] + ids
    beside, touching = _picked(m.mesh_polymap, m.mesh_polymapadr[at], m.mesh_polymapnum[at])
    neighbours = np.searchsorted(np.flatnonzero(edges < 0), start)
    edge, neighbour = _picked(edges, start, np.flatnonzero(edges < 0)[neighbours] - start)
    leaving, ends = _numbered(edge, neighbour)
    return _Hull(
        vert=points,
        edge=edge,
        neighbour=neighbour,
        leaving=leaving,
        ends=ends,
        normal=normal,
        level=np.concatenate([sides[places[0]], level, sides[places[1]]]),
        corner=corner,
        corners=corners,
        meeting=meeting,
        faces=faces,
        beside=beside,
        sides=number[touching],
        merged=merged,
        flat=parts,
    )


def _alone(triangles: np.ndarray, corner: np.ndarray, corners: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Whether each triangle is a flat side by itself: in fine meshes most are, and need no closer look."""
    three = corner[:-1][flat & (np.diff(corner) == 3)]
    base = int(triangles.max(initial=0)) + 1

    def keys(rows: np.ndarray) -> np.ndarray:
        low, middle, high = np.sort(rows, axis=1).astype(np.int64).T
        return (low * base + middle) * base + high

    return np.isin(keys(triangles), keys(corners[three[:, None] + np.arange(3)]))


def _within(
    vert: np.ndarray,
    triangles: np.ndarray,
    corner: np.ndarray,
    corners: np.ndarray,
    normals: np.ndarray,
    flat: np.ndarray,
    slack: float,
) -> np.ndarray:
    """Whether each triangle lies on one of the flat sides that it shares a corner with."""
    at, side = _ragged(corners, _owner(corner), len(vert))
    found = np.zeros(len(triangles), bool)
    for k in range(3):
        first = at[triangles[:, k]]
        start, on = _picked(side, first, at[triangles[:, k] + 1] - first)
        gaps = vert[triangles[_owner(start)]] - vert[corners[corner[on]]][:, None]
        level = np.abs(np.einsum("ikj,ij->ik", gaps, normals[on])).max(axis=1) <= slack
        found[_owner(start)[level & flat[on]]] = True
    return found


def _around(
    triangles: np.ndarray, level: np.ndarray, corner: np.ndarray, corners: np.ndarray, normals: np.ndarray
) -> np.ndarray:
    """The side that each triangle belongs to: that which has its corners, else that whose normal is nearest."""
    if not len(triangles):
        return np.zeros(0, int)
    count = int(max(corners.max(initial=0), triangles.max())) + 1  # a side may lack vertices of its triangles
    at, side = _ragged(corners, _owner(corner), count)
    start, on = _picked(side, at[triangles[:, 0]], at[triangles[:, 0] + 1] - at[triangles[:, 0]])
    of = _owner(start)
    number = len(normals)
    keys = np.sort(corners.astype(np.int64) * number + _owner(corner))
    held = np.ones(len(on), bool)
    for k in (1, 2):
        key = triangles[of, k].astype(np.int64) * number + on
        held &= keys[np.minimum(np.searchsorted(keys, key), len(keys) - 1)] == key
    found = np.full(len(triangles), -1)
    found[of[held][::-1]] = on[held][::-1]
    known = np.nan_to_num(normals)
    for k in np.flatnonzero(found < 0):
        found[k] = np.argmax(known @ level[k])
    return found


def _heights(vert: np.ndarray, base: np.ndarray, normals: np.ndarray) -> Any:
    """Blocks of faces, and how far the vertices of a hull lie above them: (slice, (vertex, face)) each."""
    step = max(1, _BLOCK // max(len(vert), 1))
    for k in range(0, len(normals), step):
        part = slice(k, k + step)
        yield part, vert @ normals[part].T - np.einsum("ij,ij->i", vert[base[part]], normals[part])


def _normals(vert: np.ndarray, corner: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Unit normals of faces of a hull about the origin, NaN for one without area; MuJoCo rounds corners to float32
    after it computes normals."""
    if len(corner) == 1:
        return np.zeros((0, 3))
    base = vert[corners[_each(corner)]]
    after = np.arange(1, len(corners) + 1)
    after[corner[1:] - 1] = corner[:-1]
    normal = np.add.reduceat(np.cross(vert[corners] - base, vert[corners[after]] - base), corner[:-1], axis=0)
    length = np.linalg.norm(normal, axis=1)
    length[length == 0] = np.nan
    return normal * (np.sign(np.einsum("ij,ij->i", normal, vert[corners[corner[:-1]]])) / length)[:, None]


def _meeting(
    vert: np.ndarray, corner: np.ndarray, corners: np.ndarray, normal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The faces that meet at every vertex. Where only slivers meet, which have no normal, it is the nearest face."""
    at, face = corners, _owner(corner)
    for v in np.setdiff1d(np.arange(len(vert)), at):
        gaps = np.abs(np.einsum("ij,ij->i", vert[v] - vert[corners[corner[:-1]]], normal[: len(corner) - 1]))
        at, face = np.append(at, v), np.append(face, np.argmin(gaps))
    return _ragged(at, face, len(vert))


def _numbered(edge: np.ndarray, neighbour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a hull, numbered by their lower vertex: the edge to each neighbour, and the ends of each."""
    here, count = _owner(edge), len(edge)
    low, high = np.minimum(here, neighbour), np.maximum(here, neighbour)
    mine = here < neighbour
    keys = low[mine].astype(np.int64) * count + high[mine]
    order = np.argsort(keys)
    leaving = order[np.searchsorted(keys[order], low.astype(np.int64) * count + high)]
    return leaving, np.stack([low[mine], high[mine]], 1)


def _rows(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Triangles as a list of lists."""
    return 3 * np.arange(len(triangles) + 1), triangles.ravel()


def _picked(values: np.ndarray, first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A list of lists, ``values[first:first + count]`` each: where each starts, and their elements."""
    start = np.concatenate([[0], np.cumsum(count)])
    return start, values[np.repeat(first - start[:-1], count) + np.arange(start[-1])]


def _ragged(of: np.ndarray, values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A list of lists from elements that say which of ``count`` lists they are of."""
    order = np.argsort(of, kind="stable")
    return np.searchsorted(of[order], np.arange(count + 1)), values[order]


def _owner(start: np.ndarray) -> np.ndarray:
    """Of each element of a list of lists, the list that it is in."""
    return np.repeat(np.arange(len(start) - 1), np.diff(start))


def _each(start: np.ndarray) -> np.ndarray:
    """For each element of a list of lists, where its list starts."""
    return np.repeat(start[:-1], np.diff(start))
