"""Tendons: their lengths, and how their lengths change with the dofs.

A fixed tendon's length is a weighted sum of joint positions. A spatial tendon is a chain of *segments*
between two sites, straight or around a sphere or cylinder. Each segment pulls on up to three bodies: the
*pull* on a body is the wrench of a unit tension, which is the gradient of the length by the body's motion.
The Jacobian is kept by its entries that can differ from zero, one row a tendon.
"""

import warp as wp

from ..._precision import quat, real, vec2, vec3, vec6
from ...math import quat_mul, quat_unit, rotate, spatial
from .wrap import direction, root, wrap


@wp.func
def site_point(
    site: int,
    site_frame: wp.array(dtype=int),
    site_pos: wp.array2d(dtype=vec3),
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    world: int,
) -> vec3:
    """Where a site is."""
    f = site_frame[site]
    return frame_pos[world, f] + rotate(frame_quat[world, f], site_pos[world, site])


@wp.kernel
def tendon_segments(
    # Structure:
    segment_site: wp.array2d(dtype=int),
    segment_geom: wp.array(dtype=int),
    segment_shape: wp.array(dtype=int),
    segment_side: wp.array(dtype=int),
    segment_pulley: wp.array(dtype=int),
    segment_origin: wp.array2d(dtype=int),
    site_frame: wp.array(dtype=int),
    geom_frame: wp.array(dtype=int),
    # Model:
    tendon_coef: wp.array2d(dtype=real),
    site_pos: wp.array2d(dtype=vec3),
    geom_pos: wp.array2d(dtype=vec3),
    geom_quat: wp.array2d(dtype=quat),
    geom_size: wp.array2d(dtype=vec3),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    # Out:
    length_out: wp.array2d(dtype=real),
    pull_out: wp.array3d(dtype=vec6),
):
    """Length of every segment, and its pulls on the bodies of the first site, the geom and the second site."""
    world, s = wp.tid()
    x = site_point(segment_site[s, 0], site_frame, site_pos, frame_pos, frame_quat, world)
    y = site_point(segment_site[s, 1], site_frame, site_pos, frame_pos, frame_quat, world)
    g = segment_geom[s]
    bends = int(0)
    p = x
    q = x
    arc = real(0.0)
    if g >= 0:
        f = geom_frame[g]
        centre = frame_pos[world, f] + rotate(frame_quat[world, f], geom_pos[world, g])
        turn = quat_mul(frame_quat[world, f], quat_unit(geom_quat[world, g]))
        side = vec3()
        if segment_side[s] >= 0:
            side = site_point(segment_side[s], site_frame, site_pos, frame_pos, frame_quat, world)
        sided = wp.where(segment_side[s] >= 0, int(1), int(0))
        bends, p, q, arc = wrap(segment_shape[s], x, y, centre, turn, geom_size[world, g][0], sided, side)
    arrive = direction(y - x)
    leave = arrive
    length = root(wp.dot(y - x, y - x))
    middle = vec6()
    if bends != 0:
        arrive = direction(p - x)
        leave = direction(y - q)
        length = root(wp.dot(p - x, p - x)) + arc + root(wp.dot(y - q, y - q))
        o = frame_pos[world, segment_origin[s, 1]]
        middle = spatial(wp.cross(p - o, arrive) - wp.cross(q - o, leave), arrive - leave)
    share = real(1.0)
    if segment_pulley[s] >= 0:
        share = real(1.0) / tendon_coef[world, segment_pulley[s]]
    length_out[world, s] = share * length
    pull_out[world, s, 0] = -share * spatial(wp.cross(x - frame_pos[world, segment_origin[s, 0]], arrive), arrive)
    pull_out[world, s, 1] = share * middle
    pull_out[world, s, 2] = share * spatial(wp.cross(y - frame_pos[world, segment_origin[s, 2]], leave), leave)


@wp.kernel
def tendon_lengths(
    # Structure:
    tendon_adr: wp.array(dtype=int),
    wrap_qpos: wp.array(dtype=int),
    tendon_segment: wp.array(dtype=int),
    # Model:
    tendon_coef: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    # In:
    segment_length: wp.array2d(dtype=real),
    # Out:
    length_out: wp.array2d(dtype=real),
):
    """Length of every tendon: the weighted sum of its joints' positions, or the sum of its segments."""
    world, t = wp.tid()
    length = real(0.0)
    for i in range(tendon_adr[t], tendon_adr[t + 1]):
        if wrap_qpos[i] >= 0:
            length += tendon_coef[world, i] * qpos[world, wrap_qpos[i]]
    for s in range(tendon_segment[t], tendon_segment[t + 1]):
        length += segment_length[world, s]
    length_out[world, t] = length


