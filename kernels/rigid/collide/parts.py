"""The parts that convex geoms touch with, and the contact of two of them.

A part is a vertex, an edge, a flat face, the rim of a disc, or the surface of an ellipsoid. Vertices and edges may
carry a ball: a capsule is an edge with a ball, the side of a cylinder is one as well. Of a part and a direction n
follows the *support*, its point farthest along n. Two parts touch along the normal n for which the gap between these,

    r(n) = s2(-n) - s1(n),        is parallel to n;   the distance is n . r(n), less the balls.

A face fixes n, and so do two edges; two points, or a point and an edge, do where they lie apart. A curved part leaves n
free: it solves the equations t . r(n) = 0 for the tangents t of n, of which an edge e satisfies one by e . n = 0. Their
derivative is -(K1 + K2 + d), K the radii of curvature ds/dn. :func:`solve` finds n and has no derivative; one more
Newton step from there is the identity, and its derivative is that of the implicit solution.
"""

import warp as wp

from ..._precision import quat, real, tolerance, vec3
from ...math import rotate, rotate_back, unit
from .box_box import edge_middle
from .shapes import BOX, CAPSULE, CYLINDER, ELLIPSOID, MIN_SQUARED, PARALLEL, SPHERE, corner, end

VERTEX = wp.constant(0)
EDGE = wp.constant(1)
FACE = wp.constant(2)
RIM = wp.constant(3)
SURFACE = wp.constant(4)

SIDE = wp.constant(64)
"""The sphere of directions is divided into this many patches squared; a feature names the one a search starts in."""
TURN = wp.constant(real(6.283185307179586))
CONVERGED = wp.constant(tolerance(1.0e-15, 1.0e-7))
"""A turn of the normal that is lost in rounding [rad]."""
FLOOR = wp.constant(tolerance(1.0e-9, 1.0e-6))
"""Least curvature that a step divides by, in units of the largest."""


@wp.struct
class Part:
    """A part of a geom's boundary."""

    kind: int
    origin: vec3  # a point of it; the centre of a rim or ellipsoid
    axis: vec3  # along an edge, out of a face, of a rim
    radius: real  # of the ball about a vertex or edge, of a rim
    turn: quat  # of an ellipsoid
    size: vec3


