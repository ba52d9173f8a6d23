"""Actuators: how they move with the dofs, their forces, and the virtual power of these."""

import warp as wp

from .._precision import real, vec2, vec3, vec6
from ..math import quat_log, rotate_back
from .forces import dof_count, quat_at
from .kinematics import BALL, FREE

TENDON = wp.constant(3)
AFFINE = wp.constant(1)


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
def joint_rate(joint_type: int, gear: vec6, rate: wp.array2d(dtype=real), world: int, d: int) -> real:
    """Rate of an actuator's length for given rates of the dofs."""
    s = gear[0] * rate[world, d]
    if joint_type == BALL or joint_type == FREE:
        s += gear[1] * rate[world, d + 1] + gear[2] * rate[world, d + 2]
    if joint_type == FREE:
        s += gear[3] * rate[world, d + 3] + gear[4] * rate[world, d + 4] + gear[5] * rate[world, d + 5]
    return s


@wp.func
def clamped(x: real, limited: int, bounds: vec2) -> real:
    """x, held inside the bounds where they count."""
    out = x
    if limited != 0:
        out = wp.clamp(x, bounds[0], bounds[1])
    return out


@wp.func
def actuator_force(
    signal: real,
    length: real,
    velocity: real,
    gain: int,
    bias: int,
    gainprm: vec3,
    biasprm: vec3,
    limited: int,
    bounds: vec2,
) -> real:
    """gain(length, velocity) signal + bias(length, velocity), held inside the force range."""
    g = gainprm[0]
    if gain == AFFINE:
        g += gainprm[1] * length + gainprm[2] * velocity
    f = g * signal
    if bias == AFFINE:
        f += biasprm[0] + biasprm[1] * length + biasprm[2] * velocity
    return clamped(f, limited, bounds)


@wp.func
def actuator_slope(
    signal: real,
    length: real,
    velocity: real,
    gain: int,
    bias: int,
    gainprm: vec3,
    biasprm: vec3,
    limited: int,
    bounds: vec2,
) -> real:
    """d(force)/d(velocity); zero where the force is held at its range."""
    g = gainprm[0]
    s = real(0.0)
    if gain == AFFINE:
        g += gainprm[1] * length + gainprm[2] * velocity
        s += gainprm[2] * signal
    f = g * signal
    if bias == AFFINE:
        f += biasprm[0] + biasprm[1] * length + biasprm[2] * velocity
        s += biasprm[2]
    if limited != 0 and (f <= bounds[0] or f >= bounds[1]):
        s = real(0.0)
    return s


@wp.kernel
def actuator_signals(
    # Structure:
    act: wp.array(dtype=int),
    limited: wp.array(dtype=int),
    # Model:
    ctrlrange: wp.array2d(dtype=vec2),
    # State in:
    activation: wp.array2d(dtype=real),
    ctrl: wp.array2d(dtype=real),
    # Out:
    signal_out: wp.array2d(dtype=real),
):
    """What drives each actuator: its activation, or its control held inside its range."""
    world, i = wp.tid()
    if act[i] >= 0:
        signal_out[world, i] = activation[world, act[i]]
    else:
        signal_out[world, i] = clamped(ctrl[world, i], limited[i], ctrlrange[world, i])


