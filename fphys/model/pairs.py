"""Which geoms may touch: MuJoCo's collision filter, and what a pair's contact needs."""

from typing import Any, NamedTuple

import numpy as np

PLANE, HFIELD, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = range(8)

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
SOURCES = (PLANES, CLOSED_FORM, BOX_BOX)
"""Pairs of geom types that one kernel each finds the contacts of, with the most contact points that a pair makes."""

CONTACTS = {kind: count for source in SOURCES for kind, count in source.items()}
"""Contact points that a pair of geom types makes at most; other types are not simulated."""


def candidates(m: Any, filterparent: bool = True) -> np.ndarray:
    """Pairs of geoms that MuJoCo could collide, lower geom type first, shape (pair, 2).

    Left out: geoms of one rigid piece, of a piece and its parent (unless the parent is static), of two static
    pieces, of excluded bodies, with contype and conaffinity that do not meet, and planes and height fields
    among themselves.
    """
    body = m.geom_bodyid
    weld = m.body_weldid[body]
    parent = m.body_weldid[m.body_parentid[weld]]
    static = m.body_treeid[body] < 0
    flat = (m.geom_type == PLANE) | (m.geom_type == HFIELD)
    excluded = set(m.exclude_signature.tolist())
    pairs = []
    for i in range(m.ngeom):
        j = slice(i + 1, m.ngeom)
        may = ((m.geom_contype[i] & m.geom_conaffinity[j]) | (m.geom_contype[j] & m.geom_conaffinity[i])) != 0
        may &= (weld[i] != weld[j]) & ~(static[i] & static[j]) & ~(flat[i] & flat[j])
        if filterparent:
            may &= (weld[i] == 0) | (weld[j] == 0) | ((weld[i] != parent[j]) & (weld[j] != parent[i]))
        for k in np.flatnonzero(may) + i + 1:
            low, high = sorted((int(body[i]), int(body[k])))
            if (low << 16) + high not in excluded:
                pairs.append((i, k) if m.geom_type[i] <= m.geom_type[k] else (k, i))
    return np.array(pairs, np.int32).reshape(-1, 2)


def condim(pair: np.ndarray, condims: np.ndarray, priority: np.ndarray) -> np.ndarray:
    """Contact dimension of each pair: that of the geom of higher priority, or the larger, shape (pair,)."""
    a, b = pair.reshape(-1, 2).T
    larger = np.maximum(condims[a], condims[b])
    return np.where(priority[a] == priority[b], larger, np.where(priority[a] > priority[b], condims[a], condims[b]))


class Slots(NamedTuple):
    """Where each pair keeps the features of its contacts, each (pair,)."""

    source: np.ndarray  # index into SOURCES
    first: np.ndarray  # among the slots of that source
    count: np.ndarray


def slots(pair: np.ndarray, types: np.ndarray) -> Slots:
    """Slots of every pair: as many as it can make contacts, one pair's after another's, apart for each source."""
    kinds = [(int(types[a]), int(types[b])) for a, b in pair]
    source = np.array([next(i for i, s in enumerate(SOURCES) if kind in s) for kind in kinds], np.int32)
    count = np.array([CONTACTS[kind] for kind in kinds], np.int32)
    first = np.zeros_like(count)
    for i in range(len(SOURCES)):
        own = count[source == i]
        first[source == i] = np.cumsum(own) - own
    return Slots(source, first, count)


def capacity(pair: np.ndarray, types: np.ndarray, condims: np.ndarray, priority: np.ndarray) -> tuple[int, int]:
    """Most contacts that the pairs can make, and most rows of their pyramidal friction cones."""
    points = slots(pair, types).count.astype(np.int64)
    rows = np.maximum(1, 2 * (condim(pair, condims, priority).astype(np.int64) - 1))
    return int(points.sum()), int((points * rows).sum())
