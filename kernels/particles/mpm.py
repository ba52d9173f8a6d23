"""MLS-MPM (Hu et al. 2018) with APIC transfers (Jiang et al. 2015): particles to nodes, nodes to particles."""

import warp as wp

from .._precision import mat33, real, vec3, vec4
from .collect import collect
from .deform import deform_one, together
from .lanes import member
from .windows import begin, end

CFL = wp.constant(64)
"""A particle moved farther than a cell in one step."""


@wp.kernel
def scatter(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    lanes: int,
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
    marks: wp.array2d(dtype=int),
    # Out:
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
    grid_out: wp.array2d(dtype=vec4),
):
    """F and history after the step's deformation, and what the nodes get, added to what others have spread.

    ``marks`` says what is the window of a part of the particles; without one it has one number.
    m_i = sum(w m), (m v)_i = sum(w (m v + h f + (m C - 4 h V / dx^2 tau) (x_i - x))); actuation adds F S F^T to tau,
    with S in the material's own axes.
    """
    world, batch = wp.tid()
    begin(world, batch, nodes, marks, grid_out)
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
        fault_out,
        left_out,
        grid_out,
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
                    fault_out,
                    grid_out,
                )


@wp.kernel
def gather(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    lanes: int,
    timestep: wp.array(dtype=real),
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    # In:
    fault: wp.array2d(dtype=int),
    marks: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    # Out:
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """v = sum(w v_i), C = 4 / dx^2 sum(w v_i (x_i - x)^T), x + h v. What does not take part stays as it is."""
    world, batch = wp.tid()
    collect(world, batch, lower, dx, nodes, timestep, CFL, x, v, rate, fault, grid, x_out, v_out, rate_out, fault_out)
    end(world, batch, nodes, marks, grid)
