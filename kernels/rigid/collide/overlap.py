"""Which points of two flat sides that lie on one another touch, as in MuJoCo 4.0; :mod:`clip` says what the points are.

The parts that touch deepest, a vertex, edge or face of each geom, have one or more *faces*. Of all pairs of faces the
one that is most nearly opposed counts, if it is so within five degrees. If there is none, an edge at the first part
that is level with a face at the second one, or the other way around, does; the first one that is found, in MuJoCo's
order of faces and edges. A face that is turned away from the normal of the deepest contact does not count: there MuJoCo
contradicts its own single contact.
"""

import warp as wp

from ..._precision import real, vec3
from ...math import rotate, rotate_back, unit
from .clip import CORNER, CROSSING, DISC, UNDER, Corner, corner_of, line_end
from .shapes import BOX, CAPSULE, CYLINDER, MESH
from .solids import Hulls, Solid, solid_part

KINDS = wp.constant(8)
"""Contacts of two parts (0); points of two faces (1 to 3, as in :mod:`clip`); of an edge an end (4, 6) or a crossing
(5, 7), over a face of the first geom in 4 and 5, of the second in 6 and 7."""
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


@wp.struct
class Touching:
    """The part of a geom that touches deepest, and what lies around it."""

    faces: int  # how many there are to look through
    edges: int
    face: int  # a face, or -1
    edge: int  # the part that is an edge, or -1
    first: (
        int  # vertices: of a mesh in the table of all, of a box corners; a cylinder's disc; an end of a capsule's line
    )
    second: int  # of an edge, else -1


@wp.func
def face_at(s: Solid, hulls: Hulls, t: Touching, k: int) -> int:
    """The k-th face that is looked through, or -1 if it does not meet the part."""
    f = t.face
    if s.kind == CYLINDER:
        f = t.first
    elif s.kind == BOX and f < 0:
        if t.second < 0 or ((t.first ^ t.second) >> k) & 1 == 0:
            f = 2 * k + ((t.first >> k) & 1)
    elif s.kind == MESH and f < 0:
        f = hulls.sides[hulls.beside[t.first] + k]
        if t.second >= 0:
            held = int(0)
            for c in range(hulls.corner[f], hulls.corner[f + 1]):
                if hulls.corners[c] == t.second:
                    held = 1
            f = wp.where(held == 1, f, -1)
    return f


@wp.func
def box_edge_ends(part: int) -> wp.vec2i:
    """The corners at the ends of an edge of a box."""
    axis = (part - 8) // 4
    bits = (part - 8) % 4
    low = ((bits & 1) << ((axis + 1) % 3)) | ((bits >> 1) << ((axis + 2) % 3))
    return wp.vec2i(low, low | (1 << axis))


@wp.func
def touching(s: Solid, hulls: Hulls, part: int, n: vec3) -> Touching:
    """What lies around a part of a geom that touches along n."""
    t = Touching()
    t.face = -1
    t.edge = -1
    t.second = -1
    if s.kind == CAPSULE:
        t.first = wp.where(part == 0, 0, 2)
        t.edges = 1
    elif s.kind == CYLINDER:
        t.first = wp.where(rotate_back(s.turn, n)[2] >= real(0.0), 0, 1)
        t.faces = 1
        t.edges = 1
    elif s.kind == BOX:
        t.first = part
        t.faces = 3
        t.edges = 3
        if part >= 20:
            t.face = part - 20
            t.faces = 1
            t.edges = 0
        elif part >= 8:
            t.edge = part
            t.edges = 1
            ends = box_edge_ends(part)
            t.first = ends[0]
            t.second = ends[1]
    elif s.kind == MESH:
        t.first = s.verts + part
        if part >= s.face_base:
            t.face = hulls.merged[s.faces + part - s.face_base]
            t.faces = 1
        else:
            if part >= s.edge_base:
                t.edge = part
                t.first = hulls.ends[s.edges + part - s.edge_base, 0]
                t.second = hulls.ends[s.edges + part - s.edge_base, 1]
            t.faces = hulls.beside[t.first + 1] - hulls.beside[t.first]
            t.edges = wp.where(t.edge >= 0, 1, t.faces)
    return t


