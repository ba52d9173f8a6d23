"""The incremental potential of a step and its gradient (Martin et al. 2011; Kane et al. 2000).

With u = x' - x, the step's displacement,

W(u) = sum_v m_v (|u|^2 (1 / h^2 + a / h) / 2 - u . (v / h + g)) - u . f + sum_e V psi(F(x + u))

is least where M ((u / h - v) / h + a u / h - g) = f - dPsi/dx: implicit Euler, a being the damping by mass. With
h = infinity it is the energy at rest under the loads. With mean dilatation the part l (J - a)^2 / 2 of psi takes at
each vertex the mean J of the elements around it (Bonet and Burton 1998): an element's l (J - a) becomes the mean of its
vertices' pressures. psi includes muscles and damping by stiffness (laws.py);
colliders add their terms (contact.py), and the hinges of sheets theirs (bend.py).
"""

import warp as wp

from .._precision import mat33, quat, real, tolerance, vec2, vec3, vec4
from .contact import (
    apart,
    drag,
    drag_work,
    gradient_of,
    normal_of,
    pressure,
    pressure_slope,
    pressure_work,
    slipping,
    steepness,
)
from .element import across, edges, slope, volume_of
from .laws import (
    energy_density,
    moduli,
    pressure_of,
    pull_work,
    second_stress,
    stress,
)
from .pairs import Skin

NONE = wp.constant(real(1.0e-30))
"""Guards a division: far below any square of a force."""
ROUNDING = wp.constant(tolerance(1.0e-15, 4.0e-7))
"""What is below this fraction of the numbers that it is the sum of is rounding."""


@wp.struct
class Body:
    """Topology, the same for all worlds."""

    law: int
    mean: int  # whether the dilatation is a mean around vertices
    muscles: int  # whether there are any
    sheet: int  # whether elements are triangles in space
    elements: wp.array2d(dtype=int)
    pinned: wp.array(dtype=int)  # 1 for vertices whose displacement is given
    first: wp.array(dtype=int)  # of each row, its first block
    column: wp.array(dtype=int)
    slot: wp.array2d(dtype=int)  # of an element's pairs of corners, their block
    hinge: wp.array2d(dtype=int)  # of a sheet (bend.py): the ends of an edge, and the vertices opposite
    fold: wp.array2d(dtype=int)  # of a hinge's pairs of corners, their block
    shape: wp.array(dtype=int)  # of each collider
    count: wp.array(dtype=wp.vec3i)
    sample: wp.array(dtype=int)  # of a field, its first
    carrier: wp.array(dtype=int)  # the body that carries it, if its twist is an unknown (carried.py), else -1
    skin: Skin


@wp.struct
class Setting:
    """Parameters, state and loads."""

    rest: wp.array2d(dtype=vec3)
    density: wp.array2d(dtype=real)
    mu: wp.array2d(dtype=real)
    lam: wp.array2d(dtype=real)
    timestep: wp.array(dtype=real)
    gravity: wp.array(dtype=vec3)
    damping: wp.array(dtype=real)
    x: wp.array2d(dtype=vec3)
    v: wp.array2d(dtype=vec3)
    force: wp.array2d(dtype=vec3)
    viscous: wp.array(dtype=real)
    muscle: wp.array2d(dtype=mat33)
    thick: wp.array2d(dtype=real)
    bend: wp.array2d(dtype=real)
    # contact (contact.py): of vertices,
    area: wp.array2d(dtype=real)
    stiffness: wp.array(dtype=real)
    thickness: wp.array(dtype=real)
    slip: wp.array(dtype=real)
    before: wp.array2d(dtype=vec3)
    # with itself (pairs.py): shares of the surface of vertices and edges, squared lengths of edges at rest, friction,
    share: wp.array2d(dtype=real)
    seam: wp.array2d(dtype=real)
    span: wp.array2d(dtype=real)
    rub: wp.array(dtype=real)
    # and of colliders
    size: wp.array2d(dtype=vec3)
    friction: wp.array2d(dtype=real)
    field: wp.array2d(dtype=real)
    begin: wp.array2d(dtype=vec3)
    begin_turn: wp.array2d(dtype=quat)
    end: wp.array2d(dtype=vec3)
    end_turn: wp.array2d(dtype=quat)
    velocity: wp.array2d(dtype=vec3)
    spin: wp.array2d(dtype=vec3)
    # and of bodies that carry them (carried.py): where they begin, velocity and spin without contact, L, and m
    origin: wp.array2d(dtype=vec3)
    free: wp.array2d(dtype=vec3)
    lever: wp.array2d(dtype=mat33)
    weight: wp.array(dtype=real)


