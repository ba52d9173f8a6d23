"""Which points of two flat sides that lie on one another touch, as in MuJoCo 4.0; :mod:`clip` says what the points are.

The parts that touch deepest, a vertex, edge or face of each geom, have one or more *faces*. Of all pairs of faces the
one that is most nearly opposed counts, if it is so within five degrees. If there is none, an edge at the first part
that is level with a face at the second one, or the other way around, does; the first one that is found, in MuJoCo's
order of faces and edges. A face that is turned away from the normal of the deepest contact does not count: there MuJoCo
contradicts its own single contact.
"""

import warp as wp

from ..._precision import real, vec3
from .clip import CHORD, CORNER, CROSSING, UNDER, Corner
from .polygon import widest
from .shapes import CAPSULE, CYLINDER, MESH
from .sides import (
    Edge,
    corner_index,
    edge_at,
    face_at,
    face_corners,
    face_normal,
    side_index,
    solid_corner,
    touching,
)
from .solids import Hulls, Solid

NAMES = wp.constant(wp.int64(2147483647))
"""The largest feature."""
ALIGNED = wp.constant(real(0.996))
"""Cosine of the angle between two faces above which they lie on one another."""
LEVEL_EDGE = wp.constant(real(0.0888))
"""Sine of the angle between an edge and a face below which they do."""
FACING = wp.constant(real(0.94))
"""Cosine of the angle between a face and the normal of the deepest contact above which the face counts; with the line
of a cylinder or capsule, which would be another one for another normal, ``ALIGNED``."""
INSIDE = wp.constant(real(1.0e-15))
"""How far outside a side a point counts as inside [m]."""
POLYGON = wp.constant(128)
"""Corners that two faces may have together; where they have more, the pair has one contact."""


@wp.func
def outward(kind: int, side: Corner, n: vec3) -> vec3:
    """The unit vector at right angles to a side of a face of normal n that points away from the face. Sides go around
    it with the clock, seen from outside; those of meshes against it."""
    out = wp.normalize(wp.cross(side.next - side.here, n))
    return wp.where(kind == MESH, out, -out)


@wp.func
def edge_over(
    r: Solid,
    hulls: Hulls,
    f: int,
    e: Edge,
    margin: real,
    kind: int,
    first_is: int,
    base: int,
    names: wp.vec2i,
    feature_out: wp.array2d(dtype=int),
    world: int,
    slot: int,
) -> int:
    """Contacts of an edge over the face f of r, of which ``kind`` is that of an end; how many they are.

    Where all that touches is a point at which the edge is cut off, MuJoCo has two contacts there, and so have we.
    """
    n = face_normal(r, hulls, f)
    origin = solid_corner(r, hulls, corner_index(r, hulls, f, 0)).base
    along = e.next - e.here
    low = real(0.0)
    high = real(1.0)
    enters = int(-1)
    leaves = int(-1)
    for k in range(face_corners(r, hulls, f)):
        c = solid_corner(r, hulls, side_index(r, hulls, f, k))
        out = outward(r.kind, c, n)
        here = wp.dot(out, e.here - c.here)
        step = wp.dot(out, along)
        if wp.abs(step) > real(1.0e-12) * wp.length(along):
            t = -here / step
            if step > real(0.0) and t < high:
                high = t
                leaves = k
            elif step < real(0.0) and t > low:
                low = t
                enters = k
        elif here > INSIDE:
            high = real(-1.0)
    count = int(0)
    crossings = int(0)
    if low <= high and e.part >= 0:
        for end in range(2):
            t = wp.where(end == 0, low, high)
            k = wp.where(end == 0, enters, leaves)
            if wp.dot(e.here + along * t - origin, n) <= margin:
                corner = corner_index(r, hulls, f, 0)
                part = wp.where(end == 0, e.first, e.second)
                if k >= 0:
                    corner = side_index(r, hulls, f, k)
                    part = e.part
                    crossings = crossings + 1
                code = kind + wp.where(k < 0, 0, 1)
                feature_out[world, slot + count] = point_name(first_is, corner, part, code, base, names)
                count = count + 1
        if count == 1 and crossings == 1:
            feature_out[world, slot + 1] = feature_out[world, slot]
            count = int(2)
    return count


@wp.func
def point_name(first_is: int, reference: int, other: int, kind: int, base: int, names: wp.vec2i) -> int:
    """The feature of a point of flat sides; ``first_is``: the reference is of the first geom."""
    first = wp.where(first_is == 1, reference, other)
    second = wp.where(first_is == 1, other, reference)
    return base + ((kind - 1) * names[1] + second) * names[0] + first


