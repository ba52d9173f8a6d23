"""Constraints of extended position-based dynamics (Macklin et al. 2016): each moves its vertices until it holds.

With one iteration a substep (Macklin et al. 2019), a constraint C of compliance a = alpha / h^2 moves its vertices by

    x_i += w_i grad_i C lambda,   lambda = -C / (sum_i w_i |grad_i C|^2 + a)

Vertices are at start + moved. What moves is added to ``moved``, which is small: in float32 a place would round off what
one substep moves, and with it velocities and strains. Differences of starts of neighbours are exact, or nearly. For the
same reason adjoints keep the push's cotangent, which is large, apart from what constraints add to it.

A launch takes the constraints of one colour, which share no vertex, so ``moved`` is changed where it is. Adjoints by
hand read each constraint's vertices as they were before it moved them, relative to the first: ``keep`` has written that
down.
"""

import warp as wp

from .._precision import mat43, real, tolerance, vec3
from .bend import angle, chosen, slopes, slopes_change
from .bend import turned as folded

SHORT = wp.constant(tolerance(1.0e-8, 1.0e-6))
"""Of a size: what is shorter has no direction. Rounding would decide it, which grows from substep to substep."""

AREA = wp.constant(0)
VOLUME = wp.constant(1)


@wp.func
def between(world: int, a: int, b: int, start: wp.array2d(dtype=vec3), moved: wp.array2d(dtype=vec3)) -> vec3:
    """From vertex a to vertex b."""
    return (start[world, b] - start[world, a]) + (moved[world, b] - moved[world, a])


@wp.func
def pull(world: int, a: int, cotangent: wp.array2d(dtype=vec3), moved: wp.array2d(dtype=vec3)) -> vec3:
    """The cotangent of what a constraint moves vertex a."""
    return cotangent[world, a] + moved[world, a]


@wp.func
def inverse_length(d: vec3, size: real) -> real:
    """1 / |d|; zero if d is short beside ``size``: no direction, and none that could change."""
    length = wp.sqrt(wp.dot(d, d))
    if length <= SHORT * size:
        return real(0.0)
    return real(1.0) / length


@wp.func
def across(u: vec3, v: vec3) -> vec3:
    """u x v; zero if that is short, because the triangle is a line or a point."""
    n = wp.cross(u, v)
    size = SHORT * wp.max(wp.dot(u, u), wp.dot(v, v))
    if wp.sqrt(wp.dot(n, n)) <= size:
        return vec3()
    return n


@wp.func
def multiplier(c: real, weight: real, compliance: real) -> real:
    """-C / (weight + compliance); zero if nothing can move."""
    if weight <= real(0.0):
        return real(0.0)
    return -c / (weight + compliance)


@wp.func
def directions(kind: int, u: vec3, v: vec3, t: vec3) -> mat43:
    """The gradient of a triangle's area, or of a tetrahedron's volume, by its vertices; u, v, t start at the first."""
    if kind == AREA:
        n = across(u, v)
        n = n * inverse_length(n, real(0.0))
        return by_rows(real(0.5) * wp.cross(v, n), real(0.5) * wp.cross(n, u), vec3())
    return by_rows(across(v, t) / real(6.0), across(t, u) / real(6.0), across(u, v) / real(6.0))


@wp.func
def by_rows(g1: vec3, g2: vec3, g3: vec3) -> mat43:
    """Directions of four vertices, which add up to nothing."""
    g0 = -(g1 + g2 + g3)
    # fmt: off
    return mat43(g0[0], g0[1], g0[2], g1[0], g1[1], g1[2], g2[0], g2[1], g2[2], g3[0], g3[1], g3[2])
    # fmt: on


@wp.func
def measure(kind: int, u: vec3, v: vec3, t: vec3) -> real:
    """A triangle's area, or a tetrahedron's signed volume."""
    n = wp.cross(u, v)
    if kind == AREA:
        return real(0.5) * wp.sqrt(wp.dot(n, n))
    return wp.dot(n, t) / real(6.0)


