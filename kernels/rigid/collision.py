"""Contact detection and contact geometry.

Detection decides which contacts exist: the pair and its *feature*, the branch of the pair's geometry. That
decision has no derivative. Distance, position and frame are then functions of the decision and the
poses, straight-line and differentiated.

Every pair owns as many slots as it can make contacts. Detection fills each pair's slots from the first on, all
pairs at once; gathering then walks through the pairs of a world in order.
"""

import warp as wp

from .._precision import mat33, quat, real, vec3
from ..math import quat_mul, quat_unit, rotate
from .box_box import box_box
from .primitives import candidates, closed_form
from .shapes import BOX, CAPSULE, PLANE, aligned_frame, bounding_radius, contact_frame, z_axis

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
def near(type1: int, type2: int, p1: vec3, q1: quat, size1: vec3, p2: vec3, size2: vec3, margin: real) -> bool:
    """Whether the balls about two geoms, or a plane and a ball, come within the margin."""
    reach = bounding_radius(type2, size2) + margin
    r = p2 - p1
    if type1 == PLANE:
        return wp.dot(r, z_axis(q1)) <= reach
    reach = reach + bounding_radius(type1, size1)
    return wp.dot(r, r) <= reach * reach


@wp.kernel(enable_backward=False)
def closed_form_features(
    # Structure:
    pair: wp.array2d(dtype=int),
    own: wp.array(dtype=int),
    slot: wp.array(dtype=int),
    geom_type: wp.array(dtype=int),
    # Model:
    geom_size: wp.array2d(dtype=vec3),
    detection: wp.array2d(dtype=real),
    # In:
    geom_pos: wp.array2d(dtype=vec3),
    geom_quat: wp.array2d(dtype=quat),
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the pairs ``own`` that have a closed form, in the slots ``slot[i]:slot[i + 1]`` of each."""
    world, i = wp.tid()
    a = pair[own[i], 0]
    b = pair[own[i], 1]
    p1 = geom_pos[world, a]
    q1 = geom_quat[world, a]
    s1 = geom_size[world, a]
    p2 = geom_pos[world, b]
    s2 = geom_size[world, b]
    margin = detection[world, own[i]]
    count = slot[i]
    last = slot[i + 1]
    if near(geom_type[a], geom_type[b], p1, q1, s1, p2, s2, margin):
        q2 = geom_quat[world, b]
        found = candidates(geom_type[a], geom_type[b], p1, q1, s1, p2, q2, s2, margin)
        for k in range(4):
            if found[k] >= 0 and count < last:
                n, distance, x = closed_form(geom_type[a], geom_type[b], p1, q1, s1, p2, q2, s2, found[k])
                if distance <= margin:
                    feature_out[world, count] = found[k]
                    count = count + 1
    for k in range(count, last):
        feature_out[world, k] = -1


@wp.kernel(enable_backward=False)
def gather_contacts(
    # Structure:
    pair_source: wp.array(dtype=int),
    pair_slot: wp.array(dtype=int),
    pair_slots: wp.array(dtype=int),
    pair_rows: wp.array(dtype=int),
    max_rows: int,
    # In:
    closed_form_feature: wp.array2d(dtype=int),
    box_box_feature: wp.array2d(dtype=int),
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
    for p in range(pair_slot.shape[0]):
        for k in range(pair_slots[p]):
            f = int(-1)
            if pair_source[p] == 0:
                f = closed_form_feature[world, pair_slot[p] + k]
            else:
                f = box_box_feature[world, pair_slot[p] + k]
            if f < 0:
                break
            if count >= capacity:
                status = status | wp.uint32(CONTACT_OVERFLOW)
            elif rows + pair_rows[p] > max_rows:
                status = status | wp.uint32(CONSTRAINT_OVERFLOW)
            else:
                pair_out[world, count] = p
                feature_out[world, count] = f
                row_out[world, count] = rows
                count = count + 1
                rows = rows + pair_rows[p]
    for c in range(count, capacity):
        pair_out[world, c] = -1
        feature_out[world, c] = 0
        row_out[world, c] = -1
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
        q1 = geom_quat[world, a]
        q2 = geom_quat[world, b]
        p1 = geom_pos[world, a]
        p2 = geom_pos[world, b]
        s1 = geom_size[world, a]
        s2 = geom_size[world, b]
        if geom_type[a] == BOX:
            n, distance, x = box_box(p1, q1, s1, p2, q2, s2, contact_feature[world, c])
        else:
            n, distance, x = closed_form(geom_type[a], geom_type[b], p1, q1, s1, p2, q2, s2, contact_feature[world, c])
        frame = contact_frame(n)
        if geom_type[a] == PLANE and geom_type[b] == CAPSULE:
            frame = aligned_frame(n, z_axis(q2))
        distance_out[world, c] = distance
        pos_out[world, c] = x
        frame_out[world, c] = frame


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
