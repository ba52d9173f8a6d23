"""Equality constraints: two points coincide, two bodies keep their relative pose, joints or tendons are coupled."""

import warp as wp

from .._precision import motion, quat, real, vec2, vec3, vec5, wrench
from ..math import quat_conj, quat_mul, quat_unit, rotate, spatial
from .constraint import (
    UNBOUNDED,
    impedance,
    point_rate,
    resistance,
    set_row,
    spring_damper,
)


@wp.func
def vector_part(q: quat) -> vec3:
    """A quaternion without its real part."""
    return vec3(q[1], q[2], q[3])


@wp.func
def turned(back: quat, w: vec3, turn: quat) -> vec3:
    """Rate of the vector part of back turn = conj(q2) q1 for a relative angular velocity w: (back w turn) / 2."""
    return real(0.5) * vector_part(quat_mul(quat_mul(back, quat(real(0.0), w[0], w[1], w[2])), turn))


@wp.func
def turning_rate(w: vec3, q: quat) -> quat:
    """dq/dt = w q / 2."""
    return real(0.5) * quat_mul(quat(real(0.0), w[0], w[1], w[2]), q)


@wp.func
def turned_bias(back: quat, w1: vec3, w2: vec3, turn: quat) -> vec3:
    """What the angular velocities themselves add to the second derivative of that vector part."""
    w = w1 - w2
    wq = quat(real(0.0), w[0], w[1], w[2])
    first = quat_mul(quat_mul(quat_conj(turning_rate(w2, quat_conj(back))), wq), turn)
    second = quat_mul(quat_mul(back, wq), turning_rate(w1, turn))
    return real(0.5) * (vector_part(first) + vector_part(second))


@wp.func
def point_acceleration(a: motion, v: motion, r: vec3) -> vec3:
    """Acceleration of the point at r: the spatial acceleration's field and w x the point's velocity."""
    return point_rate(a, r) + wp.cross(wp.spatial_top(v), point_rate(v, r))


@wp.func
def weld_load(
    rows: int,
    scale: real,
    weight: vec2,
    solimp: vec5,
    kb: vec2,
    turn: quat,
    back: quat,
    shift: vec3,
    v1: motion,
    v2: motion,
    a1: motion,
    a2: motion,
    r1: vec3,
    r2: vec3,
) -> wrench:
    """What a connection or a weld does to its first body at the anchor r1, and the opposite to the second at r2."""
    tilt = scale * vector_part(quat_mul(back, turn))
    violation = wp.dot(shift, shift)
    if rows == 6:
        violation += wp.dot(tilt, tilt)
    z = impedance(solimp, wp.sqrt(violation + real(1.0e-30)))
    along = point_acceleration(a1, v1, r1) - point_acceleration(a2, v2, r2)
    along += kb[1] * (point_rate(v1, r1) - point_rate(v2, r2)) + (kb[0] * z) * shift
    torque = vec3()
    if rows == 6:
        w1 = wp.spatial_top(v1)
        w2 = wp.spatial_top(v2)
        about = turned_bias(back, w1, w2, turn) + turned(back, wp.spatial_top(a1) - wp.spatial_top(a2), turn)
        about = scale * (about + kb[1] * turned(back, w1 - w2, turn)) + (kb[0] * z) * tilt
        torque = -scale / resistance(z, weight[1]) * turned(quat_conj(back), about, quat_conj(turn))
    return spatial(torque, -along / resistance(z, weight[0]))


