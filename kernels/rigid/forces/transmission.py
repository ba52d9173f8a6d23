"""Transmissions of actuators: how their lengths change with the dofs.

A *moment* is the gradient of an actuator's length by the dofs. Moments are kept by their entries that can
differ from zero, one row an actuator.
"""

import warp as wp

from ..._precision import quat, real, vec3, vec6
from ...math import quat_conj, quat_log, quat_mul, quat_unit, rotate, rotate_back, spatial, unit
from ..tree.kinematics import BALL, FREE
from .forces import quat_at
from .tendon import site_point

SLIDER_CRANK = wp.constant(2)
TENDON = wp.constant(3)
BODY = wp.constant(5)


@wp.func
def joint_gear(joint_type: int, in_parent: int, gear: vec6, qpos: wp.array2d(dtype=real), world: int, a: int) -> vec6:
    """How much each dof of a joint moves an actuator that is attached to it."""
    out = gear
    if in_parent != 0:
        if joint_type == BALL:
            r = rotate_back(quat_at(qpos, world, a), vec3(gear[0], gear[1], gear[2]))
            out = vec6(r[0], r[1], r[2], real(0.0), real(0.0), real(0.0))
        elif joint_type == FREE:
            r = rotate_back(quat_at(qpos, world, a + 3), vec3(gear[3], gear[4], gear[5]))
            out = vec6(gear[0], gear[1], gear[2], r[0], r[1], r[2])
    return out


@wp.func
def joint_length(joint_type: int, gear: vec6, qpos: wp.array2d(dtype=real), world: int, a: int) -> real:
    """Length of an actuator attached to a joint; a free joint has none."""
    length = real(0.0)
    if joint_type == BALL:
        r = quat_log(quat_at(qpos, world, a))
        length = gear[0] * r[0] + gear[1] * r[1] + gear[2] * r[2]
    elif joint_type != FREE:
        length = gear[0] * qpos[world, a]
    return length


@wp.func
def site_turn(
    site: int,
    site_frame: wp.array(dtype=int),
    site_quat: wp.array2d(dtype=quat),
    frame_quat: wp.array2d(dtype=quat),
    world: int,
) -> quat:
    """How a site is turned."""
    return quat_mul(frame_quat[world, site_frame[site]], quat_unit(site_quat[world, site]))


@wp.func
def crank_root(along: real, rod: real, v: vec3) -> real:
    """The rod's part along the slider, or 0 where the rod does not reach."""
    out = real(0.0)
    d = along * along + rod * rod - wp.dot(v, v)
    if d > real(0.0):
        out = wp.sqrt(d)
    return out


@wp.kernel
def site_transmissions(
    # Structure:
    actuator: wp.array(dtype=int),
    transmission: wp.array(dtype=int),
    site: wp.array(dtype=int),
    reference: wp.array(dtype=int),
    origin: wp.array2d(dtype=int),
    site_frame: wp.array(dtype=int),
    # Model:
    site_pos: wp.array2d(dtype=vec3),
    site_quat: wp.array2d(dtype=quat),
    actuator_gear: wp.array2d(dtype=vec6),
    cranklength: wp.array2d(dtype=real),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    # Out:
    length_out: wp.array2d(dtype=real),
    pull_out: wp.array3d(dtype=vec6),
):
    """Length, and pulls on the bodies of the site and the reference site, of actuators that act on sites.

    Relative to a reference site, the length is the gear times position and rotation vector in its frame, and the
    moment is MuJoCo's: that of the relative motion, in which the turning of the frame itself has no part.
    """
    world, k = wp.tid()
    i = actuator[k]
    gear = actuator_gear[world, i]
    shift = vec3(gear[0], gear[1], gear[2])
    spin = vec3(gear[3], gear[4], gear[5])
    x = site_point(site[i], site_frame, site_pos, frame_pos, frame_quat, world)
    turn = site_turn(site[i], site_frame, site_quat, frame_quat, world)
    length = real(0.0)
    force = rotate(turn, shift)
    torque = rotate(turn, spin)
    counter = vec6()
    if reference[i] >= 0:
        y = site_point(reference[i], site_frame, site_pos, frame_pos, frame_quat, world)
        base = site_turn(reference[i], site_frame, site_quat, frame_quat, world)
        twist = vec3()
        if transmission[i] == SLIDER_CRANK:
            axis = rotate(base, unit(2))
            v = x - y
            along = wp.dot(v, axis)
            s = crank_root(along, cranklength[world, i], v)
            length = gear[0] * (along - s)
            force = gear[0] * axis
            twist = gear[0] * wp.cross(axis, v)
            if s > real(0.0):
                force = gear[0] * (axis * (real(1.0) - along / s) + v / s)
                twist = gear[0] * (real(1.0) - along / s) * wp.cross(axis, v)
            torque = vec3()
        else:
            force = rotate(base, shift)
            torque = rotate(base, spin)
            twist = -torque
            length = wp.dot(x - y, force)
            length += wp.dot(quat_log(quat_mul(quat_conj(base), turn)), spin)
        counter = spatial(twist - wp.cross(y - frame_pos[world, origin[k, 1]], force), -force)
    length_out[world, k] = length
    pull_out[world, k, 0] = spatial(torque + wp.cross(x - frame_pos[world, origin[k, 0]], force), force)
    pull_out[world, k, 1] = counter


