"""Which geoms may touch: MuJoCo's collision filter, and the sizes of a pair's contacts."""

from typing import Any, NamedTuple

import numpy as np

from .structure import GeomType, Integrator, JointType, Structure, memo

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

LARGE, TALL = 60, 110
"""Degrees of freedom from which a model is sparse, as in MuJoCo, unless its file says otherwise; and those if one tree
has more than half of them: below, matrices of eight worlds side by side are faster (benchmarks/notes/0013)."""
CONTACTS = {kind: count for source in SOURCES for kind, count in source.items()}
"""Most contact points of a pair of geom types; other types are not simulated."""


def reach(m: Any, disabled: frozenset[str] = frozenset()) -> np.ndarray:
    """What decides whether two geoms may touch, (ngeom, 5).

    Columns: the rigid piece of the geom, 0 for all that do not move; the body that it is welded to; that of the piece's
    parent, or -1 where the two may touch; contype; conaffinity.
    """
    weld = m.body_weldid[m.geom_bodyid]
    parent = m.body_weldid[m.body_parentid[weld]]
    piece = np.where(m.body_treeid[m.geom_bodyid] < 0, 0, weld)
    above = np.where((parent == 0) | ("filterparent" in disabled), -1, parent)
    bits = [b * ("contact" not in disabled) for b in (m.geom_contype, m.geom_conaffinity)]
    return np.stack([piece, weld, above, *bits], -1).astype(np.int32)


def apart(m: Any) -> np.ndarray:
    """Pairs of bodies whose geoms do not touch, ascending: the lower times nbody, plus the higher."""
    low, high = m.exclude_signature >> 16, m.exclude_signature & 0xFFFF
    return np.unique(np.minimum(low, high) * m.nbody + np.maximum(low, high)).astype(np.int32)


def lower_first(pair: np.ndarray, types: np.ndarray) -> np.ndarray:
    """Pairs of geoms, that of lower type first, shape (pair, 2)."""
    a, b = pair.T
    return np.where((types[a] <= types[b])[:, None], pair, pair[:, ::-1])


def candidates(m: Any, disabled: frozenset[str] = frozenset()) -> np.ndarray:
    """Pairs of geoms that MuJoCo could collide, lower geom type first, shape (pair, 2).

    Left out: geoms of one rigid piece, of a piece and its parent (unless the parent is static), of two static
    pieces, of excluded bodies, with incompatible contype and conaffinity, planes and height fields among
    themselves, and pairs that the file names.
    """
    body = m.geom_bodyid
    piece, weld, above, types, affinities = reach(m, disabled).T
    flat = (m.geom_type == PLANE) | (m.geom_type == HFIELD)
    code = lambda a, b, base: np.minimum(a, b).astype(np.int64) * base + np.maximum(a, b)  # noqa: E731
    excluded, listed = apart(m), code(m.pair_geom1, m.pair_geom2, m.ngeom)
    pairs = [np.zeros((0, 2), np.int32)]
    for i in range(m.ngeom):
        j = slice(i + 1, m.ngeom)
        may = ((types[i] & affinities[j]) | (types[j] & affinities[i])) != 0
        may &= (piece[i] != piece[j]) & (weld[i] != above[j]) & (weld[j] != above[i]) & ~(flat[i] & flat[j])
        other = np.flatnonzero(may) + i + 1
        left_out = np.isin(code(body[i], body[other], m.nbody), excluded)
        other = other[~left_out & ~np.isin(code(i, other, m.ngeom), listed)]
        found = np.stack([np.full_like(other, i), other], 1).astype(np.int32)
        pairs.append(lower_first(found, m.geom_type))
    return np.concatenate(pairs)


class Meetings(NamedTuple):
    """Kinds of geoms, and which of them may meet, whatever their bodies."""

    group: np.ndarray  # kind of each geom, (ngeom,)
    first: np.ndarray  # the first geom of each kind, (kind,)
    number: np.ndarray  # pairs of geoms of two kinds that may touch, at most, (kind, kind), zero below the diagonal

    @property
    def pair(self) -> np.ndarray:
        """The first geoms of the kinds that may meet, (meeting, 2)."""
        return self.first[np.stack(np.nonzero(self.number), -1)]


