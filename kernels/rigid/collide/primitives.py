"""Contacts of spheres, capsules, cylinders and boxes that have a closed form.

Every kind has two halves. *Candidates* look at the poses and name features, the branches of the pair's
geometry: which end, corner, face, edge. *Geometry* is the smooth function of poses and sizes that a feature
stands for; :func:`closed_form` gathers them all. Which features exist, and where their contacts lie, is MuJoCo's.
"""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import rotate_back, unit
from .capsule_box import capsule_box_candidates, capsule_box_parameter
from .pairs import geom_of
from .search import Geoms, Search, chosen, slots_of
from .shapes import (
    BOX,
    CAPSULE,
    CYLINDER,
    MIN_SQUARED,
    NONE,
    SPHERE,
    against_plane,
    bounding_radius,
    end,
    two_balls,
    z_axis,
)
from .sphere_box import sphere_box, sphere_box_feature

SIDE_BY_SIDE = wp.constant(real(1.0e-8))
"""Squared sine below which two capsules touch at two points."""


@wp.func
def clamped_end(x: real, limit: real) -> int:
    """0 where x lies within the limits, 1 above them, 2 below."""
    if x > limit:
        return 1
    if x < -limit:
        return 2
    return 0


@wp.func
def coincident_normal(q1: quat, q2: quat) -> vec3:
    """A normal for two centres in one place: perpendicular to both z axes."""
    n = wp.cross(z_axis(q1), z_axis(q2))
    s = wp.dot(n, n)
    if s < MIN_SQUARED:
        return unit(0)
    return n / wp.sqrt(s)


@wp.func
def sphere_capsule_point(p1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int) -> vec3:
    """Nearest point of a capsule's segment: within it (0) or one of its ends."""
    axis = z_axis(q2)
    x = end(feature) * size2[1]
    if feature == 0:
        x = wp.dot(axis, p1 - p2)
    return p2 + axis * x


@wp.func
def sphere_cylinder(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int):
    """Sphere and cylinder: its side (0), its discs (1, 2) or their rims (3, 4)."""
    axis = z_axis(q2)
    r = p1 - p2
    x = wp.dot(axis, r)
    radial = r - axis * x
    up = wp.where(feature % 2 == 1, real(1.0), real(-1.0))
    top = p2 + axis * (up * size2[1])
    point = p2 + axis * x
    radius = size2[0]
    if feature >= 3:
        point = top + radial * (size2[0] / wp.sqrt(wp.max(wp.dot(radial, radial), MIN_SQUARED)))
        radius = real(0.0)
    normal, distance, pos = two_balls(p1, size1[0], point, radius, coincident_normal(q1, q2))
    if feature == 1 or feature == 2:
        outward, distance, pos = against_plane(axis * up, top, p1, size1[0])
        normal = -outward
    return normal, distance, pos


@wp.func
def sphere_cylinder_feature(p1: vec3, p2: vec3, q2: quat, size2: vec3) -> int:
    """The part of a cylinder nearest to a sphere."""
    axis = z_axis(q2)
    r = p1 - p2
    x = wp.dot(axis, r)
    radial = r - axis * x
    inner = wp.dot(radial, radial)
    side = wp.abs(x) < size2[1]
    cap = inner < size2[0] * size2[0]
    below = wp.where(x > real(0.0), 0, 1)
    if side and cap:
        side = size2[1] - wp.abs(x) >= size2[0] - wp.sqrt(inner)
    if side:
        return 0
    if cap:
        return 1 + below
    return 3 + below


@wp.func
def capsule_capsule(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int):
    """Two capsules: the nearest point of each segment is within (0) or an end (1, 2); feature = first + 3 second."""
    a1 = z_axis(q1) * size1[1]
    a2 = z_axis(q2) * size2[1]
    r = p1 - p2
    aa = wp.max(wp.dot(a1, a1), MIN_SQUARED)
    ab = wp.dot(a1, a2)
    bb = wp.max(wp.dot(a2, a2), MIN_SQUARED)
    u = -wp.dot(a1, r)
    v = wp.dot(a2, r)
    m1 = feature % 3
    m2 = feature // 3
    x1 = end(m1)
    x2 = end(m2)
    if m1 == 0 and m2 == 0:
        cross = wp.cross(a1, a2)
        det = wp.max(wp.dot(cross, cross), MIN_SQUARED)
        x1 = wp.dot(wp.cross(a2, r), cross) / det
        x2 = wp.dot(wp.cross(a1, r), cross) / det
    elif m1 == 0:
        x1 = (u + ab * end(m2)) / aa
    elif m2 == 0:
        x2 = (v + ab * end(m1)) / bb
    normal, distance, pos = two_balls(p1 + a1 * x1, size1[0], p2 + a2 * x2, size2[0], coincident_normal(q1, q2))
    return normal, distance, pos