@wp.func
def overlap_of_faces(
    a: Solid,
    b: Solid,
    hulls: Hulls,
    f: int,
    g: int,
    margin: real,
    base: int,
    names: wp.vec2i,
    feature_out: wp.array2d(dtype=int),
    world: int,
    slot: int,
) -> int:
    """Contacts of the face g of b over the face f of a, at most four; how many they are.

    The polygon of g is cut by one side of f after another (Sutherland and Hodgman 1974). What is left out are crossings
    of two sides of f that do not follow on one another: f is not quite convex there. Arrays are rings, in which a new
    polygon takes the places that the old one no longer needs: if f is convex, it has at most one corner more.
    """
    point = wp.zeros(shape=(128,), dtype=vec3)
    name = wp.zeros(shape=(128,), dtype=int)  # what a point is (named)
    chord = wp.zeros(shape=(128,), dtype=wp.vec2i)  # of a side of f: 1 + the sides of g that cross it
    side_of = wp.zeros(shape=(128,), dtype=int)  # side that leaves a point: of g, or 1000 + that of f
    count = face_corners(b, hulls, g)
    sides = face_corners(a, hulls, f)
    if count + sides > POLYGON:
        return 0
    n = face_normal(a, hulls, f)
    for k in range(count):
        point[k] = solid_corner(b, hulls, corner_index(b, hulls, g, k)).here
        name[k] = named(CORNER, 0, k)
        side_of[k] = k
    now = int(0)
    for e in range(sides):
        c = solid_corner(a, hulls, side_index(a, hulls, f, e))
        out = outward(a.kind, c, n)
        first_point = point[ring(now)]  # which comes after the last one, when its place is taken
        first_name = name[ring(now)]
        first_side = side_of[ring(now)]
        new = now + count
        kept = int(0)
        for k in range(count):
            p = point[ring(now + k)]
            label = side_of[ring(now + k)]
            q = point[ring(now + k + 1)]
            name_q = name[ring(now + k + 1)]
            side_q = side_of[ring(now + k + 1)]
            if k + 1 == count:
                q = first_point
                name_q = first_name
                side_q = first_side
            here = wp.dot(out, p - c.here)
            there = wp.dot(out, q - c.here)
            room = POLYGON - (count - 1 - k)  # without what is still to come
            if (here < INSIDE) != (there < INSIDE) and kept < room:
                at = ring(new + kept)
                point[at] = p + (q - p) * (here / (here - there))
                side_of[at] = wp.where(here < INSIDE, 1000 + e, label)
                ends = chord[e]
                which = wp.where(here < INSIDE, 0, 1)
                ends[which] = wp.where(ends[which] == 0, label + 1, 1001)
                chord[e] = ends
                if label < 1000:
                    name[at] = named(CROSSING, e, label)
                else:  # where two sides of f meet: at the start of the later one
                    last = label - 1000 == (e + 1) % sides
                    kind = wp.where(last or label - 1000 == e - 1, UNDER, 0)
                    name[at] = named(kind, wp.where(last, 0, e), 0)
                    if kind == UNDER:
                        on = chord_name(a, b, hulls, f, g, label - 1000, chord[label - 1000], last, base, names)
                        if on > 0:
                            name[at] = on
                kept = kept + 1
            if there < INSIDE and kept < room:
                at = ring(new + kept)
                point[at] = q
                name[at] = name_q
                side_of[at] = side_q
                kept = kept + 1
        now = ring(new)
        count = kept
    origin = solid_corner(a, hulls, corner_index(a, hulls, f, 0)).base
    kept = int(0)
    for k in range(count):
        at = ring(now + k)
        if wp.dot(point[at] - origin, n) <= margin and kind_of(name[at]) > 0:
            side_of[kept] = at  # no longer needed for sides
            kept = kept + 1
    count = kept
    four = wp.vec4i(0, 1, 2, 3)
    if count > 4:
        four = widest(point, side_of, 0, count)
        count = int(4)
    for k in range(count):
        at = side_of[four[k]]
        kind = kind_of(name[at])
        corner = (name[at] >> 10) & 1023
        other = name[at] >> 20
        first = corner_index(a, hulls, f, corner)
        second = corner_index(b, hulls, g, other)
        if kind == UNDER:
            second = level_corner(b, hulls, g, point[at])
        elif kind != CORNER:
            first = side_index(a, hulls, f, corner)
            second = side_index(b, hulls, g, other)
        feature_out[world, slot + k] = point_name(1, first, second, kind, base, names)
    return count


