"""Rays against simple shapes.

All shapes but planes are convex: a ray is in one from ``near`` to ``far``, in units of its direction. Near beyond far
is a miss.
"""

import warp as wp

from ..._precision import real, tolerance, vec3
from .shapes import BOX, CAPSULE, CYLINDER, ELLIPSOID, PLANE, SPHERE

TINY = wp.constant(real(1.0e-15))
"""MuJoCo's mjMINVAL: a direction, or a discriminant, that is none."""
FAR = wp.constant(real(1.0e15))
"""Beyond all distances."""

SAME = wp.constant(tolerance(1.0e-12, 1.0e-5))
"""Relative difference of two distances that rounding makes."""


@wp.func
def in_quadric(a: real, b: real, c: real):
    """Where a t^2 + 2 b t + c <= 0, for a >= 0."""
    near = FAR
    far = -FAR
    square = b * b - a * c
    if a >= TINY:
        if square >= TINY:
            root = wp.sqrt(square)
            near = (-b - root) / a
            far = (-b + root) / a
    elif c <= real(0.0):
        near = -FAR
        far = FAR
    return near, far


@wp.func
def in_ball(p: vec3, d: vec3, radius: real):
    """Where |p + t d| <= radius."""
    near, far = in_quadric(wp.dot(d, d), wp.dot(p, d), wp.dot(p, p) - radius * radius)
    return near, far


@wp.func
def in_tube(p: vec3, d: vec3, radius: real):
    """Within an endless cylinder along z."""
    a = d[0] * d[0] + d[1] * d[1]
    near, far = in_quadric(a, p[0] * d[0] + p[1] * d[1], p[0] * p[0] + p[1] * p[1] - radius * radius)
    return near, far


@wp.func
def in_slab(p: real, d: real, half: real):
    """Where |p + t d| <= half."""
    near = FAR
    far = -FAR
    if wp.abs(d) > TINY:
        a = (-half - p) / d
        b = (half - p) / d
        near = wp.min(a, b)
        far = wp.max(a, b)
    elif wp.abs(p) <= half:
        near = -FAR
        far = FAR
    return near, far


@wp.func
def in_box(p: vec3, d: vec3, size: vec3):
    """Within three slabs."""
    near_x, far_x = in_slab(p[0], d[0], size[0])
    near_y, far_y = in_slab(p[1], d[1], size[1])
    near_z, far_z = in_slab(p[2], d[2], size[2])
    return wp.max(near_x, wp.max(near_y, near_z)), wp.min(far_x, wp.min(far_y, far_z))


@wp.func
def in_cylinder(p: vec3, d: vec3, radius: real, half: real):
    """Within the tube and a slab."""
    near_side, far_side = in_tube(p, d, radius)
    near_end, far_end = in_slab(p[2], d[2], half)
    return wp.max(near_side, near_end), wp.min(far_side, far_end)


@wp.func
def in_capsule(p: vec3, d: vec3, radius: real, half: real):
    """Within the tube; where a crossing with it lies beyond an end, the ball there has the capsule's."""
    near, far = in_tube(p, d, radius)
    if near <= far:
        first = p[2] + near * d[2]
        last = p[2] + far * d[2]
        if wp.abs(first) > half:
            near, _beyond = in_ball(p - vec3(real(0.0), real(0.0), wp.sign(first) * half), d, radius)
        if wp.abs(last) > half:
            _before, far = in_ball(p - vec3(real(0.0), real(0.0), wp.sign(last) * half), d, radius)
    return near, far


@wp.func
def first_crossing(near: real, far: real) -> real:
    """Distance to the surface of what a ray is in from near to far, outside or inside; negative where it misses."""
    length = real(-1.0)
    if near <= far:
        if near >= real(0.0):
            length = near
        elif far >= real(0.0):
            length = far
    return length


@wp.func
def ray_length(kind: int, size: vec3, p: vec3, d: vec3) -> real:
    """Distance to the first crossing with a shape's surface, from outside or inside; negative where there is none.

    In the shape's frame. A plane is seen from its front, and a positive size bounds what is seen of it.
    """
    near = FAR
    far = -FAR
    if kind == PLANE:
        if d[2] < -TINY:
            t = -p[2] / d[2]
            x = wp.abs(p[0] + t * d[0])
            y = wp.abs(p[1] + t * d[1])
            if (size[0] <= real(0.0) or x <= size[0]) and (size[1] <= real(0.0) or y <= size[1]):
                near = t
                far = t
    elif kind == SPHERE:
        near, far = in_ball(p, d, size[0])
    elif kind == CAPSULE:
        near, far = in_capsule(p, d, size[0], size[1])
    elif kind == ELLIPSOID:
        near, far = in_ball(wp.cw_div(p, size), wp.cw_div(d, size), real(1.0))
    elif kind == CYLINDER:
        near, far = in_cylinder(p, d, size[0], size[1])
    elif kind == BOX:
        near, far = in_box(p, d, size)
    return first_crossing(near, far)
