"""Bending of sheets, in the incremental potential: hinges at the edges of two triangles (Grinspun et al. 2003).

A hinge with the angle a between its triangles' normals has the energy k (a - a_0)^2 / 2, a_0 being the angle at rest.
Damping by stiffness adds k b / h (a - the angle before the step)^2 / 2. The derivatives of the angle are those of
Tamstorf and Grinspun (2013): of the vertices opposite |e| n / |n|^2, n being a triangle's normal of twice its area, and
at the edge's ends shares of these.
"""

import warp as wp

from .._precision import mat33, real, tolerance, vec2, vec3
from .potential import Body, Setting, Work
from .self_contact import push_corner

TURN = wp.constant(real(6.283185307179586))
SMALL = wp.constant(tolerance(1.0e-100, 1.0e-30))
"""Guards a division by a squared length or area."""


@wp.func
def angle(p0: vec3, p1: vec3, p2: vec3, p3: vec3) -> real:
    """From the normal of triangle 0 1 2 to that of 1 0 3, about the edge from 0 to 1 [rad], between -pi and pi."""
    e = p1 - p0
    n0 = wp.cross(e, p2 - p0)
    n1 = wp.cross(p3 - p0, e)
    sine = wp.dot(wp.cross(n0, n1), e) / wp.sqrt(wp.max(wp.dot(e, e), SMALL))
    cosine = wp.dot(n0, n1)
    if wp.max(wp.abs(sine), wp.abs(cosine)) <= SMALL:
        return real(0.0)
    return wp.atan2(sine, cosine)


@wp.func
def steepness(length: real, n: vec3) -> real:
    """|e| / |n|^2; a triangle without an area has no slope."""
    square = wp.dot(n, n)
    if square <= SMALL:
        return real(0.0)
    return length / square


@wp.func
def slopes(p0: vec3, p1: vec3, p2: vec3, p3: vec3):
    """Derivatives of the angle by its four vertices."""
    e = p1 - p0
    u = p2 - p0
    v = p3 - p0
    n0 = wp.cross(e, u)
    n1 = wp.cross(v, e)
    square = wp.max(wp.dot(e, e), SMALL)
    length = wp.sqrt(square)
    a = -steepness(length, n0) * n0
    b = -steepness(length, n1) * n1
    s = wp.dot(e, u) / square
    t = wp.dot(e, v) / square
    return (s - real(1.0)) * a + (t - real(1.0)) * b, -s * a - t * b, a, b


@wp.func
def slopes_change(p0: vec3, p1: vec3, p2: vec3, p3: vec3, d0: vec3, d1: vec3, d2: vec3, d3: vec3):
    """How :func:`slopes` change if the vertices move by d."""
    e = p1 - p0
    u = p2 - p0
    v = p3 - p0
    de = d1 - d0
    du = d2 - d0
    dv = d3 - d0
    n0 = wp.cross(e, u)
    n1 = wp.cross(v, e)
    dn0 = wp.cross(de, u) + wp.cross(e, du)
    dn1 = wp.cross(dv, e) + wp.cross(v, de)
    square = wp.max(wp.dot(e, e), SMALL)
    length = wp.sqrt(square)
    stretch = wp.dot(e, de) / square
    q0 = wp.max(wp.dot(n0, n0), SMALL)
    q1 = wp.max(wp.dot(n1, n1), SMALL)
    steep0 = steepness(length, n0)
    steep1 = steepness(length, n1)
    a = -steep0 * n0
    b = -steep1 * n1
    da = (stretch - real(2.0) * wp.dot(n0, dn0) / q0) * a - steep0 * dn0
    db = (stretch - real(2.0) * wp.dot(n1, dn1) / q1) * b - steep1 * dn1
    s = wp.dot(e, u) / square
    t = wp.dot(e, v) / square
    ds = (wp.dot(de, u) + wp.dot(e, du)) / square - real(2.0) * s * stretch
    dt = (wp.dot(de, v) + wp.dot(e, dv)) / square - real(2.0) * t * stretch
    first = (s - real(1.0)) * da + ds * a + (t - real(1.0)) * db + dt * b
    return first, -(first + da + db), da, db


@wp.func
def turned(a: real, b: real) -> real:
    """From angle b to angle a by the shorter way: hinges are folded by less than half a turn from their rest."""
    return a - b - TURN * wp.round((a - b) / TURN)


@wp.func
def moment_of(a: real, at_rest: real, before: real, k: real, share: real) -> real:
    """The energy's derivative by the angle [N m]; share is b / h."""
    return k * (turned(a, at_rest) + share * turned(a, before))


@wp.func
def chosen(a: int, c0: vec3, c1: vec3, c2: vec3, c3: vec3) -> vec3:
    """One of four vectors."""
    if a == 0:
        return c0
    if a == 1:
        return c1
    if a == 2:
        return c2
    return c3


