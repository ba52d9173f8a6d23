"""Tendons that wrap around spheres and cylinders: where they touch, and how long the arc is.

Both are problems in a plane: the circle of a cylinder's cross section, or the great circle of a sphere
in the plane of its centre and the two ends. Which way around, and whether at all, are decisions without
derivative; the tangent points are smooth between them. The rules are MuJoCo's.
"""

import warp as wp

from ..._precision import quat, real, vec2, vec3
from ...math import rotate, rotate_back, unit

SPHERE = wp.constant(4)
CYLINDER = wp.constant(5)
TINY = wp.constant(real(1.0e-15))
PI = wp.constant(real(3.141592653589793))


@wp.func
def root(x: real) -> real:
    """The square root, with slope zero where it has none."""
    out = real(0.0)
    if x > TINY * TINY:
        out = wp.sqrt(x)
    return out


@wp.func
def direction(v: vec3) -> vec3:
    """v / |v|; the first axis for v = 0."""
    n = wp.dot(v, v)
    out = vec3(real(1.0), real(0.0), real(0.0))
    if n > TINY * TINY:
        out = v / wp.sqrt(n)
    return out


@wp.func
def direction2(v: vec2) -> vec2:
    """v / |v| in a plane; the first axis for v = 0."""
    n = wp.dot(v, v)
    out = vec2(real(1.0), real(0.0))
    if n > TINY * TINY:
        out = v / wp.sqrt(n)
    return out


@wp.func
def cross2(a: vec2, b: vec2) -> real:
    """The component of a x b that is normal to their plane."""
    return a[0] * b[1] - a[1] * b[0]


@wp.func
def nearest(a: vec2, b: vec2) -> vec2:
    """The point of a segment that is nearest to the origin."""
    d = b - a
    t = wp.clamp(-wp.dot(d, a) / wp.max(wp.dot(d, d), TINY), real(0.0), real(1.0))
    return a + t * d


@wp.func
def tangent_point(end: vec2, way: real, radius: real) -> vec2:
    """The point of a circle whose tangent leads to ``end``, at one side: R (R e + way sqrt(e^2 - R^2) e') / e^2."""
    n = wp.dot(end, end)
    along = way * radius * root(n - radius * radius)
    return (radius * radius * end + along * vec2(end[1], -end[0])) / n


@wp.func
def circle_way(a: vec2, b: vec2, side: vec2, sided: int, radius: real) -> real:
    """Which way a tendon from a to b goes around a circle, 1 or -1, or 0 where it passes by.

    It takes the short way where the straight line meets the circle. A side point makes it take the long way if
    from both ends the side point lies that way around.
    """
    way = real(0.0)
    r2 = radius * radius
    if wp.dot(a, a) >= r2 and wp.dot(b, b) >= r2 and radius >= TINY and wp.dot(b - a, b - a) >= TINY:
        turn = cross2(a, b)
        short = wp.where(turn < real(0.0), real(1.0), real(-1.0))
        asked = real(0.0)
        if sided != 0 and cross2(a, side) < real(0.0) and cross2(side, b) < real(0.0):
            asked = real(1.0)
        if sided != 0 and cross2(a, side) > real(0.0) and cross2(side, b) > real(0.0):
            asked = real(-1.0)
        close = nearest(a, b)
        if asked != real(0.0) and (asked != short or turn == real(0.0)):
            way = asked
        elif wp.dot(close, close) <= r2:
            way = short
    return way


@wp.func_grad(circle_way)
def no_slope_of_circle_way(a: vec2, b: vec2, side: vec2, sided: int, radius: real, adj_ret: real):
    pass


@wp.func
def arc_angle(p: vec2, q: vec2, way: real) -> real:
    """The angle from p to q the given way around, from 0 to 2 pi."""
    angle = wp.atan2(-way * cross2(p, q), wp.dot(p, q))
    if angle < real(0.0):
        angle = angle + real(2.0) * PI
    return angle


@wp.func
def touching_angle(a: real, b: real, g: real) -> real:
    """The root x of asin(a sin x) + asin(b sin x) - 2 x + g = 0, or -1 where Newton's method does not find it.

    It goes on until f is lost in rounding. MuJoCo stops at 1e-6: its point of contact differs by about as much.
    """
    x = real(0.5) * PI
    f = wp.asin(a) + wp.asin(b) - PI + g
    for _i in range(20):
        if wp.abs(f) > TINY:
            s = wp.sin(x)
            c = wp.cos(x)
            slope = a * c / wp.sqrt(wp.max(real(1.0) - a * a * s * s, TINY))
            slope += b * c / wp.sqrt(wp.max(real(1.0) - b * b * s * s, TINY))
            x = x - f / (slope - real(2.0))
            f = wp.asin(a * wp.sin(x)) + wp.asin(b * wp.sin(x)) - real(2.0) * x + g
    if wp.abs(f) > real(1.0e-5):
        x = real(-1.0)
    return x


@wp.func_grad(touching_angle)
def slope_of_touching_angle(a: real, b: real, g: real, adj_ret: real):
    # the implicit function theorem: dx = -(df/da da + df/db db + dg) / (df/dx)
    x = touching_angle(a, b, g)
    if x > real(0.0):
        s = wp.sin(x)
        c = wp.cos(x)
        ca = wp.sqrt(wp.max(real(1.0) - a * a * s * s, TINY))
        cb = wp.sqrt(wp.max(real(1.0) - b * b * s * s, TINY))
        slope = a * c / ca + b * c / cb - real(2.0)
        wp.adjoint[a] += -adj_ret * s / (ca * slope)
        wp.adjoint[b] += -adj_ret * s / (cb * slope)
        wp.adjoint[g] += -adj_ret / slope


