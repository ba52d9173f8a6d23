"""Contact constraints: a force inside a friction cone, pyramidal or elliptic.

A contact of dimension ``dim`` has forces along its normal, two tangents, the torsion about the normal and the rolling
about the tangents: the first ``dim`` of these. The pyramid has a row for each of its 2 (dim - 1) edges. An edge is the
normal plus or minus friction times a direction, and its force only pushes. The ellipse has a row for each direction,
and the force is the projection of -x / R onto the cone |f_i / mu_i| <= f_normal, scaled as MuJoCo does.
"""

import warp as wp

from ..._precision import mat33, motion, real, vec2, vec3, vec5, vec6
from ..bodies import Bodies
from ..collide.pairs import PairList, body_of, kind_of
from ..collide.shapes import num_contacts, place
from .constraint import TINY, UNBOUNDED, Rows, impedance, point_rate, resistance, restoring, set_row, spring_damper

FAINT = wp.constant(real(1.0e-6))
"""Least impedance of a contact beyond its margin."""


@wp.struct
class Pairs:
    """Contact parameters of the candidates: all pairs, or those that a broad phase has found."""

    candidate: wp.array2d(dtype=int)  # the pairs, ascending, then -1
    friction: wp.array2d(dtype=vec5)
    solref: wp.array2d(dtype=vec2)
    solreffriction: wp.array2d(dtype=vec2)
    solimp: wp.array2d(dtype=vec5)
    margin: wp.array2d(dtype=real)


@wp.struct
class Cones:
    """What all contacts have in common."""

    elliptic: int
    refsafe: int  # 1: no constraint is stiffer than the time step allows
    timestep: wp.array(dtype=real)
    impratio: wp.array(dtype=real)
    softness: wp.array(dtype=real)  # distance beyond the margin over which contacts fade in
    invweight0: wp.array2d(dtype=vec2)  # of all bodies


@wp.struct
class Contacts:
    """A contact set."""

    pair: wp.array2d(dtype=int)  # -1 beyond the last
    distance: wp.array2d(dtype=real)
    pos: wp.array2d(dtype=vec3)
    frame: wp.array2d(dtype=mat33)


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
    """R of a row. The ellipse: R_1 = R_0 / impratio, R_i mu_i^2 equal; the pyramid: R of the same friction."""
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
    """Stiffness and damping of a row's reference; the friction rows of an ellipse have no stiffness."""
    kb = spring_damper(solref, solimp, timestep, refsafe)
    if elliptic != 0 and row > 0:
        if solreffriction[0] != real(0.0) or solreffriction[1] != real(0.0):
            kb = spring_damper(solreffriction, solimp, timestep, refsafe)
        kb = vec2(real(0.0), kb[1])
    return kb


@wp.func
def approach(
    world: int,
    c: int,
    p: int,
    pairs: PairList,
    bodies: Bodies,
    contacts: Contacts,
    frame_pos: wp.array2d(dtype=vec3),
    rate: wp.array2d(dtype=motion),
) -> vec6:
    """:func:`relative_rate` of the two bodies of contact ``c`` of pair ``p``, for given motions of the frames."""
    b1 = body_of(p, 0, pairs)
    b2 = body_of(p, 1, pairs)
    return relative_rate(
        contacts.frame[world, c],
        contacts.pos[world, c],
        rate[world, bodies.frame[b1]],
        frame_pos[world, bodies.origin[b1]],
        rate[world, bodies.frame[b2]],
        frame_pos[world, bodies.origin[b2]],
    )


@wp.func
def pair_weight(world: int, p: int, pairs: PairList, cones: Cones) -> real:
    """Approximate inverse inertia of a pair's two bodies."""
    b1 = body_of(p, 0, pairs)
    b2 = body_of(p, 1, pairs)
    return cones.invweight0[world, b1][0] + cones.invweight0[world, b2][0]


