"""Sphere and box.

Features: outside, for each axis whether the nearest point lies within the box (0), on its upper (1) or lower (2)
face, as the digits of a number to the base 3; inside, 27 + 2 axis + (1 for the upper face).
"""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import rotate, rotate_back, unit
from .shapes import MIN_SQUARED, against_plane, end, two_balls

INSIDE = wp.constant(27)


@wp.func
def clamp_mode(x: real, size: real) -> int:
    """0 where x lies between the two faces, 1 above, 2 below; a box without extent has no faces, as in MuJoCo."""
    if size <= real(0.0):
        return 0
    if x > size:
        return 1
    if x < -size:
        return 2
    return 0


@wp.func
def nearest_in_box(x: vec3, size: vec3, feature: int) -> vec3:
    """The point of a box nearest to x, both in the box's frame."""
    m0 = feature % 3
    m1 = (feature // 3) % 3
    m2 = feature // 9
    return vec3(
        wp.where(m0 == 0, x[0], end(m0) * size[0]),
        wp.where(m1 == 0, x[1], end(m1) * size[1]),
        wp.where(m2 == 0, x[2], end(m2) * size[2]),
    )


@wp.func
def sphere_box_feature(x: vec3, size: vec3) -> int:
    """The part of a box nearest to a sphere's centre x, in the box's frame."""
    feature = clamp_mode(x[0], size[0]) + 3 * clamp_mode(x[1], size[1]) + 9 * clamp_mode(x[2], size[2])
    r = nearest_in_box(x, size, feature) - x
    if wp.dot(r, r) > MIN_SQUARED:
        return feature
    closest = real(2.0) * (size[0] + size[1] + size[2])
    for i in range(6):
        depth = wp.abs(wp.where(i % 2 == 1, size[i // 2], -size[i // 2]) - x[i // 2])
        if depth < closest:
            closest = depth
            feature = INSIDE + i
    return feature


@wp.func
def sphere_box(p1: vec3, r1: real, p2: vec3, q2: quat, size2: vec3, feature: int):
    """Normal from sphere to box, signed distance and midpoint."""
    face = wp.max(feature - INSIDE, 0)
    axis = unit(face // 2)
    outward = rotate(q2, axis) * wp.where(face % 2 == 1, real(1.0), real(-1.0))
    nearest = p2 + rotate(q2, nearest_in_box(rotate_back(q2, p1 - p2), size2, feature % INSIDE))
    normal, distance, pos = two_balls(p1, r1, nearest, real(0.0), -outward)
    if feature >= INSIDE:
        n, distance, pos = against_plane(outward, p2 + outward * wp.dot(axis, size2), p1, r1)
        normal = -n
    return normal, distance, pos