@wp.func
def turned(kind: int, u: vec3, v: vec3, t: vec3, way: mat43) -> mat43:
    """How :func:`directions` changes as the vertices go ``way``: the Hessian times it."""
    du = way[1] - way[0]
    dv = way[2] - way[0]
    g1 = vec3()
    g2 = vec3()
    g3 = vec3()
    if kind == AREA:
        n = across(u, v)
        over = inverse_length(n, real(0.0))
        n = n * over
        dn = (wp.cross(du, v) + wp.cross(u, dv)) * over
        dn = dn - wp.dot(n, dn) * n
        g1 = real(0.5) * (wp.cross(dv, n) + wp.cross(v, dn))
        g2 = real(0.5) * (wp.cross(dn, u) + wp.cross(n, du))
    else:
        dt = way[3] - way[0]
        g1 = (wp.cross(dv, t) + wp.cross(v, dt)) / real(6.0)
        g2 = (wp.cross(dt, u) + wp.cross(t, du)) / real(6.0)
        g3 = (wp.cross(du, v) + wp.cross(u, dv)) / real(6.0)
    return by_rows(g1, g2, g3)


# --- edges


@wp.kernel
def edges(
    # Model:
    first: int,
    pairs: wp.array(dtype=wp.vec2i),
    weight: wp.array2d(dtype=real),
    compliance: wp.array2d(dtype=real),
    rest: wp.array2d(dtype=real),
    start: wp.array2d(dtype=vec3),
    keep: int,
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    kept_out: wp.array3d(dtype=vec3),
):
    """C = |x_1 - x_0| - rest."""
    world, i = wp.tid()
    c = first + i
    a = pairs[i][0]
    b = pairs[i][1]
    d = between(world, a, b, start, moved_out)
    if keep == 1:
        kept_out[world, c, 0] = d
    over = inverse_length(d, rest[world, c])
    w0 = weight[world, a]
    w1 = weight[world, b]
    push = multiplier(wp.dot(d, d) * over - rest[world, c], w0 + w1, compliance[world, c]) * over * d
    moved_out[world, a] = moved_out[world, a] - w0 * push
    moved_out[world, b] = moved_out[world, b] + w1 * push


@wp.kernel
def edges_adjoint(
    # Model:
    first: int,
    pairs: wp.array(dtype=wp.vec2i),
    weight: wp.array2d(dtype=real),
    compliance: wp.array2d(dtype=real),
    rest: wp.array2d(dtype=real),
    kept: wp.array3d(dtype=vec3),
    cotangent: wp.array2d(dtype=vec3),
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    weight_out: wp.array2d(dtype=real),
    compliance_out: wp.array2d(dtype=real),
    rest_out: wp.array2d(dtype=real),
):
    """Add to the cotangents of moved what these constraints do."""
    world, i = wp.tid()
    c = first + i
    a = pairs[i][0]
    b = pairs[i][1]
    w0 = weight[world, a]
    w1 = weight[world, b]
    d = kept[world, c, 0]
    over = inverse_length(d, rest[world, c])
    n = over * d
    by_c = real(0.0)
    by_a = real(0.0)
    if w0 + w1 > real(0.0):
        total = w0 + w1 + compliance[world, c]
        push = (rest[world, c] - wp.dot(n, d)) / total
        bar0 = pull(world, a, cotangent, moved_out)
        bar1 = pull(world, b, cotangent, moved_out)
        along = w1 * bar1 - w0 * bar0
        by_push = wp.dot(n, along)
        by_c = -by_push / total
        by_a = -push * by_push / total
        weight_out[world, a] = weight_out[world, a] + by_a - push * wp.dot(n, bar0)
        weight_out[world, b] = weight_out[world, b] + by_a + push * wp.dot(n, bar1)
        by_d = by_c * n + (push * over) * (along - by_push * n)
        moved_out[world, a] = moved_out[world, a] - by_d
        moved_out[world, b] = moved_out[world, b] + by_d
    compliance_out[world, c] = by_a
    rest_out[world, c] = -by_c


