"""Damping of joints, tendons and actuators that the integrator treats implicitly: M + h D, and l . h D a."""

import warp as wp

from .._precision import real, vec2, vec3, vec6
from ..math import lower
from .actuation import TENDON, actuator_slope, joint_gear, joint_rate
from .forces import dof_count


@wp.kernel(enable_backward=False)
def add_joint_damping(
    # Structure:
    dof_parent: wp.array(dtype=int),
    damper: int,
    # Model:
    dof_damping: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    matrix: wp.array2d(dtype=real),
    # Out:
    matrix_out: wp.array2d(dtype=real),
):
    """M + h D with D the joints' damping."""
    world = wp.tid()
    for k in range(dof_parent.shape[0]):
        j = k
        while j >= 0:
            matrix_out[world, lower(k, j)] = matrix[world, lower(k, j)]
            j = dof_parent[j]
        e = lower(k, k)
        matrix_out[world, e] = matrix_out[world, e] + timestep[world] * dof_damping[world, k] * real(damper)


@wp.kernel
def damping_power(
    # Structure:
    damper: int,
    # Model:
    dof_damping: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """l . h D a, dof by dof."""
    world, d = wp.tid()
    power_out[world, d] = timestep[world] * dof_damping[world, d] * real(damper) * qacc[world, d] * trial[world, d]


@wp.kernel(enable_backward=False)
def add_implicit_damping(
    # Structure:
    dof_parent: wp.array(dtype=int),
    branch: wp.array2d(dtype=int),
    tendon_adr: wp.array(dtype=int),
    tendon_dof: wp.array(dtype=int),
    transmission: wp.array(dtype=int),
    target: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    damper: int,
    # Model:
    timestep: wp.array(dtype=real),
    tendon_coef: wp.array2d(dtype=real),
    tendon_damping: wp.array2d(dtype=real),
    actuator_gear: wp.array2d(dtype=vec6),
    # In:
    qpos: wp.array2d(dtype=real),
    slope: wp.array2d(dtype=real),
    matrix: wp.array2d(dtype=real),
    # Out:
    matrix_out: wp.array2d(dtype=real),
):
    """M - h d(tendon and actuator force)/d(qvel), entries of dofs on one branch only, as in MuJoCo."""
    world = wp.tid()
    h = timestep[world]
    for k in range(dof_parent.shape[0]):
        j = k
        while j >= 0:
            matrix_out[world, lower(k, j)] = matrix[world, lower(k, j)]
            j = dof_parent[j]
    if damper != 0:
        for t in range(tendon_adr.shape[0] - 1):
            for i in range(tendon_adr[t], tendon_adr[t + 1]):
                for j in range(tendon_adr[t], tendon_adr[t + 1]):
                    a = tendon_dof[i]
                    b = tendon_dof[j]
                    if a >= b and branch[a, b] != 0:
                        e = lower(a, b)
                        c = tendon_coef[world, i] * tendon_coef[world, j]
                        matrix_out[world, e] = matrix_out[world, e] + h * tendon_damping[world, t] * c
    for u in range(slope.shape[1]):
        k = target[u]
        gear = actuator_gear[world, u]
        if transmission[u] == TENDON:
            for i in range(tendon_adr[k], tendon_adr[k + 1]):
                for j in range(tendon_adr[k], tendon_adr[k + 1]):
                    a = tendon_dof[i]
                    b = tendon_dof[j]
                    if a >= b and branch[a, b] != 0:
                        e = lower(a, b)
                        c = gear[0] * gear[0] * tendon_coef[world, i] * tendon_coef[world, j]
                        matrix_out[world, e] = matrix_out[world, e] - h * slope[world, u] * c
        else:
            t = joint_type[k]
            g = joint_gear(t, transmission[u], gear, qpos, world, joint_qpos[k])
            for i in range(dof_count(t)):
                for j in range(i + 1):
                    e = lower(joint_dof[k] + i, joint_dof[k] + j)
                    matrix_out[world, e] = matrix_out[world, e] - h * slope[world, u] * g[i] * g[j]


@wp.func
def branch_product(
    first: int,
    last: int,
    branch: wp.array2d(dtype=int),
    tendon_dof: wp.array(dtype=int),
    coef: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    world: int,
) -> real:
    """(J l) (J a) of a tendon, pairs of dofs on one branch only."""
    p = real(0.0)
    for i in range(first, last):
        for j in range(first, last):
            if branch[tendon_dof[i], tendon_dof[j]] != 0:
                p += coef[world, i] * trial[world, tendon_dof[i]] * coef[world, j] * rate[world, tendon_dof[j]]
    return p


@wp.kernel
def tendon_damping_power(
    # Structure:
    branch: wp.array2d(dtype=int),
    tendon_adr: wp.array(dtype=int),
    tendon_dof: wp.array(dtype=int),
    damper: int,
    # Model:
    timestep: wp.array(dtype=real),
    tendon_coef: wp.array2d(dtype=real),
    tendon_damping: wp.array2d(dtype=real),
    # In:
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """l . h (d J^T J) a of every tendon."""
    world, t = wp.tid()
    p = branch_product(tendon_adr[t], tendon_adr[t + 1], branch, tendon_dof, tendon_coef, rate, trial, world)
    power_out[world, t] = timestep[world] * tendon_damping[world, t] * real(damper) * p


@wp.kernel
def actuator_damping_power(
    # Structure:
    branch: wp.array2d(dtype=int),
    tendon_adr: wp.array(dtype=int),
    tendon_dof: wp.array(dtype=int),
    transmission: wp.array(dtype=int),
    target: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    gain: wp.array(dtype=int),
    bias: wp.array(dtype=int),
    limited: wp.array(dtype=int),
    # Model:
    timestep: wp.array(dtype=real),
    tendon_coef: wp.array2d(dtype=real),
    actuator_gear: wp.array2d(dtype=vec6),
    gainprm: wp.array2d(dtype=vec3),
    biasprm: wp.array2d(dtype=vec3),
    forcerange: wp.array2d(dtype=vec2),
    # In:
    qpos: wp.array2d(dtype=real),
    signal: wp.array2d(dtype=real),
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """-l . h (d(force)/d(qvel)) a of every actuator."""
    world, u = wp.tid()
    s = actuator_slope(
        signal[world, u],
        length[world, u],
        velocity[world, u],
        gain[u],
        bias[u],
        gainprm[world, u],
        biasprm[world, u],
        limited[u],
        forcerange[world, u],
    )
    k = target[u]
    gear = actuator_gear[world, u]
    if transmission[u] == TENDON:
        p = branch_product(tendon_adr[k], tendon_adr[k + 1], branch, tendon_dof, tendon_coef, rate, trial, world)
        power_out[world, u] = -timestep[world] * s * gear[0] * gear[0] * p
    else:
        t = joint_type[k]
        d = joint_dof[k]
        g = joint_gear(t, transmission[u], gear, qpos, world, joint_qpos[k])
        power_out[world, u] = (
            -timestep[world] * s * joint_rate(t, g, rate, world, d) * joint_rate(t, g, trial, world, d)
        )