@wp.func
def ring(k: int) -> int:
    """A place in the arrays of a polygon, whose length is a power of two."""
    return k & (POLYGON - 1)


@wp.func
def named(kind: int, corner: int, other: int) -> int:
    """What a point is, in one number: its kind, and which corners or sides of both faces make it."""
    return kind | (corner << 10) | (other << 20)


@wp.func
def kind_of(name: int) -> int:
    """Of a point."""
    return name & 1023


@wp.func
def chord_name(
    a: Solid,
    b: Solid,
    hulls: Hulls,
    f: int,
    g: int,
    side: int,
    ends: wp.vec2i,
    first: bool,
    base: int,
    names: wp.vec2i,
) -> int:
    """What the point is over the first or last corner of a side of f, on the chord between two sides of g that
    cross it; 0 if it ends elsewhere, or if its feature is too large."""
    found = int(0)
    if wp.max(ends[0], ends[1]) <= 1000 and wp.min(ends[0], ends[1]) > 0 and ends[0] != ends[1]:
        i = side_index(b, hulls, g, ends[0] - 1)
        j = side_index(b, hulls, g, ends[1] - 1)
        end = wp.where(first == (a.kind == MESH), 1, 0)  # sides of meshes go against MuJoCo's order
        kind = CHORD + 2 * (wp.abs(i - j) - 1) + end
        if wp.int64(base) + wp.int64(kind) * wp.int64(names[0]) * wp.int64(names[1]) <= NAMES:
            found = named(kind, side, wp.where(i < j, ends[0], ends[1]) - 1)
    return found


@wp.func
def level_corner(s: Solid, hulls: Hulls, f: int, x: vec3) -> int:
    """The corner of a face, which need not be quite flat, through which a plane along the face comes nearest to x."""
    n = face_normal(s, hulls, f)
    best = int(0)
    least = real(1.0e10)
    for k in range(face_corners(s, hulls, f)):
        index = corner_index(s, hulls, f, k)
        height = wp.abs(wp.dot(x - solid_corner(s, hulls, index).here, n))
        if height < least:
            least = height
            best = index
    return best


@wp.func(inline=False)
def overlap(
    a: Solid,
    b: Solid,
    hulls: Hulls,
    parts: wp.vec2i,
    n: vec3,
    margin: real,
    base: int,
    names: wp.vec2i,
    feature_out: wp.array2d(dtype=int),
    world: int,
    slot: int,
) -> int:
    """Features of the contacts of two geoms whose parts touch deepest along n, if flat sides lie on one another there;
    0 where they do not. They start from ``base``; ``names``: how many numbers a part or corner of each geom takes."""
    t = touching(a, hulls, parts[0], n)
    u = touching(b, hulls, parts[1], -n)
    f = int(-1)
    g = int(-1)
    most = -ALIGNED
    for i in range(t.faces):
        k = face_at(a, hulls, t, i)
        if k >= 0:
            x = face_normal(a, hulls, k)
            if wp.dot(x, n) > FACING:
                for j in range(u.faces):
                    l = face_at(b, hulls, u, j)
                    if l >= 0:
                        y = face_normal(b, hulls, l)
                        if wp.dot(y, n) < -FACING and wp.dot(x, y) < most:
                            most = wp.dot(x, y)
                            f = k
                            g = l
    count = int(0)
    if f >= 0:
        count = overlap_of_faces(a, b, hulls, f, g, margin, base, names, feature_out, world, slot)
    else:
        searching = int(1)
        turns = int(2)  # not a constant: the loop is not to be unrolled
        for turn in range(turns):  # an edge of a over a face of b, then the other way around
            r = b
            s = a
            at = u
            over = t
            way = -n
            if turn == 1:
                r = a
                s = b
                at = t
                over = u
                way = n
            line = s.kind == CAPSULE or s.kind == CYLINDER
            least = wp.where(line, ALIGNED, FACING)
            for i in range(at.faces):
                k = face_at(r, hulls, at, i)
                if k >= 0 and searching == 1:
                    y = face_normal(r, hulls, k)
                    if wp.dot(y, way) > least:
                        for j in range(over.edges):
                            if searching == 1:
                                e = edge_at(s, hulls, over, j, -y)
                                if wp.abs(wp.dot(wp.normalize(e.next - e.here), y)) < LEVEL_EDGE:
                                    searching = 0
                                    kind = wp.where(turn == 1, 4, 6)
                                    count = edge_over(
                                        r, hulls, k, e, margin, kind, turn, base, names, feature_out, world, slot
                                    )
    return count