@wp.kernel
def tendon_jacobian(
    # Structure:
    entry_row: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    tendon_adr: wp.array(dtype=int),
    wrap_dof: wp.array(dtype=int),
    tendon_segment: wp.array(dtype=int),
    segment_body: wp.array2d(dtype=int),
    moves: wp.array2d(dtype=int),
    # Model:
    tendon_coef: wp.array2d(dtype=real),
    # In:
    pull: wp.array3d(dtype=vec6),
    axis: wp.array2d(dtype=vec6),
    # Out:
    jacobian_out: wp.array2d(dtype=real),
):
    """Entries d(length)/d(dof): the joint's coefficient, or the pulls on the bodies that the dof moves."""
    world, e = wp.tid()
    t = entry_row[e]
    d = entry_dof[e]
    slope = real(0.0)
    for i in range(tendon_adr[t], tendon_adr[t + 1]):
        if wrap_dof[i] == d:
            slope += tendon_coef[world, i]
    for s in range(tendon_segment[t], tendon_segment[t + 1]):
        for k in range(3):
            if moves[segment_body[s, k], d] != 0:
                slope += wp.dot(pull[world, s, k], axis[world, d])
    jacobian_out[world, e] = slope


@wp.kernel
def row_products(
    # Structure:
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # In:
    entry: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    # Out:
    product_out: wp.array2d(dtype=real),
):
    """Rows times rates of the dofs: how fast each length changes."""
    world, r = wp.tid()
    s = real(0.0)
    for e in range(row_adr[r], row_adr[r + 1]):
        s += entry[world, e] * rate[world, entry_dof[e]]
    product_out[world, r] = s


@wp.kernel
def dense_rows(
    # Structure:
    entry_row: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # In:
    entry: wp.array2d(dtype=real),
    # Out:
    dense_out: wp.array3d(dtype=real),
):
    """Rows with their zeros; the output is zero before."""
    world, e = wp.tid()
    dense_out[world, entry_row[e], entry_dof[e]] = entry[world, e]


@wp.func
def tendon_force(length: real, velocity: real, rest: vec2, stiffness: real, damping: real) -> real:
    """Spring outside the rest interval, and damper."""
    f = -damping * velocity
    if length > rest[1]:
        f += stiffness * (rest[1] - length)
    if length < rest[0]:
        f += stiffness * (rest[0] - length)
    return f


@wp.kernel(enable_backward=False)
def add_tendon_forces(
    # Structure:
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    spring: int,
    damper: int,
    # Model:
    tendon_stiffness: wp.array2d(dtype=real),
    tendon_damping: wp.array2d(dtype=real),
    tendon_lengthspring: wp.array2d(dtype=vec2),
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    jacobian: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """Generalised forces with those of the tendons added: J^T f."""
    world = wp.tid()
    for d in range(force.shape[1]):
        force_out[world, d] = force[world, d]
    for t in range(row_adr.shape[0] - 1):
        f = tendon_force(
            length[world, t],
            velocity[world, t],
            tendon_lengthspring[world, t],
            tendon_stiffness[world, t] * real(spring),
            tendon_damping[world, t] * real(damper),
        )
        for e in range(row_adr[t], row_adr[t + 1]):
            d = entry_dof[e]
            force_out[world, d] = force_out[world, d] + jacobian[world, e] * f


@wp.kernel
def tendon_power(
    # Structure:
    spring: int,
    damper: int,
    # Model:
    tendon_stiffness: wp.array2d(dtype=real),
    tendon_damping: wp.array2d(dtype=real),
    tendon_lengthspring: wp.array2d(dtype=vec2),
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the tendons' forces, negative as all that acts on the joints."""
    world, t = wp.tid()
    f = tendon_force(
        length[world, t],
        velocity[world, t],
        tendon_lengthspring[world, t],
        tendon_stiffness[world, t] * real(spring),
        tendon_damping[world, t] * real(damper),
    )
    power_out[world, t] = -f * trial[world, t]
