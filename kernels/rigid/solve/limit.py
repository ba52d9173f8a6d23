"""Limits of joints and tendons: rows that push back where a position leaves its range."""

import warp as wp

from ..._precision import quat, real, vec2, vec4
from ...math import quat_log, quat_unit
from ..tree.kinematics import BALL
from .constraint import UNBOUNDED, Rows, Soft, restoring, set_row, softened


@wp.struct
class JointLimits:
    """The limits of joints."""

    joint: wp.array(dtype=int)  # of every limit
    side: wp.array(dtype=int)  # -1 for a lower limit, 1 for an upper one
    type: wp.array(dtype=int)  # of every joint, as the following
    qpos: wp.array(dtype=int)
    dof: wp.array(dtype=int)
    range: wp.array2d(dtype=vec2)
    margin: wp.array2d(dtype=real)
    invweight0: wp.array2d(dtype=real)  # of every dof


@wp.struct
class TendonLimits:
    """The limits of tendons."""

    tendon: wp.array(dtype=int)  # of every limit
    side: wp.array(dtype=int)
    range: wp.array2d(dtype=vec2)  # of every tendon, as the following
    margin: wp.array2d(dtype=real)
    invweight0: wp.array2d(dtype=real)


@wp.func
def joint_distance(joint_type: int, side: int, bounds: vec2, qpos: wp.array2d(dtype=real), world: int, a: int) -> vec4:
    """Distance to a limit, negative beyond it, and its derivatives by the joint's dofs; a ball's is that of its angle.

    ``side`` is -1 for the lower limit and 1 for the upper one.
    """
    out = vec4()
    if joint_type == BALL:
        turn = quat_log(quat_unit(quat(qpos[world, a], qpos[world, a + 1], qpos[world, a + 2], qpos[world, a + 3])))
        square = wp.dot(turn, turn)
        if square > real(1.0e-30):
            angle = wp.sqrt(square)
            out = vec4(wp.max(bounds[0], bounds[1]) - angle, -turn[0] / angle, -turn[1] / angle, -turn[2] / angle)
        else:  # no direction is outwards: it is the x axis, as MuJoCo has it, and does not turn with the joint
            out = vec4(wp.max(bounds[0], bounds[1]), real(-1.0), real(0.0), real(0.0))
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
def joint_slope(world: int, i: int, limits: JointLimits, qpos: wp.array2d(dtype=real)) -> vec4:
    """:func:`joint_distance` of the i-th limit, less its margin."""
    j = limits.joint[i]
    slope = joint_distance(limits.type[j], limits.side[i], limits.range[world, j], qpos, world, limits.qpos[j])
    return slope - vec4(limits.margin[world, j], real(0.0), real(0.0), real(0.0))


@wp.func
def passed(world: int, i: int, limits: JointLimits, qpos: wp.array2d(dtype=real)) -> bool:
    """Whether a joint is beyond its i-th limit."""
    slope = joint_slope(world, i, limits, qpos)
    return slope[0] < real(0.0)


@wp.func_grad(passed)
def no_slope_of_passed(world: int, i: int, limits: JointLimits, qpos: wp.array2d(dtype=real), adj_ret: bool):
    """An event has no derivative, and a limit that is not reached costs a backward pass almost nothing."""


@wp.kernel(enable_backward=False)
def joint_limit_rows(
    # Structure:
    lanes: int,
    first: int,
    column: wp.array(dtype=int),
    # Model:
    limits: JointLimits,
    soft: Soft,
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # Out:
    rows_out: Rows,
):
    """The rows of the limits that are reached; ``first`` is the row of the first limit, ``column`` that of a joint."""
    world, lane = wp.tid()
    for i in range(lane, limits.joint.shape[0], lanes):
        slope = joint_slope(world, i, limits, qpos)
        if slope[0] < real(0.0):
            j = limits.joint[i]
            t = limits.type[j]
            d = limits.dof[j]
            kbr = softened(world, j, limits.invweight0[world, d], slope[0], soft)
            reference = -kbr[1] * joint_rate(t, slope, qvel, world, d) - kbr[0] * slope[0]
            row = first + i
            set_row(world, row, kbr[2], reference, -UNBOUNDED, real(0.0), rows_out)
            rows_out.jacobian[world, row, column[j]] = slope[1]
            if t == BALL:
                rows_out.jacobian[world, row, column[j] + 1] = slope[2]
                rows_out.jacobian[world, row, column[j] + 2] = slope[3]


