"""Contact constraints: a force inside a friction cone, pyramidal or elliptic.

A contact of dimension ``dim`` has forces along its normal, two tangents, the torsion about the normal and the
rolling about the tangents, as many as ``dim`` says. The pyramid has a row for each of its 2 (dim - 1) edges, normal
+- friction along one direction, each pushing only; the ellipse has a row for each direction, and the force is the
projection of -x / R onto the cone |f_i / mu_i| <= f_normal, scaled as MuJoCo does.
"""

import warp as wp

from .._precision import mat33, motion, real, vec2, vec3, vec5, vec6
from .constraint import (
    TINY,
    UNBOUNDED,
    impedance,
    point_rate,
    resistance,
    restoring,
    set_row,
    spring_damper,
)
from .shapes import num_contacts, place

FAINT = wp.constant(real(1.0e-6))
"""Least impedance of a contact that fades."""


@wp.func
def relative_rate(frame: mat33, pos: vec3, m1: motion, origin1: vec3, m2: motion, origin2: vec3) -> vec6:
    """Motion of the second body against the first at a contact, in the contact's frame: linear, then angular."""
    u = frame * (point_rate(m2, pos - origin2) - point_rate(m1, pos - origin1))
    w = frame * (wp.spatial_top(m2) - wp.spatial_top(m1))
    return vec6(u[0], u[1], u[2], w[0], w[1], w[2])


@wp.func
def fading_impedance(solimp: vec5, violation: real, softness: real) -> real:
    """d(r), which beyond the margin fades to nothing over the distance ``softness``: d(0) (1 - r / softness)^2."""
    d = impedance(solimp, wp.min(violation, real(0.0)))
    if violation > real(0.0):
        s = real(1.0) - violation / softness
        d = wp.max(d * s * s, FAINT)
    return d


@wp.func
def edge_rate(u: vec6, friction: vec5, dim: int, elliptic: int, row: int) -> real:
    """Rate along a row: a direction of the ellipse, or an edge of the pyramid."""
    rate = u[0]
    if elliptic != 0:
        rate = u[row]
    elif dim > 1:
        k = row // 2
        s = wp.where(row % 2 == 0, friction[k], -friction[k])
        rate = u[0] + s * u[k + 1]
    return rate


@wp.func
def row_resistance(z: real, weight: real, friction: vec5, impratio: real, dim: int, elliptic: int, row: int) -> real:
    """R of a row. The ellipse: R_1 = R_0 / impratio, R_i mu_i^2 equal; the pyramid: what matches it in friction."""
    r = resistance(z, weight)
    if dim > 1:
        ratio = wp.max(TINY, impratio)
        if elliptic != 0:
            if row > 0:
                mu = friction[row - 1]
                r = r / ratio * friction[0] * friction[0] / (mu * mu)
        else:
            mu = friction[0]
            r = real(2.0) * mu * mu / ratio * resistance(z, weight * (real(1.0) + mu * mu))
    return r


@wp.func
def row_spring_damper(
    solref: vec2, solreffriction: vec2, solimp: vec5, timestep: real, refsafe: int, elliptic: int, row: int
) -> vec2:
    """Stiffness and damping of a row's reference; the ellipse's friction only damps."""
    kb = spring_damper(solref, solimp, timestep, refsafe)
    if elliptic != 0 and row > 0:
        if solreffriction[0] != real(0.0) or solreffriction[1] != real(0.0):
            kb = spring_damper(solreffriction, solimp, timestep, refsafe)
        kb = vec2(real(0.0), kb[1])
    return kb