@wp.struct
class Work:
    """What is computed once a step."""

    inverse: wp.array2d(dtype=mat33)  # of an element's edges at rest
    volume: wp.array2d(dtype=real)
    mass: wp.array2d(dtype=real)  # of a vertex
    moved: wp.array2d(dtype=vec3)  # u
    place: wp.array2d(dtype=vec3)  # x + u
    angle: wp.array2d(dtype=real)  # of a hinge at rest
    # with mean dilatation, of a vertex:
    room: wp.array2d(dtype=real)  # its volume
    bulk: wp.array2d(dtype=real)  # the sum of l V / corners
    rest: wp.array2d(dtype=real)  # that of l a V / corners
    dilatation: wp.array2d(dtype=real)  # J
    # of a collider, how it moves; of bodies, velocity and spin, and force and torque
    shift: wp.array2d(dtype=vec3)  # of its origin, within the step
    end_turn: wp.array2d(dtype=quat)
    velocity: wp.array2d(dtype=vec3)
    spin: wp.array2d(dtype=vec3)
    twist: wp.array2d(dtype=vec3)
    wrench: wp.array2d(dtype=vec3)


@wp.func
def pulled(world: int, body: Body, setting: Setting) -> int:
    """Whether there are muscles or damping by stiffness."""
    if body.muscles != 0 or setting.viscous[world] > real(0.0):
        return 1
    return 0


@wp.func
def inertia(setting: Setting, world: int) -> real:
    """1 / h^2 + a / h, the second derivative of the potential by u for each kilogram."""
    rate = real(1.0) / setting.timestep[world]
    return rate * (rate + setting.damping[world])


@wp.func
def pull(setting: Setting, world: int, i: int) -> vec3:
    """v / h + g of a vertex; the unknowns of bodies, behind the vertices, have no weight."""
    if i >= setting.v.shape[1]:
        return vec3()
    return setting.v[world, i] / setting.timestep[world] + setting.gravity[world]


@wp.func
def set_up(world: int, body: Body, setting: Setting, work_out: Work):
    """Volumes, inverse edges at rest, lumped masses; and how colliders move, unless bodies that answer carry them."""
    corners = body.elements.shape[1]
    for c in range(body.shape.shape[0]):
        work_out.shift[world, c] = setting.end[world, c] - setting.begin[world, c]
        work_out.end_turn[world, c] = setting.end_turn[world, c]
        work_out.velocity[world, c] = setting.velocity[world, c]
        work_out.spin[world, c] = setting.spin[world, c]
    for i in range(work_out.mass.shape[1]):
        work_out.mass[world, i] = real(0.0)
        if i >= setting.v.shape[1]:
            work_out.mass[world, i] = setting.weight[world]
    for e in range(body.elements.shape[0]):
        rest = across(edges(body.elements, e, setting.rest, world), corners, body.sheet)
        volume = volume_of(rest, corners, setting.thick[world, e])
        work_out.inverse[world, e] = wp.inverse(rest)
        work_out.volume[world, e] = volume
        share = setting.density[world, e] * volume / real(corners)
        for a in range(corners):
            i = body.elements[e, a]
            work_out.mass[world, i] = work_out.mass[world, i] + share
    if body.mean != 0:
        for i in range(work_out.mass.shape[1]):
            work_out.room[world, i] = real(0.0)
            work_out.bulk[world, i] = real(0.0)
            work_out.rest[world, i] = real(0.0)
        for e in range(body.elements.shape[0]):
            k = moduli(body.law, setting.mu[world, e], setting.lam[world, e])
            share = work_out.volume[world, e] / real(corners)
            for a in range(corners):
                i = body.elements[e, a]
                work_out.room[world, i] = work_out.room[world, i] + share
                work_out.bulk[world, i] = work_out.bulk[world, i] + share * k[1]
                work_out.rest[world, i] = work_out.rest[world, i] + share * k[1] * k[2]


