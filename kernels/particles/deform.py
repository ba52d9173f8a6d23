"""The first stage of a step: particles deform, flow, and spread the field with which they answer.

Most go eight at once (lanes.py); the general code here knows every material, faults and muscles.
"""

import warp as wp

from .. import _native
from .._precision import mat33, real, vec3, vec4
from ..spectral import HALF_THE_DIGITS, identity
from .lanes import deform_lanes, pull_lanes
from .materials import (
    COROTATED,
    LIQUID,
    MOHR_COULOMB,
    NEO_HOOKEAN,
    SAND,
    SNOW,
    corotated,
    liquid,
    metal,
    neo_hookean,
    sand,
    snow,
)
from .screen import INVERTED, fault_of, point, row_of
from .spread import affine, spread


@wp.func
def answer(
    world: int,
    p: int,
    f: mat33,
    history: real,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
):
    """Store what becomes of a particle."""
    gradient_out[world, p] = f
    history_out[world, p] = history


@_native.func_replay(answer)
def no_replay_of_answer(
    world: int,
    p: int,
    f: mat33,
    history: real,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
):
    """A backward pass does not store it again."""


@wp.func
def stay(
    world: int,
    p: int,
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
):
    """A particle that takes no part stays as it is."""
    gradient_out[world, p] = gradient[world, p]
    history_out[world, p] = history[world, p]


@wp.func_grad(stay)
def no_slope_of_stay(
    world: int,
    p: int,
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
):
    """It passes no gradient."""


