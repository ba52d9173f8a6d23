"""Contact constraints: MuJoCo's soft pyramidal contact.

Each contact has four rows, normal +- friction along its two tangents (one row without friction).
With x the acceleration along a row less its reference, the force on the row is f = -D x where x < 0.
"""

import warp as wp

from .._precision import mat33, motion, real, vec2, vec3, vec5
from ..math import lower

ROWS = wp.constant(4)
MIN_IMPEDANCE = wp.constant(real(1.0e-4))
MAX_IMPEDANCE = wp.constant(real(0.9999))
TINY = wp.constant(real(1.0e-15))


@wp.func
def impedance(solimp: vec5, violation: real) -> real:
    """d(r) of MuJoCo's solver parameters: from dmin to dmax along a sigmoid of two powers."""
    dmin = wp.clamp(solimp[0], MIN_IMPEDANCE, MAX_IMPEDANCE)
    dmax = wp.clamp(solimp[1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    width = wp.max(solimp[2], real(0.0))
    middle = wp.clamp(solimp[3], MIN_IMPEDANCE, MAX_IMPEDANCE)
    power = wp.max(solimp[4], real(1.0))
    d = real(0.5) * (dmin + dmax)
    if dmin != dmax and width > TINY:
        x = wp.abs(violation) / width
        if x >= real(1.0):
            d = dmax
        elif x <= TINY:
            d = dmin
        elif x <= middle:
            d = dmin + (dmax - dmin) * middle * wp.pow(x / middle, power)
        else:
            y = (real(1.0) - x) / (real(1.0) - middle)
            d = dmin + (dmax - dmin) * (real(1.0) - (real(1.0) - middle) * wp.pow(y, power))
    return d


@wp.func
def spring_damper(solref: vec2, solimp: vec5, timestep: real, refsafe: int) -> vec2:
    """Stiffness and damping of the reference acceleration, from time constant and damping ratio, or given directly."""
    dmax = wp.clamp(solimp[1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    k = -solref[0] / (dmax * dmax)
    b = -solref[1] / dmax
    if solref[0] > real(0.0):
        t = solref[0]
        if refsafe != 0:
            t = wp.max(t, real(2.0) * timestep)
        k = real(1.0) / wp.max(TINY, dmax * dmax * t * t * solref[1] * solref[1])
        b = real(2.0) / wp.max(TINY, dmax * t)
    return vec2(k, b)


@wp.func
def regularisation(d: real, weight: real, friction: real, impratio: real, frictional: int) -> real:
    """R of a contact's rows: (1 - d) / d times the approximate inverse inertia of the pyramid's edges."""
    r = wp.max(TINY, (real(1.0) - d) / d * weight)
    if frictional != 0:
        edge = wp.max(TINY, (real(1.0) - d) / d * weight * (real(1.0) + friction * friction))
        r = wp.max(TINY, real(2.0) * friction * friction / impratio * edge)
    return r


@wp.func
def point_rate(m: motion, r: vec3) -> vec3:
    """Velocity of the point at r, from the reference point, in a field of motion."""
    return wp.spatial_bottom(m) + wp.cross(wp.spatial_top(m), r)


@wp.func
def relative_rate(frame: mat33, pos: vec3, m1: motion, origin1: vec3, m2: motion, origin2: vec3) -> vec3:
    """Velocity of the second body against the first at a contact, in the contact's frame."""
    return frame * (point_rate(m2, pos - origin2) - point_rate(m1, pos - origin1))


@wp.func
def row_rate(u: vec3, friction: real, row: int) -> real:
    """Rate along one edge of the pyramid."""
    s = wp.where(row % 2 == 0, friction, -friction)
    return u[0] + s * wp.where(row < 2, u[1], u[2])


@wp.kernel(enable_backward=False)
def contact_rows(
    # Structure:
    pair: wp.array2d(dtype=int),
    pair_rows: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    body_lastdof: wp.array(dtype=int),
    dof_parent: wp.array(dtype=int),
    dof_origin: wp.array(dtype=int),
    refsafe: int,
    # Model:
    body_invweight0: wp.array2d(dtype=vec2),
    pair_friction: wp.array2d(dtype=vec3),
    pair_solref: wp.array2d(dtype=vec2),
    pair_solimp: wp.array2d(dtype=vec5),
    pair_includemargin: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    impratio: wp.array(dtype=real),
    # In:
    contact_pair: wp.array2d(dtype=int),
    distance: wp.array2d(dtype=real),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    frame_pos: wp.array2d(dtype=vec3),
    axis: wp.array2d(dtype=motion),
    frame_vel: wp.array2d(dtype=motion),
    # Out:
    jacobian_out: wp.array3d(dtype=real),
    weight_out: wp.array2d(dtype=real),
    reference_out: wp.array2d(dtype=real),
):
    """Jacobian, weight D = 1/R and reference acceleration of every row; a row that does not act has D = 0."""
    world, c = wp.tid()
    p = contact_pair[world, c]
    for row in range(4):
        weight_out[world, 4 * c + row] = real(0.0)
        reference_out[world, 4 * c + row] = real(0.0)
        for j in range(axis.shape[1]):
            jacobian_out[world, 4 * c + row, j] = real(0.0)
    if p >= 0:
        violation = distance[world, c] - pair_includemargin[world, p]
        if violation < real(0.0):
            b1 = geom_body[pair[p, 0]]
            b2 = geom_body[pair[p, 1]]
            rows = pair_rows[p]
            mu = pair_friction[world, p][0]
            if rows == 1:
                mu = real(0.0)
            x = pos[world, c]
            u = relative_rate(
                frame[world, c],
                x,
                frame_vel[world, body_frame[b1]],
                frame_pos[world, body_origin[b1]],
                frame_vel[world, body_frame[b2]],
                frame_pos[world, body_origin[b2]],
            )
            d = impedance(pair_solimp[world, p], violation)
            kb = spring_damper(pair_solref[world, p], pair_solimp[world, p], timestep[world], refsafe)
            weight = body_invweight0[world, b1][0] + body_invweight0[world, b2][0]
            r = regularisation(d, weight, mu, impratio[world], rows - 1)
            for row in range(4):
                if row < rows:
                    weight_out[world, 4 * c + row] = real(1.0) / r
                    reference_out[world, 4 * c + row] = -kb[1] * row_rate(u, mu, row) - kb[0] * d * violation
            for side in range(2):
                sign = wp.where(side == 0, real(-1.0), real(1.0))
                i = body_lastdof[wp.where(side == 0, b1, b2)]
                while i >= 0:
                    v = frame[world, c] * point_rate(axis[world, i], x - frame_pos[world, dof_origin[i]])
                    for row in range(4):
                        if row < rows:
                            jacobian_out[world, 4 * c + row, i] = jacobian_out[world, 4 * c + row, i] + sign * row_rate(
                                v, mu, row
                            )
                    i = dof_parent[i]


@wp.kernel
def contact_power(
    # Structure:
    pair: wp.array2d(dtype=int),
    pair_rows: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    refsafe: int,
    # Model:
    body_invweight0: wp.array2d(dtype=vec2),
    pair_friction: wp.array2d(dtype=vec3),
    pair_solref: wp.array2d(dtype=vec2),
    pair_solimp: wp.array2d(dtype=vec5),
    pair_includemargin: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    impratio: wp.array(dtype=real),
    # In:
    contact_pair: wp.array2d(dtype=int),
    distance: wp.array2d(dtype=real),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    frame_pos: wp.array2d(dtype=vec3),
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the contact forces, negative as all that acts on the joints: -f . J l.

    ``frame_acc`` is the part J a of the acceleration that is linear in the dofs'.
    """
    world, c = wp.tid()
    p = contact_pair[world, c]
    if p >= 0:
        violation = distance[world, c] - pair_includemargin[world, p]
        if violation < real(0.0):
            b1 = geom_body[pair[p, 0]]
            b2 = geom_body[pair[p, 1]]
            f1 = body_frame[b1]
            f2 = body_frame[b2]
            o1 = frame_pos[world, body_origin[b1]]
            o2 = frame_pos[world, body_origin[b2]]
            rows = pair_rows[p]
            mu = pair_friction[world, p][0]
            if rows == 1:
                mu = real(0.0)
            x = pos[world, c]
            u = relative_rate(frame[world, c], x, frame_vel[world, f1], o1, frame_vel[world, f2], o2)
            a = relative_rate(frame[world, c], x, frame_acc[world, f1], o1, frame_acc[world, f2], o2)
            l = relative_rate(frame[world, c], x, frame_trial[world, f1], o1, frame_trial[world, f2], o2)
            d = impedance(pair_solimp[world, p], violation)
            kb = spring_damper(pair_solref[world, p], pair_solimp[world, p], timestep[world], refsafe)
            weight = body_invweight0[world, b1][0] + body_invweight0[world, b2][0]
            r = regularisation(d, weight, mu, impratio[world], rows - 1)
            power = real(0.0)
            for row in range(4):
                if row < rows:
                    error = row_rate(a, mu, row) + kb[1] * row_rate(u, mu, row) + kb[0] * d * violation
                    power += wp.min(error, real(0.0)) / r * row_rate(l, mu, row)
            power_out[world, c] = power


@wp.kernel(enable_backward=False)
def contact_forces(
    # Structure:
    pair_rows: wp.array(dtype=int),
    # Model:
    pair_friction: wp.array2d(dtype=vec3),
    # In:
    contact_pair: wp.array2d(dtype=int),
    row_force: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=vec3),
):
    """Normal and tangential force of every contact, in its frame."""
    world, c = wp.tid()
    p = contact_pair[world, c]
    force = vec3()
    if p >= 0:
        mu = pair_friction[world, p][0]
        a = row_force[world, 4 * c]
        if pair_rows[p] == 1:
            force = vec3(a, real(0.0), real(0.0))
        else:
            b = row_force[world, 4 * c + 1]
            g = row_force[world, 4 * c + 2]
            h = row_force[world, 4 * c + 3]
            force = vec3(a + b + g + h, mu * (a - b), mu * (g - h))
    force_out[world, c] = force


@wp.func
def symmetric(matrix: wp.array2d(dtype=real), world: int, i: int, j: int) -> real:
    """Element of a symmetric matrix kept as a packed lower triangle."""
    return matrix[world, lower(wp.max(i, j), wp.min(i, j))]
