"""The incremental potential of a step, its gradient and its Hessian (Martin et al. 2011; Kane et al. 2000).

With u = x' - x, the step's displacement,

W(u) = sum_v m_v (|u|^2 (1 / h^2 + a / h) / 2 - u . (v / h + g)) - u . f + sum_e V psi(F(x + u))

is least where M ((u / h - v) / h + a u / h - g) = f - dPsi/dx: implicit Euler, a being the damping by mass. With
h = infinity it is the energy at rest under the loads.
"""

import warp as wp

from .._precision import mat33, real, tolerance, vec2, vec3
from ..spectral import identity
from .element import edges, slope, stiffness, volume_of
from .laws import curvature, energy_density, stress, stretches

ROUNDING = wp.constant(tolerance(1.0e-15, 4.0e-7))
"""What is below this fraction of the numbers that it is the sum of is rounding."""


@wp.struct
class Body:
    """Topology, the same for all worlds."""

    law: int
    elements: wp.array2d(dtype=int)
    pinned: wp.array(dtype=int)  # 1 for vertices whose displacement is given
    first: wp.array(dtype=int)  # of each row, its first block
    column: wp.array(dtype=int)
    slot: wp.array2d(dtype=int)  # of an element's pairs of corners, their block


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


@wp.struct
class Work:
    """What is computed once a step."""

    inverse: wp.array2d(dtype=mat33)  # of an element's edges at rest
    volume: wp.array2d(dtype=real)
    mass: wp.array2d(dtype=real)  # of a vertex
    place: wp.array2d(dtype=vec3)  # x + u


@wp.struct
class Matrix:
    """A Hessian, in blocks of 3 x 3, and the inverse of its diagonal blocks."""

    block: wp.array2d(dtype=mat33)
    diagonal: wp.array2d(dtype=mat33)


@wp.func
def inertia(setting: Setting, world: int) -> real:
    """1 / h^2 + a / h, the second derivative of the potential by u for each kilogram."""
    rate = real(1.0) / setting.timestep[world]
    return rate * (rate + setting.damping[world])


@wp.func
def pull(setting: Setting, world: int, i: int) -> vec3:
    """v / h + g."""
    return setting.v[world, i] / setting.timestep[world] + setting.gravity[world]


@wp.func
def set_up(world: int, body: Body, setting: Setting, work_out: Work):
    """Volumes, inverse edges at rest and lumped masses."""
    corners = body.elements.shape[1]
    for i in range(work_out.mass.shape[1]):
        work_out.mass[world, i] = real(0.0)
    for e in range(body.elements.shape[0]):
        rest = edges(body.elements, e, setting.rest, world, real(1.0))
        volume = volume_of(rest, corners)
        work_out.inverse[world, e] = wp.inverse(rest)
        work_out.volume[world, e] = volume
        share = setting.density[world, e] * volume / real(corners)
        for a in range(corners):
            i = body.elements[e, a]
            work_out.mass[world, i] = work_out.mass[world, i] + share


@wp.func
def move(world: int, setting: Setting, u: wp.array2d(dtype=vec3), work_out: Work):
    """Where the vertices are after a displacement."""
    for i in range(u.shape[1]):
        work_out.place[world, i] = setting.x[world, i] + u[world, i]


@wp.func
def deformation(world: int, e: int, body: Body, work: Work) -> mat33:
    """F of an element at the place."""
    return edges(body.elements, e, work.place, world, real(1.0)) * work.inverse[world, e]


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
    for e in range(body.elements.shape[0]):
        f = deformation(world, e, body, work)
        mu = setting.mu[world, e]
        lam = setting.lam[world, e]
        energy = energy_density(body.law, f, mu, lam)
        modulus = real(2.0) * mu + wp.abs(lam)
        hold = wp.sqrt(modulus * wp.abs(energy)) + ROUNDING * modulus
        total += work.volume[world, e] * energy
        size += work.volume[world, e] * (wp.abs(energy) + hold * (real(1.0) + wp.ddot(f, f)))
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
    for e in range(body.elements.shape[0]):
        mu = setting.mu[world, e]
        lam = setting.lam[world, e]
        v = work.volume[world, e]
        f = deformation(world, e, body, work)
        p = v * stress(body.law, f, mu, lam)
        scale = v * (real(2.0) * mu + wp.abs(lam)) * wp.max(real(1.0), wp.ddot(f, f))
        for a in range(corners):
            i = body.elements[e, a]
            g = slope(work.inverse[world, e], a, corners)
            gradient_out[world, i] = gradient_out[world, i] + p * g
            size += scale * scale * wp.dot(g, g)
    for i in range(u.shape[1]):
        if body.pinned[i] != 0:
            gradient_out[world, i] = vec3()
    return size


@wp.func
def hessian(
    world: int, body: Body, setting: Setting, work: Work, projected: int, preconditioned: int, matrix_out: Matrix
):
    """d2W/du2 at the place, and the inverse diagonal blocks of the projected one.

    Args:
        projected: whether negative curvatures of each element count as zero.
        preconditioned: whether the diagonal blocks are wanted.
    """
    corners = body.elements.shape[1]
    c = inertia(setting, world)
    for t in range(matrix_out.block.shape[1]):
        matrix_out.block[world, t] = mat33()
    for e in range(body.elements.shape[0]):
        inverse = work.inverse[world, e]
        u, s, v = stretches(deformation(world, e, body, work))
        ca, cb, cc = curvature(body.law, s, setting.mu[world, e], setting.lam[world, e], projected)
        turn = wp.transpose(v)
        for a in range(corners):
            ga = turn * slope(inverse, a, corners)
            for b in range(corners):
                if b >= a:
                    gb = turn * slope(inverse, b, corners)
                    k = work.volume[world, e] * stiffness(ga, gb, u, ca, cb, cc)
                    t = body.slot[e, a * corners + b]
                    matrix_out.block[world, t] = matrix_out.block[world, t] + k
                    if b > a:
                        t = body.slot[e, b * corners + a]
                        matrix_out.block[world, t] = matrix_out.block[world, t] + wp.transpose(k)
    for i in range(work.mass.shape[1]):
        for t in range(body.first[i], body.first[i + 1]):
            if body.column[t] == i:
                k = matrix_out.block[world, t] + work.mass[world, i] * c * identity()
                matrix_out.block[world, t] = k
                if preconditioned != 0:
                    matrix_out.diagonal[world, i] = safe_inverse(k)


@wp.func
def safe_inverse(k: mat33) -> mat33:
    """Inverse of a positive semidefinite block; of one that is nearly singular, of one a little larger."""
    trace = wp.trace(k)
    if trace <= real(0.0):
        return identity()
    return wp.inverse(k + real(1.0e-6) * trace * identity())


@wp.func
def multiply(
    world: int, body: Body, matrix: Matrix, p: wp.array2d(dtype=vec3), product_out: wp.array2d(dtype=vec3)
) -> real:
    """H p on the vertices that are not pinned, zero on the others; returns p . H p."""
    total = real(0.0)
    for i in range(p.shape[1]):
        sum_ = vec3()
        if body.pinned[i] == 0:
            for t in range(body.first[i], body.first[i + 1]):
                sum_ += matrix.block[world, t] * p[world, body.column[t]]
        product_out[world, i] = sum_
        total += wp.dot(sum_, p[world, i])
    return total
