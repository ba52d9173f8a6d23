"""Limits of joints and tendons: rows that push back where a position leaves its range."""

import warp as wp

from .._precision import quat, real, vec2, vec4, vec5
from ..math import quat_log, quat_unit
from .constraint import UNBOUNDED, impedance, resistance, restoring, set_row, spring_damper
from .kinematics import BALL


@wp.func
def joint_distance(joint_type: int, side: int, bounds: vec2, qpos: wp.array2d(dtype=real), world: int, a: int) -> vec4:
    """Distance to a limit, negative beyond it, and its derivatives by the joint's dofs; a ball's is that of its angle.

    ``side`` is -1 for the lower limit and 1 for the upper one.
    """
    out = vec4()
    if joint_type == BALL:
        turn = quat_log(quat_unit(quat(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2], qpos[world, a + 3])))
        angle = wp.sqrt(wp.dot(turn, turn) + real(1.0e-30))
        out = vec4(wp.max(bounds[0], bounds[1]) - angle, -turn[0] / angle, -turn[1] / angle, -turn[2] / angle)
    elif side < 0:
        out = vec4(qpos[world, a] - bounds[0], real(1.0), real(0.0), real(0.0))
    else:
        out = vec4(bounds[1] - qpos[world, a], real(-1.0), real(0.0), real(0.0))
    return out


@wp.func
def joint_rate(joint_type: int, slope: vec4, rate: wp.array2d(dtype=real), world: int, d: int) -> real:
    """Rate of the distance for given rates of the dofs."""
    s = slope[1] * rate[world, d]
    if joint_type == BALL:
        s += slope[2] * rate[world, d + 1] + slope[3] * rate[world, d + 2]
    return s


@wp.func
def passed(
    world: int,
    j: int,
    side: int,
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_range: wp.array2d(dtype=vec2),
    joint_margin: wp.array2d(dtype=real),
    qpos: wp.array2d(dtype=real),
) -> bool:
    """Whether a joint is beyond its limit. Arrays come whole, to take no cotangents."""
    slope = joint_distance(joint_type[j], side, joint_range[world, j], qpos, world, joint_qpos[j])
    return slope[0] < joint_margin[world, j]


@wp.func_grad(passed)
def no_slope_of_passed(
    world: int,
    j: int,
    side: int,
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_range: wp.array2d(dtype=vec2),
    joint_margin: wp.array2d(dtype=real),
    qpos: wp.array2d(dtype=real),
    adj_ret: bool,
):
    """An event: a limit that is not reached costs a backward pass no more than to see it."""


@wp.kernel(enable_backward=False)
def joint_limit_rows(
    # Structure:
    lanes: int,
    limit_joint: wp.array(dtype=int),
    limit_side: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    joint_column: wp.array(dtype=int),
    refsafe: int,
    first: int,
    # Model:
    joint_range: wp.array2d(dtype=vec2),
    joint_margin: wp.array2d(dtype=real),
    joint_solref: wp.array2d(dtype=vec2),
    joint_solimp: wp.array2d(dtype=vec5),
    dof_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # Out:
    jacobian_out: wp.array3d(dtype=real),
    weight_out: wp.array2d(dtype=real),
    reference_out: wp.array2d(dtype=real),
    bound_out: wp.array2d(dtype=vec2),
):
    """The rows of the limits that are reached; ``first`` is the row of the first limit."""
    world, lane = wp.tid()
    for i in range(lane, limit_joint.shape[0], lanes):
        j = limit_joint[i]
        t = joint_type[j]
        d = joint_dof[j]
        slope = joint_distance(t, limit_side[i], joint_range[world, j], qpos, world, joint_qpos[j])
        violation = slope[0] - joint_margin[world, j]
        if violation < real(0.0):
            z = impedance(joint_solimp[world, j], violation)
            kb = spring_damper(joint_solref[world, j], joint_solimp[world, j], timestep[world], refsafe)
            r = resistance(z, dof_invweight0[world, d])
            reference = -kb[1] * joint_rate(t, slope, qvel, world, d) - kb[0] * z * violation
            row = first + i
            set_row(world, row, r, reference, -UNBOUNDED, real(0.0), jacobian_out, weight_out, reference_out, bound_out)
            column = joint_column[j]
            jacobian_out[world, row, column] = slope[1]
            if t == BALL:
                jacobian_out[world, row, column + 1] = slope[2]
                jacobian_out[world, row, column + 2] = slope[3]


