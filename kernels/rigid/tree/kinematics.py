"""Kinematics: where the frames are, and how each degree of freedom moves them.

A body is expanded into one frame fixed in its parent and one frame after each of its joints, in
topological order, so that every array element is written once. Spatial vectors are expressed in
world axes about the origin of the tree's root body, which no result depends on; it keeps numbers
small far from the world's origin.
"""

import warp as wp

from ..._precision import motion, quat, real, vec3
from ...math import cross_motion, quat_axis_angle, quat_mul, quat_unit, rotate, spatial, unit

FREE = wp.constant(0)
BALL = wp.constant(1)
SLIDE = wp.constant(2)
HINGE = wp.constant(3)


@wp.kernel
def frame_poses(
    # Structure:
    frame_parent: wp.array(dtype=int),
    frame_body: wp.array(dtype=int),
    frame_joint: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    body_mocap: wp.array(dtype=int),
    # Model:
    body_pos: wp.array2d(dtype=vec3),
    body_quat: wp.array2d(dtype=quat),
    joint_pos: wp.array2d(dtype=vec3),
    joint_axis: wp.array2d(dtype=vec3),
    qpos0: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    mocap_pos: wp.array2d(dtype=vec3),
    mocap_quat: wp.array2d(dtype=quat),
    # Out:
    frame_pos_out: wp.array2d(dtype=vec3),
    frame_quat_out: wp.array2d(dtype=quat),
):
    """Pose of every frame, from the root outwards: x = x_p + R_p r, R = R_p R_joint(q)."""
    world = wp.tid()
    for f in range(frame_parent.shape[0]):
        p = frame_parent[f]
        j = frame_joint[f]
        if j < 0:
            b = frame_body[f]
            m = body_mocap[b]
            if f == 0:
                frame_pos_out[world, f] = vec3()
                frame_quat_out[world, f] = quat(real(1.0), real(0.0), real(0.0), real(0.0))
            elif m >= 0:
                frame_pos_out[world, f] = mocap_pos[world, m]
                frame_quat_out[world, f] = quat_unit(mocap_quat[world, m])
            else:
                frame_pos_out[world, f] = frame_pos_out[world, p] + rotate(frame_quat_out[world, p], body_pos[world, b])
                frame_quat_out[world, f] = quat_mul(frame_quat_out[world, p], quat_unit(body_quat[world, b]))
        else:
            t = joint_type[j]
            a = joint_qpos[j]
            if t == FREE:
                frame_pos_out[world, f] = vec3(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2])
                frame_quat_out[world, f] = quat_unit(
                    quat(qpos[world, a + 3], qpos[world, a + 4], qpos[world, a + 5], qpos[world, a + 6])
                )
            elif t == SLIDE:
                axis = rotate(frame_quat_out[world, p], joint_axis[world, j])
                frame_pos_out[world, f] = frame_pos_out[world, p] + axis * (qpos[world, a] - qpos0[world, a])
                frame_quat_out[world, f] = frame_quat_out[world, p]
            else:
                turn = quat_axis_angle(joint_axis[world, j], qpos[world, a] - qpos0[world, a])
                if t == BALL:
                    turn = quat_unit(quat(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2], qpos[world, a + 3]))
                turned = quat_mul(frame_quat_out[world, p], turn)
                anchor = frame_pos_out[world, p] + rotate(frame_quat_out[world, p], joint_pos[world, j])
                frame_pos_out[world, f] = anchor - rotate(turned, joint_pos[world, j])
                frame_quat_out[world, f] = turned


@wp.kernel
def dof_axes(
    # Structure:
    lanes: int,
    dof_joint: wp.array(dtype=int),
    dof_origin: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    joint_frame: wp.array(dtype=int),
    frame_parent: wp.array(dtype=int),
    # Model:
    joint_pos: wp.array2d(dtype=vec3),
    joint_axis: wp.array2d(dtype=vec3),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    # Out:
    axis_out: wp.array2d(dtype=motion),
):
    """The motion that a unit velocity of each dof causes: (w, w x (o - anchor)) or (0, axis)."""
    world, lane = wp.tid()
    for d in range(lane, dof_joint.shape[0], lanes):
        j = dof_joint[d]
        f = joint_frame[j]
        t = joint_type[j]
        k = d - joint_dof[j]
        origin = frame_pos[world, dof_origin[d]]
        if t == SLIDE:
            axis_out[world, d] = spatial(vec3(), rotate(frame_quat[world, f], joint_axis[world, j]))
        elif t == HINGE:
            p = frame_parent[f]
            w = rotate(frame_quat[world, p], joint_axis[world, j])
            anchor = frame_pos[world, p] + rotate(frame_quat[world, p], joint_pos[world, j])
            axis_out[world, d] = spatial(w, wp.cross(w, origin - anchor))
        elif t == FREE and k < 3:
            e = unit(k)
            axis_out[world, d] = spatial(vec3(), e)
        else:
            i = k
            anchor = frame_pos[world, f]
            if t == FREE:
                i = k - 3
            else:
                anchor = frame_pos[world, f] + rotate(frame_quat[world, f], joint_pos[world, j])
            e = unit(i)
            w = rotate(frame_quat[world, f], e)
            axis_out[world, d] = spatial(w, wp.cross(w, origin - anchor))


