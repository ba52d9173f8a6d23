"""Contact of a body with itself: pairs of a vertex and a side, and of two edges, in the incremental potential.

The points nearest to each other of a pair's four vertices have the difference r = sum_a c_a x_a, sum_a c_a = 0, and the
distance d = |r|. With y = d / t < 1, t being the thickness, a pair that stands for the area A has the energy

    A k t^2 / 6 m b(y),   b = -(1 - y)^2 ln y

(Li et al. 2020, "Incremental potential contact"). Its pressure p begins as the one against colliders (contact.py), with
k g^2 / (2 t) at the depth g = t - d, and grows without limit as d vanishes, so that nothing passes. The force on vertex
a is A p c_a r / d: the sum of the four is zero. Edges that are nearly parallel have m < 1, for there the nearest points
jump; m = s (2 - s), s = |e x f|^2 over ``PARALLEL`` times the square of both lengths at rest.

Friction is that of contact.py, with the nearest points, normal and pressure where the step begins.
"""

import warp as wp

from .._precision import mat33, real, tolerance, vec3, vec4
from ..spectral import identity
from .contact import SMALL_SQUARED, drag

EDGES = wp.constant(1)
"""The kind of a pair of edges; that of a vertex and a side is 0."""
PARALLEL = wp.constant(real(1.0e-3))
"""Edges count as nearly parallel below this square of the sine of their angle."""
FLAT = wp.constant(tolerance(1.0e-14, 1.0e-6))
"""Of a square of a sine: below it two edges, or a side, have no plane."""


@wp.struct
class Skin:
    """What meets: the same for all worlds."""

    room: int  # for pairs; 0: a body does not meet itself
    points: wp.array(dtype=int)  # the surface's vertices
    sides: wp.array2d(dtype=int)  # the surface's triangles
    rims: wp.array2d(dtype=int)  # their edges


@wp.func
def corners_of(pair: wp.vec3i, skin: Skin):
    """The four vertices of a pair."""
    i = pair[1]
    j = pair[2]
    if pair[0] == EDGES:
        return skin.rims[i, 0], skin.rims[i, 1], skin.rims[j, 0], skin.rims[j, 1]
    return i, skin.sides[j, 0], skin.sides[j, 1], skin.sides[j, 2]


@wp.func
def mixed(c: vec4, p0: vec3, p1: vec3, p2: vec3, p3: vec3) -> vec3:
    """sum_a c_a p_a."""
    return c[0] * p0 + c[1] * p1 + c[2] * p2 + c[3] * p3


@wp.func
def along(base: vec4, way: vec4, p0: vec3, p1: vec3, p2: vec3, p3: vec3) -> real:
    """Where on a line base + s way is nearest to the origin, if on the piece from 0 to 1, else its end."""
    e = mixed(way, p0, p1, p2, p3)
    s = -wp.dot(e, mixed(base, p0, p1, p2, p3)) / wp.max(wp.dot(e, e), SMALL_SQUARED)
    return wp.clamp(s, real(0.0), real(1.0))


@wp.func
def line(kind: int, k: int):
    """Base and way of a pair's line k: a vertex with an edge of the side, or an end of an edge with the other edge."""
    o = real(0.0)
    i = real(1.0)
    base = vec4(i, -i, o, o)
    way = vec4(o, i, -i, o)
    if kind == EDGES:
        base = vec4(i, o, -i, o)
        way = vec4(o, o, i, -i)
        if k == 1:
            base = vec4(o, i, -i, o)
        elif k == 2:
            way = vec4(-i, i, o, o)
        elif k == 3:
            base = vec4(i, o, o, -i)
            way = vec4(-i, i, o, o)
    elif k == 1:
        base = vec4(i, o, -i, o)
        way = vec4(o, o, i, -i)
    elif k == 2:
        base = vec4(i, o, o, -i)
        way = vec4(o, -i, o, i)
        # from corner 3 to corner 1: c = (1, -s, 0, -(1 - s))
    return base, way