@wp.kernel(enable_backward=False)
def contact_rows(
    # Structure:
    lanes: int,
    pairs: PairList,
    bodies: Bodies,
    first: int,
    # Model:
    parameters: Pairs,
    cones: Cones,
    # In:
    contacts: Contacts,
    contact_row: wp.array2d(dtype=int),
    frame_pos: wp.array2d(dtype=vec3),
    axis: wp.array2d(dtype=motion),
    frame_vel: wp.array2d(dtype=motion),
    # Out:
    rows_out: Rows,
):
    """The rows of every contact within its margin; ``first`` is the first row of contacts."""
    world, lane = wp.tid()
    for c in range(lane, num_contacts(world, contacts.pair), lanes):
        p = contacts.pair[world, c]
        k = place(world, p, parameters.candidate)
        if k >= 0:
            violation = contacts.distance[world, c] - parameters.margin[world, k]
            if violation < cones.softness[world]:
                dim = pairs.dim[kind_of(p, pairs)]
                mu = parameters.friction[world, k]
                u = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_vel)
                z = fading_impedance(parameters.solimp[world, k], violation, cones.softness[world])
                depth = wp.min(violation, real(0.0))
                weight = pair_weight(world, p, pairs, cones)
                high = wp.where(cones.elliptic != 0 and dim > 1, UNBOUNDED, real(0.0))
                start = first + contact_row[world, c]
                count = pairs.rows[kind_of(p, pairs)]
                for row in range(count):
                    r = row_resistance(z, weight, mu, cones.impratio[world], dim, cones.elliptic, row)
                    kb = row_spring_damper(
                        parameters.solref[world, k],
                        parameters.solreffriction[world, k],
                        parameters.solimp[world, k],
                        cones.timestep[world],
                        cones.refsafe,
                        cones.elliptic,
                        row,
                    )
                    reference = -kb[1] * edge_rate(u, mu, dim, cones.elliptic, row) - kb[0] * z * depth
                    set_row(world, start + row, r, reference, -UNBOUNDED, high, rows_out)
                for side in range(2):
                    sign = wp.where(side == 0, real(-1.0), real(1.0))
                    i = bodies.last_dof[body_of(p, side, pairs)]
                    while i >= 0:
                        m = axis[world, i]
                        v = point_rate(m, contacts.pos[world, c] - frame_pos[world, bodies.dof_origin[i]])
                        v = contacts.frame[world, c] * v
                        w = contacts.frame[world, c] * wp.spatial_top(m)
                        rate = sign * vec6(v[0], v[1], v[2], w[0], w[1], w[2])
                        for row in range(count):
                            own = edge_rate(rate, mu, dim, cones.elliptic, row)
                            rows_out.jacobian[world, start + row, i] = rows_out.jacobian[world, start + row, i] + own
                        i = bodies.dof_parent[i]


@wp.func
def cone_force(normal: real, across: vec5, mu: vec5, r: real, impratio: real) -> vec6:
    """An elliptic contact's force depends on the zone of its errors; ``across`` is zero beyond the dimension."""
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
    world: int, p: int, k: int, violation: real, a: vec6, u: vec6, pairs: PairList, parameters: Pairs, cones: Cones
) -> vec6:
    """Force and torque of a contact on its second geom, in its frame, at accelerations ``a`` and velocities ``u``.

    ``p`` is its pair, ``k`` the pair's place among the candidates.
    """
    mu = parameters.friction[world, k]
    solref = parameters.solref[world, k]
    solimp = parameters.solimp[world, k]
    timestep = cones.timestep[world]
    impratio = cones.impratio[world]
    dim = pairs.dim[kind_of(p, pairs)]
    weight = pair_weight(world, p, pairs, cones)
    z = fading_impedance(solimp, violation, cones.softness[world])
    r = row_resistance(z, weight, mu, impratio, dim, cones.elliptic, 0)
    kb = spring_damper(solref, solimp, timestep, cones.refsafe)
    error = a + kb[1] * u
    normal = error[0] + kb[0] * z * wp.min(violation, real(0.0))
    force = vec6()
    if cones.elliptic != 0 and dim > 1:
        sliding = parameters.solreffriction[world, k]
        kt = row_spring_damper(solref, sliding, solimp, timestep, cones.refsafe, cones.elliptic, 1)
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
    pairs: PairList,
    bodies: Bodies,
    # Model:
    parameters: Pairs,
    cones: Cones,
    # In:
    contacts: Contacts,
    frame_pos: wp.array2d(dtype=vec3),
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the contact forces, negative like that of every force on the joints: -f . J l.

    ``frame_acc`` is the part J a of the acceleration that is linear in qacc.
    """
    world, lane = wp.tid()
    for c in range(lane, num_contacts(world, contacts.pair), lanes):
        p = contacts.pair[world, c]
        k = place(world, p, parameters.candidate)
        if k >= 0:
            violation = contacts.distance[world, c] - parameters.margin[world, k]
            if violation < cones.softness[world]:
                u = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_vel)
                a = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_acc)
                l = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_trial)
                power_out[world, c] = -wp.dot(contact_force(world, p, k, violation, a, u, pairs, parameters, cones), l)


@wp.kernel
def contact_forces(
    # Structure:
    pairs: PairList,
    bodies: Bodies,
    # Model:
    parameters: Pairs,
    cones: Cones,
    # In:
    contacts: Contacts,
    frame_pos: wp.array2d(dtype=vec3),
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    # Out:
    force_out: wp.array2d(dtype=vec6),
):
    """Force and torque of every contact on its second geom, in the contact's frame."""
    world, c = wp.tid()
    p = contacts.pair[world, c]
    force = vec6()
    k = place(world, p, parameters.candidate)
    if k >= 0:
        violation = contacts.distance[world, c] - parameters.margin[world, k]
        if violation < cones.softness[world]:
            u = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_vel)
            a = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_acc)
            force = contact_force(world, p, k, violation, a, u, pairs, parameters, cones)
    force_out[world, c] = force