# --- areas and volumes


@wp.kernel
def measures(
    # Model:
    first: int,
    kind: int,
    corners: wp.array(dtype=wp.vec4i),
    weight: wp.array2d(dtype=real),
    compliance: wp.array2d(dtype=real),
    rest: wp.array2d(dtype=real),
    start: wp.array2d(dtype=vec3),
    keep: int,
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    kept_out: wp.array3d(dtype=vec3),
):
    """C = area or volume - rest. A triangle's fourth corner is one of the others: it does not move."""
    world, i = wp.tid()
    c = first + i
    e = corners[i]
    u = between(world, e[0], e[1], start, moved_out)
    v = between(world, e[0], e[2], start, moved_out)
    t = between(world, e[0], e[3], start, moved_out)
    if keep == 1:
        kept_out[world, c, 0] = u
        kept_out[world, c, 1] = v
        kept_out[world, c, 2] = t
    g = directions(kind, u, v, t)
    total = real(0.0)
    for k in range(4):
        total += weight[world, e[k]] * wp.dot(g[k], g[k])
    push = multiplier(measure(kind, u, v, t) - rest[world, c], total, compliance[world, c])
    for k in range(4):
        moved_out[world, e[k]] = moved_out[world, e[k]] + (weight[world, e[k]] * push) * g[k]


@wp.kernel
def measures_adjoint(
    # Model:
    first: int,
    kind: int,
    corners: wp.array(dtype=wp.vec4i),
    weight: wp.array2d(dtype=real),
    compliance: wp.array2d(dtype=real),
    rest: wp.array2d(dtype=real),
    kept: wp.array3d(dtype=vec3),
    cotangent: wp.array2d(dtype=vec3),
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    weight_out: wp.array2d(dtype=real),
    compliance_out: wp.array2d(dtype=real),
    rest_out: wp.array2d(dtype=real),
):
    """Add to the cotangents of moved what these constraints do."""
    world, i = wp.tid()
    c = first + i
    e = corners[i]
    u = kept[world, c, 0]
    v = kept[world, c, 1]
    t = kept[world, c, 2]
    g = directions(kind, u, v, t)
    total = real(0.0)
    by_push = real(0.0)
    for k in range(4):
        w = weight[world, e[k]]
        total += w * wp.dot(g[k], g[k])
        by_push += w * wp.dot(g[k], pull(world, e[k], cotangent, moved_out))
    by_c = real(0.0)
    by_a = real(0.0)
    if total > real(0.0):
        q = total + compliance[world, c]
        push = (rest[world, c] - measure(kind, u, v, t)) / q
        by_c = -by_push / q
        by_a = -push * by_push / q
        way = mat43()
        for k in range(4):
            w = weight[world, e[k]]
            bar = pull(world, e[k], cotangent, moved_out)
            by_g = (w * push) * bar + (real(2.0) * w * by_a) * g[k]
            way[k, 0] = by_g[0]
            way[k, 1] = by_g[1]
            way[k, 2] = by_g[2]
            own = push * wp.dot(g[k], bar) + by_a * wp.dot(g[k], g[k])
            weight_out[world, e[k]] = weight_out[world, e[k]] + own
        change = turned(kind, u, v, t, way)
        for k in range(4):
            moved_out[world, e[k]] = moved_out[world, e[k]] + by_c * g[k] + change[k]
    compliance_out[world, c] = by_a
    rest_out[world, c] = -by_c


# --- bends


