"""Contact detection and contact geometry.

Detection decides which contacts exist: the pair and its *feature*, the branch of the pair's geometry. That
decision has no derivative. Distance, position and frame are then functions of the decision and the
poses, straight-line and differentiated.

Every pair owns as many slots as it can make contacts. Detection fills each pair's slots from the first on, all
pairs at once; gathering then walks through the pairs of a world in order.
"""

import warp as wp

from ..._precision import mat33, quat, real, vec3, vec4
from ...math import quat_mul, quat_unit, rotate
from ..bodies import Frames
from .box_box import box_box
from .convex import convex_contact
from .hfield import height_contact
from .mesh import plane_vertex
from .pairs import PairList, geom_of, kind_of
from .plane import plane_contact
from .primitives import closed_form
from .shapes import BOX, CAPSULE, HFIELD, MESH, PLANE, along_surface, contact_frame, num_contacts, tangent_hint, z_axis
from .sphere_mesh import sphere_part

CONTACT_OVERFLOW = wp.constant(8)
CONSTRAINT_OVERFLOW = wp.constant(16)


@wp.struct
class Features:
    """What the searches found, one array of slots for each."""

    plane: wp.array2d(dtype=int)
    primitives: wp.array2d(dtype=int)
    box_box: wp.array2d(dtype=int)
    mesh: wp.array2d(dtype=int)
    sphere_mesh: wp.array2d(dtype=int)
    convex: wp.array2d(dtype=int)
    hfield: wp.array2d(dtype=int)


@wp.struct
class GeomList:
    """What does not change of all geoms."""

    type: wp.array(dtype=int)
    frame: wp.array(dtype=int)  # of the body that carries it
    number: wp.array2d(dtype=int)  # how the parts of its hull are numbered
    grid: wp.array2d(dtype=int)  # of a height field


@wp.struct
class Parts:
    """Vertices, edges and faces of all hulls; see ``fphys.rigid.collide.collision``."""

    point: wp.array(dtype=vec3)
    direction: wp.array(dtype=vec3)
    kind: wp.array(dtype=int)
    corner: wp.array2d(dtype=vec3)


@wp.func
def geom_place(frame_pos: vec3, frame_quat: quat, geom_pos: vec3) -> vec3:
    """Position of a geom that is fixed in a frame."""
    return frame_pos + rotate(frame_quat, geom_pos)


@wp.func
def geom_turn(frame_quat: quat, geom_quat: quat) -> quat:
    """Orientation of a geom that is fixed in a frame."""
    return quat_mul(frame_quat, quat_unit(geom_quat))