@wp.func
def deformation(world: int, e: int, body: Body, work: Work) -> mat33:
    """F of an element at the place."""
    d = across(edges(body.elements, e, work.place, world), body.elements.shape[1], body.sheet)
    return d * work.inverse[world, e]


@wp.func
def move(world: int, body: Body, setting: Setting, u: wp.array2d(dtype=vec3), work_out: Work):
    """Where the vertices are after a displacement, and the dilatation around them."""
    for i in range(u.shape[1]):
        work_out.moved[world, i] = u[world, i]
        work_out.place[world, i] = setting.x[world, i] + u[world, i]
    if body.mean != 0:
        corners = body.elements.shape[1]
        for i in range(u.shape[1]):
            work_out.dilatation[world, i] = real(0.0)
        for e in range(body.elements.shape[0]):
            part = wp.determinant(deformation(world, e, body, work_out)) * work_out.volume[world, e] / real(corners)
            for a in range(corners):
                i = body.elements[e, a]
                work_out.dilatation[world, i] = work_out.dilatation[world, i] + part / work_out.room[world, i]


@wp.func
def own_moduli(world: int, e: int, body: Body, setting: Setting) -> vec3:
    """An element's moduli, without what the vertices have of them."""
    k = moduli(body.law, setting.mu[world, e], setting.lam[world, e])
    if body.mean != 0:
        k = vec3(k[0], real(0.0), k[2])
    return k


@wp.func
def swelling(world: int, i: int, work: Work) -> real:
    """The derivative of a vertex's energy by its dilatation [J]."""
    return work.bulk[world, i] * work.dilatation[world, i] - work.rest[world, i]


@wp.func
def pressed(world: int, e: int, f: mat33, k: vec3, body: Body, work: Work) -> real:
    """The pressure in an element."""
    if body.mean == 0:
        return pressure_of(f, k)
    total = real(0.0)
    corners = body.elements.shape[1]
    for a in range(corners):
        i = body.elements[e, a]
        total += swelling(world, i, work) / work.room[world, i]
    return total / real(corners)


@wp.func
def deformation_before(world: int, e: int, body: Body, setting: Setting, work: Work) -> mat33:
    """F of an element where the step begins."""
    d = across(edges(body.elements, e, setting.x, world), body.elements.shape[1], body.sheet)
    return d * work.inverse[world, e]


@wp.func
def from_collider(world: int, i: int, c: int, setting: Setting, work: Work) -> vec3:
    """From a collider's origin to a vertex at the end of the step: a difference of places, and one of displacements.

    A sum of both for each would lose the digits by which a stiff contact tells forces apart.
    """
    begin = setting.x[world, i] - setting.begin[world, c]
    return begin + (work.moved[world, i] - work.shift[world, c])


@wp.func
def met(world: int, i: int, c: int, body: Body, setting: Setting, work: Work) -> vec4:
    """Gradient and distance of a collider at the end of the step."""
    turn = work.end_turn[world, c]
    size = setting.size[world, c]
    place = from_collider(world, i, c, setting, work)
    return apart(world, body.shape[c], body.count[c], body.sample[c], setting.field, size, vec3(), turn, place)