@wp.kernel
def bends(
    # Model:
    first: int,
    corners: wp.array2d(dtype=int),
    weight: wp.array2d(dtype=real),
    stiffness: wp.array2d(dtype=real),
    share: wp.array3d(dtype=real),
    start: wp.array2d(dtype=vec3),
    keep: int,
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    kept_out: wp.array3d(dtype=vec3),
):
    """C = sum_i share_i (x_i - x_0), a vector, with ``stiffness`` 1 / compliance; corners of share zero stay."""
    world, i = wp.tid()
    c = first + i
    r = vec3()
    total = real(0.0)
    for k in range(corners.shape[1]):
        s = share[world, c, k]
        if k > 0:
            d = between(world, corners[i, 0], corners[i, k], start, moved_out)
            r += s * d
            if keep == 1:
                kept_out[world, c, k - 1] = d
        total += weight[world, corners[i, k]] * s * s
    b = stiffness[world, c]
    push = (-b / (b * total + real(1.0))) * r
    for k in range(corners.shape[1]):
        v = corners[i, k]
        moved_out[world, v] = moved_out[world, v] + (weight[world, v] * share[world, c, k]) * push


@wp.kernel
def bends_adjoint(
    # Model:
    first: int,
    corners: wp.array2d(dtype=int),
    weight: wp.array2d(dtype=real),
    stiffness: wp.array2d(dtype=real),
    share: wp.array3d(dtype=real),
    kept: wp.array3d(dtype=vec3),
    cotangent: wp.array2d(dtype=vec3),
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    weight_out: wp.array2d(dtype=real),
    stiffness_out: wp.array2d(dtype=real),
    share_out: wp.array3d(dtype=real),
):
    """Add to the cotangents of moved what these constraints do."""
    world, i = wp.tid()
    c = first + i
    r = vec3()
    by_push = vec3()
    total = real(0.0)
    for k in range(corners.shape[1]):
        s = share[world, c, k]
        w = weight[world, corners[i, k]]
        if k > 0:
            r += s * kept[world, c, k - 1]
        total += w * s * s
        by_push += (w * s) * pull(world, corners[i, k], cotangent, moved_out)
    b = stiffness[world, c]
    q = real(1.0) / (b * total + real(1.0))
    push = (-b * q) * r
    by_r = (-b * q) * by_push
    slope = wp.dot(by_push, r) * q * q
    by_total = b * b * slope
    stiffness_out[world, c] = -slope
    for k in range(corners.shape[1]):
        v = corners[i, k]
        s = share[world, c, k]
        w = weight[world, v]
        bar = pull(world, v, cotangent, moved_out)
        along = wp.dot(push, bar)
        by_share = w * along + real(2.0) * by_total * w * s
        if k > 0:
            by_share += wp.dot(by_r, kept[world, c, k - 1])
        share_out[world, c, k] = by_share
        weight_out[world, v] = weight_out[world, v] + s * along + by_total * s * s
        moved_out[world, v] = moved_out[world, v] + s * by_r


# --- hinges


@wp.kernel
def hinges(
    # Model:
    first: int,
    corners: wp.array2d(dtype=int),
    weight: wp.array2d(dtype=real),
    stiffness: wp.array2d(dtype=real),
    rest: wp.array2d(dtype=real),
    start: wp.array2d(dtype=vec3),
    keep: int,
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    kept_out: wp.array3d(dtype=vec3),
):
    """C is the angle between two triangles less that at rest, with ``stiffness`` 1 / compliance."""
    world, i = wp.tid()
    c = first + i
    p0 = vec3()
    p1 = between(world, corners[i, 0], corners[i, 1], start, moved_out)
    p2 = between(world, corners[i, 0], corners[i, 2], start, moved_out)
    p3 = between(world, corners[i, 0], corners[i, 3], start, moved_out)
    if keep == 1:
        kept_out[world, c, 0] = p1
        kept_out[world, c, 1] = p2
        kept_out[world, c, 2] = p3
    g0, g1, g2, g3 = slopes(p0, p1, p2, p3)
    total = real(0.0)
    for k in range(4):
        g = chosen(k, g0, g1, g2, g3)
        total += weight[world, corners[i, k]] * wp.dot(g, g)
    b = stiffness[world, c]
    push = -b / (b * total + real(1.0)) * folded(angle(p0, p1, p2, p3), rest[world, c])
    for k in range(4):
        v = corners[i, k]
        moved_out[world, v] = moved_out[world, v] + (weight[world, v] * push) * chosen(k, g0, g1, g2, g3)


