"""The second derivative of a step's potential, in blocks of 3 x 3, and its product with a vector."""

import warp as wp

from .._precision import mat33, real, vec3
from ..spectral import identity
from .bend import add_fold_blocks
from .carried import PRESSING, RUBBING, Touches, add_body_product, add_touch, inverse_block
from .contact import SMALL_SQUARED, bending, drag, gradient_of, pressure, pressure_slope
from .element import slope, stiffness
from .laws import (
    cofactor,
    curvature,
    positive,
    pulled_stiffness,
    second_stress,
    sheet_stretches,
    stress,
    stretches,
    tension,
)
from .near import Grid
from .potential import (
    Body,
    Setting,
    Work,
    deformation,
    deformation_before,
    from_collider,
    held,
    inertia,
    met,
    own_moduli,
    pressed,
    pulled,
    slipping_past,
)
from .self_contact import Pairs, add_self_diagonal, add_self_product, self_blocks


@wp.struct
class Matrix:
    """A Hessian, in blocks of 3 x 3, and the inverse of its diagonal blocks."""

    block: wp.array2d(dtype=mat33)
    diagonal: wp.array2d(dtype=mat33)
    rise: wp.array2d(dtype=vec3)  # in the place of block i, j: the derivative of vertex i's dilatation by vertex j
    pairs: Pairs  # of the body with itself
    grid: Grid
    touches: Touches  # of bodies that answer


@wp.func
def curvature_by(world: int, i: int, c: int, body: Body, setting: Setting, work: Work, projected: int):
    """The second derivative of what a collider adds to W, by how a vertex moves past it: of pressure, and of friction.

    Projected: without the part by which convex shapes lower it.
    """
    press = mat33()
    rub = mat33()
    area = setting.area[world, i]
    k = setting.stiffness[world]
    t = setting.thickness[world]
    rate = real(1.0) / setting.timestep[world]
    s = met(world, i, c, body, setting, work)
    n = gradient_of(s)
    depth = t - s[3]
    if depth > real(0.0):
        press += area * pressure_slope(depth, k, t) * wp.outer(n, n)
        if projected == 0:
            turn = work.end_turn[world, c]
            bend = bending(
                world,
                body.shape[c],
                body.count[c],
                body.sample[c],
                setting.field,
                setting.size[world, c],
                vec3(),
                turn,
                from_collider(world, i, c, setting, work),
                n,
            )
            press -= area * pressure(depth, k, t) * bend
    o, hold = held(world, i, c, body, setting)
    if hold > real(0.0) and rate > real(0.0):
        w = slipping_past(world, i, c, o, setting, work)
        speed = wp.sqrt(wp.max(wp.dot(w, w), SMALL_SQUARED))
        slip = setting.slip[world]
        across = drag(speed, slip)
        along = across  # of a light body: where friction is at its full size the slope would let it slide for ever
        if projected == 0 or body.carrier[c] < 0:
            along = real(2.0) * wp.max(real(0.0), real(1.0) - speed / slip) / slip
        d = w / speed
        rub = hold * rate * (across * (identity() - wp.outer(o, o)) + (along - across) * wp.outer(d, d))
    return press, rub


@wp.func
def contact_curvature(world: int, i: int, body: Body, setting: Setting, work: Work, projected: int) -> mat33:
    """That of all colliders."""
    total = mat33()
    for c in range(body.shape.shape[0]):
        press, rub = curvature_by(world, i, c, body, setting, work, projected)
        total += press + rub
    return total


@wp.func
def list_touches(world: int, body: Body, setting: Setting, work: Work, projected: int, touches_out: Touches):
    """The vertices that colliders of bodies touch."""
    count = int(0)
    for i in range(setting.v.shape[1]):
        if setting.area[world, i] > real(0.0):
            for c in range(body.shape.shape[0]):
                if body.carrier[c] >= 0:
                    press, rub = curvature_by(world, i, c, body, setting, work, projected)
                    count = add_touch(world, i, c, PRESSING, press, count, touches_out)
                    count = add_touch(world, i, c, RUBBING, rub, count, touches_out)
    touches_out.count[world] = count


@wp.func
def principal(f: mat33, normal: vec3, sheet: int):
    """Of F: U, the stretches and V; with the normal at rest for a sheet."""
    if sheet != 0:
        left, stretch, right = sheet_stretches(f, normal)
        return left, stretch, right
    u, s, v = stretches(f)
    return u, s, v