def meetings(reach: np.ndarray, types: np.ndarray, *alike: np.ndarray) -> Meetings:
    """Which kinds of geoms may meet, in time linear in the geoms; geoms of a kind have equal ``alike``."""
    table = np.stack([reach[:, 0] == 0, types, *reach[:, 3:].T, *alike], 1).astype(np.int64)
    kinds, first, group, count = np.unique(table, axis=0, return_index=True, return_inverse=True, return_counts=True)
    static, kind, contype, affinity = kinds[:, :4].T
    number = np.zeros((len(kinds), len(kinds)), np.int64)
    for i in range(len(kinds)):
        may = ((contype[i] & affinity) | (contype & affinity[i])) != 0
        may &= (static[i] & static) == 0
        may &= (kind[i] > HFIELD) | (kind > HFIELD)
        number[i] = np.where(may, count[i] * count, 0)
        number[i, i] = may[i] * count[i] * (count[i] - 1) // 2
    return Meetings(group.reshape(-1).astype(np.int32), first, np.triu(number))


def condim(pair: np.ndarray, condims: np.ndarray, priority: np.ndarray) -> np.ndarray:
    """Contact dimension of each pair: that of the geom of higher priority, or the larger, shape (pair,)."""
    a, b = pair.reshape(-1, 2).T
    larger = np.maximum(condims[a], condims[b])
    return np.where(priority[a] == priority[b], larger, np.where(priority[a] > priority[b], condims[a], condims[b]))