@wp.func
def box_part(size: vec3, index: int):
    """Kind, a point and a direction of the corners (0 to 7), edges (to 19) and faces (to 25) of a box, in its frame."""
    kind = VERTEX
    point = corner(size, index)
    axis = vec3()
    if index >= 20:
        face = index - 20
        kind = FACE
        axis = unit(face // 2) * wp.where(face % 2 == 1, real(1.0), real(-1.0))
        point = wp.cw_mul(axis, size)
    elif index >= 8:
        kind = EDGE
        axis = unit((index - 8) // 4)
        point = edge_middle(size, (index - 8) // 4, (index - 8) % 4)
    return kind, point, axis


@wp.func
def cylinder_part(size: vec3, index: int, patch: int):
    """Kind, a point and an axis of a cylinder's side (0), discs (1, 2), rims (3, 4) and points of the rims (5, 6)."""
    up = wp.where(index % 2 == 1, real(1.0), real(-1.0))
    kind = EDGE
    point = vec3()
    axis = unit(2)
    if index >= 1:
        kind = wp.where(index <= 2, FACE, wp.where(index <= 4, RIM, VERTEX))
        angle = TURN * real(patch) / real(SIDE * SIDE)
        rim = wp.where(index >= 5, size[0], real(0.0))
        point = vec3(rim * wp.cos(angle), rim * wp.sin(angle), up * size[1])
        axis = unit(2) * up
    return kind, point, axis


@wp.func
def part_of(
    shape: int, p: vec3, q: quat, size: vec3, index: int, patch: int, point: vec3, direction: vec3, kind: int
) -> Part:
    """A part of a geom; ``point``, ``direction`` and ``kind`` are those of a mesh's part, in its frame."""
    local = point
    axis = direction
    form = kind
    radius = real(0.0)
    if shape == BOX:
        form, local, axis = box_part(size, index)
    elif shape == CYLINDER:
        form, local, axis = cylinder_part(size, index, patch)
        radius = wp.where(index <= 4, size[0], real(0.0))
    elif shape == ELLIPSOID:
        form = SURFACE
        local = vec3()
    elif shape == SPHERE or shape == CAPSULE:
        form = wp.where(shape == CAPSULE and index == 0, EDGE, VERTEX)
        local = unit(2) * (end(index) * size[1])
        axis = unit(2)
        radius = size[0]
    part = Part()
    part.kind = form
    part.origin = p + rotate(q, local)
    part.axis = rotate(q, axis)
    part.radius = radius
    part.turn = q
    part.size = size
    return part


@wp.func
def parts_number(shape: int, hull: int) -> int:
    """How many parts a geom has; a mesh as many as its hull."""
    n = hull
    if shape == BOX:
        n = 26
    elif shape == CYLINDER:
        n = 7
    elif shape == CAPSULE:
        n = 3
    elif shape <= ELLIPSOID and shape > 1:
        n = 1
    return n


@wp.func
def names_number(shape: int, hull: int) -> int:
    """How many parts or corners of flat sides a geom has, whichever are more."""
    n = parts_number(shape, hull)
    if shape == CYLINDER:
        n = 32
    elif shape == CAPSULE:
        n = 4
    return n


@wp.func
def support(part: Part, n: vec3) -> vec3:
    """The point of a part that lies farthest along n, its ball aside; of an edge or face some point."""
    s = part.origin
    if part.kind == RIM:
        m = n - part.axis * wp.dot(part.axis, n)
        s = part.origin + m * (part.radius / wp.sqrt(wp.max(wp.dot(m, m), MIN_SQUARED)))
    elif part.kind == SURFACE:
        scaled = wp.cw_mul(part.size, rotate_back(part.turn, n))
        along = wp.cw_mul(part.size, scaled) / wp.sqrt(wp.max(wp.dot(scaled, scaled), MIN_SQUARED))
        s = part.origin + rotate(part.turn, along)
    return s


@wp.func
def bend(part: Part, n: vec3, t: vec3) -> vec3:
    """K t: the rate of the support while n turns towards t."""
    k = vec3()
    if part.kind == RIM:
        m = n - part.axis * wp.dot(part.axis, n)
        mm = wp.max(wp.dot(m, m), MIN_SQUARED)
        along = wp.cross(part.axis, m)
        k = along * (wp.dot(along, t) * part.radius / (mm * wp.sqrt(mm)))
    elif part.kind == SURFACE:
        square = wp.cw_mul(part.size, part.size)
        a = wp.cw_mul(square, rotate_back(part.turn, n))
        b = wp.cw_mul(square, rotate_back(part.turn, t))
        length = wp.sqrt(wp.max(wp.dot(a, rotate_back(part.turn, n)), MIN_SQUARED))
        k = rotate(part.turn, b / length - a * (wp.dot(b, rotate_back(part.turn, n)) / (length * length * length)))
    return k


@wp.func
def ball(part: Part) -> real:
    """Radius of the ball that a vertex or edge carries."""
    return wp.where(part.kind <= EDGE, part.radius, real(0.0))


@wp.func
def edge_of(a: Part, b: Part) -> vec3:
    """Direction of the one edge among two parts, or zero."""
    return wp.where(a.kind == EDGE, a.axis, wp.where(b.kind == EDGE, b.axis, vec3()))


@wp.func
def upright(n: vec3, e: vec3) -> vec3:
    """The unit vector nearest to n at right angles to e."""
    m = n - e * wp.dot(e, n)
    return m / wp.sqrt(wp.max(wp.dot(m, m), MIN_SQUARED))


@wp.func
def first_tangent(n: vec3, e: vec3) -> vec3:
    """A unit vector at right angles to n, and to the edge e where there is one."""
    hint = e
    if wp.dot(e, e) == real(0.0):
        hint = wp.where(wp.abs(n[0]) < real(0.7), unit(0), unit(1))
    t = wp.cross(hint, n)
    return t / wp.sqrt(wp.max(wp.dot(t, t), MIN_SQUARED))


@wp.func
def newton_step(a: Part, b: Part, n: vec3, e: vec3, least: real):
    """How n turns to make the gap parallel to it, and the least curvature; ``least`` bounds what is divided by."""
    r = support(b, -n) - support(a, n)
    d = wp.dot(n, r)
    t = first_tangent(n, e)
    u = wp.cross(n, t)
    kt = bend(a, n, t) + bend(b, -n, t)
    ku = bend(a, n, u) + bend(b, -n, u)
    tt = wp.dot(t, kt) + d
    f = wp.dot(t, r)
    step = t * (f / wp.max(tt, least))
    lowest = tt
    if wp.dot(e, e) == real(0.0):
        uu = wp.dot(u, ku) + d
        tu = wp.dot(t, ku)
        g = wp.dot(u, r)
        middle = real(0.5) * (tt + uu)
        half = real(0.5) * (tt - uu)
        lowest = middle - wp.sqrt(wp.max(half * half + tu * tu, MIN_SQUARED))
        if lowest < least:  # not at a maximum: make it one, for the search's sake
            tt = tt + least - lowest
            uu = uu + least - lowest
        det = wp.max(tt * uu - tu * tu, MIN_SQUARED)
        step = t * ((f * uu - g * tu) / det) + u * ((g * tt - f * tu) / det)
    return step, lowest


@wp.func
def apart(a: Part, b: Part, n: vec3) -> real:
    """Distance of two parts along n, their balls aside."""
    return wp.dot(n, support(b, -n) - support(a, n))


@wp.func
def largest(a: Part, b: Part) -> real:
    """A length of the size of two curved parts."""
    x = wp.where(a.kind == RIM, a.radius, wp.where(a.kind == SURFACE, wp.max(a.size), real(0.0)))
    y = wp.where(b.kind == RIM, b.radius, wp.where(b.kind == SURFACE, wp.max(b.size), real(0.0)))
    return wp.max(x, y)


@wp.func
def solve(a: Part, b: Part, start: vec3) -> vec3:
    """The normal near ``start`` along which two parts of which one is curved lie farthest apart: Newton's method, its
    steps halved until they gain."""
    e = edge_of(a, b)
    n = upright(start, e)
    least = FLOOR * largest(a, b)
    d = apart(a, b, n)
    size = real(1.0)
    halvings = int(8)  # not a constant: the loop is not to be unrolled
    for _k in range(40):
        if size > CONVERGED:
            step, _lowest = newton_step(a, b, n, e, least)
            length = wp.length(step)
            scale = wp.min(real(1.0), real(0.5) / wp.max(length, MIN_SQUARED))
            size = real(0.0)
            for _h in range(halvings):
                if size == real(0.0):
                    m = upright(n + step * scale, e)
                    gain = apart(a, b, m) - d
                    if gain >= real(0.0) or length * scale < real(1.0e3) * CONVERGED:
                        size = length * scale
                        n = m
                        d = d + gain
                    scale = scale * real(0.25)
    return n


@wp.func_grad(solve)
def no_slope_of_solve(a: Part, b: Part, start: vec3, adj_ret: vec3):
    pass


@wp.func
def directed(r: vec3, start: vec3) -> vec3:
    """The unit vector along r or against it, whichever is nearer to ``start``; zero for zero."""
    s = wp.dot(r, r)
    n = vec3()
    if s > MIN_SQUARED:
        n = r / wp.sqrt(s)
    return wp.where(wp.dot(n, start) < real(0.0), -n, n)


@wp.func
def rim_point(rim: Part, x: vec3) -> vec3:
    """The point of a rim nearest to x."""
    r = x - rim.origin
    m = r - rim.axis * wp.dot(rim.axis, r)
    return rim.origin + m * (rim.radius / wp.sqrt(wp.max(wp.dot(m, m), MIN_SQUARED)))


@wp.func
def normal_of(a: Part, b: Part, start: vec3) -> vec3:
    """Normal of the contact of two parts, from the first to the second; zero where they have none."""
    n = vec3()
    if a.kind == FACE:
        n = a.axis
    elif b.kind == FACE:
        n = -b.axis
    elif a.kind == EDGE and b.kind == EDGE:
        cross = wp.cross(a.axis, b.axis)
        if wp.dot(cross, cross) > PARALLEL:
            n = directed(cross, start)
    elif a.kind <= EDGE and b.kind <= EDGE:
        r = b.origin - a.origin
        e = edge_of(a, b)
        n = directed(r - e * wp.dot(e, r), start)
    elif a.kind == VERTEX and b.kind == RIM:
        n = directed(rim_point(b, a.origin) - a.origin, start)
    elif a.kind == RIM and b.kind == VERTEX:
        n = directed(b.origin - rim_point(a, b.origin), start)
    else:
        e = edge_of(a, b)
        found = solve(a, b, start)
        least = FLOOR * largest(a, b)
        step, lowest = newton_step(a, b, upright(found, e), e, least)
        n = upright(found, e)
        if lowest > least:  # else every normal near this one serves as well: it has no derivative
            n = upright(found + step, e)
    return n


@wp.func
def touch(a: Part, b: Part, start: vec3):
    """Normal from the first part to the second, signed distance and midpoint of the contact of two parts."""
    n = normal_of(a, b, start)
    x = support(a, n) + n * ball(a)
    y = support(b, -n) - n * ball(b)
    gap = y - x
    d = wp.dot(n, gap)
    pos = real(0.5) * (x + y)
    if a.kind == EDGE and b.kind == EDGE:
        cross = wp.cross(a.axis, b.axis)
        det = wp.max(wp.dot(cross, cross), MIN_SQUARED)
        pos = x + a.axis * (wp.dot(wp.cross(gap, b.axis), cross) / det) + n * (real(0.5) * d)
    elif b.kind == EDGE or b.kind == FACE:
        pos = x + n * (real(0.5) * d)
    elif a.kind == EDGE or a.kind == FACE:
        pos = y - n * (real(0.5) * d)
    return n, d, pos


@wp.func
def rim_patch(rim: Part, n: vec3, side: int) -> int:
    """The patch of directions that holds n, about a rim's axis: by azimuth, and finest near the axis."""
    l = rotate_back(rim.turn, n)
    up = wp.dot(rim.axis, n)
    turn = wp.atan2(l[1], l[0]) / TURN
    tilt = wp.sqrt(wp.atan2(wp.sqrt(l[0] * l[0] + l[1] * l[1]), wp.abs(up)) * real(4.0) / TURN)
    i = wp.clamp(int((turn - wp.floor(turn)) * real(side)), 0, side - 1)
    return i * side + wp.clamp(int(tilt * real(side)), 0, side - 1)


@wp.func
def rim_patch_middle(rim: Part, patch: int, side: int) -> vec3:
    """The direction in the middle of a patch about a rim's axis."""
    row = patch // side
    column = patch - row * side
    turn = TURN * (real(row) + real(0.5)) / real(side)
    part = (real(column) + real(0.5)) / real(side)
    tilt = part * part * TURN * real(0.25)
    across = rotate(rim.turn, vec3(wp.cos(turn), wp.sin(turn), real(0.0)))
    return across * wp.sin(tilt) + rim.axis * wp.cos(tilt)


@wp.func
def fold(x: real, y: real) -> real:
    """What octahedral coordinates do to the lower half of the sphere."""
    return (real(1.0) - wp.abs(y)) * wp.where(x >= real(0.0), real(1.0), real(-1.0))


@wp.func
def patch_of(n: vec3, side: int) -> int:
    """The patch of directions that holds n, in octahedral coordinates (Cigolle et al. 2014)."""
    s = wp.abs(n[0]) + wp.abs(n[1]) + wp.abs(n[2])
    x = n[0] / s
    y = n[1] / s
    if n[2] < real(0.0):
        folded = fold(x, y)
        y = fold(y, x)
        x = folded
    i = wp.clamp(int((x * real(0.5) + real(0.5)) * real(side)), 0, side - 1)
    j = wp.clamp(int((y * real(0.5) + real(0.5)) * real(side)), 0, side - 1)
    return i * side + j


@wp.func
def patch_middle(patch: int, side: int) -> vec3:
    """The direction in the middle of a patch."""
    row = patch // side
    column = patch - row * side
    x = (real(2 * row + 1) - real(side)) / real(side)
    y = (real(2 * column + 1) - real(side)) / real(side)
    z = real(1.0) - wp.abs(x) - wp.abs(y)
    if z < real(0.0):
        folded = fold(x, y)
        y = fold(y, x)
        x = folded
    return wp.normalize(vec3(x, y, z))