@wp.kernel(enable_backward=False)
def weld_rows(
    # Structure:
    body: wp.array2d(dtype=int),
    rows: wp.array(dtype=int),
    start: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    body_lastdof: wp.array(dtype=int),
    dof_parent: wp.array(dtype=int),
    dof_origin: wp.array(dtype=int),
    refsafe: int,
    # Model:
    anchor1: wp.array2d(dtype=vec3),
    anchor2: wp.array2d(dtype=vec3),
    turn1: wp.array2d(dtype=quat),
    turn2: wp.array2d(dtype=quat),
    torquescale: wp.array2d(dtype=real),
    solref: wp.array2d(dtype=vec2),
    solimp: wp.array2d(dtype=vec5),
    body_invweight0: wp.array2d(dtype=vec2),
    timestep: wp.array(dtype=real),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    axis: wp.array2d(dtype=motion),
    frame_vel: wp.array2d(dtype=motion),
    frame_bias: wp.array2d(dtype=motion),
    # Out:
    jacobian_out: wp.array3d(dtype=real),
    weight_out: wp.array2d(dtype=real),
    reference_out: wp.array2d(dtype=real),
    bound_out: wp.array2d(dtype=vec2),
):
    """Three rows of a connection, six of a weld: anchor 1 less anchor 2, and the orientation between the bodies.

    ``frame_bias`` is the acceleration of the frames when no dof accelerates.
    """
    world, e = wp.tid()
    f1 = body_frame[body[e, 0]]
    f2 = body_frame[body[e, 1]]
    p1 = frame_pos[world, f1] + rotate(frame_quat[world, f1], anchor1[world, e])
    p2 = frame_pos[world, f2] + rotate(frame_quat[world, f2], anchor2[world, e])
    r1 = p1 - frame_pos[world, body_origin[body[e, 0]]]
    r2 = p2 - frame_pos[world, body_origin[body[e, 1]]]
    v1 = frame_vel[world, f1]
    v2 = frame_vel[world, f2]
    a1 = frame_bias[world, f1]
    a2 = frame_bias[world, f2]
    scale = torquescale[world, e]
    turn = quat_mul(frame_quat[world, f1], quat_unit(turn1[world, e]))
    back = quat_conj(quat_mul(frame_quat[world, f2], quat_unit(turn2[world, e])))
    shift = p1 - p2
    tilt = scale * vector_part(quat_mul(back, turn))
    w1 = wp.spatial_top(v1)
    w2 = wp.spatial_top(v2)
    rate = point_rate(v1, r1) - point_rate(v2, r2)
    spin = scale * turned(back, w1 - w2, turn)
    bias = point_acceleration(a1, v1, r1) - point_acceleration(a2, v2, r2)
    twist = scale * (turned_bias(back, w1, w2, turn) + turned(back, wp.spatial_top(a1) - wp.spatial_top(a2), turn))
    violation = wp.dot(shift, shift)
    if rows[e] == 6:
        violation += wp.dot(tilt, tilt)
    z = impedance(solimp[world, e], wp.sqrt(violation))
    kb = spring_damper(solref[world, e], solimp[world, e], timestep[world], refsafe)
    weight = body_invweight0[world, body[e, 0]] + body_invweight0[world, body[e, 1]]
    along = -kb[1] * rate - kb[0] * z * shift - bias
    about = -kb[1] * spin - kb[0] * z * tilt - twist
    for i in range(rows[e]):
        r = resistance(z, wp.where(i < 3, weight[0], weight[1]))
        reference = wp.where(i < 3, along[i % 3], about[i % 3])
        set_row(
            world,
            start[e] + i,
            r,
            reference,
            -UNBOUNDED,
            UNBOUNDED,
            jacobian_out,
            weight_out,
            reference_out,
            bound_out,
        )
    for side in range(2):
        sign = wp.where(side == 0, real(1.0), real(-1.0))
        p = wp.where(side == 0, p1, p2)
        d = body_lastdof[body[e, side]]
        while d >= 0:
            m = axis[world, d]
            u = sign * point_rate(m, p - frame_pos[world, dof_origin[d]])
            for i in range(3):
                jacobian_out[world, start[e] + i, d] = jacobian_out[world, start[e] + i, d] + u[i]
            if rows[e] == 6:
                s = (sign * scale) * turned(back, wp.spatial_top(m), turn)
                for i in range(3):
                    jacobian_out[world, start[e] + 3 + i, d] = jacobian_out[world, start[e] + 3 + i, d] + s[i]
            d = dof_parent[d]


@wp.kernel
def weld_loads(
    # Structure:
    body: wp.array2d(dtype=int),
    rows: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    refsafe: int,
    # Model:
    anchor1: wp.array2d(dtype=vec3),
    anchor2: wp.array2d(dtype=vec3),
    turn1: wp.array2d(dtype=quat),
    turn2: wp.array2d(dtype=quat),
    torquescale: wp.array2d(dtype=real),
    solref: wp.array2d(dtype=vec2),
    solimp: wp.array2d(dtype=vec5),
    body_invweight0: wp.array2d(dtype=vec2),
    timestep: wp.array(dtype=real),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    # Out:
    load_out: wp.array2d(dtype=wrench),
):
    """Torque and force on the first body at its anchor; the second body feels the opposite at its own.

    ``frame_acc`` is the whole acceleration of the frames.
    """
    world, e = wp.tid()
    f1 = body_frame[body[e, 0]]
    f2 = body_frame[body[e, 1]]
    p1 = frame_pos[world, f1] + rotate(frame_quat[world, f1], anchor1[world, e])
    p2 = frame_pos[world, f2] + rotate(frame_quat[world, f2], anchor2[world, e])
    r1 = p1 - frame_pos[world, body_origin[body[e, 0]]]
    r2 = p2 - frame_pos[world, body_origin[body[e, 1]]]
    load_out[world, e] = weld_load(
        rows[e],
        torquescale[world, e],
        body_invweight0[world, body[e, 0]] + body_invweight0[world, body[e, 1]],
        solimp[world, e],
        spring_damper(solref[world, e], solimp[world, e], timestep[world], refsafe),
        quat_mul(frame_quat[world, f1], quat_unit(turn1[world, e])),
        quat_conj(quat_mul(frame_quat[world, f2], quat_unit(turn2[world, e]))),
        p1 - p2,
        frame_vel[world, f1],
        frame_vel[world, f2],
        frame_acc[world, f1],
        frame_acc[world, f2],
        r1,
        r2,
    )