@wp.kernel
def frame_motion(
    # Structure:
    frame_parent: wp.array(dtype=int),
    frame_joint: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # In:
    axis: wp.array2d(dtype=motion),
    rate: wp.array2d(dtype=real),
    # Out:
    motion_out: wp.array2d(dtype=motion),
):
    """The motion of every frame for given rates of the dofs: V = V_p + sum of axis * rate (linear in the rates)."""
    world = wp.tid()
    for f in range(frame_parent.shape[0]):
        j = frame_joint[f]
        p = frame_parent[f]
        if f == 0:
            motion_out[world, f] = motion()
        elif j < 0:
            motion_out[world, f] = motion_out[world, p]
        else:
            d = joint_dof[j]
            t = joint_type[j]
            if t == FREE:
                motion_out[world, f] = motion_out[world, p] + (
                    axis[world, d] * rate[world, d]
                    + axis[world, d + 1] * rate[world, d + 1]
                    + axis[world, d + 2] * rate[world, d + 2]
                    + axis[world, d + 3] * rate[world, d + 3]
                    + axis[world, d + 4] * rate[world, d + 4]
                    + axis[world, d + 5] * rate[world, d + 5]
                )
            elif t == BALL:
                motion_out[world, f] = motion_out[world, p] + (
                    axis[world, d] * rate[world, d]
                    + axis[world, d + 1] * rate[world, d + 1]
                    + axis[world, d + 2] * rate[world, d + 2]
                )
            else:
                motion_out[world, f] = motion_out[world, p] + axis[world, d] * rate[world, d]


@wp.kernel
def body_poses(
    # Structure:
    body_frame: wp.array(dtype=int),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    # Out:
    pos_out: wp.array2d(dtype=vec3),
    quat_out: wp.array2d(dtype=quat),
):
    """Pose of every body: that of its last frame."""
    world = wp.tid()
    for b in range(body_frame.shape[0]):
        f = body_frame[b]
        pos_out[world, b] = frame_pos[world, f]
        quat_out[world, b] = frame_quat[world, f]


@wp.kernel
def body_motion(
    # Structure:
    body_frame: wp.array(dtype=int),
    # In:
    frame_motion: wp.array2d(dtype=motion),
    # Out:
    motion_out: wp.array2d(dtype=motion),
):
    """The motion of every body: that of its last frame."""
    world = wp.tid()
    for b in range(body_frame.shape[0]):
        motion_out[world, b] = frame_motion[world, body_frame[b]]


@wp.kernel
def frame_acceleration(
    # Structure:
    frame_parent: wp.array(dtype=int),
    frame_joint: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # Model:
    gravity: wp.array(dtype=vec3),
    # In:
    axis: wp.array2d(dtype=motion),
    qvel: wp.array2d(dtype=real),
    frame_vel: wp.array2d(dtype=motion),
    frame_acc_lin: wp.array2d(dtype=motion),
    # Out:
    bias_out: wp.array2d(dtype=motion),
    acc_out: wp.array2d(dtype=motion),
):
    """Spatial acceleration of every frame, gravity included as an upward acceleration of the world.

    A = J a + B with B = B_p + V_p x (axis qvel): ``frame_acc_lin`` is the part J a, linear in the
    dof accelerations; ``bias_out`` is B, which velocities and gravity cause.
    """
    world = wp.tid()
    for f in range(frame_parent.shape[0]):
        j = frame_joint[f]
        p = frame_parent[f]
        if f == 0:
            bias_out[world, f] = spatial(vec3(), -gravity[world])
        elif j < 0:
            bias_out[world, f] = bias_out[world, p]
        elif joint_type[j] == FREE:
            # the axes of translation are fixed in the world, those of rotation turn with the body
            d = joint_dof[j]
            shift = (
                axis[world, d] * qvel[world, d]
                + axis[world, d + 1] * qvel[world, d + 1]
                + axis[world, d + 2] * qvel[world, d + 2]
            )
            turn = frame_vel[world, f] - frame_vel[world, p] - shift
            bias_out[world, f] = bias_out[world, p] + cross_motion(frame_vel[world, p] + shift, turn)
        else:
            step = frame_vel[world, f] - frame_vel[world, p]
            bias_out[world, f] = bias_out[world, p] + cross_motion(frame_vel[world, p], step)
        acc_out[world, f] = bias_out[world, f] + frame_acc_lin[world, f]
