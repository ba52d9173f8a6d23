"""Which points of two flat sides that lie on one another touch; see :mod:`clip` for what the points are."""

import warp as wp

from ..._precision import real, vec3
from ...math import rotate, rotate_back, unit
from .clip import DISC, LINE, Corner, box_corner_at, corner_of, crossing, under
from .mesh import flattest, foremost
from .shapes import BOX, CAPSULE, CYLINDER, MESH
from .solids import Hulls, Solid, box_corner

KINDS = wp.constant(5)
"""Contacts of two parts (0); of a crossing (1, 2) or a corner of the reference (3, 4), which is the first geom's in 1
and 3, the second's in 2 and 4."""
ALIGNED = wp.constant(real(0.996))
"""Cosine of the angle between two faces, or a face and the normal, below which they do not lie on one another."""
LEVEL_EDGE = wp.constant(real(0.0893532))
"""Sine of the same angle."""
SAME_HEIGHT = wp.constant(real(1.0e-6))
"""Sine of a side between two corners of the same height, but for rounding."""
POLYGON = wp.constant(128)
"""Corners that two faces may have together; where they have more, the pair has one contact."""


@wp.func
def overlap_point(reference: Corner, incident: Corner, kind: int):
    """Distance and midpoint of a point of the overlap."""
    distance, pos = crossing(reference, incident)
    if kind >= 3:
        distance, pos = under(reference, incident)
    return distance, pos


@wp.func
def face_towards(s: Solid, hulls: Hulls, n: vec3) -> int:
    """The face of a geom that faces a direction most, or -1."""
    l = rotate_back(s.turn, n)
    f = int(-1)
    if s.kind == BOX:
        axis = int(0)
        for k in range(1, 3):
            if wp.abs(l[k]) > wp.abs(l[axis]):
                axis = k
        f = 2 * axis + wp.where(l[axis] > real(0.0), 1, 0)
    elif s.kind == CYLINDER:
        f = wp.where(l[2] > real(0.0), 0, 1)
    elif s.kind == MESH:
        v = foremost(hulls.vert, hulls.edge, hulls.neighbour, s.verts, l)
        f = hulls.merged[flattest(hulls.normal, hulls.meeting, hulls.faces, v, l)] - s.faces
    return f


@wp.func
def face_corners(s: Solid, hulls: Hulls, f: int) -> int:
    """How many corners a face has."""
    count = int(4)
    if s.kind == CYLINDER:
        count = DISC
    elif s.kind == MESH:
        count = hulls.corner[s.faces + f + 1] - hulls.corner[s.faces + f]
    return count


@wp.func
def corner_index(s: Solid, hulls: Hulls, f: int, k: int) -> int:
    """The number of corner k of a face."""
    index = 4 * f + k
    if s.kind == CYLINDER:
        index = DISC * f + k
    elif s.kind == MESH:
        index = hulls.corner[s.faces + f] - hulls.corner[s.faces] + k
    return index


@wp.func
def solid_corner(s: Solid, hulls: Hulls, index: int, facing: vec3) -> Corner:
    """A corner of a geom that faces a direction."""
    here = vec3()
    after = vec3()
    normal = vec3()
    if s.kind == MESH:
        c = hulls.corner[s.faces] + index
        f = hulls.face[c]
        start = hulls.corner[f]
        here = hulls.vert[hulls.corners[c]]
        after = hulls.vert[hulls.corners[start + (c - start + 1) % (hulls.corner[f + 1] - start)]]
        normal = hulls.normal[f]
    return corner_of(s.kind, s.pos, s.turn, s.size, index, facing, here, after, normal)