@wp.func
def face_normal(s: Solid, hulls: Hulls, f: int) -> vec3:
    """The outward normal of a face."""
    n = vec3()
    if s.kind == CYLINDER:
        n = unit(2) * wp.where(f == 0, real(1.0), real(-1.0))
    elif s.kind == BOX:
        n = unit(f // 2) * wp.where(f % 2 == 1, real(1.0), real(-1.0))
    elif s.kind == MESH:
        n = hulls.level[f]
    return rotate(s.turn, n)


@wp.func
def face_corners(s: Solid, hulls: Hulls, f: int) -> int:
    """How many corners a face has."""
    count = int(4)
    if s.kind == CYLINDER:
        count = DISC
    elif s.kind == MESH:
        count = hulls.corner[f + 1] - hulls.corner[f]
    return count


@wp.func
def corner_index(s: Solid, hulls: Hulls, f: int, k: int) -> int:
    """The number of corner k of a face, in MuJoCo's order, which goes around a mesh's face from its last corner."""
    index = 4 * f + k
    if s.kind == CYLINDER:
        index = DISC * f + k
    elif s.kind == MESH:
        index = hulls.corner[f + 1] - hulls.corner[s.faces] - 1 - k
    return index


@wp.func
def side_index(s: Solid, hulls: Hulls, f: int, k: int) -> int:
    """The number of the corner that stands for the side from corner k of a face to the next, in MuJoCo's order."""
    next = (k + 1) % face_corners(s, hulls, f)
    return corner_index(s, hulls, f, wp.where(s.kind == MESH, next, k))


@wp.func
def solid_corner(s: Solid, hulls: Hulls, index: int) -> Corner:
    """A corner of a geom."""
    c = Corner()
    if s.kind == MESH:
        at = hulls.corner[s.faces] + index
        f = hulls.face[at]
        start = hulls.corner[f]
        end = hulls.corner[f + 1]
        c.here = hulls.vert[hulls.corners[at]]
        c.next = hulls.vert[hulls.corners[wp.where(at + 1 == end, start, at + 1)]]
        c.normal = hulls.level[f]
        c.base = hulls.vert[hulls.corners[end - 1]]
    return corner_of(s.kind, s.pos, s.turn, s.size, index, c)


@wp.struct
class Edge:
    """An edge: the part that it is, its ends, and the parts that they are; of a line, those of its ends."""

    part: int
    first: int
    second: int
    here: vec3
    next: vec3


@wp.func
def edge_at(s: Solid, hulls: Hulls, t: Touching, k: int, facing: vec3) -> Edge:
    """The k-th edge at a part; of a cylinder or capsule its line towards a direction."""
    e = Edge()
    if s.kind == CYLINDER or s.kind == CAPSULE:
        e.first = wp.where(s.kind == CAPSULE, t.first, 0)
        e.part = e.first
        e.second = e.first + 1
        e.here = line_end(s.kind, s.pos, s.turn, s.size, e.first, facing)
        e.next = line_end(s.kind, s.pos, s.turn, s.size, e.second, facing)
    else:
        e.part = t.edge
        e.first = t.first
        e.second = t.second
        if s.kind == BOX:
            if t.edge < 0:
                e.second = t.first ^ (1 << k)
                low = t.first & ~(1 << k)
                e.part = 8 + 4 * k + ((low >> ((k + 1) % 3)) & 1) + 2 * ((low >> ((k + 2) % 3)) & 1)
        elif s.kind == MESH:
            if t.edge < 0:  # in the k-th side, from the corner before
                f = hulls.sides[hulls.beside[t.first] + k]
                e.second = hulls.corners[hulls.corner[f + 1] - 1]
                for c in range(hulls.corner[f] + 1, hulls.corner[f + 1]):
                    if hulls.corners[c] == t.first:
                        e.second = hulls.corners[c - 1]
                e.part = -1
                for c in range(hulls.edge[t.first], hulls.edge[t.first + 1]):
                    if hulls.neighbour[c] == e.second:
                        e.part = hulls.leaving[c] - s.edges + s.edge_base
            e.first = e.first - s.verts
            e.second = e.second - s.verts
        e.here = solid_part(s, hulls, e.first, 0).origin
        e.next = solid_part(s, hulls, e.second, 0).origin
    return e


@wp.func
def outward(side: vec3, inner: vec3) -> vec3:
    """The unit vector along a side's normal that points away from a point inside, given from the side."""
    return wp.normalize(side) * wp.where(wp.dot(side, inner) > real(0.0), real(-1.0), real(1.0))


@wp.func
def centre_of(s: Solid, hulls: Hulls, f: int) -> vec3:
    """The mean of the corners of a face."""
    centre = vec3()
    count = face_corners(s, hulls, f)
    for k in range(count):
        centre = centre + solid_corner(s, hulls, corner_index(s, hulls, f, k)).here / real(count)
    return centre


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
    centre = centre_of(r, hulls, f)
    origin = solid_corner(r, hulls, corner_index(r, hulls, f, 0)).base
    along = e.next - e.here
    low = real(0.0)
    high = real(1.0)
    enters = int(-1)
    leaves = int(-1)
    for k in range(face_corners(r, hulls, f)):
        c = solid_corner(r, hulls, side_index(r, hulls, f, k))
        out = outward(wp.cross(c.next - c.here, n), centre - c.here)
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
    of two sides of f that do not follow on one another: f is not quite convex there.
    """
    point = wp.zeros(shape=(256,), dtype=vec3)  # twice the polygon: as it is, as it becomes
    name = wp.zeros(shape=(256,), dtype=wp.vec3i)  # kind, corner of f, corner of g
    side_of = wp.zeros(shape=(256,), dtype=int)  # side that leaves a point: of g, or 1000 + that of f
    count = face_corners(b, hulls, g)
    sides = face_corners(a, hulls, f)
    if count + sides > POLYGON:
        return 0
    n = face_normal(a, hulls, f)
    centre = centre_of(a, hulls, f)
    for k in range(count):
        point[k] = solid_corner(b, hulls, corner_index(b, hulls, g, k)).here
        name[k] = wp.vec3i(CORNER, corner_index(a, hulls, f, 0), corner_index(b, hulls, g, k))
        side_of[k] = k
    now = int(0)
    for e in range(sides):
        c = solid_corner(a, hulls, side_index(a, hulls, f, e))
        out = outward(wp.cross(c.next - c.here, n), centre - c.here)
        new = POLYGON - now
        kept = int(0)
        for k in range(count):
            p = point[now + k]
            l = now + (k + 1) % count
            label = side_of[now + k]
            here = wp.dot(out, p - c.here)
            there = wp.dot(out, point[l] - c.here)
            if (here < INSIDE) != (there < INSIDE) and kept < POLYGON:
                point[new + kept] = p + (point[l] - p) * (here / (here - there))
                side_of[new + kept] = wp.where(here < INSIDE, 1000 + e, label)
                if label < 1000:
                    name[new + kept] = wp.vec3i(CROSSING, side_index(a, hulls, f, e), side_index(b, hulls, g, label))
                else:  # where two sides of f meet: at the start of the later one
                    last = label - 1000 == (e + 1) % sides
                    kind = wp.where(last or label - 1000 == e - 1, UNDER, 0)
                    name[new + kept] = wp.vec3i(kind, corner_index(a, hulls, f, wp.where(last, 0, e)), 0)
                kept = kept + 1
            if there < INSIDE and kept < POLYGON:
                point[new + kept] = point[l]
                name[new + kept] = name[l]
                side_of[new + kept] = side_of[l]
                kept = kept + 1
        now = new
        count = kept
    origin = solid_corner(a, hulls, corner_index(a, hulls, f, 0)).base
    kept = int(0)
    for k in range(count):
        if wp.dot(point[now + k] - origin, n) <= margin and name[now + k][0] > 0:
            point[now + kept] = point[now + k]
            name[now + kept] = name[now + k]
            kept = kept + 1
    count = kept
    four = wp.vec4i(0, 1, 2, 3)
    if count > 4:
        four = largest_of(point, now, count)
        count = int(4)
    for k in range(count):
        found = name[now + four[k]]
        if found[0] == UNDER:
            found[2] = level_corner(b, hulls, g, point[now + four[k]])
        feature_out[world, slot + k] = point_name(1, found[1], found[2], found[0], base, names)
    return count


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


@wp.func
def spanned(point: wp.array(dtype=vec3), start: int, k: wp.vec4i) -> real:
    """Twice the area of the quadrilateral of four points."""
    return wp.length(wp.cross(point[start + k[0]] - point[start + k[2]], point[start + k[1]] - point[start + k[3]]))


@wp.func
def largest_of(point: wp.array(dtype=vec3), start: int, count: int) -> wp.vec4i:
    """Four corners of a convex polygon that span much of it: the last moves on while the area grows, and after each of
    its steps the third, then the second; then the first moves on (rotating calipers, Shamos 1978). So does MuJoCo."""
    k = wp.vec4i(0, 1, 2, 3)
    best = wp.vec4i(0, 1, 2, 3)
    most = spanned(point, start, k)
    while k[0] < count:
        growing = int(1)
        while growing == 1:
            growing = int(0)
            for turn in range(3):
                moving = int(turn == 0 or growing == 1)
                while moving == 1:
                    moving = int(0)
                    next = k
                    next[3 - turn] = (k[3 - turn] + 1) % count
                    area = spanned(point, start, next)
                    if area > most:
                        most = area
                        k = next
                        best = next
                        growing = int(1)
                        moving = int(turn > 0)
        if k[1] == k[0]:
            k[1] = (k[1] + 1) % count
            if k[2] == k[1]:
                k[2] = (k[2] + 1) % count
                if k[3] == k[2]:
                    k[3] = (k[3] + 1) % count
        k[0] = k[0] + 1
    return best


@wp.func
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
        for turn in range(2):  # an edge of a over a face of b, then the other way around
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
