"""Actuators: their forces, and the virtual power of these.

One thread does all actuators of a world: most do so little that a thread for each would spend its time
on reading its arguments.
"""

import warp as wp

from ..._precision import real, vec2, vec3, vec6
from ...math import held
from .muscle import muscle_bias, muscle_gain, muscle_gain_slope

AFFINE = wp.constant(1)
MUSCLE = wp.constant(2)
TAU = wp.constant(real(6.283185307179586))


@wp.func
def affine(prm: wp.array3d(dtype=real), world: int, i: int, length: real, velocity: real) -> real:
    """Constant, by length and by velocity."""
    return prm[world, i, 0] + prm[world, i, 1] * length + prm[world, i, 2] * velocity


@wp.func
def nearest_setpoint(
    turning: int,
    actuator_gear: wp.array2d(dtype=vec6),
    gain: real,
    stiffness: real,
    signal: real,
    length: real,
    world: int,
    i: int,
) -> real:
    """The setpoint of a servo for rotations, whole turns away, that is nearest to the length."""
    gear = actuator_gear[world, i]
    period = real(0.0)
    if gain == -stiffness:
        if turning == 1:
            period = TAU * wp.length(vec3(gear[0], gear[1], gear[2]))
        elif turning == 2 and gear[0] == real(0.0) and gear[1] == real(0.0) and gear[2] == real(0.0):
            period = TAU * wp.length(vec3(gear[3], gear[4], gear[5]))
    out = signal
    if period > real(0.0):
        out = signal - period * wp.round((signal - length) / period)
    return out