@wp.kernel
def geom_poses(
    # Structure:
    lanes: int,
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
    world, lane = wp.tid()
    for g in range(lane, geom_body.shape[0], lanes):
        f = body_frame[geom_body[g]]
        pos_out[world, g] = geom_place(frame_pos[world, f], frame_quat[world, f], geom_pos[world, g])
        quat_out[world, g] = geom_turn(frame_quat[world, f], geom_quat[world, g])


@wp.kernel(enable_backward=False)
def gather_contacts(
    # Structure:
    pairs: PairList,
    slot: wp.array2d(dtype=int),
    max_rows: int,
    # In:
    candidate: wp.array2d(dtype=int),
    features: Features,
    # Out:
    pair_out: wp.array2d(dtype=int),
    feature_out: wp.array2d(dtype=int),
    row_out: wp.array2d(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Contacts of every world, in the order of the pairs; what does not fit is dropped and reported.

    ``slot`` is the first slot of each candidate; where its source is not known beforehand, for each source.
    """
    world = wp.tid()
    capacity = pair_out.shape[1]
    count = int(0)
    rows = int(0)
    status = wp.uint32(0)
    for i in range(candidate.shape[1]):
        p = candidate[world, i]
        if p < 0:
            break
        kind = kind_of(p, pairs)
        source = pairs.source[kind]
        first = slot[wp.min(source, slot.shape[0] - 1), i]
        own = pairs.rows[kind]
        for k in range(first, first + pairs.slots[kind]):
            f = int(-1)
            if source == 0:
                f = features.plane[world, k]
            elif source == 1:
                f = features.primitives[world, k]
            elif source == 2:
                f = features.box_box[world, k]
            elif source == 3:
                f = features.mesh[world, k]
            elif source == 4:
                f = features.sphere_mesh[world, k]
            elif source == 5:
                f = features.convex[world, k]
            else:
                f = features.hfield[world, k]
            if f < 0:
                break
            if count >= capacity:
                status = status | wp.uint32(CONTACT_OVERFLOW)
            elif rows + own > max_rows:
                status = status | wp.uint32(CONSTRAINT_OVERFLOW)
            else:
                pair_out[world, count] = p
                feature_out[world, count] = f
                row_out[world, count] = rows
                count = count + 1
                rows = rows + own
    for c in range(count, capacity):
        pair_out[world, c] = -1
        feature_out[world, c] = 0
        row_out[world, c] = -1
    status_out[world] = status


@wp.kernel
def contact_geometry(
    # Structure:
    lanes: int,
    pairs: PairList,
    geoms: GeomList,
    parts: Parts,
    # Model:
    geom_pos: wp.array2d(dtype=vec3),
    geom_quat: wp.array2d(dtype=quat),
    geom_size: wp.array2d(dtype=vec3),
    hfield_size: wp.array2d(dtype=vec4),
    hfield_data: wp.array2d(dtype=real),
    # In:
    contact_pair: wp.array2d(dtype=int),
    contact_feature: wp.array2d(dtype=int),
    frames: Frames,
    # Out:
    distance_out: wp.array2d(dtype=real),
    pos_out: wp.array2d(dtype=vec3),
    frame_out: wp.array2d(dtype=mat33),
):
    """Signed distance, midpoint and frame of every contact."""
    world, lane = wp.tid()
    for c in range(lane, num_contacts(world, contact_pair), lanes):
        p = contact_pair[world, c]
        if p >= 0:
            a = geom_of(p, 0, pairs)
            b = geom_of(p, 1, pairs)
            f1 = geoms.frame[a]
            f2 = geoms.frame[b]
            q1 = geom_turn(frames.quat[world, f1], geom_quat[world, a])
            q2 = geom_turn(frames.quat[world, f2], geom_quat[world, b])
            p1 = geom_place(frames.pos[world, f1], frames.quat[world, f1], geom_pos[world, a])
            p2 = geom_place(frames.pos[world, f2], frames.quat[world, f2], geom_pos[world, b])
            s1 = geom_size[world, a]
            s2 = geom_size[world, b]
            f = contact_feature[world, c]
            if pairs.source[kind_of(p, pairs)] == 5:
                n, distance, x = convex_contact(
                    geoms.type[a], p1, q1, s1, a,
                    geoms.type[b], p2, q2, s2, b,
                    f, geoms.number, parts.point, parts.direction, parts.kind, parts.corner,
                )  # fmt: skip
            elif geoms.type[a] == HFIELD:
                grid = wp.vec4i(geoms.grid[a, 0], geoms.grid[a, 1], geoms.grid[a, 2], geoms.grid[a, 3])
                n, distance, x = height_contact(
                    p1, q1, grid, hfield_size[world, grid[0]], hfield_data, world,
                    geoms.type[b], p2, q2, s2, b, f, geoms.number, parts.point, parts.direction, parts.kind,
                )  # fmt: skip
            elif geoms.type[b] == MESH:
                if geoms.type[a] == PLANE:
                    n, distance, x = plane_vertex(p1, q1, p2, q2, parts.point[f])
                else:
                    n, distance, x = sphere_part(p1, s1[0], p2, q2, parts.point[f], parts.direction[f], parts.kind[f])
            elif geoms.type[a] == PLANE:
                n, distance, x = plane_contact(p1, q1, geoms.type[b], p2, q2, s2, f)
            elif geoms.type[a] == BOX:
                n, distance, x = box_box(p1, q1, s1, p2, q2, s2, f)
            else:
                n, distance, x = closed_form(geoms.type[a], geoms.type[b], p1, q1, s1, p2, q2, s2, f)
            hint = tangent_hint(n)
            if geoms.type[a] == PLANE and geoms.type[b] == CAPSULE:
                hint = along_surface(n, z_axis(q2))
            distance_out[world, c] = distance
            pos_out[world, c] = x
            frame_out[world, c] = contact_frame(n, hint)


@wp.kernel(enable_backward=False)
def keep_contacts(
    # Structure:
    pairs: PairList,
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
            rows = rows + pairs.rows[kind_of(p, pairs)]
    status_out[world] = wp.uint32(0)