@wp.func
def respond(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    f: mat33,
    q: real,
    tau: mat33,
    muscle: mat33,
    actuated: int,
    m: int,
    h: real,
    table: wp.array3d(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    grid_out: wp.array2d(dtype=vec4),
):
    """Store what flow leaves; spread mass and w_i m (v + C (x_i - x)) + h (w_i f - 4 V / dx^2 w_i tau (x_i - x))."""
    stress = tau
    if actuated != 0:
        stress = tau + f * muscle * wp.transpose(f)
    mass = table[world, m, 0] * volume[world, p]
    u = mass * point(v, world, p) + h * point(force, world, p * each_force)
    slope = mass * rate[world, p] - (real(4.0) * h * volume[world, p] / (dx * dx)) * stress
    answer(world, p, f, q, gradient_out, history_out)
    field = affine(vec4(u[0], u[1], u[2], mass), slope, dx, nodes)
    spread(world, p, lower, dx, nodes, x, field, grid_out)


@wp.func
def deform_one(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuation: wp.array2d(dtype=mat33),
    each_actuation: int,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    fault_out: wp.array2d(dtype=int),
    grid_out: wp.array2d(dtype=vec4),
):
    """F, history and the field to spread of one particle, of any material."""
    f0 = gradient[world, p]
    q0 = history[world, p]
    c = rate[world, p]
    s = actuation[world, p * each_actuation]
    fault = fault_of(
        world,
        p,
        x,
        v,
        rate,
        gradient,
        history,
        force,
        each_force,
        actuation,
        each_actuation,
        lower,
        dx,
        nodes,
        fault_out,
    )
    if fault != 0 and fault != INVERTED:
        stay(world, p, gradient, history, gradient_out, history_out)
    else:
        h = timestep[world]
        k = kind[material[world, p]]
        m = row_of(world, p, material, kind.shape[0], table)
        young = table[world, m, 1]
        poisson = table[world, m, 2]
        mu = young / (real(2.0) * (real(1.0) + poisson))
        lam = young * poisson / ((real(1.0) + poisson) * (real(1.0) - real(2.0) * poisson))
        trial = f0 + h * (c * f0)
        if k == COROTATED:
            tau = corotated(trial, mu, lam)
            respond(
                world,
                p,
                lower,
                dx,
                nodes,
                trial,
                q0,
                tau,
                s,
                actuated,
                m,
                h,
                table,
                x,
                v,
                rate,
                volume,
                force,
                each_force,
                gradient_out,
                history_out,
                grid_out,
            )
        elif k == NEO_HOOKEAN:
            tau = neo_hookean(trial, mu, lam)
            respond(
                world,
                p,
                lower,
                dx,
                nodes,
                trial,
                q0,
                tau,
                s,
                actuated,
                m,
                h,
                table,
                x,
                v,
                rate,
                volume,
                force,
                each_force,
                gradient_out,
                history_out,
                grid_out,
            )
        elif k == LIQUID:
            j = wp.max(wp.determinant(f0) * (real(1.0) + h * wp.trace(c)), real(0.1))
            f = wp.pow(j, real(1.0) / real(3.0)) * identity()
            tau = liquid(j, c, young, table[world, m, 3], table[world, m, 4])
            respond(
                world,
                p,
                lower,
                dx,
                nodes,
                f,
                q0,
                tau,
                s,
                actuated,
                m,
                h,
                table,
                x,
                v,
                rate,
                volume,
                force,
                each_force,
                gradient_out,
                history_out,
                grid_out,
            )
        elif k == SNOW:
            f, q, tau = snow(trial, q0, mu, lam, table[world, m, 3], table[world, m, 4], table[world, m, 5])
            respond(
                world,
                p,
                lower,
                dx,
                nodes,
                f,
                q,
                tau,
                s,
                actuated,
                m,
                h,
                table,
                x,
                v,
                rate,
                volume,
                force,
                each_force,
                gradient_out,
                history_out,
                grid_out,
            )
        elif k == SAND or k == MOHR_COULOMB:
            f, q, tau = sand(trial, q0, mu, lam, table[world, m, 3], table[world, m, 4], k)
            respond(
                world,
                p,
                lower,
                dx,
                nodes,
                f,
                q,
                tau,
                s,
                actuated,
                m,
                h,
                table,
                x,
                v,
                rate,
                volume,
                force,
                each_force,
                gradient_out,
                history_out,
                grid_out,
            )
        else:
            f, q, tau = metal(trial, q0, mu, lam, table[world, m, 3], table[world, m, 4])
            respond(
                world,
                p,
                lower,
                dx,
                nodes,
                f,
                q,
                tau,
                s,
                actuated,
                m,
                h,
                table,
                x,
                v,
                rate,
                volume,
                force,
                each_force,
                gradient_out,
                history_out,
                grid_out,
            )


@wp.func
def together(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
    grid_out: wp.array2d(dtype=vec4),
) -> int:
    """Eight particles at once, where that can be; which are left, as bits."""
    return deform_lanes(
        world,
        batch,
        COROTATED,
        HALF_THE_DIGITS,
        lower,
        dx,
        nodes,
        kind,
        table,
        timestep,
        x,
        v,
        material,
        rate,
        gradient,
        history,
        volume,
        force,
        each_force,
        actuated,
        gradient_out,
        history_out,
        fault_out,
        left_out,
        grid_out,
    )


@_native.func_replay(together)
def together_before(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
    grid_out: wp.array2d(dtype=vec4),
):
    """A backward pass reads which were left."""
    return left_out[world, batch]


@wp.func_grad(together)
def adj_together(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
    grid_out: wp.array2d(dtype=vec4),
    adj_ret: int,
):
    """By hand."""
    pull_lanes(
        world,
        batch,
        COROTATED,
        HALF_THE_DIGITS,
        lower,
        dx,
        nodes,
        kind,
        table,
        timestep,
        x,
        v,
        material,
        rate,
        gradient,
        history,
        volume,
        force,
        each_force,
        actuated,
        left_out,
        wp.adjoint[gradient_out],
        wp.adjoint[history_out],
        wp.adjoint[grid_out],
        wp.adjoint[table],
        wp.adjoint[timestep],
        wp.adjoint[x],
        wp.adjoint[v],
        wp.adjoint[rate],
        wp.adjoint[gradient],
        wp.adjoint[history],
        wp.adjoint[volume],
        wp.adjoint[force],
    )
