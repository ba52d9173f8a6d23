"""Positions moved along velocities for a time."""

import warp as wp

from .._precision import quat, real, vec3
from ..math import quat_exp, quat_mul, quat_unit
from .forces import displacement
from .kinematics import BALL, FREE


@wp.kernel
def integrate_positions(
    # Structure:
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # State in:
    qpos: wp.array2d(dtype=real),
    # In:
    velocity: wp.array2d(dtype=real),
    duration: wp.array(dtype=real),
    # Out:
    qpos_out: wp.array2d(dtype=real),
):
    """q + v h; orientations turn about their own axes: quat exp(w h), made unit again."""
    world, j = wp.tid()
    t = joint_type[j]
    a = joint_qpos[j]
    d = joint_dof[j]
    h = duration[world]
    if t == FREE:
        qpos_out[world, a] = qpos[world, a] + h * velocity[world, d]
        qpos_out[world, a + 1] = qpos[world, a + 1] + h * velocity[world, d + 1]
        qpos_out[world, a + 2] = qpos[world, a + 2] + h * velocity[world, d + 2]
    if t == FREE or t == BALL:
        o = 0
        if t == FREE:
            o = 3
        w = vec3(velocity[world, d + o], velocity[world, d + o + 1], velocity[world, d + o + 2])
        a = a + o
        q = quat(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2], qpos[world, a + 3])
        r = quat_unit(quat_mul(q, quat_exp(w * h)))
        qpos_out[world, a] = r[0]
        qpos_out[world, a + 1] = r[1]
        qpos_out[world, a + 2] = r[2]
        qpos_out[world, a + 3] = r[3]
    else:
        qpos_out[world, a] = qpos[world, a] + h * velocity[world, d]


@wp.func
def dexp_inverse(u: vec3, w: vec3) -> vec3:
    """Rate of the rotation vector u of exp(u) whose body-fixed angular velocity is w.

    w + u x w / 2 + c u x (u x w), c = (1 - t/2 cot(t/2)) / t^2 with t = |u| (Iserles et al. 2000, eq. B.11).
    """
    t2 = wp.dot(u, u)
    c = real(1.0) / real(12.0) + t2 / real(720.0) + t2 * t2 / real(30240.0) + t2 * t2 * t2 / real(1209600.0)
    if t2 > real(0.04):  # below it the series is exact to rounding
        t = wp.sqrt(t2)
        c = (real(1.0) - real(0.5) * t * wp.cos(real(0.5) * t) / wp.sin(real(0.5) * t)) / t2
    uw = wp.cross(u, w)
    return w + real(0.5) * uw + c * wp.cross(u, uw)


@wp.kernel
def chart_rates(
    # Structure:
    joint_type: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # In:
    displacement: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """Rate of the displacement from a base configuration, for a velocity at the displaced one."""
    world, j = wp.tid()
    t = joint_type[j]
    d = joint_dof[j]
    if t == FREE:
        rate_out[world, d] = velocity[world, d]
        rate_out[world, d + 1] = velocity[world, d + 1]
        rate_out[world, d + 2] = velocity[world, d + 2]
    if t == FREE or t == BALL:
        o = d
        if t == FREE:
            o = d + 3
        r = dexp_inverse(
            vec3(displacement[world, o], displacement[world, o + 1], displacement[world, o + 2]),
            vec3(velocity[world, o], velocity[world, o + 1], velocity[world, o + 2]),
        )
        rate_out[world, o] = r[0]
        rate_out[world, o + 1] = r[1]
        rate_out[world, o + 2] = r[2]
    else:
        rate_out[world, d] = velocity[world, d]


@wp.kernel
def position_differences(
    # Structure:
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # In:
    base: wp.array2d(dtype=real),
    qpos: wp.array2d(dtype=real),
    # Out:
    difference_out: wp.array2d(dtype=real),
):
    """The velocity that leads from base to qpos in unit time."""
    world, j = wp.tid()
    d = joint_dof[j]
    x = displacement(joint_type[j], qpos, base, world, joint_qpos[j])
    difference_out[world, d] = x[0]
    if joint_type[j] == BALL or joint_type[j] == FREE:
        difference_out[world, d + 1] = x[1]
        difference_out[world, d + 2] = x[2]
    if joint_type[j] == FREE:
        difference_out[world, d + 3] = x[3]
        difference_out[world, d + 4] = x[4]
        difference_out[world, d + 5] = x[5]