@wp.kernel(enable_backward=False)
def contact_rows(
    # Structure:
    lanes: int,
    pair: wp.array2d(dtype=int),
    pair_dim: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    elliptic: int,
    refsafe: int,
    pair_rows: wp.array(dtype=int),
    body_lastdof: wp.array(dtype=int),
    dof_parent: wp.array(dtype=int),
    dof_origin: wp.array(dtype=int),
    first: int,
    # Model:
    body_invweight0: wp.array2d(dtype=vec2),
    pair_friction: wp.array2d(dtype=vec5),
    pair_solref: wp.array2d(dtype=vec2),
    pair_solreffriction: wp.array2d(dtype=vec2),
    pair_solimp: wp.array2d(dtype=vec5),
    pair_margin: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    impratio: wp.array(dtype=real),
    softness: wp.array(dtype=real),
    # In:
    candidate: wp.array2d(dtype=int),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
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
    bound_out: wp.array2d(dtype=vec2),
):
    """The rows of every contact within its margin; ``first`` is the row of the first contact's first."""
    world, lane = wp.tid()
    for c in range(lane, num_contacts(world, contact_pair), lanes):
        p = contact_pair[world, c]
        k = place(world, p, candidate)
        if k >= 0:
            violation = distance[world, c] - pair_margin[world, k]
            if violation < softness[world]:
                b1 = geom_body[pair[p, 0]]
                b2 = geom_body[pair[p, 1]]
                dim = pair_dim[p]
                mu = pair_friction[world, k]
                x = pos[world, c]
                u = relative_rate(
                    frame[world, c],
                    x,
                    frame_vel[world, body_frame[b1]],
                    frame_pos[world, body_origin[b1]],
                    frame_vel[world, body_frame[b2]],
                    frame_pos[world, body_origin[b2]],
                )
                z = fading_impedance(pair_solimp[world, k], violation, softness[world])
                depth = wp.min(violation, real(0.0))
                weight = body_invweight0[world, b1][0] + body_invweight0[world, b2][0]
                high = wp.where(elliptic != 0 and dim > 1, UNBOUNDED, real(0.0))
                start = first + contact_row[world, c]
                for row in range(pair_rows[p]):
                    r = row_resistance(z, weight, mu, impratio[world], dim, elliptic, row)
                    kb = row_spring_damper(
                        pair_solref[world, k],
                        pair_solreffriction[world, k],
                        pair_solimp[world, k],
                        timestep[world],
                        refsafe,
                        elliptic,
                        row,
                    )
                    reference = -kb[1] * edge_rate(u, mu, dim, elliptic, row) - kb[0] * z * depth
                    set_row(
                        world,
                        start + row,
                        r,
                        reference,
                        -UNBOUNDED,
                        high,
                        jacobian_out,
                        weight_out,
                        reference_out,
                        bound_out,
                    )
                for side in range(2):
                    sign = wp.where(side == 0, real(-1.0), real(1.0))
                    i = body_lastdof[wp.where(side == 0, b1, b2)]
                    while i >= 0:
                        m = axis[world, i]
                        v = frame[world, c] * point_rate(m, x - frame_pos[world, dof_origin[i]])
                        w = frame[world, c] * wp.spatial_top(m)
                        rate = sign * vec6(v[0], v[1], v[2], w[0], w[1], w[2])
                        for row in range(pair_rows[p]):
                            jacobian_out[world, start + row, i] = jacobian_out[world, start + row, i] + edge_rate(
                                rate, mu, dim, elliptic, row
                            )
                        i = dof_parent[i]


@wp.func
def cone_force(normal: real, across: vec5, mu: vec5, r: real, impratio: real) -> vec6:
    """The force of an elliptic contact by the zone of its errors; ``across`` is zero beyond the dimension."""
    ratio = wp.max(TINY, impratio)
    mu0 = mu[0] / wp.sqrt(ratio)
    square = real(1.0e-30)
    for i in range(5):
        square += mu[i] * mu[i] * across[i] * across[i]
    t = wp.sqrt(square)
    n = mu0 * normal
    along = real(0.0)
    slide = real(0.0)
    if n < mu0 * t:
        if mu0 * n + t <= real(0.0):
            along = -normal / r
            slide = -real(1.0) / (r * mu0 * mu0)
        else:
            d = (n - mu0 * t) / (r * mu0 * mu0 * (real(1.0) + mu0 * mu0))
            along = -d * mu0
            slide = d * mu0 / t
    out = vec6(
        along,
        slide * mu[0] * mu[0] * across[0],
        slide * mu[1] * mu[1] * across[1],
        slide * mu[2] * mu[2] * across[2],
        slide * mu[3] * mu[3] * across[3],
        slide * mu[4] * mu[4] * across[4],
    )
    return out


@wp.func
def direction(i: int) -> vec6:
    """A unit vector of the contact's six directions."""
    return vec6(
        wp.where(i == 0, real(1.0), real(0.0)),
        wp.where(i == 1, real(1.0), real(0.0)),
        wp.where(i == 2, real(1.0), real(0.0)),
        wp.where(i == 3, real(1.0), real(0.0)),
        wp.where(i == 4, real(1.0), real(0.0)),
        wp.where(i == 5, real(1.0), real(0.0)),
    )


@wp.func
def contact_force(
    a: vec6,
    u: vec6,
    violation: real,
    weight: real,
    mu: vec5,
    solref: vec2,
    solreffriction: vec2,
    solimp: vec5,
    timestep: real,
    impratio: real,
    softness: real,
    dim: int,
    elliptic: int,
    refsafe: int,
) -> vec6:
    """Force and torque of a contact on its second geom, in its frame, at accelerations ``a`` and velocities ``u``."""
    z = fading_impedance(solimp, violation, softness)
    r = row_resistance(z, weight, mu, impratio, dim, elliptic, 0)
    kb = spring_damper(solref, solimp, timestep, refsafe)
    error = a + kb[1] * u
    normal = error[0] + kb[0] * z * wp.min(violation, real(0.0))
    force = vec6()
    if elliptic != 0 and dim > 1:
        kt = row_spring_damper(solref, solreffriction, solimp, timestep, refsafe, elliptic, 1)
        slip = a + kt[1] * u
        none = real(0.0)
        across = vec5(
            slip[1],
            slip[2],
            wp.where(dim > 3, slip[3], none),
            wp.where(dim > 4, slip[4], none),
            wp.where(dim > 4, slip[5], none),
        )
        force = cone_force(normal, across, mu, r, impratio)
    elif dim == 1:
        force = -restoring(normal, r, -UNBOUNDED, real(0.0)) * direction(0)
    else:
        for i in range(5):
            if i < dim - 1:
                up = -restoring(normal + mu[i] * error[i + 1], r, -UNBOUNDED, real(0.0))
                down = -restoring(normal - mu[i] * error[i + 1], r, -UNBOUNDED, real(0.0))
                force += (up + down) * direction(0) + mu[i] * (up - down) * direction(i + 1)
    return force


