"""From a particle to nodes: what it spreads, and the adjoint by hand."""

import warp as wp

from .. import _native
from .._precision import mat33, mat44, real, vec3, vec4

spread_h = _native.header("particles/native/spread.h")


@_native.func_native()
def spread_one(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    field: mat44,
    grid_out: wp.array2d(dtype=vec4),
):
    """Add w times the affine field of rows q to every node of the stencil."""
    spread_h()


@_native.func_native()
def pull_spread(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    field: mat44,
    grid_out_bar: wp.array2d(dtype=vec4),
    x_bar: wp.array3d(dtype=real),
) -> mat44:
    """What is spread is collected; moving the particle turns the weights, and shifts the field."""
    spread_h()


@wp.func
def spread(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    field: mat44,
    grid_out: wp.array2d(dtype=vec4),
):
    """Add what a particle spreads to the nodes."""
    spread_one(world, p, lower, dx, nodes, x, field, grid_out)


@_native.func_replay(spread)
def no_replay_of_spread(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    field: mat44,
    grid_out: wp.array2d(dtype=vec4),
):
    """A backward pass has no use for the sums."""


@wp.func_grad(spread)
def adj_spread(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    field: mat44,
    grid_out: wp.array2d(dtype=vec4),
):
    """By hand, in one pass."""
    wp.adjoint[field] += pull_spread(world, p, lower, dx, nodes, x, field, wp.adjoint[grid_out], wp.adjoint[x])


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