def named(m: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that the file names, lower geom type first, shape (named, 2), and their indices, shape (named,)."""
    pairs = np.stack([m.pair_geom1, m.pair_geom2], -1).astype(np.int32).reshape(-1, 2)
    return lower_first(pairs, m.geom_type), np.arange(m.npair, dtype=np.int32)


def contact_pairs(m: Any, disabled: frozenset[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs that may collide, named ones last; the dimension of each pair's contacts; the named ones' indices.

    A sparse model lists none.
    """
    found = np.zeros((0, 2), np.int32) if is_sparse(m, disabled) else candidates(m, disabled)
    listed, index = named(m)
    if "contact" in disabled:
        listed, index = listed[:0], index[:0]
    dims = np.concatenate([condim(found, m.geom_condim, m.geom_priority), m.pair_dim[index]])
    return np.concatenate([found, listed]), dims.astype(np.int32), index


def is_sparse(m: Any, disabled: frozenset[str]) -> bool:
    """Whether a model is solved without matrices and its pairs are not listed: the file says so, or it is large.

    Named pairs, tendons with armature and the no-slip pass need matrices, and what :func:`_damps_apart` tells.
    """
    named = m.npair and "contact" not in disabled
    matrices = named or m.tendon_armature.any() or m.opt.noslip_iterations or not _damps_apart(m)
    tall = 2 * max(m.tree_dofnum, default=0) > m.nv
    return not matrices and bool(m.opt.jacobian == 1 or (m.opt.jacobian == 2 and m.nv >= (TALL if tall else LARGE)))


def _damps_apart(m: Any) -> bool:
    """Whether all forces that the integrator treats implicitly act on bodies and single dofs: those of implicitfast may
    also be forces of tendons, of actuators that are not at hinges or slides, and of a medium on ellipsoids."""
    if m.opt.integrator in (Integrator.EULER, Integrator.RK4):
        return True
    at_joint = np.isin(m.actuator_trntype, (0, 1))
    joint = m.jnt_type[np.where(at_joint, m.actuator_trnid[:, 0], 0)] if m.njnt else np.zeros(m.nu, int)
    apart = at_joint & np.isin(joint, (JointType.SLIDE, JointType.HINGE))
    constant = (m.actuator_gaintype == 0) & (m.actuator_biastype == 0)
    fast = m.opt.integrator == Integrator.IMPLICITFAST
    return fast and not m.ntendon and not (m.geom_fluid[:, 0] > 0).any() and bool((apart | constant).all())


def met(m: Any, disabled: frozenset[str]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that may touch, lower type first, shape (pair, 2), and the geoms that may, ascending.

    Of a sparse model, one pair of every two kinds of geoms; geoms of a kind have the same mesh or height field.
    """
    if not is_sparse(m, disabled):
        pair = contact_pairs(m, disabled)[0]
        return pair, np.unique(pair)
    found = meetings(reach(m, disabled), m.geom_type, m.geom_dataid)
    pair = found.pair.astype(np.int32)
    return lower_first(pair, m.geom_type), np.flatnonzero(np.isin(found.first[found.group], pair))


def rows(condims: np.ndarray, elliptic: bool) -> np.ndarray:
    """Constraint rows of a contact: one without friction, otherwise a pyramid's edges or an ellipse's directions."""
    return np.where(condims == 1, 1, condims if elliptic else 2 * (condims - 1)).astype(np.int32)


class Slots(NamedTuple):
    """Where each pair stores the features of its contacts, each (pair,)."""

    source: np.ndarray  # index into SOURCES
    first: np.ndarray  # among the slots of that source
    count: np.ndarray


def of_kinds(pair: np.ndarray, types: np.ndarray, nearest: bool = False) -> np.ndarray:
    """Source of each pair, and its most contact points, 0 if it is not simulated, shape (2, pair).

    ``nearest``: they are to be the points nearest to each other, also of boxes that are apart.
    """
    table = np.zeros((2, SDF + 1, SDF + 1), np.int32)
    for i, kinds in enumerate(SOURCES):
        for (a, b), number in kinds.items():
            table[:, a, b] = i, number
    if nearest:
        table[:, BOX, BOX] = SOURCES.index(CONVEX), 1
    return table[:, types[pair[:, 0]], types[pair[:, 1]]]


def slots(structure: Structure) -> Slots:
    """Slots of every listed pair: one for each possible contact, consecutive, numbered separately for each source."""
    k = pair_kinds(structure)
    source, count = k.source, k.count
    first = np.zeros_like(count)
    for i in range(len(SOURCES)):
        own = count[source == i]
        first[source == i] = np.cumsum(own) - own
    return Slots(source, first, count)


class Kinds(NamedTuple):
    """Kinds of pairs: those of a kind make contacts of the same sort. A listed pair is a kind of its own; in a sparse
    model, which lists none, the kinds of the two geoms are that of the pair."""

    like: np.ndarray  # the first geom of each geom's kind, (ngeom,)
    group: np.ndarray  # the kind of each geom, (ngeom,)
    groups: int
    pair: np.ndarray  # two geoms, lower type first, (kind, 2)
    number: np.ndarray  # pairs that may touch, at most, (kind,)
    source: np.ndarray  # index into SOURCES, (kind,)
    count: np.ndarray  # most contact points, (kind,)
    dim: np.ndarray  # dimension of the contacts, (kind,)

    @property
    def most_dim(self) -> int:
        """The largest dimension of a contact."""
        return int(self.dim[self.number > 0].max(initial=0))


@memo
def pair_kinds(structure: Structure) -> Kinds:
    """The kinds of all pairs that may touch."""
    g = structure.geom
    if not structure.sparse:
        every, one = np.arange(structure.ngeom), np.ones(len(g.pair), np.int64)
        source, count = of_kinds(g.pair, g.type, g.nearest)
        return Kinds(every, np.zeros_like(g.type), 0, g.pair, one, source, count, g.pair_condim)
    met = meetings(g.reach, g.type, g.condim, g.priority)
    n = len(met.first)
    pair = met.first[np.stack(np.divmod(np.arange(n * n), max(n, 1)), -1)].astype(np.int32)
    pair = lower_first(pair, g.type)
    dim = condim(pair, g.condim, g.priority).astype(np.int32)
    source, count = of_kinds(pair, g.type)
    return Kinds(met.first[met.group], met.group, n, pair, met.number.ravel(), source, count, dim)


def most_rows(structure: Structure) -> int:
    """Most constraint rows of a contact."""
    k = pair_kinds(structure)
    return int(rows(k.dim, structure.elliptic)[k.number > 0].max(initial=0))


CROWD = {1: 4, 2: 4, 4: 12, 8: 28}
"""Contacts per geom that :func:`capacity` reserves besides those with planes and height fields, by the most points that
one of its pairs makes: a box among boxes shares 24 at its faces, 24 at its edges, 8 at its corners."""
TERRAIN = 16
"""Contacts that it reserves for each pair of a height field and a geom; such a pair makes at most 50."""


def capacity(structure: Structure, contacts: int | None = None) -> tuple[int, int]:
    """Contacts and contact rows that a world holds by default, or ``contacts`` and their rows.

    All contacts with planes, and ``TERRAIN`` for each geom with each height field. The number of other contacts grows
    with the square of the number of geoms, so at most ``CROWD`` are reserved for each geom.
    """
    k = pair_kinds(structure)
    types, points = structure.geom.type[k.pair[:, 0]], k.count.astype(np.int64)
    own = rows(k.dim, structure.elliptic)
    if contacts is not None:
        return contacts, int(min((k.number * points * own).sum(), contacts * most_rows(structure)))
    points = np.where(types == HFIELD, np.minimum(points, TERRAIN), points)
    flat = types <= HFIELD
    near = ~flat & (k.number > 0)
    crowd = np.zeros(structure.ngeom, np.int64)
    np.maximum.at(crowd, k.pair[near], np.array([CROWD.get(n, 0) for n in points[near].tolist()], np.int64)[:, None])
    every, some = ((k.number * points)[which].sum() for which in (flat, near))
    some = min(some, crowd[k.like].sum())
    most = min((k.number * points * own)[near].sum(), some * own[near].max(initial=0))
    return int(every + some), int((k.number * points * own)[flat].sum() + most)