@wp.func
def held(world: int, i: int, c: int, body: Body, setting: Setting):
    """The normal, and mu N, where the step begins."""
    turn = setting.begin_turn[world, c]
    begin = setting.begin[world, c]
    size = setting.size[world, c]
    x = setting.before[world, i]
    s = apart(world, body.shape[c], body.count[c], body.sample[c], setting.field, size, begin, turn, x)
    p = pressure(setting.thickness[world] - s[3], setting.stiffness[world], setting.thickness[world])
    return normal_of(s), setting.friction[world, c] * setting.area[world, i] * p * steepness(body.shape[c], s)


@wp.func
def slipping_past(world: int, i: int, c: int, n: vec3, setting: Setting, work: Work) -> vec3:
    """Velocity of a vertex along a collider's surface."""
    arm = setting.before[world, i] - setting.begin[world, c]
    speed = work.moved[world, i] / setting.timestep[world]
    return slipping(speed - work.velocity[world, c] - wp.cross(work.spin[world, c], arm), n)


@wp.func
def reach(world: int, i: int, c: int, setting: Setting, work: Work) -> real:
    """A length whose rounding the distance has."""
    return wp.length(from_collider(world, i, c, setting, work)) + setting.thickness[world]


@wp.func
def contact_work(world: int, i: int, body: Body, setting: Setting, work: Work) -> vec2:
    """A vertex's part of W by all colliders, and what its rounding is relative to."""
    total = real(0.0)
    size = real(0.0)
    area = setting.area[world, i]
    k = setting.stiffness[world]
    t = setting.thickness[world]
    rate = real(1.0) / setting.timestep[world]
    for c in range(body.shape.shape[0]):
        depth = t - met(world, i, c, body, setting, work)[3]
        energy = area * pressure_work(depth, k, t)
        total += energy
        size += energy + area * pressure(depth, k, t) * reach(world, i, c, setting, work)
        n, hold = held(world, i, c, body, setting)
        if hold > real(0.0) and rate > real(0.0):
            w = slipping_past(world, i, c, n, setting, work)
            energy = hold * drag_work(wp.length(w), setting.slip[world]) / rate
            total += energy
            size += energy
    return vec2(total, size)


@wp.func
def force_by(world: int, i: int, c: int, body: Body, setting: Setting, work: Work):
    """Force of a collider on a vertex, and what its rounding is relative to."""
    area = setting.area[world, i]
    k = setting.stiffness[world]
    t = setting.thickness[world]
    s = met(world, i, c, body, setting, work)
    force = area * pressure(t - s[3], k, t) * gradient_of(s)
    size = area * pressure_slope(t - s[3], k, t) * reach(world, i, c, setting, work)
    n, hold = held(world, i, c, body, setting)
    if hold > real(0.0) and real(1.0) / setting.timestep[world] > real(0.0):
        w = slipping_past(world, i, c, n, setting, work)
        force -= hold * drag(wp.length(w), setting.slip[world]) * w
        size += hold
    return force, size


@wp.func
def contact_force(world: int, i: int, body: Body, setting: Setting, work: Work):
    """Force of all colliders on a vertex, and the square of what its rounding is relative to."""
    total = vec3()
    scale = real(0.0)
    for c in range(body.shape.shape[0]):
        force, size = force_by(world, i, c, body, setting, work)
        total += force
        scale += size * size
    return total, scale


