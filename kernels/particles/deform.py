"""The first stage of a step: particles deform, flow, and answer with the field that they spread.

Most go eight at once (lanes.py); the general code here knows every material, faults and muscles.
"""

import warp as wp

from .._precision import mat33, mat44, real, vec3, vec4
from ..spectral import HALF_THE_DIGITS, identity
from .lanes import deform_lanes, member, pull_lanes
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
from .screen import fault_of, point
from .spread import affine


@wp.func
def answer(
    world: int,
    p: int,
    f: mat33,
    history: real,
    value: mat44,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    field_out: wp.array2d(dtype=mat44),
):
    """Store what a material answers, and the field that it spreads."""
    gradient_out[world, p] = f
    history_out[world, p] = history
    field_out[world, p] = value


@wp.func_replay(answer)
def no_replay_of_answer(
    world: int,
    p: int,
    f: mat33,
    history: real,
    value: mat44,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    field_out: wp.array2d(dtype=mat44),
):
    """A backward pass does not store it again."""


@wp.func
def spreading(
    world: int,
    p: int,
    f: mat33,
    tau: mat33,
    muscle: mat33,
    actuated: int,
    m: int,
    dx: real,
    nodes: wp.vec3i,
    h: real,
    table: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
) -> mat44:
    """The field w_i m (v + C (x_i - x)) + h (w_i f - 4 V / dx^2 w_i tau (x_i - x)), with the mass, as affine rows."""
    stress = tau
    if actuated != 0:
        stress = tau + f * muscle * wp.transpose(f)
    mass = table[world, m, 0] * volume[world, p]
    u = mass * point(v, world, p) + h * point(force, world, p * each_force)
    slope = mass * rate[world, p] - (real(4.0) * h * volume[world, p] / (dx * dx)) * stress
    return affine(vec4(u[0], u[1], u[2], mass), slope, dx, nodes)


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
    field_out: wp.array2d(dtype=mat44),
    fault_out: wp.array2d(dtype=int),
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
    if fault != 0:
        answer(world, p, f0, q0, mat44(), gradient_out, history_out, field_out)
    else:
        m = material[world, p]
        h = timestep[world]
        k = kind[m]
        young = table[world, m, 1]
        poisson = table[world, m, 2]
        mu = young / (real(2.0) * (real(1.0) + poisson))
        lam = young * poisson / ((real(1.0) + poisson) * (real(1.0) - real(2.0) * poisson))
        trial = f0 + h * (c * f0)
        if k == COROTATED:
            tau = corotated(trial, mu, lam)
            rows = spreading(
                world, p, trial, tau, s, actuated, m, dx, nodes, h, table, v, rate, volume, force, each_force
            )
            answer(world, p, trial, q0, rows, gradient_out, history_out, field_out)
        elif k == NEO_HOOKEAN:
            tau = neo_hookean(trial, mu, lam)
            rows = spreading(
                world, p, trial, tau, s, actuated, m, dx, nodes, h, table, v, rate, volume, force, each_force
            )
            answer(world, p, trial, q0, rows, gradient_out, history_out, field_out)
        elif k == LIQUID:
            j = wp.max(wp.determinant(f0) * (real(1.0) + h * wp.trace(c)), real(0.1))
            f = wp.pow(j, real(1.0) / real(3.0)) * identity()
            tau = liquid(j, c, young, table[world, m, 3], table[world, m, 4])
            rows = spreading(world, p, f, tau, s, actuated, m, dx, nodes, h, table, v, rate, volume, force, each_force)
            answer(world, p, f, q0, rows, gradient_out, history_out, field_out)
        elif k == SNOW:
            f, q, tau = snow(trial, q0, mu, lam, table[world, m, 3], table[world, m, 4], table[world, m, 5])
            rows = spreading(world, p, f, tau, s, actuated, m, dx, nodes, h, table, v, rate, volume, force, each_force)
            answer(world, p, f, q, rows, gradient_out, history_out, field_out)
        elif k == SAND or k == MOHR_COULOMB:
            f, q, tau = sand(trial, q0, mu, lam, table[world, m, 3], table[world, m, 4], k)
            rows = spreading(world, p, f, tau, s, actuated, m, dx, nodes, h, table, v, rate, volume, force, each_force)
            answer(world, p, f, q, rows, gradient_out, history_out, field_out)
        else:
            f, q, tau = metal(trial, q0, mu, lam, table[world, m, 3], table[world, m, 4])
            rows = spreading(world, p, f, tau, s, actuated, m, dx, nodes, h, table, v, rate, volume, force, each_force)
            answer(world, p, f, q, rows, gradient_out, history_out, field_out)


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
    field_out: wp.array2d(dtype=mat44),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
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
        field_out,
        fault_out,
        left_out,
    )


@wp.func_replay(together)
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
    field_out: wp.array2d(dtype=mat44),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
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
    field_out: wp.array2d(dtype=mat44),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
    adj_ret: int,
):
    """By hand."""
    pull_lanes(
        world,
        batch,
        COROTATED,
        HALF_THE_DIGITS,
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
        volume,
        force,
        each_force,
        left_out,
        wp.adjoint[gradient_out],
        wp.adjoint[history_out],
        wp.adjoint[field_out],
        wp.adjoint[table],
        wp.adjoint[timestep],
        wp.adjoint[v],
        wp.adjoint[rate],
        wp.adjoint[gradient],
        wp.adjoint[history],
        wp.adjoint[volume],
        wp.adjoint[force],
    )


@wp.kernel
def deform(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    # In:
    force: wp.array3d(dtype=real),
    each_force: int,
    actuation: wp.array2d(dtype=mat33),
    each_actuation: int,
    actuated: int,
    # Out:
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    field_out: wp.array2d(dtype=mat44),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
):
    """F and history after the step's deformation, and the field that a particle spreads, of a batch of eight.

    m_i = sum(w m), (m v)_i = sum(w (m v + h f + (m C - 4 h V / dx^2 tau) (x_i - x))); actuation adds F S F^T to tau,
    with S in the material's own axes.
    """
    world, batch = wp.tid()
    left = together(
        world,
        batch,
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
        field_out,
        fault_out,
        left_out,
    )
    if left != 0:
        for k in range(wp.min(8, x.shape[1])):
            p = member(batch, k, x, world)
            if p >= 0 and (left >> k) % 2 == 1:
                deform_one(
                    world,
                    p,
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
                    actuation,
                    each_actuation,
                    actuated,
                    gradient_out,
                    history_out,
                    field_out,
                    fault_out,
                )
