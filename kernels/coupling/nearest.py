"""The side of a surface that is nearest to a point."""

import warp as wp

from .._precision import real, vec3

SMALL_SQUARED = wp.constant(real(1.0e-24))
PREFERRED = wp.constant(real(1.0e-6))


@wp.func
def on_segment(p: vec3, a: vec3, b: vec3) -> vec3:
    """The nearest point of a segment."""
    e = b - a
    return a + wp.clamp(wp.dot(p - a, e) / wp.max(wp.dot(e, e), SMALL_SQUARED), real(0.0), real(1.0)) * e


@wp.func
def nearer(p: vec3, a: vec3, b: vec3) -> vec3:
    """The nearer of two points."""
    if wp.length_sq(p - b) < wp.length_sq(p - a):
        return b
    return a


@wp.func
def on_triangle(p: vec3, a: vec3, b: vec3, c: vec3) -> vec3:
    """The nearest point of a triangle: below p if that is inside, else on an edge, as of one that is a line."""
    m = wp.cross(b - a, c - a)
    inside = (
        wp.dot(m, m) > SMALL_SQUARED
        and wp.dot(wp.cross(b - a, p - a), m) >= real(0.0)
        and wp.dot(wp.cross(c - b, p - b), m) >= real(0.0)
    )
    if inside and wp.dot(wp.cross(a - c, p - c), m) >= real(0.0):
        return p - wp.dot(p - a, m) / wp.dot(m, m) * m
    return nearer(p, nearer(p, on_segment(p, a, b), on_segment(p, b, c)), on_segment(p, c, a))


@wp.func
def beyond(p: vec3, lower: vec3, upper: vec3) -> real:
    """Square of the distance from a box."""
    out = real(0.0)
    for i in range(3):
        gap = wp.max(wp.max(lower[i] - p[i], p[i] - upper[i]), real(0.0))
        out = out + gap * gap
    return out


@wp.kernel(enable_backward=False)
def nearest(
    # Model:
    corners: int,
    sides: wp.array2d(dtype=int),
    group: int,
    reach: wp.array(dtype=real),
    # In:
    lower: wp.array2d(dtype=vec3),
    upper: wp.array2d(dtype=vec3),
    vertex: wp.array2d(dtype=vec3),
    point: wp.array2d(dtype=vec3),
    # Out:
    nearest_out: wp.array2d(dtype=int),
):
    """The row of ``sides`` nearest to each point, -1 if none is within reach. A group of sides has a box around it.

    Of sides that share the nearest point, the one that the point is most upright above: its normal says which side of
    the surface the point is on.
    """
    world, i = wp.tid()
    p = point[world, i]
    best = reach[world] * reach[world]
    found = int(-1)
    for g in range(lower.shape[1]):
        if beyond(p, lower[world, g], upper[world, g]) < best:
            for s in range(g * group, (g + 1) * group):
                a = vertex[world, sides[s, 0]]
                b = vertex[world, sides[s, 1]]
                m = vec3(b[1] - a[1], a[0] - b[0], real(0.0))
                q = on_segment(p, a, b)
                if corners == 3:
                    c = vertex[world, sides[s, 2]]
                    m = wp.cross(b - a, c - a)
                    q = on_triangle(p, a, b, c)
                up = wp.dot(p - q, m)
                upright = up * up / wp.max(wp.dot(m, m), SMALL_SQUARED)
                far = wp.length_sq(p - q) + PREFERRED * (wp.length_sq(p - q) - upright)
                if far < best:
                    best = far
                    found = s
    nearest_out[world, i] = found