@wp.func
def touches_inside(a: vec2, b: vec2, radius: real) -> int:
    """Whether a tendon from a to b that must pass through a circle has to bend there."""
    la = wp.length(a)
    lb = wp.length(b)
    out = wp.where(la <= radius or lb <= radius or radius < TINY or la < TINY or lb < TINY, int(0), int(1))
    if out != 0:
        d = b - a
        dd = wp.dot(d, d)
        if dd > TINY:
            t = -wp.dot(d, a) / dd
            if t > real(0.0) and t < real(1.0) and wp.length(a + t * d) <= radius:
                out = int(0)
        if (la * la + lb * lb - dd) / (real(2.0) * la * lb) < real(-1.0) + TINY:
            out = int(0)
    return out


@wp.func_grad(touches_inside)
def no_slope_of_touches_inside(a: vec2, b: vec2, radius: real, adj_ret: int):
    pass


@wp.func
def inside_point(a: vec2, b: vec2, radius: real) -> vec2:
    """The point of a circle by which the way from a to b through it is shortest: equal angles to both sides."""
    la = root(wp.dot(a, a))
    lb = root(wp.dot(b, b))
    turn = cross2(a, b)
    out = radius * direction2(a + b)
    if wp.dot(a, b) <= (real(1.0) - TINY) * la * lb:
        x = touching_angle(radius / la, radius / lb, wp.atan2(wp.abs(turn), wp.dot(a, b)))
        if x > real(0.0):
            first = wp.where(turn > real(0.0), direction2(a), direction2(b))
            angle = x - wp.asin(wp.sin(x) * radius / wp.where(turn > real(0.0), la, lb))
            s = wp.sin(angle)
            c = wp.cos(angle)
            out = radius * vec2(c * first[0] - s * first[1], s * first[0] + c * first[1])
    return out


@wp.func
def second_axis(a: vec3, b: vec3) -> vec3:
    """The axis normal to a, in the plane of a and b; any, where they are parallel."""
    first = direction(a)
    normal = wp.cross(a, b)
    if wp.dot(normal, normal) < TINY * TINY:
        size = vec3(wp.abs(first[0]), wp.abs(first[1]), wp.abs(first[2]))
        i = int(0)
        if size[1] > size[0] and size[1] > size[2]:
            i = int(1)
        if size[2] > size[0] and size[2] > size[1]:
            i = int(2)
        normal = wp.cross(first, vec3(real(1.0), real(1.0), real(1.0)) - unit(i))
    return wp.cross(direction(normal), first)


@wp.func
def wrap_in_plane(a: vec2, b: vec2, side: vec2, sided: int, inside: int, radius: real):
    """(whether the tendon bends, where it arrives, where it leaves, length of the arc)."""
    p = vec2()
    q = vec2()
    arc = real(0.0)
    bends = int(0)
    if inside != 0:
        bends = touches_inside(a, b, radius)
        if bends != 0:
            p = inside_point(a, b, radius)
            q = p
    else:
        way = circle_way(a, b, side, sided, radius)
        if way != real(0.0):
            bends = int(1)
            p = tangent_point(a, way, radius)
            q = tangent_point(b, -way, radius)
            arc = radius * arc_angle(p, q, way)
    return bends, p, q, arc


@wp.func
def wrap(shape: int, a: vec3, b: vec3, centre: vec3, turn: quat, radius: real, sided: int, side: vec3):
    """A tendon from a to b around a sphere or a cylinder along its third axis.

    Returns whether it bends, the points where it arrives and leaves, and the length of the arc between. On a
    cylinder it climbs in proportion to its length, as a helix does.
    """
    la = rotate_back(turn, a - centre)
    lb = rotate_back(turn, b - centre)
    ls = rotate_back(turn, side - centre)
    first = unit(0)
    second = unit(1)
    if shape == SPHERE:
        first = direction(la)
        second = second_axis(la, lb)
    pa = vec2(wp.dot(la, first), wp.dot(la, second))
    pb = vec2(wp.dot(lb, first), wp.dot(lb, second))
    ps = direction2(vec2(wp.dot(ls, first), wp.dot(ls, second)))
    inside = wp.where(sided != 0 and wp.dot(ls, ls) < radius * radius, int(1), int(0))
    bends, p, q, arc = wrap_in_plane(pa, pb, ps, sided, inside, radius)
    if wp.dot(la, la) < TINY * TINY or wp.dot(lb, lb) < TINY * TINY:
        bends = int(0)
    start = p[0] * first + p[1] * second
    end = q[0] * first + q[1] * second
    total = arc
    if shape == CYLINDER:
        before = root(wp.dot(pa - p, pa - p))
        after = root(wp.dot(pb - q, pb - q))
        climb = (lb[2] - la[2]) / wp.max(before + arc + after, TINY)
        start = start + unit(2) * (la[2] + climb * before)
        end = end + unit(2) * (la[2] + climb * (before + arc))
        total = arc * wp.sqrt(real(1.0) + climb * climb)
    return bends, centre + rotate(turn, start), centre + rotate(turn, end), total