@wp.func
def potential(world: int, body: Body, setting: Setting, u: wp.array2d(dtype=vec3), work: Work) -> vec2:
    """W at the place x + u, and what its rounding is relative to.

    That are its terms, and for an element also stress times |F|, stress being at most about sqrt(modulus energy).
    """
    c = inertia(setting, world)
    total = real(0.0)
    size = real(0.0)
    for i in range(u.shape[1]):
        d = u[world, i]
        m = work.mass[world, i]
        kinetic = real(0.5) * m * c * wp.dot(d, d)
        work_done = m * wp.dot(d, pull(setting, world, i)) + wp.dot(d, setting.force[world, i])
        total += kinetic - work_done
        size += kinetic + wp.abs(work_done)
        if setting.area[world, i] > real(0.0):
            contact = contact_work(world, i, body, setting, work)
            total += contact[0]
            size += contact[1]
    for e in range(body.elements.shape[0]):
        f = deformation(world, e, body, work)
        mu = setting.mu[world, e]
        lam = setting.lam[world, e]
        energy = energy_density(body.law, f, own_moduli(world, e, body, setting))
        modulus = real(2.0) * mu + wp.abs(lam)
        hold = wp.sqrt(modulus * wp.abs(energy)) + ROUNDING * modulus
        total += work.volume[world, e] * energy
        size += work.volume[world, e] * (wp.abs(energy) + hold * (real(1.0) + wp.ddot(f, f)))
        if pulled(world, body, setting) != 0:
            share = setting.viscous[world] / setting.timestep[world]
            o = deformation_before(world, e, body, setting, work)
            more = pull_work(f, o, share * mu, share * lam, setting.muscle[world, e])
            hold = wp.sqrt(wp.ddot(setting.muscle[world, e], setting.muscle[world, e])) + wp.sqrt(
                share * modulus * wp.abs(more)
            )
            total += work.volume[world, e] * more
            size += work.volume[world, e] * (wp.abs(more) + hold * (real(1.0) + wp.ddot(f, f)))
    if body.mean != 0:
        for i in range(u.shape[1]):
            pull_ = swelling(world, i, work)
            bulk = work.bulk[world, i]
            if bulk != real(0.0):
                energy = real(0.5) * pull_ * pull_ / bulk
                total += energy
                size += wp.abs(energy) + wp.abs(pull_) * (real(1.0) + wp.abs(work.dilatation[world, i]))
    return vec2(total, size)


@wp.func
def gradient(
    world: int,
    body: Body,
    setting: Setting,
    u: wp.array2d(dtype=vec3),
    work: Work,
    gradient_out: wp.array2d(dtype=vec3),
) -> real:
    """dW/du at the place x + u, zero where pinned; returns the square of the forces that rounding is relative to."""
    corners = body.elements.shape[1]
    c = inertia(setting, world)
    size = real(0.0)
    for i in range(u.shape[1]):
        m = work.mass[world, i]
        push = m * pull(setting, world, i) + setting.force[world, i]
        resist = m * c * u[world, i]
        gradient_out[world, i] = resist - push
        size += wp.dot(push, push) + wp.dot(resist, resist)
        if setting.area[world, i] > real(0.0):
            contact, scale = contact_force(world, i, body, setting, work)
            gradient_out[world, i] = gradient_out[world, i] - contact
            size += scale
    for e in range(body.elements.shape[0]):
        mu = setting.mu[world, e]
        lam = setting.lam[world, e]
        v = work.volume[world, e]
        f = deformation(world, e, body, work)
        k = own_moduli(world, e, body, setting)
        pressure_ = pressed(world, e, f, k, body, work)
        p = v * stress(body.law, f, k, pressure_)
        modulus = real(2.0) * mu + wp.abs(lam)
        if pulled(world, body, setting) != 0:
            share = setting.viscous[world] / setting.timestep[world]
            o = deformation_before(world, e, body, setting, work)
            muscle = setting.muscle[world, e]
            p += v * (f * second_stress(f, o, share * mu, share * lam, muscle))
            modulus += share * modulus + wp.sqrt(wp.ddot(muscle, muscle))
        scale = v * modulus * wp.max(real(1.0), wp.ddot(f, f))
        for a in range(corners):
            i = body.elements[e, a]
            g = slope(work.inverse[world, e], a, corners)
            gradient_out[world, i] = gradient_out[world, i] + p * g
            size += scale * scale * wp.dot(g, g)
    for i in range(u.shape[1]):
        if body.pinned[i] != 0:
            gradient_out[world, i] = vec3()
    return size