@wp.kernel
def joint_limit_power(
    # Structure:
    lanes: int,
    # Model:
    limits: JointLimits,
    soft: Soft,
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
    for i in range(lane, limits.joint.shape[0], lanes):
        if passed(world, i, limits, qpos):
            j = limits.joint[i]
            t = limits.type[j]
            d = limits.dof[j]
            slope = joint_slope(world, i, limits, qpos)
            kbr = softened(world, j, limits.invweight0[world, d], slope[0], soft)
            error = joint_rate(t, slope, qacc, world, d) + kbr[1] * joint_rate(t, slope, qvel, world, d)
            error += kbr[0] * slope[0]
            force = restoring(error, kbr[2], -UNBOUNDED, real(0.0))
            power_out[world, i] = force * joint_rate(t, slope, trial, world, d)


@wp.kernel
def joint_limit_readings(
    # Model:
    limits: JointLimits,
    soft: Soft,
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
    """Distance less margin, its rate, and the force that pushes back, of the limits that are reached."""
    world, i = wp.tid()
    slope = joint_slope(world, i, limits, qpos)
    if slope[0] < real(0.0):
        j = limits.joint[i]
        t = limits.type[j]
        d = limits.dof[j]
        kbr = softened(world, j, limits.invweight0[world, d], slope[0], soft)
        rate = joint_rate(t, slope, qvel, world, d)
        error = joint_rate(t, slope, qacc, world, d) + kbr[1] * rate + kbr[0] * slope[0]
        violation_out[world, i] = slope[0]
        rate_out[world, i] = rate
        force_out[world, i] = -restoring(error, kbr[2], -UNBOUNDED, real(0.0))


@wp.func
def tendon_distance(world: int, i: int, limits: TendonLimits, length: wp.array2d(dtype=real)) -> real:
    """Distance of a tendon to its i-th limit, negative beyond it, less the margin."""
    t = limits.tendon[i]
    bounds = limits.range[world, t]
    distance = wp.where(limits.side[i] < 0, length[world, t] - bounds[0], bounds[1] - length[world, t])
    return distance - limits.margin[world, t]


@wp.kernel(enable_backward=False)
def tendon_limit_rows(
    # Structure:
    lanes: int,
    first: int,
    # Model:
    limits: TendonLimits,
    soft: Soft,
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    moment: wp.array3d(dtype=real),
    # Out:
    rows_out: Rows,
):
    """The rows of the limits that are reached; ``moment`` is the tendons' Jacobian."""
    world, lane = wp.tid()
    for i in range(lane, limits.tendon.shape[0], lanes):
        t = limits.tendon[i]
        sign = -real(limits.side[i])
        violation = tendon_distance(world, i, limits, length)
        if violation < real(0.0):
            kbr = softened(world, t, limits.invweight0[world, t], violation, soft)
            reference = -kbr[1] * sign * velocity[world, t] - kbr[0] * violation
            set_row(world, first + i, kbr[2], reference, -UNBOUNDED, real(0.0), rows_out)
            for d in range(moment.shape[2]):
                rows_out.jacobian[world, first + i, d] = sign * moment[world, t, d]


@wp.kernel
def tendon_limit_power(
    # Structure:
    lanes: int,
    # Model:
    limits: TendonLimits,
    soft: Soft,
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
    for i in range(lane, limits.tendon.shape[0], lanes):
        t = limits.tendon[i]
        sign = -real(limits.side[i])
        violation = tendon_distance(world, i, limits, length)
        if violation < real(0.0):
            kbr = softened(world, t, limits.invweight0[world, t], violation, soft)
            error = sign * (rate[world, t] + kbr[1] * velocity[world, t]) + kbr[0] * violation
            power_out[world, i] = restoring(error, kbr[2], -UNBOUNDED, real(0.0)) * sign * trial[world, t]


@wp.kernel
def tendon_limit_readings(
    # Model:
    limits: TendonLimits,
    soft: Soft,
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
    t = limits.tendon[i]
    sign = -real(limits.side[i])
    violation = tendon_distance(world, i, limits, length)
    if violation < real(0.0):
        kbr = softened(world, t, limits.invweight0[world, t], violation, soft)
        error = sign * (rate[world, t] + kbr[1] * velocity[world, t]) + kbr[0] * violation
        violation_out[world, i] = violation
        rate_out[world, i] = sign * velocity[world, t]
        force_out[world, i] = -restoring(error, kbr[2], -UNBOUNDED, real(0.0))
