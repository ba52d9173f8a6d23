"""From nodes to particles: how a batch of particles moves, and its adjoint by hand."""

import warp as wp

from .._precision import mat33, real, vec3, vec4
from .screen import INVERTED, NONFINITE
from .stencil import BATCH, COLLECT, MOMENTS, PARTICLES, PLACE, ROW, ROWS, SPREAD, TYPES


@wp.func_native(
    BATCH
    + ROW
    + TYPES
    + """
    const number h = *row(timestep, 0);
"""
    + PARTICLES
    + """
        number* const x_to = row(x_out, p);
        number* const v_to = row(v_out, p);
        number* const rate_to = (number*)row(rate_out, p);
        const int bits = *row(fault, p);
        if (bits & ~inverted) {
            for (int a = 0; a < (flat ? 2 : 3); ++a) x_to[a] = row(x, p)[a], v_to[a] = row(v, p)[a];
            for (int a = 0; a < 9; ++a) rate_to[a] = ((const number*)row(rate, p))[a];
            *row(fault_out, p) = bits;
            continue;
        }
"""
    + PLACE
    + """
        const four* const from = (const four*)row(grid, first_node);
"""
    + COLLECT
    + """
        const four way = h * total;
        x_to[0] = at[0] + way[0], x_to[1] = at[1] + way[1];
        v_to[0] = total[0], v_to[1] = total[1];
        if (!flat) x_to[2] = at[2] + way[2], v_to[2] = total[2];
        bool near = true;  // false for NaN, too
        for (int a = 0; a < 3; ++a) {
            near = near && way[a] <= dx && -way[a] <= dx;
            const number scale = number(4) / dx * (a == 2 ? z : one);
            rate_to[3 * a] = scale * moment_1[a], rate_to[3 * a + 1] = scale * moment_2[a];
            rate_to[3 * a + 2] = scale * moment_3[a];
        }
        const bool lost = !(way[0] * way[0] + way[1] * way[1] + way[2] * way[2] < number(1e20));
        *row(fault_out, p) = bits | (near ? 0 : lost ? nonfinite : too_far);
    }
"""
)
def collect_batch(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    nonfinite: int,
    inverted: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """v = sum(w v_i), C = 4 / dx^2 sum(w v_i (x_i - x)^T), x + h v, of eight particles. In a plane C is 2 x 2."""


@wp.func_native(
    BATCH
    + ROW
    + TYPES
    + """
    const number h = *row(timestep, 0), scale = number(4) / dx;
    number h_bar = none;
"""
    + PARTICLES
    + """
        number at_bar[3] = {none, none, none}, u_bar[3] = {none, none, none}, c_bar[9];
        const number* const from_x = row(x_out_bar, p);
        const number* const from_v = row(v_out_bar, p);
        const number* const from_rate = (const number*)row(rate_out_bar, p);
        if (x_out_bar.data) at_bar[0] = from_x[0], at_bar[1] = from_x[1], at_bar[2] = flat ? none : from_x[2];
        if (v_out_bar.data) u_bar[0] = from_v[0], u_bar[1] = from_v[1], u_bar[2] = flat ? none : from_v[2];
        for (int a = 0; a < 9; ++a) c_bar[a] = rate_out_bar.data ? from_rate[a] : none;
        if (*row(fault, p) & ~inverted) continue;  // it stays as it is, and passes no gradient
"""
    + PLACE
    + """
        const four way = make(at_bar[0], at_bar[1], at_bar[2], none);
        four rows[4];
        rows[0] = make(u_bar[0], u_bar[1], u_bar[2], none) + h * way;
        rows[1] = scale * make(c_bar[0], c_bar[3], z * c_bar[6], none);
        rows[2] = scale * make(c_bar[1], c_bar[4], z * c_bar[7], none);
        rows[3] = (z * scale) * make(c_bar[2], c_bar[5], c_bar[8], none);
        const four* const from = (const four*)row(grid, first_node);
"""
    + ROWS
    + MOMENTS
    + """
        h_bar += all(times(total, way));
        if (x_bar.data) {
            number* const turned = row(x_bar, p);
            turned[0] += at_bar[0] + slope[0] / dx, turned[1] += at_bar[1] + slope[1] / dx;
            if (!flat) turned[2] += at_bar[2] + slope[2] / dx;
        }
        if (!grid_bar.data) continue;
        four* const to = (four*)row(grid_bar, first_node);
"""
    + SPREAD
    + """
    }
    if (timestep_bar.data) sum_up(row(timestep_bar, 0), h_bar);
"""
)
def pull_collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    inverted: int,
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out_bar: wp.array3d(dtype=real),
    v_out_bar: wp.array3d(dtype=real),
    rate_out_bar: wp.array2d(dtype=mat33),
    timestep_bar: wp.array(dtype=real),
    x_bar: wp.array3d(dtype=real),
    v_bar: wp.array3d(dtype=real),
    rate_bar: wp.array2d(dtype=mat33),
    grid_bar: wp.array2d(dtype=vec4),
):
    """What is collected is spread; moving the particle turns the weights, and shifts the first moments."""


@wp.func
def collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """Where a batch of particles is after the step, and how it moves."""
    collect_batch(
        world,
        batch,
        lower,
        dx,
        nodes,
        timestep,
        too_far,
        NONFINITE,
        INVERTED,
        x,
        v,
        rate,
        fault,
        grid,
        x_out,
        v_out,
        rate_out,
        fault_out,
    )


@wp.func_replay(collect)
def no_replay_of_collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """A backward pass has no use for the moments: what becomes of them is linear."""


@wp.func_grad(collect)
def adj_collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """By hand, in one pass."""
    pull_collect(
        world,
        batch,
        lower,
        dx,
        nodes,
        INVERTED,
        timestep,
        x,
        fault,
        grid,
        wp.adjoint[x_out],
        wp.adjoint[v_out],
        wp.adjoint[rate_out],
        wp.adjoint[timestep],
        wp.adjoint[x],
        wp.adjoint[v],
        wp.adjoint[rate],
        wp.adjoint[grid],
    )
