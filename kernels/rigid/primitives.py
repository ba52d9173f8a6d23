"""Contacts of pairs of geoms that have a closed form.

Every kind has two halves. *Candidates* look at the poses and name features, the branches of the pair's
geometry: which end, corner, face, edge. *Geometry* is the smooth function of poses and sizes that a feature
stands for; :func:`closed_form` gathers them all. Which features exist, and where their contacts lie, is MuJoCo's.
"""

import warp as wp

from .._precision import quat, real, vec3
from ..math import rotate, rotate_back, unit
from .capsule_box import capsule_box_candidates, capsule_box_parameter
from .shapes import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MIN_SQUARED,
    NONE,
    PARALLEL,
    PLANE,
    SPHERE,
    against_plane,
    corner,
    end,
    two_balls,
    x_axis,
    z_axis,
)
from .sphere_box import sphere_box, sphere_box_feature

SIDE_BY_SIDE = wp.constant(real(1.0e-8))
"""Squared sine below which two capsules touch at two points."""
HALF_SQRT3 = wp.constant(real(0.8660254037844386))
TOWARDS = wp.constant(4)
"""Cylinder on a plane: its axis must be turned round to point at the plane."""
UPRIGHT = wp.constant(8)
"""Cylinder on a plane: its discs are parallel to the plane."""


@wp.func
def cylinder_point(n: vec3, p: vec3, q: quat, size: vec3, feature: int) -> vec3:
    """Point of a cylinder's rim near a plane: lowest (0), lowest of the far disc (1), the rest of a triangle (2, 3)."""
    axis = z_axis(q)
    if (feature & TOWARDS) != 0:
        axis = -axis
    down = x_axis(q)
    if (feature & UPRIGHT) == 0:
        slope = wp.cross(axis, wp.cross(axis, n))
        down = slope / wp.sqrt(wp.max(wp.dot(slope, slope), MIN_SQUARED))
    side = wp.cross(down, axis) * HALF_SQRT3
    k = feature & 3
    radial = down
    if k >= 2:
        radial = wp.where(k == 2, side, -side) - real(0.5) * down
    return p + radial * size[0] + axis * wp.where(k == 1, -size[1], size[1])


@wp.func
def cylinder_branch(n: vec3, q: quat) -> int:
    """How a cylinder is turned towards a plane."""
    axis = z_axis(q)
    slope = wp.cross(axis, wp.cross(axis, n))
    feature = int(0)
    if wp.dot(n, axis) > real(0.0):
        feature = feature | TOWARDS
    if wp.dot(slope, slope) < PARALLEL:
        feature = feature | UPRIGHT
    return feature


@wp.func
def ellipsoid_point(n: vec3, p: vec3, q: quat, size: vec3) -> vec3:
    """The point of an ellipsoid that lies farthest against a direction."""
    scaled = wp.cw_mul(size, rotate_back(q, n))
    return p - rotate(q, wp.cw_mul(size, scaled)) / wp.sqrt(wp.max(wp.dot(scaled, scaled), MIN_SQUARED))


@wp.func
def plane_contact(n: vec3, origin: vec3, type2: int, p: vec3, q: quat, size: vec3, feature: int):
    """A plane and another geom: the point of the other that a feature names."""
    point = p
    radius = real(0.0)
    if type2 == SPHERE:
        radius = size[0]
    elif type2 == CAPSULE:
        radius = size[0]
        point = p + z_axis(q) * wp.where(feature == 0, size[1], -size[1])
    elif type2 == BOX:
        point = p + rotate(q, corner(size, feature))
    elif type2 == CYLINDER:
        point = cylinder_point(n, p, q, size, feature)
    elif type2 == ELLIPSOID:
        point = ellipsoid_point(n, p, q, size)
    normal, distance, pos = against_plane(n, origin, point, radius)
    return normal, distance, pos


@wp.func
def box_on_plane(n: vec3, height: real, q: quat, size: vec3, margin: real) -> wp.vec4i:
    """The first four corners of a box on the plane's side of its centre, and within the margin."""
    found = NONE
    count = int(0)
    for i in range(8):
        offset = wp.dot(rotate(q, corner(size, i)), n)
        if height + offset <= margin and offset <= real(0.0) and count < 4:
            found[count] = i
            count = count + 1
    return found


@wp.func
def plane_candidates(n: vec3, origin: vec3, type2: int, p: vec3, q: quat, size: vec3, margin: real) -> wp.vec4i:
    """Features that a plane and another geom may touch with."""
    found = wp.vec4i(0, -1, -1, -1)
    if type2 == CAPSULE:
        found = wp.vec4i(0, 1, -1, -1)
    elif type2 == CYLINDER:
        branch = cylinder_branch(n, q)
        found = wp.vec4i(branch, branch + 1, branch + 2, branch + 3)
    elif type2 == BOX:
        found = box_on_plane(n, wp.dot(p - origin, n), q, size, margin)
    return found


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
    """Two capsules: on each segment the nearest point lies within (0) or at an end (1, 2): feature = first + 3 second."""
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
    if type1 == PLANE:
        normal, distance, pos = plane_contact(z_axis(q1), p1, type2, p2, q2, size2, feature)
    elif type1 == SPHERE:
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
    if type1 == PLANE:
        found = plane_candidates(z_axis(q1), p1, type2, p2, q2, size2, margin)
    elif type1 == SPHERE:
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