@wp.func
def plane(kind: int):
    """Base and both ways of a pair's plane."""
    o = real(0.0)
    i = real(1.0)
    if kind == EDGES:
        return vec4(i, o, -i, o), vec4(-i, i, o, o), vec4(o, o, i, -i)
    return vec4(i, -i, o, o), vec4(o, i, -i, o), vec4(o, i, o, -i)


@wp.func
def within(kind: int, p0: vec3, p1: vec3, p2: vec3, p3: vec3):
    """Where in the plane base + s e + t f is nearest to the origin, and whether that is inside the pair."""
    base, e_, f_ = plane(kind)
    e = mixed(e_, p0, p1, p2, p3)
    f = mixed(f_, p0, p1, p2, p3)
    r = mixed(base, p0, p1, p2, p3)
    ee = wp.dot(e, e)
    ff = wp.dot(f, f)
    ef = wp.dot(e, f)
    whole = ee * ff
    det = whole - ef * ef
    over = real(1.0) / wp.max(det, wp.max(FLAT * whole, SMALL_SQUARED))
    s = (ef * wp.dot(f, r) - ff * wp.dot(e, r)) * over
    t = (ef * wp.dot(e, r) - ee * wp.dot(f, r)) * over
    inside = int(0)
    if det > FLAT * whole and s > real(0.0) and t > real(0.0):
        if kind == EDGES:
            if s < real(1.0) and t < real(1.0):
                inside = 1
        elif s + t < real(1.0):
            inside = 1
    return s, t, inside


@wp.func
def nearest_line(kind: int, p0: vec3, p1: vec3, p2: vec3, p3: vec3) -> int:
    """Which of a pair's lines comes nearest to the origin."""
    least = real(-1.0)
    choice = int(0)
    for k in range(3 + kind):  # a side has three edges, two edges have four ends
        base, way = line(kind, k)
        r = mixed(base + along(base, way, p0, p1, p2, p3) * way, p0, p1, p2, p3)
        square = wp.dot(r, r)
        if least < real(0.0) or square < least:
            least = square
            choice = k
    return choice


@wp.func
def nearest(kind: int, p0: vec3, p1: vec3, p2: vec3, p3: vec3):
    """The shares c of the nearest points, and the ways in which these may move: none, one or two, else zero."""
    s, t, inside = within(kind, p0, p1, p2, p3)
    c, e, f = plane(kind)
    c = c + s * e + t * f
    if inside == 0:
        base, way = line(kind, nearest_line(kind, p0, p1, p2, p3))
        at = along(base, way, p0, p1, p2, p3)
        c = base + at * way
        e = way
        if at <= real(0.0) or at >= real(1.0):
            e = vec4()
        f = vec4()
    return c, e, f


@wp.func
def distance(kind: int, p0: vec3, p1: vec3, p2: vec3, p3: vec3) -> real:
    """Between the nearest points [m]."""
    c, _e, _f = nearest(kind, p0, p1, p2, p3)
    return wp.length(mixed(c, p0, p1, p2, p3))


@wp.func
def barrier(d: real, k: real, t: real) -> real:
    """Energy per area [J/m^2]."""
    y = d / t
    if y >= real(1.0):
        return real(0.0)
    y = wp.max(y, real(1.0e-9))
    return -k * t * t / real(6.0) * (real(1.0) - y) * (real(1.0) - y) * wp.log(y)


@wp.func
def barrier_pressure(d: real, k: real, t: real) -> real:
    """p [Pa]: minus the derivative by d."""
    y = d / t
    if y >= real(1.0):
        return real(0.0)
    y = wp.max(y, real(1.0e-9))
    z = real(1.0) - y
    return k * t / real(6.0) * (z * z / y - real(2.0) * z * wp.log(y))


