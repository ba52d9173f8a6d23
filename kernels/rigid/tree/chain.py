"""Poses, velocities and accelerations along the branches of a mechanism that lead to a few places on it.

A link is a fixed displacement in the link that it hangs on, and at most one joint; a place is a link without a joint.
Velocities and accelerations are those of the links' own origins, in world axes.
"""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import quat_axis_angle, quat_mul, quat_unit, rotate
from ..lanes import LANES
from .chain_lanes import places_of_eight, side_by_side
from .kinematics import BALL, FREE, SLIDE

ZERO_NORM = wp.constant(real(1.0e-30))
"""The square of a quaternion's norm below which it counts as none, as in :func:`quat_unit`."""


@wp.func
def carried(spin: vec3, speeding: vec3, arm: vec3) -> vec3:
    """What a point on an arm accelerates by because the arm turns, and turns faster: dw x r + w x (w x r)."""
    return wp.cross(speeding, arm) + wp.cross(spin, wp.cross(spin, arm))


@wp.kernel
def chain_places(
    # Structure:
    link_parent: wp.array(dtype=int),
    link_joint: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # Model:
    offset: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=quat),
    joint_pos: wp.array2d(dtype=vec3),
    joint_axis: wp.array2d(dtype=vec3),
    qpos0: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # Out:
    link_pos_out: wp.array2d(dtype=vec3),
    link_quat_out: wp.array2d(dtype=quat),
    link_linear_out: wp.array2d(dtype=vec3),
    link_angular_out: wp.array2d(dtype=vec3),
    pos_out: wp.array2d(dtype=vec3),
    quat_out: wp.array2d(dtype=quat),
    linear_out: wp.array2d(dtype=vec3),
    angular_out: wp.array2d(dtype=vec3),
):
    """Of every link from the root outwards, x = x_p + R_p r and v = v_p + w_p x R_p r, then what its joint adds.

    The last links are the places; ``link_..._out`` has the others. A parent of -1 is the world.
    """
    world = wp.tid()
    if side_by_side(13 * link_parent.shape[0], ZERO_NORM):
        if world % LANES == 0:
            places_of_eight(
                world,
                FREE,
                BALL,
                SLIDE,
                ZERO_NORM,
                link_parent,
                link_joint,
                joint_type,
                joint_qpos,
                joint_dof,
                offset,
                turn,
                joint_pos,
                joint_axis,
                qpos0,
                qpos,
                qvel,
                link_pos_out,
                link_quat_out,
                link_linear_out,
                link_angular_out,
                pos_out,
                quat_out,
                linear_out,
                angular_out,
            )
        return
    for f in range(link_parent.shape[0]):
        p = link_parent[f]
        j = link_joint[f]
        place = f - link_pos_out.shape[1]
        pos = offset[world, f]
        rot = turn[world, f]
        linear = vec3()
        angular = vec3()
        if p >= 0:
            arm = rotate(link_quat_out[world, p], offset[world, f])
            pos = link_pos_out[world, p] + arm
            rot = quat_mul(link_quat_out[world, p], turn[world, f])
            angular = link_angular_out[world, p]
            linear = link_linear_out[world, p] + wp.cross(link_angular_out[world, p], arm)
        if place >= 0:
            pos_out[world, place] = pos
            quat_out[world, place] = rot
            linear_out[world, place] = linear
            angular_out[world, place] = angular
        elif j < 0:
            link_pos_out[world, f] = pos
            link_quat_out[world, f] = rot
            link_linear_out[world, f] = linear
            link_angular_out[world, f] = angular
        else:
            t = joint_type[j]
            a = joint_qpos[j]
            d = joint_dof[j]
            if t == FREE:
                free = quat_unit(quat(qpos[world, a + 3], qpos[world, a + 4], qpos[world, a + 5], qpos[world, a + 6]))
                spin = vec3(qvel[world, d + 3], qvel[world, d + 4], qvel[world, d + 5])
                link_pos_out[world, f] = vec3(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2])
                link_quat_out[world, f] = free
                link_linear_out[world, f] = vec3(qvel[world, d], qvel[world, d + 1], qvel[world, d + 2])
                link_angular_out[world, f] = rotate(free, spin)
            elif t == SLIDE:
                axis = rotate(rot, joint_axis[world, j])
                shift = axis * (qpos[world, a] - qpos0[world, a])
                link_pos_out[world, f] = pos + shift
                link_quat_out[world, f] = rot
                link_linear_out[world, f] = linear + wp.cross(angular, shift) + axis * qvel[world, d]
                link_angular_out[world, f] = angular
            else:
                by = quat_axis_angle(joint_axis[world, j], qpos[world, a] - qpos0[world, a])
                spin = joint_axis[world, j] * qvel[world, d]
                if t == BALL:
                    by = quat_unit(quat(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2], qpos[world, a + 3]))
                    spin = vec3(qvel[world, d], qvel[world, d + 1], qvel[world, d + 2])
                turned = quat_mul(rot, by)
                turning = rotate(rot, spin)
                if t == BALL:
                    turning = rotate(turned, spin)
                before = rotate(rot, joint_pos[world, j])
                after = rotate(turned, joint_pos[world, j])
                link_pos_out[world, f] = pos + before - after
                link_quat_out[world, f] = turned
                link_linear_out[world, f] = linear + wp.cross(angular, before - after) - wp.cross(turning, after)
                link_angular_out[world, f] = angular + turning


