"""Poses and velocities along the branches of a mechanism that lead to a few places on it.

A link is a fixed displacement in the link that it hangs on, and at most one joint; a place is a link without a joint.
Velocities are those of the links' own origins, in world axes.
"""

import warp as wp

from .._precision import quat, real, vec3
from ..math import quat_axis_angle, quat_mul, quat_unit, rotate
from .kinematics import BALL, FREE, SLIDE


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