@wp.func
def barrier_slope(d: real, k: real, t: real) -> real:
    """-dp/dd [Pa/m]: the second derivative by d, positive."""
    y = d / t
    if y >= real(1.0):
        return real(0.0)
    y = wp.max(y, real(1.0e-9))
    z = real(1.0) - y
    return k / real(6.0) * (z * z / (y * y) + real(4.0) * z / y - real(2.0) * wp.log(y))


@wp.func
def askew(kind: int, p0: vec3, p1: vec3, p2: vec3, p3: vec3, size: real) -> real:
    """s: below 1 where two edges are nearly parallel; ``size`` is the product of their squared lengths."""
    if kind != EDGES:
        return real(1.0)
    n = wp.cross(p1 - p0, p3 - p2)
    return wp.min(real(1.0), wp.dot(n, n) / (PARALLEL * size))


@wp.func
def area_of(world: int, pair: wp.vec3i, share: wp.array2d(dtype=real), seam: wp.array2d(dtype=real)) -> real:
    """A [m^2]: half of the vertex's part of the surface, or a quarter of those of both edges."""
    if pair[0] == EDGES:
        return real(0.25) * (seam[world, pair[1]] + seam[world, pair[2]])
    return real(0.5) * share[world, pair[1]]


@wp.func
def size_of(world: int, pair: wp.vec3i, span: wp.array2d(dtype=real)) -> real:
    """The product of the squared lengths of both edges at rest [m^4]."""
    if pair[0] == EDGES:
        return span[world, pair[1]] * span[world, pair[2]]
    return real(1.0)


@wp.func
def inverse_metric(r1: vec3, r2: vec3, e: vec4, f: vec4) -> vec3:
    """The inverse of the matrix of the products of the ways: its numbers 11, 12 and 22, zero where there is no way."""
    if wp.dot(e, e) == real(0.0):
        return vec3()
    a = wp.dot(r1, r1)
    if wp.dot(f, f) == real(0.0):
        return vec3(real(1.0) / a, real(0.0), real(0.0))
    b = wp.dot(r1, r2)
    d = wp.dot(r2, r2)
    return vec3(d, -b, a) / (a * d - b * b)


@wp.func
def bent(a: int, b: int, c: vec4, e: vec4, f: vec4, r: vec3, r1: vec3, r2: vec3, g: vec3, d: real) -> mat33:
    """The second derivative of the distance by vertices a and b [1/m].

    The nearest points move with the vertices (the envelope theorem): from |r|^2 / 2 with shares that are linear in the
    two unknowns, whose matrix g inverts.
    """
    n = r / d
    u1 = c[a] * r1 + e[a] * r
    u2 = c[a] * r2 + f[a] * r
    v1 = c[b] * r1 + e[b] * r
    v2 = c[b] * r2 + f[b] * r
    h = (c[a] * c[b]) * (identity() - wp.outer(n, n))
    h = h - g[0] * wp.outer(u1, v1) - g[1] * (wp.outer(u1, v2) + wp.outer(u2, v1)) - g[2] * wp.outer(u2, v2)
    return h / d


@wp.func
def sign_of(a: int):
    """Which of the two edges a corner belongs to, and with which sign."""
    sign = real(1.0)
    if a % 2 == 0:
        sign = real(-1.0)
    return a // 2, sign


@wp.func
def opened(a: int, u: vec3, v: vec3) -> vec3:
    """The derivative of |u x v|^2 by corner a of two edges u and v."""
    which, sign = sign_of(a)
    if which == 0:
        return (real(2.0) * sign) * (wp.dot(v, v) * u - wp.dot(u, v) * v)
    return (real(2.0) * sign) * (wp.dot(u, u) * v - wp.dot(u, v) * u)


@wp.func
def opened_twice(a: int, b: int, u: vec3, v: vec3) -> mat33:
    """The second derivative of |u x v|^2 by corners a and b."""
    which, sign = sign_of(a)
    other, sign_ = sign_of(b)
    s = real(2.0) * sign * sign_
    if which == 0 and other == 0:
        return s * (wp.dot(v, v) * identity() - wp.outer(v, v))
    if which == 1 and other == 1:
        return s * (wp.dot(u, u) * identity() - wp.outer(u, u))
    h = real(2.0) * wp.outer(u, v) - wp.outer(v, u) - wp.dot(u, v) * identity()
    if which == 0:
        return s * h
    return s * wp.transpose(h)


