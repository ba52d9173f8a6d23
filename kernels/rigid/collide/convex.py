"""Convex geoms without a closed form: cylinders, ellipsoids and meshes against one another, capsules and boxes.

The signed distance of two convex sets is the largest of the gaps along all directions. An expanding polytope finds
about where it is; then the parts of the geoms that lie near there are tried in pairs. Each pair gives its exact normal,
and the pair with the largest gap is the one that touches. As parts only propose directions, of which the largest gap is
taken, a wrong pair does no harm.

Flat sides that lie on one another touch at several points (:mod:`overlap`): with the deepest alone a geom would rock.

A feature is (second * parts of the first geom + first) * patches + patch. ``first`` and ``second`` are parts of the
geoms, and the patch is where the search for a normal starts that they do not fix; pairs without cylinders and
ellipsoids tell apart two sides of a normal only. Beyond these features come those of points of flat sides, one kind
after another, whose ``first`` and ``second`` are corners or parts (:func:`overlap.point_name`).
"""

import warp as wp

from ..._precision import quat, real, tolerance, vec3
from ...math import rotate, rotate_back, unit
from .clip import CHORD, Corner, between_faces, corner_of, crossing, line_end, on_chord, over_face
from .overlap import overlap
from .pairs import geom_of
from .parts import (
    EDGE,
    FACE,
    RIM,
    SIDE,
    Part,
    names_number,
    part_of,
    parts_number,
    patch_middle,
    patch_of,
    rim_patch,
    rim_patch_middle,
    touch,
)
from .polytope import FAR, farthest_apart
from .search import Geoms, Hulls, Search, chosen, slots_of
from .shapes import CAPSULE, CYLINDER, ELLIPSOID, HFIELD, MESH, bounding_radius
from .solids import NEARBY, Solid, ball_of, gap_along, outside, parts_near, solid_part

COARSE = wp.constant(16)
"""The root of the number of patches of directions where a height field takes part."""
TIE = wp.constant(tolerance(1.0e-9, 1.0e-5))
"""Difference of two gaps that is lost in rounding or in the search, in units of the smaller geom."""
FLAT = wp.constant(tolerance(1.0e-14, 1.0e-10))
"""Squared sine below which a disc lies flat on a face."""
SAME = wp.constant(tolerance(1.0e-12, 1.0e-6))
"""Squared difference below which two normals are one."""


@wp.struct
class Touch:
    """A pair of parts, and their contact."""

    first: int
    second: int
    patch: int
    n: vec3
    pos: vec3
    gap: real
    error: real  # how far from being the contact of the geoms


@wp.func
def patch_side(kind: int) -> int:
    """The root of the number of patches: a height field has many prisms to name beside them."""
    return wp.where(kind == HFIELD, COARSE, SIDE)


@wp.func
def patches(kind1: int, kind2: int) -> int:
    """How many patches the feature of a pair tells apart; without a curved geom, the two sides of the parts."""
    curved = kind1 == ELLIPSOID or kind2 == ELLIPSOID or kind1 == CYLINDER or kind2 == CYLINDER
    return wp.where(curved, patch_side(kind1) * patch_side(kind1), 2)


@wp.func
def reference(a: Part, b: Part) -> vec3:
    """A direction from the first part to the second, or against it."""
    return wp.where(a.kind == EDGE and b.kind == EDGE, wp.cross(a.axis, b.axis), b.origin - a.origin)


@wp.func
def start_of(a: Part, b: Part, q1: quat, patch: int, number: int, side: int) -> vec3:
    """The direction from which the normal of two parts is sought."""
    start = reference(a, b) * wp.where(patch == 0, real(1.0), real(-1.0))
    if number > 2:
        if a.kind == RIM:
            start = rim_patch_middle(a, patch, side)
        elif b.kind == RIM:
            start = -rim_patch_middle(b, patch, side)
        else:
            start = rotate(q1, patch_middle(patch, side))
    return start


