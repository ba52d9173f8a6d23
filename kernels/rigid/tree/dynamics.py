"""Newton-Euler dynamics of a tree of bodies.

Forward: the mass matrix M by composite inertias and the generalised bias force b by the recursive
Newton-Euler pass (Featherstone 2008, tables 6.2 and 5.1). Velocities are about the tree's origin, wrenches and centres
of mass about each body's own: seen from far away, a light wrist's lever has no digits left in float32.

Backward: the *virtual power* of the inertial and external loads. For virtual velocities l,
P = l . (M a + b - J^T f) = sum over bodies of (motion of the body by l) . (wrench on the body), so
that its derivatives are those of l . r, without forming r: one sweep outwards, write-once.
"""

import warp as wp

from ..._precision import mat33, motion, real, vec3, vec6, wrench
from ...math import lower, rotate, spatial
from ..bodies import Frames, Masses, Medium, centre, principal_axes
from ..forces.fluid import TINY, fluid_wrench


@wp.func
def newton_euler(vel: motion, acc: motion, com: vec3, axes: mat33, mass: real, inertia: vec3) -> tuple[vec3, vec3]:
    """Torque and force at the centre of mass that move a body: n = I al + w x I w, in principal axes, f = m a_c."""
    w = wp.spatial_top(vel)
    al = wp.spatial_top(acc)
    v_c = wp.spatial_bottom(vel) + wp.cross(w, com)
    a_c = wp.spatial_bottom(acc) + wp.cross(al, com) + wp.cross(w, v_c)
    spin = w * axes
    turn = wp.cw_mul(inertia, al * axes) + wp.cross(spin, wp.cw_mul(inertia, spin))
    return axes * turn, mass * a_c


@wp.func
def body_load(
    world: int,
    b: int,
    vel: motion,
    acc: motion,
    com: vec3,
    axes: mat33,
    bodies: Masses,
    medium: Medium,
    applied: vec6,
) -> tuple[vec3, vec3]:
    """Torque and force at the centre of mass that the joints must supply: inertia less external loads."""
    mass = bodies.mass[world, b]
    inertia = bodies.inertia[world, b]
    density = medium.density[world]
    viscosity = medium.viscosity[world]
    torque, force = newton_euler(vel, acc, com, axes, mass, inertia)
    torque -= vec3(applied[3], applied[4], applied[5])
    force += medium.gravity[world] * (mass * medium.gravcomp[world, b]) - vec3(applied[0], applied[1], applied[2])
    if medium.boxed[b] != 0 and mass > TINY and (density > real(0.0) or viscosity > real(0.0)):
        drag = fluid_wrench(vel, com, axes, mass, inertia, medium.wind[world], density, viscosity)
        torque -= wp.spatial_top(drag)
        force -= wp.spatial_bottom(drag)
    return torque, force


@wp.kernel(enable_backward=False)
def body_loads(
    # Structure:
    lanes: int,
    # Model:
    bodies: Masses,
    medium: Medium,
    # In:
    applied: wp.array2d(dtype=vec6),
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    # Out:
    load_out: wp.array2d(dtype=wrench),
):
    """Load of every body as a wrench about its own origin."""
    world, lane = wp.tid()
    for b in range(lane, bodies.frame.shape[0], lanes):
        f = bodies.frame[b]
        if b == 0:
            load_out[world, b] = wrench()
        else:
            lever = rotate(frames.quat[world, f], bodies.ipos[world, b])
            com = frames.pos[world, f] - frames.pos[world, bodies.origin[b]] + lever
            axes = principal_axes(world, b, bodies, frames)
            torque, force = body_load(
                world, b, frame_vel[world, f], frame_acc[world, f], com, axes, bodies, medium, applied[world, b]
            )
            load_out[world, b] = spatial(torque + wp.cross(lever, force), force)


@wp.func
def inertia_power(rate: motion, trial: motion, com: vec3, axes: mat33, mass: real, inertia: vec3) -> real:
    """A body's share of l . M a: motion by l times momentum by a."""
    x = wp.spatial_top(rate)
    y = wp.spatial_top(trial)
    turn = wp.dot(y * axes, wp.cw_mul(inertia, x * axes))
    u = wp.spatial_bottom(rate) + wp.cross(x, com)
    v = wp.spatial_bottom(trial) + wp.cross(y, com)
    return turn + mass * wp.dot(u, v)