@wp.kernel
def weld_power(
    # Structure:
    body: wp.array2d(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    # Model:
    anchor1: wp.array2d(dtype=vec3),
    anchor2: wp.array2d(dtype=vec3),
    # In:
    load: wp.array2d(dtype=wrench),
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the constraint's forces, negative as all that acts on the joints."""
    world, e = wp.tid()
    f1 = body_frame[body[e, 0]]
    f2 = body_frame[body[e, 1]]
    p1 = frame_pos[world, f1] + rotate(frame_quat[world, f1], anchor1[world, e])
    p2 = frame_pos[world, f2] + rotate(frame_quat[world, f2], anchor2[world, e])
    l1 = frame_trial[world, f1]
    l2 = frame_trial[world, f2]
    rate = point_rate(l1, p1 - frame_pos[world, body_origin[body[e, 0]]])
    rate -= point_rate(l2, p2 - frame_pos[world, body_origin[body[e, 1]]])
    spin = wp.spatial_top(l1) - wp.spatial_top(l2)
    power_out[world, e] = -wp.dot(wp.spatial_bottom(load[world, e]), rate) - wp.dot(
        wp.spatial_top(load[world, e]), spin
    )


@wp.func
def coupling(c: vec5, x: real) -> vec2:
    """The quartic that couples two coordinates, and its slope."""
    value = c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])))
    slope = c[1] + x * (real(2.0) * c[2] + x * (real(3.0) * c[3] + x * real(4.0) * c[4]))
    return vec2(value, slope)


@wp.func
def coupled(first: real, second: real, alone: int, c: vec5) -> vec2:
    """Violation of a coupling of two coordinates, and its slope by the second; alone, the first is held."""
    y = coupling(c, second)
    if alone != 0:
        y = vec2(c[0], real(0.0))
    return vec2(first - y[0], y[1])