@wp.kernel
def joint_limit_power(
    # Structure:
    lanes: int,
    limit_joint: wp.array(dtype=int),
    limit_side: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    refsafe: int,
    # Model:
    joint_range: wp.array2d(dtype=vec2),
    joint_margin: wp.array2d(dtype=real),
    joint_solref: wp.array2d(dtype=vec2),
    joint_solimp: wp.array2d(dtype=vec5),
    dof_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the limits' forces, negative as all that acts on the joints."""
    world, lane = wp.tid()
    for i in range(lane, limit_joint.shape[0], lanes):
        j = limit_joint[i]
        if passed(world, j, limit_side[i], joint_type, joint_qpos, joint_range, joint_margin, qpos):
            t = joint_type[j]
            d = joint_dof[j]
            slope = joint_distance(t, limit_side[i], joint_range[world, j], qpos, world, joint_qpos[j])
            violation = slope[0] - joint_margin[world, j]
            z = impedance(joint_solimp[world, j], violation)
            kb = spring_damper(joint_solref[world, j], joint_solimp[world, j], timestep[world], refsafe)
            r = resistance(z, dof_invweight0[world, d])
            error = joint_rate(t, slope, qacc, world, d) + kb[1] * joint_rate(t, slope, qvel, world, d)
            error += kb[0] * z * violation
            power_out[world, i] = restoring(error, r, -UNBOUNDED, real(0.0)) * joint_rate(t, slope, trial, world, d)


@wp.kernel
def joint_limit_readings(
    # Structure:
    limit_joint: wp.array(dtype=int),
    limit_side: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    refsafe: int,
    # Model:
    joint_range: wp.array2d(dtype=vec2),
    joint_margin: wp.array2d(dtype=real),
    joint_solref: wp.array2d(dtype=vec2),
    joint_solimp: wp.array2d(dtype=vec5),
    dof_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    # Out:
    violation_out: wp.array2d(dtype=real),
    rate_out: wp.array2d(dtype=real),
    force_out: wp.array2d(dtype=real),
):
    """Of the limits that are reached: distance less margin, its rate, and the force that pushes back."""
    world, i = wp.tid()
    j = limit_joint[i]
    t = joint_type[j]
    d = joint_dof[j]
    slope = joint_distance(t, limit_side[i], joint_range[world, j], qpos, world, joint_qpos[j])
    violation = slope[0] - joint_margin[world, j]
    if violation < real(0.0):
        z = impedance(joint_solimp[world, j], violation)
        kb = spring_damper(joint_solref[world, j], joint_solimp[world, j], timestep[world], refsafe)
        r = resistance(z, dof_invweight0[world, d])
        rate = joint_rate(t, slope, qvel, world, d)
        error = joint_rate(t, slope, qacc, world, d) + kb[1] * rate + kb[0] * z * violation
        violation_out[world, i] = violation
        rate_out[world, i] = rate
        force_out[world, i] = -restoring(error, r, -UNBOUNDED, real(0.0))


@wp.func
def tendon_distance(side: int, bounds: vec2, length: real) -> real:
    """Distance to a limit, negative beyond it."""
    return wp.where(side < 0, length - bounds[0], bounds[1] - length)


@wp.kernel(enable_backward=False)
def tendon_limit_rows(
    # Structure:
    lanes: int,
    limit_tendon: wp.array(dtype=int),
    limit_side: wp.array(dtype=int),
    refsafe: int,
    first: int,
    # Model:
    tendon_range: wp.array2d(dtype=vec2),
    tendon_margin: wp.array2d(dtype=real),
    tendon_solref: wp.array2d(dtype=vec2),
    tendon_solimp: wp.array2d(dtype=vec5),
    tendon_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    moment: wp.array3d(dtype=real),
    # Out:
    jacobian_out: wp.array3d(dtype=real),
    weight_out: wp.array2d(dtype=real),
    reference_out: wp.array2d(dtype=real),
    bound_out: wp.array2d(dtype=vec2),
):
    """The rows of the limits that are reached; ``moment`` is the tendons' Jacobian."""
    world, lane = wp.tid()
    for i in range(lane, limit_tendon.shape[0], lanes):
        t = limit_tendon[i]
        sign = -real(limit_side[i])
        violation = tendon_distance(limit_side[i], tendon_range[world, t], length[world, t]) - tendon_margin[world, t]
        if violation < real(0.0):
            z = impedance(tendon_solimp[world, t], violation)
            kb = spring_damper(tendon_solref[world, t], tendon_solimp[world, t], timestep[world], refsafe)
            r = resistance(z, tendon_invweight0[world, t])
            reference = -kb[1] * sign * velocity[world, t] - kb[0] * z * violation
            row = first + i
            set_row(world, row, r, reference, -UNBOUNDED, real(0.0), jacobian_out, weight_out, reference_out, bound_out)
            for d in range(moment.shape[2]):
                jacobian_out[world, row, d] = sign * moment[world, t, d]


@wp.kernel
def tendon_limit_power(
    # Structure:
    lanes: int,
    limit_tendon: wp.array(dtype=int),
    limit_side: wp.array(dtype=int),
    refsafe: int,
    # Model:
    tendon_range: wp.array2d(dtype=vec2),
    tendon_margin: wp.array2d(dtype=real),
    tendon_solref: wp.array2d(dtype=vec2),
    tendon_solimp: wp.array2d(dtype=vec5),
    tendon_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the limits' forces; ``rate`` is J a of the tendons, ``trial`` J l."""
    world, lane = wp.tid()
    for i in range(lane, limit_tendon.shape[0], lanes):
        t = limit_tendon[i]
        sign = -real(limit_side[i])
        violation = tendon_distance(limit_side[i], tendon_range[world, t], length[world, t]) - tendon_margin[world, t]
        if violation < real(0.0):
            z = impedance(tendon_solimp[world, t], violation)
            kb = spring_damper(tendon_solref[world, t], tendon_solimp[world, t], timestep[world], refsafe)
            r = resistance(z, tendon_invweight0[world, t])
            error = sign * (rate[world, t] + kb[1] * velocity[world, t]) + kb[0] * z * violation
            power_out[world, i] = restoring(error, r, -UNBOUNDED, real(0.0)) * sign * trial[world, t]


@wp.kernel
def tendon_limit_readings(
    # Structure:
    limit_tendon: wp.array(dtype=int),
    limit_side: wp.array(dtype=int),
    refsafe: int,
    # Model:
    tendon_range: wp.array2d(dtype=vec2),
    tendon_margin: wp.array2d(dtype=real),
    tendon_solref: wp.array2d(dtype=vec2),
    tendon_solimp: wp.array2d(dtype=vec5),
    tendon_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    # Out:
    violation_out: wp.array2d(dtype=real),
    rate_out: wp.array2d(dtype=real),
    force_out: wp.array2d(dtype=real),
):
    """The same of tendons; ``rate`` is J a."""
    world, i = wp.tid()
    t = limit_tendon[i]
    sign = -real(limit_side[i])
    violation = tendon_distance(limit_side[i], tendon_range[world, t], length[world, t]) - tendon_margin[world, t]
    if violation < real(0.0):
        z = impedance(tendon_solimp[world, t], violation)
        kb = spring_damper(tendon_solref[world, t], tendon_solimp[world, t], timestep[world], refsafe)
        r = resistance(z, tendon_invweight0[world, t])
        error = sign * (rate[world, t] + kb[1] * velocity[world, t]) + kb[0] * z * violation
        violation_out[world, i] = violation
        rate_out[world, i] = sign * velocity[world, t]
        force_out[world, i] = -restoring(error, r, -UNBOUNDED, real(0.0))