@wp.func
def rub_curvature(w: vec3, n: vec3, slip: real) -> mat33:
    """The second derivative of f0(|w|) by w, along the surface."""
    speed = wp.sqrt(wp.max(wp.dot(w, w), SMALL_SQUARED))
    across = drag(speed, slip)
    ahead = real(2.0) * wp.max(real(0.0), real(1.0) - speed / slip) / slip
    d = w / speed
    return across * (identity() - wp.outer(n, n)) + (ahead - across) * wp.outer(d, d)


@wp.kernel
def pair_power(
    # Structure:
    skin: Skin,
    pair: wp.array2d(dtype=wp.vec3i),
    # Model:
    share: wp.array2d(dtype=real),
    seam: wp.array2d(dtype=real),
    span: wp.array2d(dtype=real),
    stiffness: wp.array(dtype=real),
    thickness: wp.array(dtype=real),
    slip: wp.array(dtype=real),
    rub: wp.array(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    before: wp.array2d(dtype=vec3),
    x: wp.array2d(dtype=vec3),
    u: wp.array2d(dtype=vec3),
    trial: wp.array2d(dtype=vec3),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """What the forces of pairs take along a trial direction; the second half of the pairs are those that rub."""
    world, i = wp.tid()
    q = pair[world, i]
    power = real(0.0)
    if q[0] >= 0:
        v0, v1, v2, v3 = corners_of(q, skin)
        area = area_of(world, q, share, seam)
        size = size_of(world, q, span)
        k = stiffness[world]
        t = thickness[world]
        l0 = trial[world, v0]
        l1 = trial[world, v1]
        l2 = trial[world, v2]
        l3 = trial[world, v3]
        if i < skin.room:
            p0 = x[world, v0] + u[world, v0]
            p1 = x[world, v1] + u[world, v1]
            p2 = x[world, v2] + u[world, v2]
            p3 = x[world, v3] + u[world, v3]
            c, _e, _f = nearest(q[0], p0, p1, p2, p3)
            r = mixed(c, p0, p1, p2, p3)
            d = wp.sqrt(wp.max(wp.dot(r, r), SMALL_SQUARED))
            s = askew(q[0], p0, p1, p2, p3, size)
            power = -area * s * (real(2.0) - s) * barrier_pressure(d, k, t) / d * wp.dot(r, mixed(c, l0, l1, l2, l3))
            if s < real(1.0):
                e = p1 - p0
                f = p3 - p2
                n = wp.cross(e, f)
                ds = wp.dot(n, wp.cross(l1 - l0, f) + wp.cross(e, l3 - l2)) * real(2.0) / (PARALLEL * size)
                power += area * real(2.0) * (real(1.0) - s) * barrier(d, k, t) * ds
        else:
            p0 = before[world, v0]
            p1 = before[world, v1]
            p2 = before[world, v2]
            p3 = before[world, v3]
            c, _e, _f = nearest(q[0], p0, p1, p2, p3)
            r = mixed(c, p0, p1, p2, p3)
            d = wp.sqrt(wp.max(wp.dot(r, r), SMALL_SQUARED))
            n = r / d
            s = askew(q[0], p0, p1, p2, p3, size)
            hold = rub[world] * area * s * (real(2.0) - s) * barrier_pressure(d, k, t)
            w = mixed(c, u[world, v0], u[world, v1], u[world, v2], u[world, v3]) / timestep[world]
            w = w - wp.dot(w, n) * n
            speed = wp.sqrt(wp.max(wp.dot(w, w), SMALL_SQUARED))
            l = mixed(c, l0, l1, l2, l3)
            power = hold * drag(speed, slip[world]) * wp.dot(w, l)
    power_out[world, i] = power