@wp.func
def joint_moment(
    joint_type: int,
    in_parent: int,
    actuator_gear: wp.array2d(dtype=vec6),
    qpos: wp.array2d(dtype=real),
    world: int,
    i: int,
    a: int,
    k: int,
) -> real:
    """How much the k-th dof of a joint moves actuator i."""
    if in_parent != 0 and (joint_type == BALL or joint_type == FREE):
        g = joint_gear(joint_type, in_parent, actuator_gear[world, i], qpos, world, a)
        return g[k]
    return actuator_gear[world, i][k]


@wp.func
def pulled_moment(
    k: int,
    d: int,
    pulled: wp.array2d(dtype=int),
    moves: wp.array2d(dtype=int),
    pull: wp.array3d(dtype=vec6),
    axis: wp.array2d(dtype=vec6),
    world: int,
) -> real:
    """Power of the k-th pair of pulls by a dof."""
    s = real(0.0)
    for b in range(2):
        if moves[pulled[k, b], d] != 0:
            s += wp.dot(pull[world, k, b], axis[world, d])
    return s


@wp.kernel
def actuator_moments(
    # Structure:
    entry_row: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    entry_tendon: wp.array(dtype=int),
    transmission: wp.array(dtype=int),
    target: wp.array(dtype=int),
    number: wp.array(dtype=int),
    pulled: wp.array2d(dtype=int),
    moves: wp.array2d(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # Model:
    actuator_gear: wp.array2d(dtype=vec6),
    # In:
    qpos: wp.array2d(dtype=real),
    tendon_jacobian: wp.array2d(dtype=real),
    pull: wp.array3d(dtype=vec6),
    axis: wp.array2d(dtype=vec6),
    # Out:
    moment_out: wp.array2d(dtype=real),
):
    """Entries d(length)/d(dof) of every actuator."""
    world = wp.tid()
    for e in range(entry_row.shape[0]):
        i = entry_row[e]
        d = entry_dof[e]
        moment = real(0.0)
        if transmission[i] == TENDON:
            moment = actuator_gear[world, i][0] * tendon_jacobian[world, entry_tendon[e]]
        elif number[i] >= 0:
            moment = pulled_moment(number[i], d, pulled, moves, pull, axis, world)
        else:
            j = target[i]
            moment = joint_moment(
                joint_type[j], transmission[i], actuator_gear, qpos, world, i, joint_qpos[j], d - joint_dof[j]
            )
        moment_out[world, e] = moment


@wp.kernel
def actuator_lengths(
    # Structure:
    transmission: wp.array(dtype=int),
    target: wp.array(dtype=int),
    number: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    # Model:
    actuator_gear: wp.array2d(dtype=vec6),
    # In:
    qpos: wp.array2d(dtype=real),
    tendon_length: wp.array2d(dtype=real),
    site_length: wp.array2d(dtype=real),
    # Out:
    length_out: wp.array2d(dtype=real),
):
    """Length of every actuator."""
    world, i = wp.tid()
    k = target[i]
    gear = actuator_gear[world, i]
    length = real(0.0)
    if transmission[i] == TENDON:
        length = gear[0] * tendon_length[world, k]
    elif number[i] >= 0:
        length = site_length[world, number[i]]
    elif transmission[i] != BODY:
        t = joint_type[k]
        g = joint_gear(t, transmission[i], gear, qpos, world, joint_qpos[k])
        length = joint_length(t, g, qpos, world, joint_qpos[k])
    length_out[world, i] = length