@wp.kernel
def actuator_rates(
    # Structure:
    transmission: wp.array(dtype=int),
    target: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # Model:
    actuator_gear: wp.array2d(dtype=vec6),
    # In:
    qpos: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    tendon_rate: wp.array2d(dtype=real),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """Rate of every actuator's length for given rates of the dofs: its moment times the rates."""
    world, i = wp.tid()
    k = target[i]
    gear = actuator_gear[world, i]
    if transmission[i] == TENDON:
        rate_out[world, i] = gear[0] * tendon_rate[world, k]
    else:
        t = joint_type[k]
        g = joint_gear(t, transmission[i], gear, qpos, world, joint_qpos[k])
        rate_out[world, i] = joint_rate(t, g, rate, world, joint_dof[k])


@wp.kernel
def actuator_lengths(
    # Structure:
    transmission: wp.array(dtype=int),
    target: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    # Model:
    actuator_gear: wp.array2d(dtype=vec6),
    # In:
    qpos: wp.array2d(dtype=real),
    tendon_length: wp.array2d(dtype=real),
    # Out:
    length_out: wp.array2d(dtype=real),
):
    """Length of every actuator."""
    world, i = wp.tid()
    k = target[i]
    gear = actuator_gear[world, i]
    if transmission[i] == TENDON:
        length_out[world, i] = gear[0] * tendon_length[world, k]
    else:
        t = joint_type[k]
        g = joint_gear(t, transmission[i], gear, qpos, world, joint_qpos[k])
        length_out[world, i] = joint_length(t, g, qpos, world, joint_qpos[k])


@wp.kernel(enable_backward=False)
def actuator_forces(
    # Structure:
    gain: wp.array(dtype=int),
    bias: wp.array(dtype=int),
    limited: wp.array(dtype=int),
    # Model:
    gainprm: wp.array2d(dtype=vec3),
    biasprm: wp.array2d(dtype=vec3),
    forcerange: wp.array2d(dtype=vec2),
    # In:
    signal: wp.array2d(dtype=real),
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
    slope_out: wp.array2d(dtype=real),
):
    """Force of every actuator and its derivative by velocity."""
    world, i = wp.tid()
    force_out[world, i] = actuator_force(
        signal[world, i],
        length[world, i],
        velocity[world, i],
        gain[i],
        bias[i],
        gainprm[world, i],
        biasprm[world, i],
        limited[i],
        forcerange[world, i],
    )
    slope_out[world, i] = actuator_slope(
        signal[world, i],
        length[world, i],
        velocity[world, i],
        gain[i],
        bias[i],
        gainprm[world, i],
        biasprm[world, i],
        limited[i],
        forcerange[world, i],
    )


@wp.kernel
def actuator_power(
    # Structure:
    gain: wp.array(dtype=int),
    bias: wp.array(dtype=int),
    limited: wp.array(dtype=int),
    # Model:
    gainprm: wp.array2d(dtype=vec3),
    biasprm: wp.array2d(dtype=vec3),
    forcerange: wp.array2d(dtype=vec2),
    # In:
    signal: wp.array2d(dtype=real),
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the actuators' forces, negative as all that acts on the joints."""
    world, i = wp.tid()
    f = actuator_force(
        signal[world, i],
        length[world, i],
        velocity[world, i],
        gain[i],
        bias[i],
        gainprm[world, i],
        biasprm[world, i],
        limited[i],
        forcerange[world, i],
    )
    power_out[world, i] = -f * trial[world, i]


@wp.kernel(enable_backward=False)
def add_actuator_forces(
    # Structure:
    transmission: wp.array(dtype=int),
    target: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    tendon_adr: wp.array(dtype=int),
    tendon_dof: wp.array(dtype=int),
    # Model:
    actuator_gear: wp.array2d(dtype=vec6),
    tendon_coef: wp.array2d(dtype=real),
    # In:
    qpos: wp.array2d(dtype=real),
    actuator_force: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """Generalised forces with those of the actuators added: moment^T force."""
    world = wp.tid()
    for d in range(force.shape[1]):
        force_out[world, d] = force[world, d]
    for i in range(target.shape[0]):
        k = target[i]
        gear = actuator_gear[world, i]
        f = actuator_force[world, i]
        if transmission[i] == TENDON:
            for w in range(tendon_adr[k], tendon_adr[k + 1]):
                d = tendon_dof[w]
                force_out[world, d] = force_out[world, d] + gear[0] * tendon_coef[world, w] * f
        else:
            t = joint_type[k]
            g = joint_gear(t, transmission[i], gear, qpos, world, joint_qpos[k])
            for c in range(dof_count(t)):
                d = joint_dof[k] + c
                force_out[world, d] = force_out[world, d] + g[c] * f