@wp.func
def angle_at(world: int, m: int, body: Body, p: wp.array2d(dtype=vec3)) -> real:
    """The angle of hinge m at a place."""
    i = body.hinge[m, 0]
    j = body.hinge[m, 1]
    return angle(p[world, i], p[world, j], p[world, body.hinge[m, 2]], p[world, body.hinge[m, 3]])


@wp.func
def set_up_folds(world: int, body: Body, setting: Setting, work_out: Work):
    """Angles at rest."""
    for m in range(body.hinge.shape[0]):
        work_out.angle[world, m] = angle_at(world, m, body, setting.rest)


@wp.func
def moment_at(world: int, m: int, body: Body, setting: Setting, work: Work) -> real:
    """The moment of hinge m."""
    share = setting.viscous[world] / setting.timestep[world]
    before = real(0.0)
    if share > real(0.0):
        before = angle_at(world, m, body, setting.x)
    return moment_of(angle_at(world, m, body, work.place), work.angle[world, m], before, setting.bend[world, m], share)


@wp.func
def fold_work(world: int, body: Body, setting: Setting, work: Work) -> vec2:
    """The hinges' part of W, and what its rounding is relative to."""
    total = real(0.0)
    size = real(0.0)
    share = setting.viscous[world] / setting.timestep[world]
    for m in range(body.hinge.shape[0]):
        a = angle_at(world, m, body, work.place)
        d = turned(a, work.angle[world, m])
        more = real(0.0)
        if share > real(0.0):
            more = turned(a, angle_at(world, m, body, setting.x))
        energy = real(0.5) * setting.bend[world, m] * (d * d + share * more * more)
        total += energy
        size += energy + setting.bend[world, m] * (wp.abs(d) + share * wp.abs(more)) * (real(1.0) + wp.abs(a))
    return vec2(total, size)


@wp.func
def add_fold_force(world: int, body: Body, setting: Setting, work: Work, gradient_out: wp.array2d(dtype=vec3)) -> real:
    """Add the hinges' part of dW/du where it is not pinned; returns the square of what its rounding is relative to."""
    corners = int(4)  # not a constant: the loop is not to be unrolled
    scale = real(0.0)
    share = setting.viscous[world] / setting.timestep[world]
    for m in range(body.hinge.shape[0]):
        p0 = work.place[world, body.hinge[m, 0]]
        p1 = work.place[world, body.hinge[m, 1]]
        p2 = work.place[world, body.hinge[m, 2]]
        p3 = work.place[world, body.hinge[m, 3]]
        g0, g1, g2, g3 = slopes(p0, p1, p2, p3)
        moment = moment_at(world, m, body, setting, work)
        size = setting.bend[world, m] * (real(1.0) + share) + wp.abs(moment)
        for a in range(corners):
            g = chosen(a, g0, g1, g2, g3)
            push_corner(world, body.hinge[m, a], -moment * g, body, gradient_out)
            scale += size * size * wp.dot(g, g)
    return scale


@wp.func
def add_fold_blocks(
    world: int, body: Body, setting: Setting, work: Work, projected: int, block_out: wp.array2d(dtype=mat33)
):
    """Add the hinges' blocks of d2W/du2; projected: without the angle's own curvature."""
    corners = int(4)  # not a constant: the loops are not to be unrolled
    axes = int(3)
    o = vec3()
    share = setting.viscous[world] / setting.timestep[world]
    for m in range(body.hinge.shape[0]):
        p0 = work.place[world, body.hinge[m, 0]]
        p1 = work.place[world, body.hinge[m, 1]]
        p2 = work.place[world, body.hinge[m, 2]]
        p3 = work.place[world, body.hinge[m, 3]]
        g0, g1, g2, g3 = slopes(p0, p1, p2, p3)
        k = setting.bend[world, m] * (real(1.0) + share)
        for a in range(corners):
            for b in range(corners):
                t = body.fold[m, a * corners + b]
                h = k * wp.outer(chosen(a, g0, g1, g2, g3), chosen(b, g0, g1, g2, g3))
                block_out[world, t] = block_out[world, t] + h
        if projected == 0:
            moment = moment_at(world, m, body, setting, work)
            for b in range(corners):
                for axis in range(axes):
                    d = vec3()
                    d[axis] = real(1.0)
                    d0 = chosen(b, d, o, o, o)
                    d1 = chosen(b, o, d, o, o)
                    d2 = chosen(b, o, o, d, o)
                    d3 = chosen(b, o, o, o, d)
                    c0, c1, c2, c3 = slopes_change(p0, p1, p2, p3, d0, d1, d2, d3)
                    for a in range(corners):
                        t = body.fold[m, a * corners + b]
                        h = moment * wp.outer(chosen(a, c0, c1, c2, c3), d)
                        block_out[world, t] = block_out[world, t] + h
