"""The gradient of the no-slip pass, as powers: its inputs, weighted with the cotangents that ``noslip.py`` finds.

The pass takes the rows of friction T, their references, mu, M, and, from the solver's accelerations, the forces at the
start and the limits. Each power is minus the sum of these, each times its cotangent, so that the gradient is minus that
of the power, as everywhere (``fphys/implicit.py``).
"""

import warp as wp

from ..._precision import motion, real, vec2, vec3, vec6
from ..bodies import Bodies, Frames, Masses, centre, principal_axes
from ..collide.pairs import PairList, body_of, kind_of
from ..collide.shapes import num_contacts
from ..tree.dynamics import inertia_power
from .constraint import UNBOUNDED, Soft, restoring, softened, spring_damper
from .contact import (
    Cones,
    Contacts,
    Pairs,
    approach,
    contact_force,
    fading_impedance,
    pair_weight,
    relative_rate,
    row_resistance,
    row_spring_damper,
)
from .friction import Friction, friction_force
from .noslip import Slips


@wp.struct
class Pulled:
    """Cotangents of the rows of friction."""

    direction: wp.array3d(dtype=real)
    reference: wp.array2d(dtype=real)
    force: wp.array2d(dtype=real)
    limit: wp.array2d(dtype=real)
    friction: wp.array2d(dtype=real)


@wp.struct
class Chains:
    """The dofs that move each body: ``dof[adr[b]:adr[b + 1]]``."""

    adr: wp.array(dtype=int)
    dof: wp.array(dtype=int)


@wp.func
def dry_power(
    world: int, k: int, i: int, friction: Friction, soft: Soft, acceleration: real, velocity: real, pulled: Pulled
) -> real:
    """The power of the i-th dof or tendon with friction, but for its direction."""
    kbr = softened(world, i, friction.invweight0[world, i], real(0.0), soft)
    force = -friction_force(world, i, friction, soft, acceleration, velocity)
    return -(
        pulled.force[world, k] * force
        + pulled.limit[world, k] * friction.frictionloss[world, i]
        - pulled.reference[world, k] * kbr[1] * velocity
    )


