"""Positions moved along velocities for a time."""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import quat_exp, quat_mul, quat_unit
from ..forces.forces import displacement
from .kinematics import BALL, FREE


@wp.func
def straight_count(joint_type: int) -> int:
    """How many of a joint's dofs are no part of an orientation; they come first."""
    if joint_type == FREE:
        return 3
    if joint_type == BALL:
        return 0
    return 1


@wp.func
def turned(qpos: wp.array2d(dtype=real), world: int, a: int, w: vec3, h: real) -> quat:
    """The orientation at ``a`` after turning at w about its own axes for a time: quat exp(w h), made unit again."""
    q = quat(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2], qpos[world, a + 3])
    return quat_unit(quat_mul(q, quat_exp(w * h)))


@wp.func
def three(x: wp.array2d(dtype=real), world: int, i: int) -> vec3:
    """Three numbers in a row."""
    return vec3(x[world, i], x[world, i + 1], x[world, i + 2])


@wp.kernel
def integrate_positions(
    # Structure:
    lanes: int,
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
    """q + v h; orientations turn about their own axes."""
    world, lane = wp.tid()
    h = duration[world]
    for j in range(lane, joint_type.shape[0], lanes):
        t = joint_type[j]
        a = joint_qpos[j]
        d = joint_dof[j]
        count = straight_count(t)
        for i in range(count):
            qpos_out[world, a + i] = qpos[world, a + i] + h * velocity[world, d + i]
        a = a + count
        d = d + count
        if t == FREE or t == BALL:
            r = turned(qpos, world, a, three(velocity, world, d), h)
            for i in range(4):
                qpos_out[world, a + i] = r[i]


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
def stage(
    # Structure:
    lanes: int,
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # In:
    velocity: wp.array2d(dtype=real),
    qacc: wp.array2d(dtype=real),
    duration: wp.array(dtype=real),
    # Out:
    qpos_out: wp.array2d(dtype=real),
    qvel_out: wp.array2d(dtype=real),
    rate_out: wp.array2d(dtype=real),
):
    """Positions along ``velocity``, velocities along accelerations; and, as a rate of the displacement from the base,
    that velocity."""
    world, lane = wp.tid()
    h = duration[world]
    for j in range(lane, joint_type.shape[0], lanes):
        t = joint_type[j]
        a = joint_qpos[j]
        d = joint_dof[j]
        count = straight_count(t)
        for i in range(count):
            qpos_out[world, a + i] = qpos[world, a + i] + h * velocity[world, d + i]
            v = qvel[world, d + i] + h * qacc[world, d + i]
            qvel_out[world, d + i] = v
            rate_out[world, d + i] = v
        a = a + count
        d = d + count
        if t == FREE or t == BALL:
            u = three(velocity, world, d)
            r = turned(qpos, world, a, u, h)
            for i in range(4):
                qpos_out[world, a + i] = r[i]
            w = three(qvel, world, d) + h * three(qacc, world, d)
            rate = dexp_inverse(h * u, w)
            for i in range(3):
                qvel_out[world, d + i] = w[i]
                rate_out[world, d + i] = rate[i]


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