@wp.func(inline=False)
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
        if body.mean != 0:
            matrix_out.rise[world, t] = vec3()
    for e in range(body.elements.shape[0]):
        inverse = work.inverse[world, e]
        f = deformation(world, e, body, work)
        own = own_moduli(world, e, body, setting)
        pressure_ = pressed(world, e, f, own, body, work)
        u, s, v = principal(f, inverse[2], body.sheet)
        ca, cb, cc = curvature(body.law, s, own, pressure_, projected)
        plane = f
        if body.sheet != 0:
            cb = tension(stress(body.law, f, own, pressure_), u, s, v, cb, projected)
            plane = f - wp.outer(f * inverse[2], inverse[2])
        turn = wp.transpose(v)
        mu = real(0.0)
        lam = real(0.0)
        pulls = mat33()
        if pulled(world, body, setting) != 0:
            share = setting.viscous[world] / setting.timestep[world]
            mu = share * setting.mu[world, e]
            lam = share * setting.lam[world, e]
            o = deformation_before(world, e, body, setting, work)
            pulls = second_stress(f, o, mu, lam, setting.muscle[world, e])
            if projected != 0:
                pulls = positive(pulls)
        swell = cofactor(f) * (work.volume[world, e] / real(corners))
        for a in range(corners):
            ga = turn * slope(inverse, a, corners)
            for b in range(corners):
                if body.mean != 0:
                    t = body.slot[e, a * corners + b]
                    part = swell * slope(inverse, b, corners) / work.room[world, body.elements[e, a]]
                    matrix_out.rise[world, t] = matrix_out.rise[world, t] + part
                if b >= a:
                    gb = turn * slope(inverse, b, corners)
                    k = stiffness(ga, gb, u, ca, cb, cc)
                    if pulled(world, body, setting) != 0:
                        k += pulled_stiffness(
                            slope(inverse, a, corners), slope(inverse, b, corners), plane, pulls, mu, lam
                        )
                    k = work.volume[world, e] * k
                    t = body.slot[e, a * corners + b]
                    matrix_out.block[world, t] = matrix_out.block[world, t] + k
                    if b > a:
                        t = body.slot[e, b * corners + a]
                        matrix_out.block[world, t] = matrix_out.block[world, t] + wp.transpose(k)
    if body.sheet != 0:
        add_fold_blocks(world, body, setting, work, projected, matrix_out.block)
    if body.skin.room > 0:
        self_blocks(world, body, setting, work, projected, matrix_out.grid, matrix_out.pairs)
    if preconditioned != 0:
        for i in range(work.mass.shape[1]):
            matrix_out.diagonal[world, i] = mat33()
        if body.skin.room > 0:
            add_self_diagonal(world, body, matrix_out.pairs, matrix_out.grid, matrix_out.diagonal)
        if body.mean != 0:
            for i in range(work.mass.shape[1]):
                for t in range(body.first[i], body.first[i + 1]):
                    j = body.column[t]
                    g = matrix_out.rise[world, t]
                    bulk = wp.max(work.bulk[world, i], real(0.0))
                    matrix_out.diagonal[world, j] = matrix_out.diagonal[world, j] + bulk * wp.outer(g, g)
    for i in range(work.mass.shape[1]):
        for t in range(body.first[i], body.first[i + 1]):
            if body.column[t] == i:
                k = matrix_out.block[world, t] + work.mass[world, i] * c * identity()
                if setting.area[world, i] > real(0.0):
                    k += contact_curvature(world, i, body, setting, work, projected)
                matrix_out.block[world, t] = k
                if preconditioned != 0:
                    matrix_out.diagonal[world, i] = safe_inverse(matrix_out.diagonal[world, i] + k)
    if setting.free.shape[1] > 0:
        list_touches(world, body, setting, work, projected, matrix_out.touches)
        if preconditioned != 0:
            for e in range(setting.free.shape[1]):
                i = setting.v.shape[1] + e
                k = inverse_block(world, e, work.mass[world, i] * c, body, setting, work, matrix_out.touches)
                matrix_out.diagonal[world, i] = k


@wp.func
def safe_inverse(k: mat33) -> mat33:
    """Inverse of a positive semidefinite block; of one that is nearly singular, of one a little larger."""
    trace = wp.trace(k)
    if trace <= real(0.0):
        return identity()
    return wp.inverse(k + real(1.0e-6) * trace * identity())


@wp.func
def multiply(
    world: int,
    body: Body,
    setting: Setting,
    work: Work,
    matrix: Matrix,
    p: wp.array2d(dtype=vec3),
    product_out: wp.array2d(dtype=vec3),
) -> real:
    """H p on the vertices that are not pinned, zero on the others; returns p . H p. p is zero where pinned."""
    for i in range(p.shape[1]):
        sum_ = vec3()
        for t in range(body.first[i], body.first[i + 1]):
            sum_ += matrix.block[world, t] * p[world, body.column[t]]
        product_out[world, i] = sum_
    if body.mean != 0:
        for i in range(p.shape[1]):
            change = real(0.0)
            for t in range(body.first[i], body.first[i + 1]):
                change += wp.dot(matrix.rise[world, t], p[world, body.column[t]])
            change = change * work.bulk[world, i]
            for t in range(body.first[i], body.first[i + 1]):
                j = body.column[t]
                product_out[world, j] = product_out[world, j] + change * matrix.rise[world, t]
    if body.skin.room > 0:
        add_self_product(world, body, matrix.pairs, matrix.grid, p, product_out)
    if setting.free.shape[1] > 0:
        add_body_product(world, body, setting, work, matrix.touches, p, product_out)
    total = real(0.0)
    for i in range(p.shape[1]):
        if body.pinned[i] != 0:
            product_out[world, i] = vec3()
        total += wp.dot(product_out[world, i], p[world, i])
    return total