@wp.kernel
def dof_power(
    # Structure:
    first: int,
    # Model:
    friction: Friction,
    soft: Soft,
    # State in:
    qvel: wp.array2d(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    pulled: Pulled,
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """The power of the dofs with friction, from row ``first`` of friction on; their directions are constant."""
    world, k = wp.tid()
    d = friction.index[k]
    power_out[world, k] = dry_power(world, first + k, d, friction, soft, qacc[world, d], qvel[world, d], pulled)


@wp.kernel
def tendon_power(
    # Structure:
    first: int,
    adr: wp.array(dtype=int),
    dof: wp.array(dtype=int),
    # Model:
    friction: Friction,
    soft: Soft,
    # In:
    velocity: wp.array2d(dtype=real),
    jacobian: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    pulled: Pulled,
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """The power of the tendons with friction; ``rate`` is J a, ``adr`` and ``dof`` are the pattern of ``jacobian``."""
    world, k = wp.tid()
    t = friction.index[k]
    p = dry_power(world, first + k, t, friction, soft, rate[world, t], velocity[world, t], pulled)
    for e in range(adr[t], adr[t + 1]):
        p -= pulled.direction[world, first + k, dof[e]] * jacobian[world, e]
    power_out[world, k] = p


@wp.func
def moved(
    world: int, k: int, b: int, chains: Chains, axis: wp.array2d(dtype=motion), direction: wp.array3d(dtype=real)
) -> motion:
    """Motion of a body if the dofs move along row ``k`` of directions."""
    m = motion()
    for e in range(chains.adr[b], chains.adr[b + 1]):
        d = chains.dof[e]
        m += axis[world, d] * direction[world, k, d]
    return m


@wp.kernel
def contact_power(
    # Structure:
    slips: Slips,
    chains: Chains,
    pairs: PairList,
    bodies: Bodies,
    # Model:
    parameters: Pairs,
    cones: Cones,
    # In:
    contacts: Contacts,
    frame_pos: wp.array2d(dtype=vec3),
    axis: wp.array2d(dtype=motion),
    frame_vel: wp.array2d(dtype=motion),
    frame_acc: wp.array2d(dtype=motion),
    pulled: Pulled,
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """The power of a tangent of a contact, from the ``dry``-th row of friction on; ``frame_acc`` is J a."""
    world, i = wp.tid()
    c = i // slips.width
    j = i % slips.width
    if c < num_contacts(world, contacts.pair):
        p = contacts.pair[world, c]
        violation = contacts.distance[world, c] - parameters.margin[world, p]
        if violation < cones.softness[world] and j < pairs.dim[kind_of(p, pairs)] - 1:
            k = slips.dry + c * slips.width + j
            u = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_vel)
            a = approach(world, c, p, pairs, bodies, contacts, frame_pos, frame_acc)
            b1 = body_of(p, 0, pairs)
            b2 = body_of(p, 1, pairs)
            t = relative_rate(
                contacts.frame[world, c],
                contacts.pos[world, c],
                moved(world, k, b1, chains, axis, pulled.direction),
                frame_pos[world, bodies.origin[b1]],
                moved(world, k, b2, chains, axis, pulled.direction),
                frame_pos[world, bodies.origin[b2]],
            )
            mu = parameters.friction[world, p]
            kb = row_spring_damper(
                parameters.solref[world, p],
                parameters.solreffriction[world, p],
                parameters.solimp[world, p],
                cones.timestep[world],
                cones.refsafe,
                cones.elliptic,
                j + 1,
            )
            force = contact_force(world, p, p, violation, a, u, pairs, parameters, cones)
            own = force[j + 1]
            limit = force[0]
            if cones.elliptic == 0:
                edges = edge_forces(world, p, violation, a, u, j, pairs, parameters, cones)
                own = mu[j] * (edges[0] - edges[1])
                limit = mu[j] * (edges[0] + edges[1])
            power_out[world, i] = -(
                t[j + 1]
                + pulled.force[world, k] * own
                + pulled.limit[world, k] * limit
                + pulled.friction[world, k] * mu[j]
                - pulled.reference[world, k] * kb[1] * u[j + 1]
            )


@wp.func
def edge_forces(
    world: int, p: int, violation: real, a: vec6, u: vec6, j: int, pairs: PairList, parameters: Pairs, cones: Cones
) -> vec2:
    """Forces of the two edges of a pyramid along its j-th tangent."""
    mu = parameters.friction[world, p]
    weight = pair_weight(world, p, pairs, cones)
    z = fading_impedance(parameters.solimp[world, p], violation, cones.softness[world])
    r = row_resistance(z, weight, mu, cones.impratio[world], pairs.dim[kind_of(p, pairs)], 0, 0)
    kb = spring_damper(parameters.solref[world, p], parameters.solimp[world, p], cones.timestep[world], cones.refsafe)
    normal = a[0] + kb[1] * u[0] + kb[0] * z * wp.min(violation, real(0.0))
    across = mu[j] * (a[j + 1] + kb[1] * u[j + 1])
    up = -restoring(normal + across, r, -UNBOUNDED, real(0.0))
    down = -restoring(normal - across, r, -UNBOUNDED, real(0.0))
    return vec2(up, down)


@wp.kernel
def mass_power(
    # Structure:
    chains: Chains,
    # Model:
    bodies: Masses,
    # In:
    frames: Frames,
    axis: wp.array2d(dtype=motion),
    matrix: wp.array3d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Every body's share of the sum of ``matrix`` times M, entry by entry."""
    world, b = wp.tid()
    if b > 0:
        com = centre(world, b, bodies, frames)
        axes = principal_axes(world, b, bodies, frames)
        power = real(0.0)
        for e in range(chains.adr[b], chains.adr[b + 1]):
            d = chains.dof[e]
            rate = moved(world, d, b, chains, axis, matrix)
            power += inertia_power(rate, axis[world, d], com, axes, bodies.mass[world, b], bodies.inertia[world, b])
        power_out[world, b] = power


@wp.kernel
def armature_power(
    # Model:
    armature: wp.array2d(dtype=real),
    # In:
    matrix: wp.array3d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Every dof's share of the same."""
    world, d = wp.tid()
    power_out[world, d] = matrix[world, d, d] * armature[world, d]


@wp.func
def product(
    world: int,
    d: int,
    first: int,
    end: int,
    dof: wp.array(dtype=int),
    matrix: wp.array3d(dtype=real),
    jacobian: wp.array2d(dtype=real),
) -> real:
    """Row ``d`` of the matrix times a tendon's row; a function, for Warp's adjoint of a loop in a loop is wrong."""
    out = real(0.0)
    for e in range(first, end):
        out += matrix[world, d, dof[e]] * jacobian[world, e]
    return out


@wp.kernel
def tendon_armature_power(
    # Structure:
    adr: wp.array(dtype=int),
    dof: wp.array(dtype=int),
    # Model:
    armature: wp.array2d(dtype=real),
    # In:
    jacobian: wp.array2d(dtype=real),
    matrix: wp.array3d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Every tendon's share of the same."""
    world, t = wp.tid()
    power = real(0.0)
    for e in range(adr[t], adr[t + 1]):
        rate = product(world, dof[e], adr[t], adr[t + 1], dof, matrix, jacobian)
        power += armature[world, t] * jacobian[world, e] * rate
    power_out[world, t] = power
