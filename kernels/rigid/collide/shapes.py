"""What contacts of simple shapes are made of: points, balls, planes, and the frame of a contact."""

import warp as wp

from ..._precision import mat33, quat, real, tolerance, vec3
from ...math import rotate

PLANE = wp.constant(0)
HFIELD = wp.constant(1)
SPHERE = wp.constant(2)
CAPSULE = wp.constant(3)
ELLIPSOID = wp.constant(4)
CYLINDER = wp.constant(5)
BOX = wp.constant(6)
MESH = wp.constant(7)

MIN_SQUARED = wp.constant(real(1.0e-30))
"""Square of MuJoCo's smallest length."""
PARALLEL = wp.constant(tolerance(1.0e-30, 1.0e-12))
"""Squared sine of an angle that is lost in rounding."""
NONE = wp.constant(wp.vec4i(-1, -1, -1, -1))


@wp.func
def z_axis(q: quat) -> vec3:
    """The axis of a capsule or cylinder, the normal of a plane."""
    return rotate(q, vec3(real(0.0), real(0.0), real(1.0)))


@wp.func
def corner(size: vec3, feature: int) -> vec3:
    """The corner of a box that the three bits of the feature name."""
    x = wp.where((feature & 1) != 0, size[0], -size[0])
    y = wp.where((feature & 2) != 0, size[1], -size[1])
    z = wp.where((feature & 4) != 0, size[2], -size[2])
    return vec3(x, y, z)


@wp.func
def end(mode: int) -> real:
    """Ends of a segment that runs from -1 to 1: mode 1 is the upper one, 2 the lower one, 0 neither."""
    return wp.where(mode == 1, real(1.0), wp.where(mode == 2, real(-1.0), real(0.0)))


@wp.func
def bounding_radius(kind: int, size: vec3) -> real:
    """Radius of a sphere about a geom's centre that holds it; 0 for what has none."""
    radius = real(0.0)
    if kind == SPHERE:
        radius = size[0]
    elif kind == CAPSULE:
        radius = size[0] + size[1]
    elif kind == ELLIPSOID:
        radius = wp.max(size[0], wp.max(size[1], size[2]))
    elif kind == CYLINDER:
        radius = wp.sqrt(size[0] * size[0] + size[1] * size[1])
    elif kind == BOX:
        radius = wp.length(size)
    return radius


@wp.func
def against_plane(n: vec3, origin: vec3, point: vec3, radius: real):
    """A plane and a ball about a point: the normal, signed distance and midpoint."""
    distance = wp.dot(point - origin, n) - radius
    return n, distance, point - n * (radius + real(0.5) * distance)


@wp.func
def two_balls(p1: vec3, r1: real, p2: vec3, r2: real, coincident: vec3):
    """Two balls: the normal (a given one where the centres coincide), signed distance and midpoint."""
    gap = p2 - p1
    s = wp.dot(gap, gap)
    n = coincident
    length = real(0.0)
    if s >= MIN_SQUARED:
        length = wp.sqrt(s)
        n = gap / length
    distance = length - r1 - r2
    return n, distance, p1 + n * (r1 + real(0.5) * distance)


@wp.func
def tangent_hint(n: vec3) -> vec3:
    """The direction from which MuJoCo's ``mju_makeFrame`` makes the first tangent."""
    level = n[1] < real(0.5) and n[1] > real(-0.5)
    return wp.where(level, vec3(real(0.0), real(1.0), real(0.0)), vec3(real(0.0), real(0.0), real(1.0)))


@wp.func
def along_surface(n: vec3, axis: vec3) -> vec3:
    """The hint for a first tangent along an axis: x, as in MuJoCo, where the axis stands upright on the surface."""
    side = wp.cross(n, axis)
    if wp.dot(side, side) >= PARALLEL:
        return axis
    if wp.abs(n[0]) < real(0.9):
        return vec3(real(1.0), real(0.0), real(0.0))
    return vec3(real(0.0), real(1.0), real(0.0))


@wp.func
def contact_frame(n: vec3, hint: vec3) -> mat33:
    """Rows: the normal and two tangents, the first of them in the plane of normal and hint."""
    t = wp.normalize(hint - n * wp.dot(n, hint))
    t1 = wp.normalize(t - n * wp.dot(n, t))  # again: a hint near the normal loses its right angle to rounding
    t2 = wp.cross(n, t1)
    return mat33(n[0], n[1], n[2], t1[0], t1[1], t1[2], t2[0], t2[1], t2[2])


@wp.func_native("""
    const int* pair = contact_pair.data + world * (contact_pair.strides[0] / sizeof(int));
    int count = contact_pair.shape[1];
    while (count > 0 && pair[count - 1] < 0) --count;
    return count;
""")
def num_contacts(world: int, contact_pair: wp.array2d(dtype=int)) -> int:
    """How many contacts a world has: beyond them stands -1."""


@wp.func
def place(world: int, p: int, candidate: wp.array2d(dtype=int)) -> int:
    """Where a pair stands among the candidates, which ascend and end with -1s; -1 if it is not there."""
    count = candidate.shape[1]
    if p < 0:
        return -1
    if p < count:
        if candidate[world, p] == p:
            return p
    low = int(0)
    high = int(count)
    while low < high:
        middle = (low + high) // 2
        q = candidate[world, middle]
        if q >= 0 and q < p:
            low = middle + 1
        else:
            high = middle
    if low < count:
        if candidate[world, low] == p:
            return low
    return -1