@wp.func
def leading(a: Part, b: Part, q1: quat, n: vec3, patch: int, number: int, side: int) -> int:
    """The patch from which the search for the normal of two parts finds n: that which holds it, or one beside it where
    that leads to another normal."""
    found = int(patch)
    searching = int(1)
    for k in range(25):
        if searching == 1:
            i = (k + 12) % 25  # the patch itself, then the 24 about it
            row = (patch // side + i // 5 - 2 + side) % side
            column = wp.clamp(patch % side + i % 5 - 2, 0, side - 1)
            m, _d, _x = touch(a, b, start_of(a, b, q1, row * side + column, number, side))
            if wp.dot(m - n, m - n) < SAME:
                found = row * side + column
                searching = int(0)
    return found


@wp.func
def vague(rim: Part, other: Part, n: vec3) -> real:
    """How ill a rim whose disc lies flat on something serves: no point of it is the lowest. Its centre stands for it
    where a face gives the normal; without one there is none."""
    side = wp.cross(rim.axis, n)
    worth = real(0.0)
    if rim.kind == RIM and wp.dot(side, side) < FLAT:
        worth = wp.where(other.kind == FACE, real(1.0), real(4.0))
    return worth


@wp.func
def in_a_point(p: Part, q: Part) -> bool:
    """Whether two parts meet in a point: a face does so with neither an edge nor a face."""
    flat = (p.kind == FACE and (q.kind == EDGE or q.kind == FACE)) or (q.kind == FACE and p.kind == EDGE)
    return not flat


@wp.func(inline=False)
def settled(a: Solid, b: Solid, hulls: Hulls, start: vec3, size: real, alone: int) -> Touch:
    """The parts near a direction that touch: those along whose normal the gap is largest, and that reach it.

    No gap is larger than the distance of parts. Of geoms that are apart, parts that reach their gap are nearest: with
    ``alone``, where it does not matter which of several such parts are found, the search ends there.
    """
    best = Touch()
    best.n = start
    best.gap = -FAR
    best.error = FAR
    moved = int(1)
    rounds = int(8)  # not a constant: the loop is not to be unrolled
    for _round in range(rounds):
        if moved == 1:
            moved = int(0)
            n = best.n
            firsts = parts_near(a, hulls, n)
            seconds = parts_near(b, hulls, -n)
            for k in range(NEARBY * NEARBY):
                i = firsts[k // NEARBY]
                j = seconds[k % NEARBY]
                if i >= 0 and j >= 0:
                    p = solid_part(a, hulls, i, 0)
                    q = solid_part(b, hulls, j, 0)
                    m, d, x = touch(p, q, n)
                    if d > best.gap - TIE * size and wp.dot(m, m) > real(0.5) and in_a_point(p, q):
                        gap = gap_along(a, b, hulls, m) - ball_of(a) - ball_of(b)
                        half = m * (real(0.5) * d)
                        error = wp.abs(gap - d) + outside(a, hulls, i, x - half) + outside(b, hulls, j, x + half)
                        error = error + size * (vague(p, q, m) + vague(q, p, m))
                        if gap > best.gap + TIE * size or (
                            gap > best.gap - TIE * size and error < real(0.5) * best.error
                        ):
                            best.first = i
                            best.second = j
                            best.n = m
                            best.pos = x
                            best.gap = gap
                            best.error = error
                            moved = int(1)
                    if alone == 1 and best.gap > real(0.0) and best.error < TIE * size:
                        moved = int(0)
                        break
    p = solid_part(a, hulls, best.first, 0)
    q = solid_part(b, hulls, best.second, 0)
    side = patch_side(a.kind)
    best.patch = patch_of(rotate_back(a.turn, best.n), side)
    if p.kind == RIM:
        best.patch = rim_patch(p, best.n, side)
    elif q.kind == RIM:
        best.patch = rim_patch(q, -best.n, side)
    number = patches(a.kind, b.kind)
    if number == 2:
        best.patch = wp.where(wp.dot(reference(p, q), best.n) >= real(0.0), 0, 1)
    else:
        best.patch = leading(p, q, a.turn, best.n, best.patch, number, side)
    return best


@wp.func
def solid(kind: int, pos: vec3, turn: quat, size: vec3, hull: wp.array2d(dtype=int), g: int) -> Solid:
    """A geom, for the search."""
    s = Solid()
    s.kind = kind
    s.pos = pos
    s.turn = turn
    s.size = size
    s.verts = hull[g, 0]
    s.edges = hull[g, 1]
    s.faces = hull[g, 2]
    s.edge_base = hull[g, 3]
    s.face_base = hull[g, 4]
    return s


@wp.func
def extent(kind: int, size: vec3, hull_radius: real) -> real:
    """Radius of a ball about a geom that holds it."""
    return bounding_radius(kind, size) + wp.where(kind == MESH, hull_radius, real(0.0))


@wp.kernel(enable_backward=False)
def features(
    # In:
    s: Search,
    g: Geoms,
    h: Hulls,
    several: int,
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the candidates that are pairs of convex geoms; ``several``: of flat sides not only the deepest."""
    world, lane = wp.tid()
    for i in range(lane, s.own.shape[0], s.lanes):
        pair_number = chosen(world, i, s)
        if pair_number < 0:
            continue
        g1 = geom_of(pair_number, 0, s.pairs)
        g2 = geom_of(pair_number, 1, s.pairs)
        margin = s.detection[world, s.own[i]]
        count = s.slot[i]
        last = count + slots_of(pair_number, s)
        kind1 = g.kind[g1]
        kind2 = g.kind[g2]
        r1 = extent(kind1, g.size[world, g1], h.radius[g1])
        r2 = extent(kind2, g.size[world, g2], h.radius[g2])
        gap = g.pos[world, g2] - g.pos[world, g1]
        if wp.dot(gap, gap) <= (r1 + r2 + margin) * (r1 + r2 + margin):
            a = solid(kind1, vec3(), g.quat[world, g1], g.size[world, g1], h.number, g1)
            b = solid(kind2, gap, g.quat[world, g2], g.size[world, g2], h.number, g2)
            size = wp.min(r1, r2)
            reach = margin + ball_of(a) + ball_of(b)
            far = farthest_apart(a, b, h, reach)
            if far.gap <= reach:
                first = settled(a, b, h, far.n, size, 1 - several)
                if first.gap < margin:
                    number = patches(kind1, kind2)
                    total = parts_number(kind1, h.number[g1, 9])
                    found = int(0)
                    if several == 1 and last - count > 1:
                        base = total * parts_number(kind2, h.number[g2, 9]) * number
                        names = wp.vec2i(names_number(kind1, h.number[g1, 5]), names_number(kind2, h.number[g2, 5]))
                        touching = wp.vec2i(first.first, first.second)
                        found = overlap(a, b, h, touching, first.n, margin, base, names, feature_out, world, count)
                    if found == 0:
                        feature_out[world, count] = (first.second * total + first.first) * number + first.patch
                        found = int(1)
                    count = count + found
        for k in range(count, last):
            feature_out[world, k] = -1


@wp.func
def hull_row(hull: wp.array2d(dtype=int), g: int, index: int) -> int:
    """Where the table of all hulls' parts has a part of a geom."""
    row = hull[g, 0] + index
    if hull[g, 5] == 0:
        row = 0
    elif index >= hull[g, 4]:
        row = hull[g, 7] + index - hull[g, 4]
    elif index >= hull[g, 3]:
        row = hull[g, 6] + index - hull[g, 3]
    return row


@wp.func
def hull_corner(hull: wp.array2d(dtype=int), g: int, index: int, corner: wp.array2d(dtype=vec3)) -> Corner:
    """A corner of a mesh, in its frame."""
    row = wp.where(hull[g, 5] == 0, 0, hull[g, 8] + index)
    c = Corner()
    c.here = corner[row, 0]
    c.next = corner[row, 1]
    c.normal = corner[row, 2]
    c.base = corner[row, 3]
    return c


@wp.func
def edge_point(
    face: Corner,
    crosses: bool,
    kind: int,
    p: vec3,
    q: quat,
    size: vec3,
    index: int,
    point: vec3,
    direction: vec3,
    form: int,
) -> vec3:
    """The end of an edge that a part names, or where the edge that it names crosses a side of a face."""
    part = part_of(kind, p, q, size, index, 0, point, direction, form)
    v = part.origin
    along = part.axis
    if kind == CYLINDER or kind == CAPSULE:
        v = line_end(kind, p, q, size, index, -face.normal)
        along = rotate(q, unit(2))
    if crosses:
        v = crossing(face, v, along)
    return v


@wp.func
def convex_contact(
    kind1: int,
    p1: vec3,
    q1: quat,
    size1: vec3,
    g1: int,
    kind2: int,
    p2: vec3,
    q2: quat,
    size2: vec3,
    g2: int,
    feature: int,
    hull: wp.array2d(dtype=int),
    point: wp.array(dtype=vec3),
    direction: wp.array(dtype=vec3),
    form: wp.array(dtype=int),
    corner: wp.array2d(dtype=vec3),
):
    """Normal, signed distance and midpoint of the contact of two convex geoms that a feature names."""
    number = patches(kind1, kind2)
    total = parts_number(kind1, hull[g1, 9])
    base = total * parts_number(kind2, hull[g2, 9]) * number
    n = vec3()
    distance = real(0.0)
    pos = vec3()
    if feature < base:
        first = (feature // number) % total
        second = feature // (number * total)
        i = hull_row(hull, g1, first)
        j = hull_row(hull, g2, second)
        a = part_of(kind1, vec3(), q1, size1, first, feature % number, point[i], direction[i], form[i])
        b = part_of(kind2, p2 - p1, q2, size2, second, feature % number, point[j], direction[j], form[j])
        n, distance, pos = touch(a, b, start_of(a, b, q1, feature % number, number, patch_side(kind1)))
    else:
        names = names_number(kind1, hull[g1, 5])
        first = (feature - base) % names
        second = ((feature - base) // names) % names_number(kind2, hull[g2, 5])
        kind = (feature - base) // (names * names_number(kind2, hull[g2, 5])) + 1
        if kind <= 3:
            c = corner_of(kind1, vec3(), q1, size1, first, hull_corner(hull, g1, first, corner))
            d = corner_of(kind2, p2 - p1, q2, size2, second, hull_corner(hull, g2, second, corner))
            n, distance, pos = between_faces(c, d, kind)
        elif kind <= 5:
            c = corner_of(kind1, vec3(), q1, size1, first, hull_corner(hull, g1, first, corner))
            j = hull_row(hull, g2, second)
            v = edge_point(c, kind == 5, kind2, p2 - p1, q2, size2, second, point[j], direction[j], form[j])
            distance, pos = over_face(c, v)
            n = c.normal
        elif kind >= CHORD:
            other = second + (kind - CHORD) // 2 + 1
            c = corner_of(kind1, vec3(), q1, size1, first, hull_corner(hull, g1, first, corner))
            d = corner_of(kind2, p2 - p1, q2, size2, second, hull_corner(hull, g2, second, corner))
            e = corner_of(kind2, p2 - p1, q2, size2, other, hull_corner(hull, g2, other, corner))
            n, distance, pos = on_chord(c, d, e, (kind - CHORD) % 2)
        else:
            c = corner_of(kind2, p2 - p1, q2, size2, second, hull_corner(hull, g2, second, corner))
            i = hull_row(hull, g1, first)
            v = edge_point(c, kind == 7, kind1, vec3(), q1, size1, first, point[i], direction[i], form[i])
            distance, pos = over_face(c, v)
            n = -c.normal
    return n, distance, p1 + pos
