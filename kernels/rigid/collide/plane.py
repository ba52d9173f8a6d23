"""A plane and another geom: the point of the other geom that a feature names, and the plane's normal there."""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import rotate, rotate_back
from .pairs import geom_of
from .search import Geoms, Search, chosen, slots_of
from .shapes import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MIN_SQUARED,
    PARALLEL,
    SPHERE,
    against_plane,
    bounding_radius,
    corner,
    z_axis,
)

HALF_SQRT3 = wp.constant(real(0.8660254037844386))
ONES = wp.constant(vec3(real(1.0), real(1.0), real(1.0)))
TOWARDS = wp.constant(4)
"""Cylinder on a plane: its axis must be turned round to point at the plane."""
UPRIGHT = wp.constant(8)
"""Cylinder on a plane: its discs are parallel to the plane."""


@wp.func
def cylinder_point(n: vec3, size: vec3, feature: int) -> vec3:
    """Point of a cylinder's rim near a plane: lowest (0), lowest of the far disc (1), the rest of a triangle (2, 3)."""
    axis = vec3(real(0.0), real(0.0), wp.where((feature & TOWARDS) != 0, real(-1.0), real(1.0)))
    down = vec3(real(1.0), real(0.0), real(0.0))
    if (feature & UPRIGHT) == 0:
        down = vec3(-n[0], -n[1], real(0.0)) / wp.sqrt(wp.max(n[0] * n[0] + n[1] * n[1], MIN_SQUARED))
    k = feature & 3
    radial = down
    if k >= 2:
        side = wp.cross(down, axis) * HALF_SQRT3
        radial = wp.where(k == 2, side, -side) - real(0.5) * down
    return radial * size[0] + axis * wp.where(k == 1, -size[1], size[1])


@wp.func
def cylinder_branch(n: vec3) -> int:
    """How a cylinder is turned towards a plane."""
    feature = int(0)
    if n[2] > real(0.0):
        feature = feature | TOWARDS
    if n[0] * n[0] + n[1] * n[1] < PARALLEL:
        feature = feature | UPRIGHT
    return feature


@wp.func
def named_point(kind: int, n: vec3, size: vec3, feature: int) -> vec3:
    """The point of a capsule (its ball's centre), cylinder or ellipsoid that a feature names; n is the plane's normal.
    Both in the geom's frame."""
    point = vec3()
    if kind == CAPSULE:
        point = vec3(real(0.0), real(0.0), wp.where(feature == 0, size[1], -size[1]))
    elif kind == CYLINDER:
        point = cylinder_point(n, size, feature)
    elif kind == ELLIPSOID:
        scaled = wp.cw_mul(size, n)
        point = -wp.cw_mul(size, scaled) / wp.sqrt(wp.max(wp.dot(scaled, scaled), MIN_SQUARED))
    return point


@wp.func
def ball_radius(kind: int, size: vec3) -> real:
    """Radius of the ball about a named point."""
    return wp.where(kind == SPHERE or kind == CAPSULE, size[0], real(0.0))


@wp.func
def plane_contact(origin: vec3, q1: quat, kind: int, p: vec3, q: quat, size: vec3, feature: int):
    """The plane's normal, signed distance and midpoint of the contact of a plane and another geom."""
    n = z_axis(q1)
    point = p
    if kind == BOX:
        point = p + rotate(q, corner(size, feature))
    elif kind != SPHERE:
        point = p + rotate(q, named_point(kind, rotate_back(q, n), size, feature))
    normal, distance, pos = against_plane(n, origin, point, ball_radius(kind, size))
    return normal, distance, pos


@wp.kernel(enable_backward=False)
def features(
    # In:
    s: Search,
    g: Geoms,
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the candidates that are pairs of a plane and another geom."""
    world, lane = wp.tid()
    for i in range(lane, s.own.shape[0], s.lanes):
        pair_number = chosen(world, i, s)
        if pair_number < 0:
            continue
        a = geom_of(pair_number, 0, s.pairs)
        b = geom_of(pair_number, 1, s.pairs)
        kind = g.kind[b]
        size = g.size[world, b]
        n = z_axis(g.quat[world, a])
        margin = s.detection[world, s.own[i]]
        height = wp.dot(g.pos[world, b] - g.pos[world, a], n)
        count = s.slot[i]
        last = count + slots_of(pair_number, s)
        if height <= margin + bounding_radius(kind, size):
            up = n
            if kind != SPHERE:
                up = rotate_back(g.quat[world, b], n)
            if kind == BOX:
                reach = wp.cw_mul(size, up)
                for k in range(8):
                    offset = wp.dot(reach, corner(ONES, k))
                    if height + offset <= margin and offset <= real(0.0) and count < last:
                        feature_out[world, count] = k
                        count = count + 1
            else:
                branch = int(0)
                if kind == CYLINDER:
                    branch = cylinder_branch(up)
                for k in range(branch, branch + last - count):
                    offset = wp.dot(up, named_point(kind, up, size, k)) - ball_radius(kind, size)
                    if height + offset <= margin:
                        feature_out[world, count] = k
                        count = count + 1
        for k in range(count, last):
            feature_out[world, k] = -1
