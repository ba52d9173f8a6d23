"""From particles to nodes: what a batch of particles spreads, and its adjoint by hand."""

import warp as wp

from .._precision import mat33, mat44, real, vec3, vec4
from .stencil import MOMENTS, PARTICLES, PLACE, ROWS, SPREAD, TYPES


@wp.func_native(
    TYPES
    + PARTICLES
    + """
        if (*row(fault, p)) continue;
"""
    + PLACE
    + """
        const four* const rows = (const four*)row(field, p);
        four* const to = (four*)row(grid_out, first_node);
"""
    + ROWS
    + SPREAD
    + "    }\n"
)
def spread_batch(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    fault: wp.array2d(dtype=int),
    field: wp.array2d(dtype=mat44),
    grid_out: wp.array2d(dtype=vec4),
):
    """Add w times the affine field of rows q to every node of the stencil, of eight particles."""


@wp.func_native(
    TYPES
    + PARTICLES
    + """
        if (*row(fault, p)) continue;
"""
    + PLACE
    + """
        const four* const rows = (const four*)row(field, p);
        const four* const from = (const four*)row(grid_out_bar, first_node);
"""
    + ROWS
    + MOMENTS
    + """
        if (field_bar.data) {
            four* const to = (four*)row(field_bar, p);
            to[0] += total, to[1] += moment_1, to[2] += moment_2, to[3] += moment_3;
        }
        if (!x_bar.data) continue;
        number* const turned = row(x_bar, p);
        turned[0] += slope[0] / dx, turned[1] += slope[1] / dx;
        if (!flat) turned[2] += slope[2] / dx;
    }
"""
)
def pull_spread(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    fault: wp.array2d(dtype=int),
    field: wp.array2d(dtype=mat44),
    grid_out_bar: wp.array2d(dtype=vec4),
    x_bar: wp.array3d(dtype=real),
    field_bar: wp.array2d(dtype=mat44),
):
    """What is spread is collected; moving the particle turns the weights, and shifts the field."""


@wp.func
def spread(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    fault: wp.array2d(dtype=int),
    field: wp.array2d(dtype=mat44),
    grid_out: wp.array2d(dtype=vec4),
):
    """Add what a batch of particles spreads to the nodes."""
    spread_batch(world, batch, lower, dx, nodes, x, fault, field, grid_out)


@wp.func_replay(spread)
def no_replay_of_spread(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    fault: wp.array2d(dtype=int),
    field: wp.array2d(dtype=mat44),
    grid_out: wp.array2d(dtype=vec4),
):
    """A backward pass has no use for the sums."""


@wp.func_grad(spread)
def adj_spread(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    fault: wp.array2d(dtype=int),
    field: wp.array2d(dtype=mat44),
    grid_out: wp.array2d(dtype=vec4),
):
    """By hand, in one pass."""
    pull_spread(world, batch, lower, dx, nodes, x, fault, field, wp.adjoint[grid_out], wp.adjoint[x], wp.adjoint[field])


@wp.func
def affine(value: vec4, rate: mat33, dx: real, nodes: wp.vec3i) -> mat44:
    """Rows of the field value + rate (x_node - x), its fourth component constant; nothing along z in a plane."""
    o = real(0.0)
    a = dx * vec4(rate[0, 0], rate[1, 0], rate[2, 0], o)
    b = dx * vec4(rate[0, 1], rate[1, 1], rate[2, 1], o)
    c = dx * vec4(rate[0, 2], rate[1, 2], rate[2, 2], o)
    if nodes[2] == 1:
        a = dx * vec4(rate[0, 0], rate[1, 0], o, o)
        b = dx * vec4(rate[0, 1], rate[1, 1], o, o)
        c = vec4()
    return wp.matrix_from_rows(value, a, b, c)
