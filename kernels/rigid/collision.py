"""Contact detection and contact geometry.

Detection decides which contacts exist: the pair and its *feature* (the corner of a box). That
decision has no derivative. Distance, position and frame are then functions of the decision and the
poses, straight-line and differentiated.
"""

import warp as wp

from .._precision import mat33, quat, real, vec3
from ..math import quat_mul, quat_unit, rotate

PLANE = wp.constant(0)
SPHERE = wp.constant(2)
BOX = wp.constant(6)
MAX_CORNERS = wp.constant(4)
"""MuJoCo keeps at most four corners of a box on a plane."""

CONTACT_OVERFLOW = wp.constant(8)
CONSTRAINT_OVERFLOW = wp.constant(16)


@wp.kernel
def geom_poses(
    # Structure:
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    # Model:
    geom_pos: wp.array2d(dtype=vec3),
    geom_quat: wp.array2d(dtype=quat),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    # Out:
    pos_out: wp.array2d(dtype=vec3),
    quat_out: wp.array2d(dtype=quat),
):
    """Pose of every geom."""
    world, g = wp.tid()
    f = body_frame[geom_body[g]]
    pos_out[world, g] = frame_pos[world, f] + rotate(frame_quat[world, f], geom_pos[world, g])
    quat_out[world, g] = quat_mul(frame_quat[world, f], quat_unit(geom_quat[world, g]))


@wp.func
def plane_normal(q: quat) -> vec3:
    """A plane's normal is its z axis."""
    return rotate(q, vec3(real(0.0), real(0.0), real(1.0)))


@wp.func
def corner(size: vec3, feature: int) -> vec3:
    """The corner of a box that the three bits of the feature name."""
    x = wp.where((feature & 1) != 0, size[0], -size[0])
    y = wp.where((feature & 2) != 0, size[1], -size[1])
    z = wp.where((feature & 4) != 0, size[2], -size[2])
    return vec3(x, y, z)


@wp.func
def contact_frame(n: vec3) -> mat33:
    """Rows: the normal and two tangents, as MuJoCo's ``mju_makeFrame`` chooses them."""
    t = vec3(real(0.0), real(1.0), real(0.0))
    if n[1] >= real(0.5) or n[1] <= real(-0.5):
        t = vec3(real(0.0), real(0.0), real(1.0))
    t1 = wp.normalize(t - n * wp.dot(n, t))
    t2 = wp.cross(n, t1)
    return mat33(n[0], n[1], n[2], t1[0], t1[1], t1[2], t2[0], t2[1], t2[2])


@wp.kernel(enable_backward=False)
def detect(
    # Structure:
    pair: wp.array2d(dtype=int),
    pair_rows: wp.array(dtype=int),
    geom_type: wp.array(dtype=int),
    max_rows: int,
    # Model:
    geom_size: wp.array2d(dtype=vec3),
    pair_margin: wp.array2d(dtype=real),
    # In:
    geom_pos: wp.array2d(dtype=vec3),
    geom_quat: wp.array2d(dtype=quat),
    # Out:
    pair_out: wp.array2d(dtype=int),
    feature_out: wp.array2d(dtype=int),
    row_out: wp.array2d(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Contacts of every world, in the order of the pairs; what does not fit is dropped and reported."""
    world = wp.tid()
    capacity = pair_out.shape[1]
    count = int(0)
    rows = int(0)
    status = wp.uint32(0)
    for c in range(capacity):
        pair_out[world, c] = -1
        feature_out[world, c] = 0
        row_out[world, c] = -1
    for p in range(pair.shape[0]):
        a = pair[p, 0]
        b = pair[p, 1]
        n = plane_normal(geom_quat[world, a])
        height = wp.dot(geom_pos[world, b] - geom_pos[world, a], n)
        features = int(1)
        if geom_type[b] == BOX:
            features = int(8)
        found = int(0)
        for feature in range(features):
            offset = -geom_size[world, b][0]
            if geom_type[b] == BOX:
                offset = wp.dot(rotate(geom_quat[world, b], corner(geom_size[world, b], feature)), n)
            if height + offset <= pair_margin[world, p] and offset <= real(0.0) and found < MAX_CORNERS:
                found = found + 1
                if count >= capacity:
                    status = status | wp.uint32(CONTACT_OVERFLOW)
                elif rows + pair_rows[p] > max_rows:
                    status = status | wp.uint32(CONSTRAINT_OVERFLOW)
                else:
                    pair_out[world, count] = p
                    feature_out[world, count] = feature
                    row_out[world, count] = rows
                    count = count + 1
                    rows = rows + pair_rows[p]
    status_out[world] = status


@wp.kernel
def contact_geometry(
    # Structure:
    pair: wp.array2d(dtype=int),
    geom_type: wp.array(dtype=int),
    # Model:
    geom_size: wp.array2d(dtype=vec3),
    # In:
    contact_pair: wp.array2d(dtype=int),
    contact_feature: wp.array2d(dtype=int),
    geom_pos: wp.array2d(dtype=vec3),
    geom_quat: wp.array2d(dtype=quat),
    # Out:
    distance_out: wp.array2d(dtype=real),
    pos_out: wp.array2d(dtype=vec3),
    frame_out: wp.array2d(dtype=mat33),
):
    """Signed distance, midpoint and frame of every contact."""
    world, c = wp.tid()
    p = contact_pair[world, c]
    if p >= 0:
        a = pair[p, 0]
        b = pair[p, 1]
        n = plane_normal(geom_quat[world, a])
        nearest = geom_pos[world, b] - n * geom_size[world, b][0]
        if geom_type[b] == BOX:
            r = corner(geom_size[world, b], contact_feature[world, c])
            nearest = geom_pos[world, b] + rotate(geom_quat[world, b], r)
        distance = wp.dot(nearest - geom_pos[world, a], n)
        distance_out[world, c] = distance
        pos_out[world, c] = nearest - n * (real(0.5) * distance)
        frame_out[world, c] = contact_frame(n)


@wp.kernel(enable_backward=False)
def keep_contacts(
    # Structure:
    pair_rows: wp.array(dtype=int),
    # In:
    pair: wp.array2d(dtype=int),
    feature: wp.array2d(dtype=int),
    # Out:
    pair_out: wp.array2d(dtype=int),
    feature_out: wp.array2d(dtype=int),
    row_out: wp.array2d(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """A contact set that was found before."""
    world = wp.tid()
    rows = int(0)
    for c in range(pair.shape[1]):
        p = pair[world, c]
        pair_out[world, c] = p
        feature_out[world, c] = feature[world, c]
        row_out[world, c] = wp.where(p >= 0, rows, -1)
        if p >= 0:
            rows = rows + pair_rows[p]
    status_out[world] = wp.uint32(0)