@wp.func
def capsule_capsule_candidates(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3) -> wp.vec4i:
    """The nearest points of two segments; of parallel segments, both ends of the stretch along which they overlap."""
    a1 = z_axis(q1) * size1[1]
    a2 = z_axis(q2) * size2[1]
    r = p1 - p2
    aa = wp.dot(a1, a1)
    ab = wp.dot(a1, a2)
    bb = wp.dot(a2, a2)
    u = -wp.dot(a1, r)
    v = wp.dot(a2, r)
    one = real(1.0)
    cross = wp.cross(a1, a2)
    det = wp.dot(cross, cross)
    if det < SIDE_BY_SIDE * aa * bb:
        found = NONE
        for k in range(2):
            m2 = 2 - k
            m1 = clamped_end((u + ab * end(m2)) / aa, one)
            if m1 != 0:
                m2 = clamped_end((v + ab * end(m1)) / bb, one)
            found[k] = m1 + 3 * m2
        return found
    m1 = clamped_end(wp.dot(wp.cross(a2, r), cross) / det, one)
    x2 = wp.dot(wp.cross(a1, r), cross) / det
    if m1 != 0:
        x2 = (v + ab * end(m1)) / bb
    m2 = clamped_end(x2, one)
    if m2 != 0:
        m1 = clamped_end((u + ab * end(m2)) / aa, one)
    return wp.vec4i(m1 + 3 * m2, -1, -1, -1)


@wp.func
def closed_form(type1: int, type2: int, p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int):
    """Normal from the first geom to the second, signed distance and midpoint of the contact that a feature names."""
    normal = vec3()
    distance = real(0.0)
    pos = vec3()
    if type1 == SPHERE:
        if type2 == SPHERE:
            normal, distance, pos = two_balls(p1, size1[0], p2, size2[0], coincident_normal(q1, q2))
        elif type2 == CAPSULE:
            point = sphere_capsule_point(p1, p2, q2, size2, feature)
            normal, distance, pos = two_balls(p1, size1[0], point, size2[0], coincident_normal(q1, q2))
        elif type2 == CYLINDER:
            normal, distance, pos = sphere_cylinder(p1, q1, size1, p2, q2, size2, feature)
        elif type2 == BOX:
            normal, distance, pos = sphere_box(p1, size1[0], p2, q2, size2, feature)
    elif type1 == CAPSULE:
        if type2 == CAPSULE:
            normal, distance, pos = capsule_capsule(p1, q1, size1, p2, q2, size2, feature)
        elif type2 == BOX:
            half = z_axis(q1) * size1[1]
            t = capsule_box_parameter(rotate_back(q2, p1 - p2), rotate_back(q2, half), size2, feature // 64)
            normal, distance, pos = sphere_box(p1 + half * t, size1[0], p2, q2, size2, feature % 64)
    return normal, distance, pos


@wp.func
def candidates(
    type1: int, type2: int, p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, margin: real
) -> wp.vec4i:
    """Features that two geoms may touch with, best first, -1 after the last."""
    found = wp.vec4i(0, -1, -1, -1)
    if type1 == SPHERE:
        if type2 == CAPSULE:
            found[0] = clamped_end(wp.dot(z_axis(q2), p1 - p2), size2[1])
        elif type2 == CYLINDER:
            found[0] = sphere_cylinder_feature(p1, p2, q2, size2)
        elif type2 == BOX:
            found[0] = sphere_box_feature(rotate_back(q2, p1 - p2), size2)
    elif type1 == CAPSULE:
        if type2 == CAPSULE:
            found = capsule_capsule_candidates(p1, q1, size1, p2, q2, size2)
        elif type2 == BOX:
            half = rotate_back(q2, z_axis(q1) * size1[1])
            found = capsule_box_candidates(rotate_back(q2, p1 - p2), half, size1, size2, margin)
    return found


@wp.func
def near(type1: int, type2: int, p1: vec3, size1: vec3, p2: vec3, size2: vec3, margin: real) -> bool:
    """Whether the balls about two geoms come within the margin."""
    reach = bounding_radius(type1, size1) + bounding_radius(type2, size2) + margin
    r = p2 - p1
    return wp.dot(r, r) <= reach * reach


@wp.kernel(enable_backward=False)
def features(
    # In:
    s: Search,
    g: Geoms,
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the candidates that are pairs with a closed form."""
    world, lane = wp.tid()
    for i in range(lane, s.own.shape[0], s.lanes):
        pair_number = chosen(world, i, s)
        if pair_number < 0:
            continue
        a = geom_of(pair_number, 0, s.pairs)
        b = geom_of(pair_number, 1, s.pairs)
        p1 = g.pos[world, a]
        s1 = g.size[world, a]
        p2 = g.pos[world, b]
        s2 = g.size[world, b]
        margin = s.detection[world, s.own[i]]
        count = s.slot[i]
        last = count + slots_of(pair_number, s)
        if near(g.kind[a], g.kind[b], p1, s1, p2, s2, margin):
            q1 = g.quat[world, a]
            q2 = g.quat[world, b]
            found = candidates(g.kind[a], g.kind[b], p1, q1, s1, p2, q2, s2, margin)
            for k in range(4):
                if found[k] >= 0 and count < last:
                    _n, distance, _x = closed_form(g.kind[a], g.kind[b], p1, q1, s1, p2, q2, s2, found[k])
                    if distance <= margin:
                        feature_out[world, count] = found[k]
                        count = count + 1
        for k in range(count, last):
            feature_out[world, k] = -1
