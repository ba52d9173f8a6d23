"""Generalised forces of joints, and their virtual power.

Forward kernels project the forces on the dofs, power kernels on a trial velocity.
"""

import warp as wp

from ..._precision import quat, real, vec6
from ...math import quat_conj, quat_log, quat_mul, quat_unit
from ..tree.kinematics import BALL, FREE


@wp.func
def dof_count(joint_type: int) -> int:
    """Degrees of freedom of a joint."""
    if joint_type == FREE:
        return 6
    if joint_type == BALL:
        return 3
    return 1


@wp.func
def quat_at(q: wp.array2d(dtype=real), world: int, a: int) -> quat:
    """The unit quaternion that starts at index a of a position vector."""
    return quat_unit(quat(q[world, a], q[world, a + 1], q[world, a + 2], q[world, a + 3]))


@wp.func
def displacement(
    joint_type: int, qpos: wp.array2d(dtype=real), rest: wp.array2d(dtype=real), world: int, a: int
) -> vec6:
    """Position of a joint relative to its rest position, one number per dof."""
    out = vec6()
    if joint_type == FREE:
        r = quat_log(quat_mul(quat_conj(quat_at(rest, world, a + 3)), quat_at(qpos, world, a + 3)))
        out = vec6(
            qpos[world, a] - rest[world, a],
            qpos[world, a + 1] - rest[world, a + 1],
            qpos[world, a + 2] - rest[world, a + 2],
            r[0],
            r[1],
            r[2],
        )
    elif joint_type == BALL:
        r = quat_log(quat_mul(quat_conj(quat_at(rest, world, a)), quat_at(qpos, world, a)))
        out = vec6(r[0], r[1], r[2], real(0.0), real(0.0), real(0.0))
    else:
        out = vec6(qpos[world, a] - rest[world, a], real(0.0), real(0.0), real(0.0), real(0.0), real(0.0))
    return out


@wp.kernel(enable_backward=False)
def joint_forces(
    # Structure:
    lanes: int,
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    spring: int,
    damper: int,
    # Model:
    joint_stiffness: wp.array2d(dtype=real),
    qpos_spring: wp.array2d(dtype=real),
    dof_damping: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # In:
    applied: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """Springs -k (q - q_rest), dampers -d v and the force applied from outside."""
    world, lane = wp.tid()
    for j in range(lane, joint_type.shape[0], lanes):
        t = joint_type[j]
        d = joint_dof[j]
        x = displacement(t, qpos, qpos_spring, world, joint_qpos[j])
        for k in range(dof_count(t)):
            f = applied[world, d + k]
            if spring != 0:
                f -= joint_stiffness[world, j] * x[k]
            if damper != 0:
                f -= dof_damping[world, d + k] * qvel[world, d + k]
            force_out[world, d + k] = f


@wp.kernel
def joint_power(
    # Structure:
    lanes: int,
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    spring: int,
    damper: int,
    # Model:
    joint_stiffness: wp.array2d(dtype=real),
    qpos_spring: wp.array2d(dtype=real),
    dof_damping: wp.array2d(dtype=real),
    dof_armature: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # In:
    applied: wp.array2d(dtype=real),
    qacc: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of armature, springs, dampers and applied forces: l . (m a + k (q - q_rest) + d v - f)."""
    world, lane = wp.tid()
    for j in range(lane, joint_type.shape[0], lanes):
        t = joint_type[j]
        d = joint_dof[j]
        p = real(0.0)
        for k in range(dof_count(t)):
            p += trial[world, d + k] * (dof_armature[world, d + k] * qacc[world, d + k] - applied[world, d + k])
            if damper != 0:
                p += trial[world, d + k] * dof_damping[world, d + k] * qvel[world, d + k]
        if spring != 0:
            x = displacement(t, qpos, qpos_spring, world, joint_qpos[j])
            k0 = joint_stiffness[world, j]
            p += k0 * x[0] * trial[world, d]
            if dof_count(t) > 1:
                p += k0 * (x[1] * trial[world, d + 1] + x[2] * trial[world, d + 2])
            if t == FREE:
                p += k0 * (x[3] * trial[world, d + 3] + x[4] * trial[world, d + 4] + x[5] * trial[world, d + 5])
        power_out[world, j] = p


@wp.kernel(enable_backward=False)
def add(
    # In:
    force: wp.array2d(dtype=real),
    more: wp.array2d(dtype=real),
    # Out:
    sum_out: wp.array2d(dtype=real),
):
    """Sum of two generalised forces."""
    world, d = wp.tid()
    sum_out[world, d] = force[world, d] + more[world, d]


@wp.kernel(enable_backward=False)
def subtract(
    # In:
    force: wp.array2d(dtype=real),
    bias: wp.array2d(dtype=real),
    # Out:
    net_out: wp.array2d(dtype=real),
):
    """Net generalised force: force - bias."""
    world, d = wp.tid()
    net_out[world, d] = force[world, d] - bias[world, d]


@wp.kernel(enable_backward=False)
def missing_force(
    # Model:
    dof_armature: wp.array2d(dtype=real),
    # In:
    bias: wp.array2d(dtype=real),
    qacc: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    missing_out: wp.array2d(dtype=real),
):
    """bias + armature a - force."""
    world, d = wp.tid()
    missing_out[world, d] = bias[world, d] + dof_armature[world, d] * qacc[world, d] - force[world, d]


@wp.kernel
def dof_product(
    # In:
    coefficient: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """l . diag(c) a, dof by dof."""
    world, d = wp.tid()
    power_out[world, d] = coefficient[world, d] * rate[world, d] * trial[world, d]
