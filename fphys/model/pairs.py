"""Which geoms may touch: MuJoCo's collision filter, and the sizes of a pair's contacts."""

from typing import Any, NamedTuple

import numpy as np

from .structure import GeomType

PLANE, HFIELD, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH, SDF = GeomType

PLANES = {(PLANE, SPHERE): 1, (PLANE, CAPSULE): 2, (PLANE, ELLIPSOID): 1, (PLANE, CYLINDER): 4, (PLANE, BOX): 4}
CLOSED_FORM = {
    (SPHERE, SPHERE): 1,
    (SPHERE, CAPSULE): 1,
    (SPHERE, CYLINDER): 1,
    (SPHERE, BOX): 1,
    (CAPSULE, CAPSULE): 2,
    (CAPSULE, BOX): 2,
}
BOX_BOX = {(BOX, BOX): 8}
PLANE_MESH = {(PLANE, MESH): 4}
SPHERE_MESH = {(SPHERE, MESH): 1}
CURVED = {(a, ELLIPSOID): 1 for a in (SPHERE, CAPSULE, ELLIPSOID)} | {(ELLIPSOID, b): 1 for b in (CYLINDER, BOX, MESH)}
FLAT = {(a, b): 4 for b in (CYLINDER, BOX, MESH) for a in (CAPSULE, CYLINDER, BOX, MESH) if a <= b}
CONVEX = CURVED | {kind: count for kind, count in FLAT.items() if kind not in CLOSED_FORM | BOX_BOX}
HFIELDS = {(HFIELD, b): 50 for b in (SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH)}
SOURCES = (PLANES, CLOSED_FORM, BOX_BOX, PLANE_MESH, SPHERE_MESH, CONVEX, HFIELDS)
"""Pairs of geom types, grouped by the kernel that finds their contacts, with the most contact points of a pair."""

CONTACTS = {kind: count for source in SOURCES for kind, count in source.items()}
"""Most contact points of a pair of geom types; other types are not simulated."""


def candidates(m: Any, filterparent: bool = True) -> np.ndarray:
    """Pairs of geoms that MuJoCo could collide, lower geom type first, shape (pair, 2).

    Left out: geoms of one rigid piece, of a piece and its parent (unless the parent is static), of two static
    pieces, of excluded bodies, with incompatible contype and conaffinity, planes and height fields among
    themselves, and pairs that the file names.
    """
    body = m.geom_bodyid
    weld = m.body_weldid[body]
    parent = m.body_weldid[m.body_parentid[weld]]
    static = m.body_treeid[body] < 0
    flat = (m.geom_type == PLANE) | (m.geom_type == HFIELD)
    code = lambda a, b, base: np.minimum(a, b).astype(np.int64) * base + np.maximum(a, b)  # noqa: E731
    apart = code(m.pair_geom1, m.pair_geom2, m.ngeom)
    pairs = [np.zeros((0, 2), np.int32)]
    for i in range(m.ngeom):
        j = slice(i + 1, m.ngeom)
        may = ((m.geom_contype[i] & m.geom_conaffinity[j]) | (m.geom_contype[j] & m.geom_conaffinity[i])) != 0
        may &= (weld[i] != weld[j]) & ~(static[i] & static[j]) & ~(flat[i] & flat[j])
        if filterparent:
            may &= (weld[i] == 0) | (weld[j] == 0) | ((weld[i] != parent[j]) & (weld[j] != parent[i]))
        other = np.flatnonzero(may) + i + 1
        left_out = np.isin(code(body[i], body[other], 1 << 16), m.exclude_signature)
        other = other[~left_out & ~np.isin(code(i, other, m.ngeom), apart)]
        found = np.stack([np.full_like(other, i), other], 1).astype(np.int32)
        pairs.append(np.where((m.geom_type[i] <= m.geom_type[other])[:, None], found, found[:, ::-1]))
    return np.concatenate(pairs)


def condim(pair: np.ndarray, condims: np.ndarray, priority: np.ndarray) -> np.ndarray:
    """Contact dimension of each pair: that of the geom of higher priority, or the larger, shape (pair,)."""
    a, b = pair.reshape(-1, 2).T
    larger = np.maximum(condims[a], condims[b])
    return np.where(priority[a] == priority[b], larger, np.where(priority[a] > priority[b], condims[a], condims[b]))