@wp.kernel
def body_power(
    # Structure:
    lanes: int,
    slowed: int,
    # Model:
    bodies: Masses,
    medium: Medium,
    # In:
    applied: wp.array2d(dtype=vec6),
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    frame_trial: wp.array2d(dtype=motion),
    frame_change: wp.array2d(dtype=motion),
    frame_trial_change: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of every body's load; where damping slows the bodies also l2 . M (a2 - a), by a second trial l2."""
    world, lane = wp.tid()
    for b in range(lane, bodies.frame.shape[0], lanes):
        f = bodies.frame[b]
        if b > 0:
            com = centre(world, b, bodies, frames)
            axes = principal_axes(world, b, bodies, frames)
            torque, force = body_load(
                world, b, frame_vel[world, f], frame_acc[world, f], com, axes, bodies, medium, applied[world, b]
            )
            trial = frame_trial[world, f]
            w = wp.spatial_top(trial)
            v = wp.spatial_bottom(trial) + wp.cross(w, com)
            p = wp.dot(w, torque) + wp.dot(v, force)
            if slowed != 0:
                mass = bodies.mass[world, b]
                inertia = bodies.inertia[world, b]
                p += inertia_power(frame_change[world, f], frame_trial_change[world, f], com, axes, mass, inertia)
            power_out[world, b] = p


@wp.kernel
def body_inertia_power(
    # Structure:
    lanes: int,
    # Model:
    bodies: Masses,
    # In:
    frames: Frames,
    frame_rate: wp.array2d(dtype=motion),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Every body's share of l . M a."""
    world, lane = wp.tid()
    for b in range(lane, bodies.frame.shape[0], lanes):
        f = bodies.frame[b]
        if b > 0:
            com = centre(world, b, bodies, frames)
            axes = principal_axes(world, b, bodies, frames)
            mass = bodies.mass[world, b]
            inertia = bodies.inertia[world, b]
            power_out[world, b] = inertia_power(frame_rate[world, f], frame_trial[world, f], com, axes, mass, inertia)


@wp.kernel(enable_backward=False)
def project_loads(
    # Structure:
    body_parent: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    dof_body: wp.array(dtype=int),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    axis: wp.array2d(dtype=motion),
    load: wp.array2d(dtype=wrench),
    # Out:
    total_out: wp.array2d(dtype=wrench),
    force_out: wp.array2d(dtype=real),
):
    """Generalised force of the loads: each body passes its subtree's load to its parent, each dof takes its share.

    ``axis``: motion of each dof about its own body's origin.
    """
    world = wp.tid()
    n = body_parent.shape[0]
    for b in range(n):
        total_out[world, b] = load[world, b]
    for i in range(n - 1):
        b = n - 1 - i
        p = body_parent[b]
        if p > 0:
            force = wp.spatial_bottom(total_out[world, b])
            r = frame_pos[world, body_frame[b]] - frame_pos[world, body_frame[p]]
            total_out[world, p] = total_out[world, p] + spatial(
                wp.spatial_top(total_out[world, b]) + wp.cross(r, force), force
            )
    for d in range(dof_body.shape[0]):
        force_out[world, d] = wp.dot(axis[world, d], total_out[world, dof_body[d]])


@wp.func
def arm(r: vec3) -> mat33:
    """Inertia of a unit mass at r: |r|^2 1 - r r^T."""
    return wp.dot(r, r) * wp.identity(n=3, dtype=real) - wp.outer(r, r)


@wp.kernel(enable_backward=False)
def composite_inertia(
    # Structure:
    body_parent: wp.array(dtype=int),
    dof_body: wp.array(dtype=int),
    dof_parent: wp.array(dtype=int),
    # Model:
    bodies: Masses,
    dof_armature: wp.array2d(dtype=real),
    # In:
    frames: Frames,
    axis: wp.array2d(dtype=motion),
    # Out:
    mass_out: wp.array2d(dtype=real),
    com_out: wp.array2d(dtype=vec3),
    inertia_out: wp.array2d(dtype=mat33),
    matrix_out: wp.array2d(dtype=real),
):
    """The mass matrix, packed lower triangle: M_ij = s_j . (composite inertia beyond i) s_i, armature on the diagonal.

    A composite's inertia is kept about its own centre of mass, and that and ``axis`` about the body's own origin:
    about a point far away, the inertia of a light wrist would drown in that of its moment arm. Only entries of dofs
    on one branch are written: the others are zero.
    """
    world = wp.tid()
    n = body_parent.shape[0]
    for b in range(n):
        mass_out[world, b] = bodies.mass[world, b]
        com_out[world, b] = bodies.mass[world, b] * rotate(frames.quat[world, bodies.frame[b]], bodies.ipos[world, b])
    for i in range(n - 1):
        b = n - 1 - i
        p = body_parent[b]
        if p > 0:
            r = frames.pos[world, bodies.frame[b]] - frames.pos[world, bodies.frame[p]]
            mass_out[world, p] = mass_out[world, p] + mass_out[world, b]
            com_out[world, p] = com_out[world, p] + com_out[world, b] + mass_out[world, b] * r
    for b in range(n):
        f = bodies.frame[b]
        axes = principal_axes(world, b, bodies, frames)
        com_out[world, b] = com_out[world, b] / wp.max(mass_out[world, b], TINY)
        offset = rotate(frames.quat[world, f], bodies.ipos[world, b]) - com_out[world, b]
        own = axes * wp.diag(bodies.inertia[world, b]) * wp.transpose(axes)
        inertia_out[world, b] = own + bodies.mass[world, b] * arm(offset)
    for i in range(n - 1):
        b = n - 1 - i
        p = body_parent[b]
        if p > 0:
            r = frames.pos[world, bodies.frame[b]] - frames.pos[world, bodies.frame[p]]
            offset = com_out[world, b] + r - com_out[world, p]
            inertia_out[world, p] = inertia_out[world, p] + inertia_out[world, b] + mass_out[world, b] * arm(offset)
    for d in range(dof_body.shape[0]):
        b = dof_body[d]
        c = com_out[world, b]
        w = wp.spatial_top(axis[world, d])
        momentum = mass_out[world, b] * (wp.spatial_bottom(axis[world, d]) + wp.cross(w, c))
        spin = inertia_out[world, b] * w + wp.cross(c, momentum)
        j = d
        while j >= 0:
            p = dof_body[j]
            if p != b:  # about the next body's origin
                spin += wp.cross(frames.pos[world, bodies.frame[b]] - frames.pos[world, bodies.frame[p]], momentum)
                b = p
            matrix_out[world, lower(d, j)] = wp.dot(axis[world, j], spatial(spin, momentum))
            j = dof_parent[j]
        matrix_out[world, lower(d, d)] = matrix_out[world, lower(d, d)] + dof_armature[world, d]