@wp.kernel(enable_backward=False)
def joint_coupling_rows(
    # Structure:
    joint: wp.array2d(dtype=int),
    start: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    refsafe: int,
    # Model:
    coefficients: wp.array2d(dtype=vec5),
    solref: wp.array2d(dtype=vec2),
    solimp: wp.array2d(dtype=vec5),
    dof_invweight0: wp.array2d(dtype=real),
    qpos0: wp.array2d(dtype=real),
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
    """One row: q1 - q1_0 = polynomial of q2 - q2_0, or a constant where there is no second joint."""
    world, e = wp.tid()
    alone = int(0)
    j1 = joint[e, 0]
    j2 = joint[e, 1]
    if j2 < 0:
        alone = 1
        j2 = j1
    q1 = joint_qpos[j1]
    q2 = joint_qpos[j2]
    d1 = joint_dof[j1]
    d2 = joint_dof[j2]
    y = coupled(qpos[world, q1] - qpos0[world, q1], qpos[world, q2] - qpos0[world, q2], alone, coefficients[world, e])
    z = impedance(solimp[world, e], y[0])
    kb = spring_damper(solref[world, e], solimp[world, e], timestep[world], refsafe)
    weight = dof_invweight0[world, d1]
    if alone == 0:
        weight += dof_invweight0[world, d2]
    rate = qvel[world, d1] - y[1] * qvel[world, d2]
    r = resistance(z, weight)
    reference = -kb[1] * rate - kb[0] * z * y[0]
    row = start[e]
    set_row(world, row, r, reference, -UNBOUNDED, UNBOUNDED, jacobian_out, weight_out, reference_out, bound_out)
    jacobian_out[world, row, d1] = real(1.0)
    if alone == 0:
        jacobian_out[world, row, d2] = -y[1]


@wp.kernel
def joint_coupling_power(
    # Structure:
    joint: wp.array2d(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    refsafe: int,
    # Model:
    coefficients: wp.array2d(dtype=vec5),
    solref: wp.array2d(dtype=vec2),
    solimp: wp.array2d(dtype=vec5),
    dof_invweight0: wp.array2d(dtype=real),
    qpos0: wp.array2d(dtype=real),
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
    """Virtual power of the coupling's force, negative as all that acts on the joints."""
    world, e = wp.tid()
    alone = int(0)
    j1 = joint[e, 0]
    j2 = joint[e, 1]
    if j2 < 0:
        alone = 1
        j2 = j1
    q1 = joint_qpos[j1]
    q2 = joint_qpos[j2]
    d1 = joint_dof[j1]
    d2 = joint_dof[j2]
    y = coupled(qpos[world, q1] - qpos0[world, q1], qpos[world, q2] - qpos0[world, q2], alone, coefficients[world, e])
    z = impedance(solimp[world, e], y[0])
    kb = spring_damper(solref[world, e], solimp[world, e], timestep[world], refsafe)
    weight = dof_invweight0[world, d1]
    if alone == 0:
        weight += dof_invweight0[world, d2]
    error = qacc[world, d1] - y[1] * qacc[world, d2]
    error += kb[1] * (qvel[world, d1] - y[1] * qvel[world, d2]) + kb[0] * z * y[0]
    power_out[world, e] = error / resistance(z, weight) * (trial[world, d1] - y[1] * trial[world, d2])


@wp.kernel(enable_backward=False)
def tendon_coupling_rows(
    # Structure:
    tendon: wp.array2d(dtype=int),
    start: wp.array(dtype=int),
    refsafe: int,
    # Model:
    coefficients: wp.array2d(dtype=vec5),
    solref: wp.array2d(dtype=vec2),
    solimp: wp.array2d(dtype=vec5),
    tendon_invweight0: wp.array2d(dtype=real),
    tendon_length0: wp.array2d(dtype=real),
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
    """One row: length less its reference = polynomial of the other's; ``moment`` is the tendons' Jacobian."""
    world, e = wp.tid()
    alone = int(0)
    t1 = tendon[e, 0]
    t2 = tendon[e, 1]
    if t2 < 0:
        alone = 1
        t2 = t1
    y = coupled(
        length[world, t1] - tendon_length0[world, t1],
        length[world, t2] - tendon_length0[world, t2],
        alone,
        coefficients[world, e],
    )
    z = impedance(solimp[world, e], y[0])
    kb = spring_damper(solref[world, e], solimp[world, e], timestep[world], refsafe)
    weight = tendon_invweight0[world, t1]
    if alone == 0:
        weight += tendon_invweight0[world, t2]
    r = resistance(z, weight)
    reference = -kb[1] * (velocity[world, t1] - y[1] * velocity[world, t2]) - kb[0] * z * y[0]
    row = start[e]
    set_row(world, row, r, reference, -UNBOUNDED, UNBOUNDED, jacobian_out, weight_out, reference_out, bound_out)
    for d in range(moment.shape[2]):
        jacobian_out[world, row, d] = moment[world, t1, d] - y[1] * moment[world, t2, d]


@wp.kernel
def tendon_coupling_power(
    # Structure:
    tendon: wp.array2d(dtype=int),
    refsafe: int,
    # Model:
    coefficients: wp.array2d(dtype=vec5),
    solref: wp.array2d(dtype=vec2),
    solimp: wp.array2d(dtype=vec5),
    tendon_invweight0: wp.array2d(dtype=real),
    tendon_length0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the coupling's force; ``rate`` is J a of the tendons, ``trial`` J l."""
    world, e = wp.tid()
    alone = int(0)
    t1 = tendon[e, 0]
    t2 = tendon[e, 1]
    if t2 < 0:
        alone = 1
        t2 = t1
    y = coupled(
        length[world, t1] - tendon_length0[world, t1],
        length[world, t2] - tendon_length0[world, t2],
        alone,
        coefficients[world, e],
    )
    z = impedance(solimp[world, e], y[0])
    kb = spring_damper(solref[world, e], solimp[world, e], timestep[world], refsafe)
    weight = tendon_invweight0[world, t1]
    if alone == 0:
        weight += tendon_invweight0[world, t2]
    error = rate[world, t1] - y[1] * rate[world, t2]
    error += kb[1] * (velocity[world, t1] - y[1] * velocity[world, t2]) + kb[0] * z * y[0]
    power_out[world, e] = error / resistance(z, weight) * (trial[world, t1] - y[1] * trial[world, t2])
