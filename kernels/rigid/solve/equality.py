"""Equality constraints: two points coincide, two bodies keep their relative pose, joints or tendons are coupled."""

import warp as wp

from ..._precision import motion, quat, real, vec2, vec3, vec5, wrench
from ...math import quat_conj, quat_mul, quat_unit, rotate, spatial
from ..bodies import Bodies, Frames
from .constraint import UNBOUNDED, Rows, Soft, impedance, point_rate, resistance, set_row, softened, spring_damper


@wp.struct
class Welds:
    """Connections and welds between two bodies, in the bodies' frames."""

    body: wp.array2d(dtype=int)  # (weld, 2)
    rows: wp.array(dtype=int)  # three for a connection, six for a weld
    anchor1: wp.array2d(dtype=vec3)
    anchor2: wp.array2d(dtype=vec3)
    turn1: wp.array2d(dtype=quat)  # orientations that a weld aligns
    turn2: wp.array2d(dtype=quat)
    torquescale: wp.array2d(dtype=real)
    invweight0: wp.array2d(dtype=vec2)  # of all bodies


@wp.struct
class Couplings:
    """Polynomials that couple two joints or two tendons."""

    pair: wp.array2d(dtype=int)  # the two joints or tendons; the second may be -1
    coefficients: wp.array2d(dtype=vec5)
    invweight0: wp.array2d(dtype=real)  # of all dofs or tendons


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


@wp.func
def anchor_point(world: int, e: int, side: int, welds: Welds, bodies: Bodies, frames: Frames) -> vec3:
    """Where an anchor of the e-th connection or weld is."""
    f = bodies.frame[welds.body[e, side]]
    anchor = welds.anchor1[world, e]
    if side == 1:
        anchor = welds.anchor2[world, e]
    return frames.pos[world, f] + rotate(frames.quat[world, f], anchor)


@wp.func
def from_origin(world: int, body: int, p: vec3, bodies: Bodies, frames: Frames) -> vec3:
    """A point relative to the reference point of a body's motion."""
    return p - frames.pos[world, bodies.origin[body]]


@wp.kernel(enable_backward=False)
def weld_rows(
    # Structure:
    start: wp.array(dtype=int),
    bodies: Bodies,
    # Model:
    welds: Welds,
    soft: Soft,
    # In:
    frames: Frames,
    axis: wp.array2d(dtype=motion),
    frame_vel: wp.array2d(dtype=motion),
    frame_bias: wp.array2d(dtype=motion),
    # Out:
    rows_out: Rows,
):
    """Three rows of a connection, six of a weld: anchor 1 less anchor 2, and the orientation between the bodies.

    ``frame_bias`` is the acceleration of the frames when no dof accelerates.
    """
    world, e = wp.tid()
    b1 = welds.body[e, 0]
    b2 = welds.body[e, 1]
    f1 = bodies.frame[b1]
    f2 = bodies.frame[b2]
    p1 = anchor_point(world, e, 0, welds, bodies, frames)
    p2 = anchor_point(world, e, 1, welds, bodies, frames)
    r1 = from_origin(world, b1, p1, bodies, frames)
    r2 = from_origin(world, b2, p2, bodies, frames)
    v1 = frame_vel[world, f1]
    v2 = frame_vel[world, f2]
    a1 = frame_bias[world, f1]
    a2 = frame_bias[world, f2]
    # violation, its rate, and its acceleration when no dof accelerates
    scale = welds.torquescale[world, e]
    turn = quat_mul(frames.quat[world, f1], quat_unit(welds.turn1[world, e]))
    back = quat_conj(quat_mul(frames.quat[world, f2], quat_unit(welds.turn2[world, e])))
    shift = p1 - p2
    tilt = scale * vector_part(quat_mul(back, turn))
    w1 = wp.spatial_top(v1)
    w2 = wp.spatial_top(v2)
    rate = point_rate(v1, r1) - point_rate(v2, r2)
    spin = scale * turned(back, w1 - w2, turn)
    bias = point_acceleration(a1, v1, r1) - point_acceleration(a2, v2, r2)
    twist = scale * (turned_bias(back, w1, w2, turn) + turned(back, wp.spatial_top(a1) - wp.spatial_top(a2), turn))
    violation = wp.dot(shift, shift)
    if welds.rows[e] == 6:
        violation += wp.dot(tilt, tilt)
    z = impedance(soft.solimp[world, e], wp.sqrt(violation))
    kb = spring_damper(soft.solref[world, e], soft.solimp[world, e], soft.timestep[world], soft.refsafe)
    weight = welds.invweight0[world, b1] + welds.invweight0[world, b2]
    along = -kb[1] * rate - kb[0] * z * shift - bias
    about = -kb[1] * spin - kb[0] * z * tilt - twist
    for i in range(welds.rows[e]):
        r = resistance(z, wp.where(i < 3, weight[0], weight[1]))
        reference = wp.where(i < 3, along[i % 3], about[i % 3])
        set_row(world, start[e] + i, r, reference, -UNBOUNDED, UNBOUNDED, rows_out)
    # the Jacobian: what each dof of either branch adds
    for side in range(2):
        sign = wp.where(side == 0, real(1.0), real(-1.0))
        p = wp.where(side == 0, p1, p2)
        d = bodies.last_dof[welds.body[e, side]]
        while d >= 0:
            m = axis[world, d]
            u = sign * point_rate(m, p - frames.pos[world, bodies.dof_origin[d]])
            for i in range(3):
                row = start[e] + i
                rows_out.jacobian[world, row, d] = rows_out.jacobian[world, row, d] + u[i]
            if welds.rows[e] == 6:
                s = (sign * scale) * turned(back, wp.spatial_top(m), turn)
                for i in range(3):
                    row = start[e] + 3 + i
                    rows_out.jacobian[world, row, d] = rows_out.jacobian[world, row, d] + s[i]
            d = bodies.dof_parent[d]