@wp.kernel
def hinges_adjoint(
    # Model:
    first: int,
    corners: wp.array2d(dtype=int),
    weight: wp.array2d(dtype=real),
    stiffness: wp.array2d(dtype=real),
    rest: wp.array2d(dtype=real),
    kept: wp.array3d(dtype=vec3),
    cotangent: wp.array2d(dtype=vec3),
    # Out:
    moved_out: wp.array2d(dtype=vec3),
    weight_out: wp.array2d(dtype=real),
    stiffness_out: wp.array2d(dtype=real),
    rest_out: wp.array2d(dtype=real),
):
    """Add to the cotangents of moved what these constraints do; the second derivative of the angle is symmetric."""
    world, i = wp.tid()
    c = first + i
    p0 = vec3()
    p1 = kept[world, c, 0]
    p2 = kept[world, c, 1]
    p3 = kept[world, c, 2]
    g0, g1, g2, g3 = slopes(p0, p1, p2, p3)
    total = real(0.0)
    by_push = real(0.0)
    for k in range(4):
        g = chosen(k, g0, g1, g2, g3)
        w = weight[world, corners[i, k]]
        total += w * wp.dot(g, g)
        by_push += w * wp.dot(g, pull(world, corners[i, k], cotangent, moved_out))
    b = stiffness[world, c]
    q = real(1.0) / (b * total + real(1.0))
    r = folded(angle(p0, p1, p2, p3), rest[world, c])
    push = -b * q * r
    by_total = b * b * r * q * q * by_push
    by_r = -b * q * by_push
    stiffness_out[world, c] = -r * q * q * by_push
    rest_out[world, c] = -by_r
    w0 = weight[world, corners[i, 0]]
    w1 = weight[world, corners[i, 1]]
    w2 = weight[world, corners[i, 2]]
    w3 = weight[world, corners[i, 3]]
    d0 = w0 * (push * pull(world, corners[i, 0], cotangent, moved_out) + real(2.0) * by_total * g0)
    d1 = w1 * (push * pull(world, corners[i, 1], cotangent, moved_out) + real(2.0) * by_total * g1)
    d2 = w2 * (push * pull(world, corners[i, 2], cotangent, moved_out) + real(2.0) * by_total * g2)
    d3 = w3 * (push * pull(world, corners[i, 3], cotangent, moved_out) + real(2.0) * by_total * g3)
    c0, c1, c2, c3 = slopes_change(p0, p1, p2, p3, d0, d1, d2, d3)
    for k in range(4):
        v = corners[i, k]
        g = chosen(k, g0, g1, g2, g3)
        bar = pull(world, v, cotangent, moved_out)
        weight_out[world, v] = weight_out[world, v] + push * wp.dot(g, bar) + by_total * wp.dot(g, g)
        moved_out[world, v] = moved_out[world, v] + by_r * g + chosen(k, c0, c1, c2, c3)


@wp.kernel
def copy(
    # In:
    moved: wp.array2d(dtype=vec3),
    # Out:
    moved_out: wp.array2d(dtype=vec3),
):
    """The same, to be changed."""
    world, vertex = wp.tid()
    moved_out[world, vertex] = moved[world, vertex]


@wp.kernel
def pushed(
    # In:
    before: wp.array2d(dtype=vec3),
    after: wp.array2d(dtype=vec3),
    # Out:
    push_out: wp.array2d(dtype=vec3),
):
    """What constraints have moved."""
    world, vertex = wp.tid()
    push_out[world, vertex] = after[world, vertex] - before[world, vertex]