@wp.kernel
def chain_accelerations(
    # Structure:
    link_parent: wp.array(dtype=int),
    link_joint: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # Model:
    gravity: wp.array(dtype=vec3),
    offset: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=quat),
    joint_pos: wp.array2d(dtype=vec3),
    joint_axis: wp.array2d(dtype=vec3),
    qpos0: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    link_quat: wp.array2d(dtype=quat),
    link_angular: wp.array2d(dtype=vec3),
    # Out:
    link_linear_out: wp.array2d(dtype=vec3),
    link_angular_out: wp.array2d(dtype=vec3),
    linear_out: wp.array2d(dtype=vec3),
    angular_out: wp.array2d(dtype=vec3),
):
    """Accelerations of the same origins, gravity included as an upward acceleration of the world.

    a = a_p + dw_p x R_p r + w_p x (w_p x R_p r), then what the joint adds: its own acceleration, and Coriolis's.
    """
    world = wp.tid()
    for f in range(link_parent.shape[0]):
        p = link_parent[f]
        j = link_joint[f]
        place = f - link_linear_out.shape[1]
        rot = turn[world, f]
        spin = vec3()
        linear = -gravity[world]
        angular = vec3()
        if p >= 0:
            arm = rotate(link_quat[world, p], offset[world, f])
            rot = quat_mul(link_quat[world, p], turn[world, f])
            spin = link_angular[world, p]
            angular = link_angular_out[world, p]
            linear = link_linear_out[world, p] + carried(spin, angular, arm)
        if place >= 0:
            linear_out[world, place] = linear
            angular_out[world, place] = angular
        elif j < 0:
            link_linear_out[world, f] = linear
            link_angular_out[world, f] = angular
        else:
            t = joint_type[j]
            a = joint_qpos[j]
            d = joint_dof[j]
            if t == FREE:
                link_linear_out[world, f] = (
                    vec3(qacc[world, d], qacc[world, d + 1], qacc[world, d + 2]) - gravity[world]
                )
                link_angular_out[world, f] = rotate(
                    link_quat[world, f], vec3(qacc[world, d + 3], qacc[world, d + 4], qacc[world, d + 5])
                )
            elif t == SLIDE:
                axis = rotate(rot, joint_axis[world, j])
                shift = axis * (qpos[world, a] - qpos0[world, a])
                coriolis = real(2.0) * wp.cross(spin, axis * qvel[world, d])
                link_linear_out[world, f] = linear + carried(spin, angular, shift) + coriolis + axis * qacc[world, d]
                link_angular_out[world, f] = angular
            else:
                turned = link_quat[world, f]
                turning = rotate(rot, joint_axis[world, j]) * qvel[world, d]
                speeding = rotate(rot, joint_axis[world, j]) * qacc[world, d]
                if t == BALL:
                    turning = rotate(turned, vec3(qvel[world, d], qvel[world, d + 1], qvel[world, d + 2]))
                    speeding = rotate(turned, vec3(qacc[world, d], qacc[world, d + 1], qacc[world, d + 2]))
                before = rotate(rot, joint_pos[world, j])
                after = rotate(turned, joint_pos[world, j])
                faster = angular + wp.cross(spin, turning) + speeding
                anchor = linear + carried(spin, angular, before)
                link_linear_out[world, f] = anchor - carried(link_angular[world, f], faster, after)
                link_angular_out[world, f] = faster