@wp.kernel
def contact_power(
    # Structure:
    lanes: int,
    pair: wp.array2d(dtype=int),
    pair_dim: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    elliptic: int,
    refsafe: int,
    # Model:
    body_invweight0: wp.array2d(dtype=vec2),
    pair_friction: wp.array2d(dtype=vec5),
    pair_solref: wp.array2d(dtype=vec2),
    pair_solreffriction: wp.array2d(dtype=vec2),
    pair_solimp: wp.array2d(dtype=vec5),
    pair_margin: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    impratio: wp.array(dtype=real),
    softness: wp.array(dtype=real),
    # In:
    candidate: wp.array2d(dtype=int),
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
    world, lane = wp.tid()
    for c in range(lane, num_contacts(world, contact_pair), lanes):
        p = contact_pair[world, c]
        k = place(world, p, candidate)
        if k >= 0:
            violation = distance[world, c] - pair_margin[world, k]
            if violation < softness[world]:
                b1 = geom_body[pair[p, 0]]
                b2 = geom_body[pair[p, 1]]
                f1 = body_frame[b1]
                f2 = body_frame[b2]
                o1 = frame_pos[world, body_origin[b1]]
                o2 = frame_pos[world, body_origin[b2]]
                x = pos[world, c]
                u = relative_rate(frame[world, c], x, frame_vel[world, f1], o1, frame_vel[world, f2], o2)
                a = relative_rate(frame[world, c], x, frame_acc[world, f1], o1, frame_acc[world, f2], o2)
                l = relative_rate(frame[world, c], x, frame_trial[world, f1], o1, frame_trial[world, f2], o2)
                force = contact_force(
                    a,
                    u,
                    violation,
                    body_invweight0[world, b1][0] + body_invweight0[world, b2][0],
                    pair_friction[world, k],
                    pair_solref[world, k],
                    pair_solreffriction[world, k],
                    pair_solimp[world, k],
                    timestep[world],
                    impratio[world],
                    softness[world],
                    pair_dim[p],
                    elliptic,
                    refsafe,
                )
                power_out[world, c] = -wp.dot(force, l)


@wp.kernel
def contact_forces(
    # Structure:
    pair: wp.array2d(dtype=int),
    pair_dim: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    elliptic: int,
    refsafe: int,
    # Model:
    body_invweight0: wp.array2d(dtype=vec2),
    pair_friction: wp.array2d(dtype=vec5),
    pair_solref: wp.array2d(dtype=vec2),
    pair_solreffriction: wp.array2d(dtype=vec2),
    pair_solimp: wp.array2d(dtype=vec5),
    pair_margin: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    impratio: wp.array(dtype=real),
    softness: wp.array(dtype=real),
    # In:
    candidate: wp.array2d(dtype=int),
    contact_pair: wp.array2d(dtype=int),
    distance: wp.array2d(dtype=real),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    frame_pos: wp.array2d(dtype=vec3),
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    # Out:
    force_out: wp.array2d(dtype=vec6),
):
    """Force and torque of every contact on its second geom, in the contact's frame."""
    world, c = wp.tid()
    p = contact_pair[world, c]
    force = vec6()
    k = place(world, p, candidate)
    if k >= 0:
        violation = distance[world, c] - pair_margin[world, k]
        if violation < softness[world]:
            b1 = geom_body[pair[p, 0]]
            b2 = geom_body[pair[p, 1]]
            f1 = body_frame[b1]
            f2 = body_frame[b2]
            o1 = frame_pos[world, body_origin[b1]]
            o2 = frame_pos[world, body_origin[b2]]
            x = pos[world, c]
            u = relative_rate(frame[world, c], x, frame_vel[world, f1], o1, frame_vel[world, f2], o2)
            a = relative_rate(frame[world, c], x, frame_acc[world, f1], o1, frame_acc[world, f2], o2)
            force = contact_force(
                a,
                u,
                violation,
                body_invweight0[world, b1][0] + body_invweight0[world, b2][0],
                pair_friction[world, k],
                pair_solref[world, k],
                pair_solreffriction[world, k],
                pair_solimp[world, k],
                timestep[world],
                impratio[world],
                softness[world],
                pair_dim[p],
                elliptic,
                refsafe,
            )
    force_out[world, c] = force