@wp.kernel
def weld_loads(
    # Structure:
    bodies: Bodies,
    # Model:
    welds: Welds,
    soft: Soft,
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    # Out:
    load_out: wp.array2d(dtype=wrench),
):
    """Torque and force on the first body at its anchor; the second body feels the opposite at its own.

    ``frame_acc`` is the whole acceleration of the frames.
    """
    world, e = wp.tid()
    b1 = welds.body[e, 0]
    b2 = welds.body[e, 1]
    f1 = bodies.frame[b1]
    f2 = bodies.frame[b2]
    p1 = anchor_point(world, e, 0, welds, bodies, frames)
    p2 = anchor_point(world, e, 1, welds, bodies, frames)
    load_out[world, e] = weld_load(
        welds.rows[e],
        welds.torquescale[world, e],
        welds.invweight0[world, b1] + welds.invweight0[world, b2],
        soft.solimp[world, e],
        spring_damper(soft.solref[world, e], soft.solimp[world, e], soft.timestep[world], soft.refsafe),
        quat_mul(frames.quat[world, f1], quat_unit(welds.turn1[world, e])),
        quat_conj(quat_mul(frames.quat[world, f2], quat_unit(welds.turn2[world, e]))),
        p1 - p2,
        frame_vel[world, f1],
        frame_vel[world, f2],
        frame_acc[world, f1],
        frame_acc[world, f2],
        from_origin(world, b1, p1, bodies, frames),
        from_origin(world, b2, p2, bodies, frames),
    )