def named(m: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that the file names, lower geom type first, shape (named, 2), and their indices, shape (named,)."""
    pairs = np.stack([m.pair_geom1, m.pair_geom2], -1).astype(np.int32).reshape(-1, 2)
    swap = m.geom_type[pairs[:, 0]] > m.geom_type[pairs[:, 1]]
    return np.where(swap[:, None], pairs[:, ::-1], pairs), np.arange(m.npair, dtype=np.int32)


def contact_pairs(m: Any, disabled: frozenset[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs that may collide, named ones last; the dimension of each pair's contacts; the named ones' indices."""
    found, (apart, index) = candidates(m, "filterparent" not in disabled), named(m)
    if "contact" in disabled:
        found, apart, index = found[:0], apart[:0], index[:0]
    dims = np.concatenate([condim(found, m.geom_condim, m.geom_priority), m.pair_dim[index]])
    return np.concatenate([found, apart]), dims.astype(np.int32), index


def rows(condims: np.ndarray, elliptic: bool) -> np.ndarray:
    """Constraint rows of a contact: one without friction, otherwise a pyramid's edges or an ellipse's directions."""
    return np.where(condims == 1, 1, condims if elliptic else 2 * (condims - 1)).astype(np.int32)


class Slots(NamedTuple):
    """Where each pair stores the features of its contacts, each (pair,)."""

    source: np.ndarray  # index into SOURCES
    first: np.ndarray  # among the slots of that source
    count: np.ndarray


def of_kinds(pair: np.ndarray, types: np.ndarray) -> np.ndarray:
    """Source of each pair, and its most contact points, 0 if it is not simulated, shape (2, pair)."""
    table = np.zeros((2, SDF + 1, SDF + 1), np.int32)
    for i, kinds in enumerate(SOURCES):
        for (a, b), number in kinds.items():
            table[:, a, b] = i, number
    return table[:, types[pair[:, 0]], types[pair[:, 1]]]


def slots(pair: np.ndarray, types: np.ndarray) -> Slots:
    """Slots of every pair: one for each possible contact, consecutive, numbered separately for each source."""
    source, count = of_kinds(pair, types)
    first = np.zeros_like(count)
    for i in range(len(SOURCES)):
        own = count[source == i]
        first[source == i] = np.cumsum(own) - own
    return Slots(source, first, count)


CROWD = {1: 4, 2: 4, 4: 12, 8: 28}
"""Contacts per geom that :func:`capacity` reserves besides those with planes and height fields, by the most points that
one of its pairs makes: a box among boxes shares 24 at its faces, 24 at its edges, 8 at its corners."""
TERRAIN = 16
"""Contacts that it reserves for each pair of a height field and a geom; such a pair makes at most 50."""


def capacity(pair: np.ndarray, types: np.ndarray, rows: np.ndarray, contacts: int | None = None) -> tuple[int, int]:
    """Contacts and contact rows that a world holds by default, or ``contacts`` and their rows.

    All contacts with planes, and ``TERRAIN`` for each geom with each height field. The number of other contacts grows
    with the square of the number of geoms, so at most ``CROWD`` are reserved for each geom.

    Args:
        rows: number of rows of a contact of each pair, (pair,).
    """
    points = slots(pair, types).count.astype(np.int64)
    if contacts is not None:
        return contacts, int(min((points * rows).sum(), contacts * rows.max(initial=0)))
    points = np.where(types[pair[:, 0]] == HFIELD, np.minimum(points, TERRAIN), points)
    flat = types[pair[:, 0]] <= HFIELD
    crowd = np.zeros(len(types), np.int64)
    np.maximum.at(crowd, pair[~flat], np.array([CROWD.get(n, 0) for n in points[~flat].tolist()], np.int64)[:, None])
    every, some = points[flat].sum(), min(points[~flat].sum(), crowd.sum())
    most = min((points * rows)[~flat].sum(), some * rows[~flat].max(initial=0))
    return int(every + some), int((points * rows)[flat].sum() + most)