@wp.func
def corner_vertex(s: Solid, hulls: Hulls, index: int) -> int:
    """The part of a geom that is a corner: a vertex, or a point of a rim."""
    part = index
    if s.kind == BOX:
        part = box_corner(box_corner_at(s.size, index // 4, index % 4))
    elif s.kind == CYLINDER:
        part = 5 + index // DISC
    elif s.kind == MESH:
        part = hulls.corners[hulls.corner[s.faces] + index] - s.verts
    return part


@wp.func
def end_part(s: Solid, hulls: Hulls, index: int, upper: int, after: int) -> int:
    """The part of a geom that is an end of a side: of a line a rim, else this corner or the next."""
    part = 4 - upper
    if s.kind != CYLINDER:
        part = corner_vertex(s, hulls, wp.where(upper == 1, index, after))
    return part


@wp.func
def face_part(s: Solid, f: int) -> int:
    """The number of a face among a geom's parts."""
    return f + wp.where(s.kind == BOX, 20, wp.where(s.kind == CYLINDER, 1, s.face_base))


@wp.func
def side_towards(s: Solid, hulls: Hulls, n: vec3) -> int:
    """The corner from which a side runs that is level to n, holds the foremost corner along it and lies foremost of
    those, or -1."""
    best = int(-1)
    if s.kind == CAPSULE or s.kind == CYLINDER:
        if wp.abs(wp.dot(rotate(s.turn, unit(2)), n)) < LEVEL_EDGE:
            best = wp.where(s.kind == CYLINDER, LINE, 0)
    elif s.kind == BOX or s.kind == MESH:
        f = face_towards(s, hulls, n)
        top = real(-1.0e10)
        for k in range(face_corners(s, hulls, f)):
            top = wp.max(top, wp.dot(n, solid_corner(s, hulls, corner_index(s, hulls, f, k), n).here))
        highest = real(-1.0e10)
        for k in range(face_corners(s, hulls, f)):
            index = corner_index(s, hulls, f, k)
            c = solid_corner(s, hulls, index, n)
            length = wp.length(c.next - c.here)
            here = wp.dot(n, c.here)
            next = wp.dot(n, c.next)
            if wp.max(here, next) >= top - SAME_HEIGHT * length and wp.abs(next - here) < LEVEL_EDGE * length:
                if here + next > highest:
                    best = index
                    highest = here + next
    return best


@wp.func
def written(
    first_is: int,
    reference: int,
    incident: int,
    kind: int,
    patch: int,
    total: int,
    number: int,
) -> int:
    """The feature of a point of the overlap, whichever geom has the reference."""
    first = wp.where(first_is == 1, reference, incident)
    second = wp.where(first_is == 1, incident, reference)
    code = wp.where(kind > 0 and first_is == 0, kind + 1, kind)
    return ((second * total + first) * KINDS + code) * number + patch


@wp.func
def overlap_of_side(
    r: Solid,
    s: Solid,
    hulls: Hulls,
    f: int,
    n: vec3,
    centre: vec3,
    margin: real,
    first_is: int,
    total: int,
    number: int,
    feature_out: wp.array2d(dtype=int),
    world: int,
    slot: int,
) -> int:
    """Contacts of a side of s over the face f of r, with normal n; how many they are.

    Where all that touches is a point at which the side is cut off, MuJoCo has two contacts there, and so have we.
    """
    index = side_towards(s, hulls, -n)
    count = int(0)
    crossings = int(0)
    if index >= 0:
        c = solid_corner(s, hulls, index, -n)
        low = real(0.0)
        high = real(1.0)
        from_side = int(-1)
        to_side = int(-1)
        for k in range(face_corners(r, hulls, f)):
            e = solid_corner(r, hulls, corner_index(r, hulls, f, k), n)
            side = wp.cross(e.next - e.here, n)
            side = side * wp.where(wp.dot(side, centre - e.here) > real(0.0), real(-1.0), real(1.0))
            here = wp.dot(side, c.here - e.here)
            step = wp.dot(side, c.next - c.here)
            if wp.abs(step) > real(1.0e-12) * wp.length(side) * wp.length(c.next - c.here):
                t = -here / step
                if step > real(0.0) and t < high:
                    high = t
                    to_side = k
                elif step < real(0.0) and t > low:
                    low = t
                    from_side = k
            elif here > real(0.0):
                high = real(-1.0)
        if low <= high:
            after = int(0)
            if s.kind == BOX or s.kind == MESH:
                g = face_towards(s, hulls, -n)
                start = corner_index(s, hulls, g, 0)
                after = start + (index - start + 1) % face_corners(s, hulls, g)
            origin = solid_corner(r, hulls, corner_index(r, hulls, f, 0), n).here
            for end in range(2):
                t = wp.where(end == 0, low, high)
                k = wp.where(end == 0, from_side, to_side)
                height = wp.dot(c.here + (c.next - c.here) * t - origin, n)
                if height <= margin:
                    code = int(0)
                    if k < 0 and s.kind == CAPSULE:
                        code = written(first_is, corner_index(r, hulls, f, 0), end, 3, 0, total, number)
                    elif k < 0:
                        vertex = end_part(s, hulls, index, 1 - end, after)
                        code = written(first_is, face_part(r, f), vertex, 0, 0, total, number)
                    else:
                        code = written(first_is, corner_index(r, hulls, f, k), index, 1, 0, total, number)
                    feature_out[world, slot + count] = code
                    count = count + 1
                    crossings = crossings + wp.where(k < 0, 0, 1)
            if count == 1 and crossings == 1:
                feature_out[world, slot + 1] = feature_out[world, slot]
                count = int(2)
    return count


@wp.func
def overlap_of_faces(
    r: Solid,
    s: Solid,
    hulls: Hulls,
    f: int,
    g: int,
    n: vec3,
    centre: vec3,
    margin: real,
    first_is: int,
    total: int,
    number: int,
    feature_out: wp.array2d(dtype=int),
    world: int,
    slot: int,
) -> int:
    """Contacts of the face g of s over the face f of r, whose normal is n, at most four; how many they are.

    The polygon of g is cut by one side of f after another (Sutherland and Hodgman 1974).
    """
    point = wp.zeros(shape=(256,), dtype=vec3)  # twice the polygon: as it is, as it becomes
    name = wp.zeros(shape=(256,), dtype=wp.vec3i)  # kind, reference corner, incident corner
    side_of = wp.zeros(shape=(256,), dtype=int)  # side that leaves a point: incident, or 1000 + that of the reference
    count = face_corners(s, hulls, g)
    sides = face_corners(r, hulls, f)
    if count + sides > POLYGON:
        return 0
    for k in range(count):
        c = solid_corner(s, hulls, corner_index(s, hulls, g, k), -n)
        point[k] = c.here
        name[k] = wp.vec3i(0, 0, corner_index(s, hulls, g, k))
        side_of[k] = k
    now = int(0)
    for e in range(sides):
        c = solid_corner(r, hulls, corner_index(r, hulls, f, e), n)
        side = wp.cross(c.next - c.here, n)
        side = side * wp.where(wp.dot(side, centre - c.here) > real(0.0), real(-1.0), real(1.0))
        new = POLYGON - now
        kept = int(0)
        for k in range(count):
            p = point[now + k]
            q = point[now + (k + 1) % count]
            label = side_of[now + k]
            here = wp.dot(side, p - c.here)
            there = wp.dot(side, q - c.here)
            if here <= real(0.0) and kept < POLYGON:
                point[new + kept] = p
                name[new + kept] = name[now + k]
                side_of[new + kept] = label
                kept = kept + 1
            if (here <= real(0.0)) != (there <= real(0.0)) and kept < POLYGON:
                point[new + kept] = p + (q - p) * (here / (here - there))
                side_of[new + kept] = wp.where(here <= real(0.0), 1000 + e, label)
                if label < 1000:
                    name[new + kept] = wp.vec3i(1, corner_index(r, hulls, f, e), corner_index(s, hulls, g, label))
                else:  # where two sides of the reference meet: at the start of the later one
                    at = wp.where(e - label + 1000 == sides - 1, 0, e)
                    at = wp.where(label - 1000 == (e + 1) % sides and sides > 2, (e + 1) % sides, at)
                    name[new + kept] = wp.vec3i(3, corner_index(r, hulls, f, at), corner_index(s, hulls, g, 0))
                kept = kept + 1
        now = new
        count = kept
    kept = int(0)
    for k in range(count):
        if wp.dot(point[now + k] - centre, n) <= margin:
            point[now + kept] = point[now + k]
            name[now + kept] = name[now + k]
            kept = kept + 1
    count = kept
    chosen = wp.vec4i(0, 1, 2, 3)
    if count > 4:
        chosen = largest_of(point, now, count)
        count = int(4)
    for k in range(count):
        found = name[now + chosen[k]]
        code = int(0)
        if found[0] == 0:
            patch = wp.where(s.kind == CYLINDER, (found[2] % DISC) * 256, 0)
            code = written(first_is, face_part(r, f), corner_vertex(s, hulls, found[2]), 0, patch, total, number)
        else:
            code = written(first_is, found[1], found[2], found[0], 0, total, number)
        feature_out[world, slot + k] = code
    return count


@wp.func
def largest_of(point: wp.array(dtype=vec3), start: int, count: int) -> wp.vec4i:
    """The four corners of a convex polygon that span the largest area: of each diagonal, the farthest on each side."""
    best = wp.vec4i(0, 1, 2, 3)
    most = real(-1.0)
    for i in range(count):
        for k in range(i + 2, count):
            along = point[start + k] - point[start + i]
            left = real(-1.0)
            right = real(-1.0)
            j = int(i + 1)
            l = int(i)
            for m in range(count):
                if m != i and m != k:
                    area = wp.length(wp.cross(along, point[start + m] - point[start + i]))
                    if m > i and m < k and area > left:
                        left = area
                        j = m
                    if (m < i or m > k) and area > right:
                        right = area
                        l = m
            if right >= real(0.0) and left + right > most * (real(1.0) + real(1.0e-9)):
                most = left + right
                best = wp.vec4i(i, j, k, l)
    return best


@wp.func
def overlap(
    a: Solid,
    b: Solid,
    hulls: Hulls,
    n: vec3,
    margin: real,
    total: int,
    number: int,
    feature_out: wp.array2d(dtype=int),
    world: int,
    slot: int,
) -> int:
    """Features of the contacts of two geoms whose flat sides lie on one another, with normal n; 0 where they do not.

    Of two faces that of the second geom is the reference, as in MuJoCo.
    """
    f = face_towards(a, hulls, n)
    g = face_towards(b, hulls, -n)
    first = real(-1.0)
    second = real(-1.0)
    m = n
    o = -n
    if f >= 0:
        m = solid_corner(a, hulls, corner_index(a, hulls, f, 0), n).normal
        first = wp.dot(m, n)
    if g >= 0:
        o = solid_corner(b, hulls, corner_index(b, hulls, g, 0), -n).normal
        second = -wp.dot(o, n)
    count = int(0)
    if wp.max(first, second) > ALIGNED:
        r = a
        s = b
        first_is = int(1)
        opposed = f >= 0 and g >= 0 and wp.dot(m, o) < -ALIGNED
        if second > first or opposed:
            r = b
            s = a
            first_is = int(0)
            other = f
            f = g
            g = other
            spare = m
            m = o
            o = spare
        centre = vec3()
        corners = face_corners(r, hulls, f)
        for k in range(corners):
            centre = centre + solid_corner(r, hulls, corner_index(r, hulls, f, k), m).here / real(corners)
        if opposed:
            count = overlap_of_faces(
                r, s, hulls, f, g, m, centre, margin, first_is, total, number, feature_out, world, slot
            )
        else:
            count = overlap_of_side(
                r, s, hulls, f, m, centre, margin, first_is, total, number, feature_out, world, slot
            )
    return count