@wp.kernel
def weld_power(
    # Structure:
    bodies: Bodies,
    # Model:
    welds: Welds,
    # In:
    load: wp.array2d(dtype=wrench),
    frames: Frames,
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the constraint's forces, negative as all that acts on the joints."""
    world, e = wp.tid()
    b1 = welds.body[e, 0]
    b2 = welds.body[e, 1]
    l1 = frame_trial[world, bodies.frame[b1]]
    l2 = frame_trial[world, bodies.frame[b2]]
    p1 = anchor_point(world, e, 0, welds, bodies, frames)
    p2 = anchor_point(world, e, 1, welds, bodies, frames)
    rate = point_rate(l1, from_origin(world, b1, p1, bodies, frames))
    rate -= point_rate(l2, from_origin(world, b2, p2, bodies, frames))
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
def violation(
    world: int,
    e: int,
    q1: int,
    q2: int,
    couplings: Couplings,
    coordinate: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
) -> vec2:
    """Violation of a coupling of two coordinates, and its slope by the second; alone, the first is held."""
    y = coupling(couplings.coefficients[world, e], coordinate[world, q2] - reference[world, q2])
    if couplings.pair[e, 1] < 0:
        y = vec2(couplings.coefficients[world, e][0], real(0.0))
    return vec2(coordinate[world, q1] - reference[world, q1] - y[0], y[1])


@wp.func
def coupling_weight(world: int, e: int, d1: int, d2: int, couplings: Couplings) -> real:
    """Approximate inverse inertia along a coupling."""
    weight = couplings.invweight0[world, d1]
    if couplings.pair[e, 1] >= 0:
        weight += couplings.invweight0[world, d2]
    return weight


@wp.func
def partner(e: int, couplings: Couplings) -> int:
    """The second joint or tendon of a coupling, or again the first where there is none."""
    return wp.where(couplings.pair[e, 1] >= 0, couplings.pair[e, 1], couplings.pair[e, 0])


@wp.kernel(enable_backward=False)
def joint_coupling_rows(
    # Structure:
    start: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    column: wp.array(dtype=int),
    second: int,
    # Model:
    couplings: Couplings,
    soft: Soft,
    qpos0: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    # Out:
    rows_out: Rows,
):
    """One row: q1 - q1_0 = polynomial of q2 - q2_0, or a constant where there is no second joint.

    ``column`` is that of each joint; that of the second joint is ``second`` further.
    """
    world, e = wp.tid()
    j1 = couplings.pair[e, 0]
    j2 = partner(e, couplings)
    d1 = joint_dof[j1]
    d2 = joint_dof[j2]
    y = violation(world, e, joint_qpos[j1], joint_qpos[j2], couplings, qpos, qpos0)
    kbr = softened(world, e, coupling_weight(world, e, d1, d2, couplings), y[0], soft)
    reference = -kbr[1] * (qvel[world, d1] - y[1] * qvel[world, d2]) - kbr[0] * y[0]
    set_row(world, start[e], kbr[2], reference, -UNBOUNDED, UNBOUNDED, rows_out)
    rows_out.jacobian[world, start[e], column[j1]] = real(1.0)
    if couplings.pair[e, 1] >= 0:
        rows_out.jacobian[world, start[e], column[j2] + second] = -y[1]


@wp.kernel
def joint_coupling_power(
    # Structure:
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    # Model:
    couplings: Couplings,
    soft: Soft,
    qpos0: wp.array2d(dtype=real),
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
    j1 = couplings.pair[e, 0]
    j2 = partner(e, couplings)
    d1 = joint_dof[j1]
    d2 = joint_dof[j2]
    y = violation(world, e, joint_qpos[j1], joint_qpos[j2], couplings, qpos, qpos0)
    kbr = softened(world, e, coupling_weight(world, e, d1, d2, couplings), y[0], soft)
    error = qacc[world, d1] - y[1] * qacc[world, d2]
    error += kbr[1] * (qvel[world, d1] - y[1] * qvel[world, d2]) + kbr[0] * y[0]
    power_out[world, e] = error / kbr[2] * (trial[world, d1] - y[1] * trial[world, d2])


@wp.kernel(enable_backward=False)
def tendon_coupling_rows(
    # Structure:
    start: wp.array(dtype=int),
    second: int,
    # Model:
    couplings: Couplings,
    soft: Soft,
    length0: wp.array2d(dtype=real),
    # In:
    length: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=real),
    moment: wp.array3d(dtype=real),
    # Out:
    rows_out: Rows,
):
    """One row: length less its reference = polynomial of the other's; ``moment`` is the tendons' Jacobian.

    The entries of the second tendon are ``second`` columns further.
    """
    world, e = wp.tid()
    t1 = couplings.pair[e, 0]
    t2 = partner(e, couplings)
    y = violation(world, e, t1, t2, couplings, length, length0)
    kbr = softened(world, e, coupling_weight(world, e, t1, t2, couplings), y[0], soft)
    reference = -kbr[1] * (velocity[world, t1] - y[1] * velocity[world, t2]) - kbr[0] * y[0]
    set_row(world, start[e], kbr[2], reference, -UNBOUNDED, UNBOUNDED, rows_out)
    for d in range(moment.shape[2]):
        rows_out.jacobian[world, start[e], d] = moment[world, t1, d]
    for d in range(moment.shape[2]):
        own = rows_out.jacobian[world, start[e], d + second] - y[1] * moment[world, t2, d]
        rows_out.jacobian[world, start[e], d + second] = own


@wp.kernel
def tendon_coupling_power(
    # Model:
    couplings: Couplings,
    soft: Soft,
    length0: wp.array2d(dtype=real),
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
    t1 = couplings.pair[e, 0]
    t2 = partner(e, couplings)
    y = violation(world, e, t1, t2, couplings, length, length0)
    kbr = softened(world, e, coupling_weight(world, e, t1, t2, couplings), y[0], soft)
    error = rate[world, t1] - y[1] * rate[world, t2]
    error += kbr[1] * (velocity[world, t1] - y[1] * velocity[world, t2]) + kbr[0] * y[0]
    power_out[world, e] = error / kbr[2] * (trial[world, t1] - y[1] * trial[world, t2])