@wp.kernel
def actuator_forces(
    # Structure:
    gain: wp.array(dtype=int),
    bias: wp.array(dtype=int),
    turning: wp.array(dtype=int),
    # Model:
    actuator_gear: wp.array2d(dtype=vec6),
    gainprm: wp.array3d(dtype=real),
    biasprm: wp.array3d(dtype=real),
    lengthrange: wp.array2d(dtype=vec2),
    acc0: wp.array2d(dtype=real),
    # In:
    signal: wp.array2d(dtype=real),
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """gain(length, velocity) signal + bias(length, velocity), before any limit."""
    world = wp.tid()
    for i in range(gain.shape[0]):
        x = length[world, i]
        v = velocity[world, i]
        u = signal[world, i]
        g = gainprm[world, i, 0]
        if gain[i] == AFFINE:
            g = affine(gainprm, world, i, x, v)
        elif gain[i] == MUSCLE:
            g = muscle_gain(gainprm, world, i, lengthrange[world, i], acc0[world, i], x, v)
        elif turning[i] != 0:
            u = nearest_setpoint(turning[i], actuator_gear, g, biasprm[world, i, 1], signal[world, i], x, world, i)
        f = g * u
        if bias[i] == AFFINE:
            f += affine(biasprm, world, i, x, v)
        elif bias[i] == MUSCLE:
            f += muscle_bias(biasprm, world, i, lengthrange[world, i], acc0[world, i], x)
        force_out[world, i] = f


@wp.kernel
def tendon_totals(
    # Structure:
    tendon: wp.array(dtype=int),
    # In:
    force: wp.array2d(dtype=real),
    # Out:
    total_out: wp.array2d(dtype=real),
):
    """Sum of the actuators' forces on every tendon."""
    world, t = wp.tid()
    s = real(0.0)
    for i in range(tendon.shape[0]):
        if tendon[i] == t:
            s += force[world, i]
    total_out[world, t] = s


@wp.kernel
def limited_forces(
    # Structure:
    tendon: wp.array(dtype=int),
    limited: wp.array(dtype=int),
    # Model:
    tendon_range: wp.array2d(dtype=vec2),
    forcerange: wp.array2d(dtype=vec2),
    # In:
    total: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """Forces scaled so that their sum on a tendon keeps to its range, then held inside their own ranges.

    ``tendon`` is the tendon of each actuator where that tendon has a range, or -1.
    """
    world, i = wp.tid()
    f = force[world, i]
    t = tendon[i]
    if t >= 0:
        if total[world, t] < tendon_range[world, t][0]:
            f = force[world, i] * tendon_range[world, t][0] / total[world, t]
        elif total[world, t] > tendon_range[world, t][1]:
            f = force[world, i] * tendon_range[world, t][1] / total[world, t]
    if limited[i] != 0:
        f = held(f, forcerange[world, i][0], forcerange[world, i][1])
    force_out[world, i] = f


@wp.func
def at_end(x: real, bounds: vec2) -> bool:
    """Whether x is at or beyond an end of its range."""
    return x <= bounds[0] or x >= bounds[1]


@wp.kernel
def actuator_damping(
    # Structure:
    gain: wp.array(dtype=int),
    bias: wp.array(dtype=int),
    limited: wp.array(dtype=int),
    tendon: wp.array(dtype=int),
    joint: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # Model:
    gainprm: wp.array3d(dtype=real),
    biasprm: wp.array3d(dtype=real),
    lengthrange: wp.array2d(dtype=vec2),
    acc0: wp.array2d(dtype=real),
    forcerange: wp.array2d(dtype=vec2),
    tendon_range: wp.array2d(dtype=vec2),
    joint_range: wp.array2d(dtype=vec2),
    # In:
    signal: wp.array2d(dtype=real),
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    total: wp.array2d(dtype=real),
    drive: wp.array2d(dtype=real),
    # Out:
    damping_out: wp.array2d(dtype=real),
):
    """-d(force)/d(velocity); none where the force, or the sum of forces on its tendon or joint, is at its range.

    ``tendon`` and ``joint`` are those that an actuator acts on where they have ranges, or -1.
    """
    world, i = wp.tid()
    s = real(0.0)
    if gain[i] == AFFINE:
        s = gainprm[world, i, 2] * signal[world, i]
    elif gain[i] == MUSCLE:
        slope = muscle_gain_slope(
            gainprm, world, i, lengthrange[world, i], acc0[world, i], length[world, i], velocity[world, i]
        )
        s = slope * signal[world, i]
    if bias[i] == AFFINE:
        s += biasprm[world, i, 2]
    t = tendon[i]
    j = joint[i]
    if limited[i] != 0 and at_end(force[world, i], forcerange[world, i]):
        s = real(0.0)
    if t >= 0 and at_end(total[world, t], tendon_range[world, t]):
        s = real(0.0)
    if j >= 0 and at_end(drive[world, joint_dof[j]], joint_range[world, j]):
        s = real(0.0)
    damping_out[world, i] = -s


@wp.func
def drive_sum(
    first: int,
    last: int,
    dof_entry: wp.array(dtype=int),
    entry_row: wp.array(dtype=int),
    moment: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    world: int,
) -> real:
    """Sum of moments times forces over the actuators of a dof."""
    s = real(0.0)
    for n in range(first, last):
        s += moment[world, dof_entry[n]] * force[world, entry_row[dof_entry[n]]]
    return s


@wp.func
def joint_drive(
    d: int,
    dof_adr: wp.array(dtype=int),
    dof_entry: wp.array(dtype=int),
    entry_row: wp.array(dtype=int),
    joint: int,
    carried: int,
    joint_range: wp.array2d(dtype=vec2),
    moment: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    world: int,
) -> real:
    """Generalised force of all actuators on a dof and the weight that they carry, held inside its joint's range."""
    drive = drive_sum(dof_adr[d], dof_adr[d + 1], dof_entry, entry_row, moment, force, world)
    if carried >= 0:
        drive += weight[world, carried]
    if joint >= 0:
        drive = held(drive, joint_range[world, joint][0], joint_range[world, joint][1])
    return drive


@wp.kernel
def joint_drives(
    # Structure:
    dof_adr: wp.array(dtype=int),
    dof_entry: wp.array(dtype=int),
    entry_row: wp.array(dtype=int),
    limited_joint: wp.array(dtype=int),
    weight_number: wp.array(dtype=int),
    # Model:
    joint_range: wp.array2d(dtype=vec2),
    # In:
    moment: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    # Out:
    drive_out: wp.array2d(dtype=real),
):
    """Generalised force of all actuators, moment^T force, held inside the joints' ranges.

    ``limited_joint`` is the joint of each dof where that joint has a range, or -1; ``weight_number`` the weight that
    the actuators of a dof carry, or -1.
    """
    world = wp.tid()
    for d in range(limited_joint.shape[0]):
        drive_out[world, d] = joint_drive(
            d,
            dof_adr,
            dof_entry,
            entry_row,
            limited_joint[d],
            weight_number[d],
            joint_range,
            moment,
            force,
            weight,
            world,
        )


@wp.kernel
def drive_power(
    # Structure:
    dof_adr: wp.array(dtype=int),
    dof_entry: wp.array(dtype=int),
    entry_row: wp.array(dtype=int),
    limited_joint: wp.array(dtype=int),
    weight_number: wp.array(dtype=int),
    # Model:
    joint_range: wp.array2d(dtype=vec2),
    # In:
    moment: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the actuators, negative as all that acts on the joints."""
    world = wp.tid()
    for d in range(limited_joint.shape[0]):
        drive = joint_drive(
            d,
            dof_adr,
            dof_entry,
            entry_row,
            limited_joint[d],
            weight_number[d],
            joint_range,
            moment,
            force,
            weight,
            world,
        )
        power_out[world, d] = -drive * trial[world, d]
