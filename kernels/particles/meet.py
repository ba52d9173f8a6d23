"""Bodies with grids of their own: how much of each node they fill, and what they give each other where they meet."""

import warp as wp

from .._precision import real, vec3, vec4
from .around import stride_of
from .grid import SEPARATE, SMALL_SQUARED, against, fallen
from .keep import takes_part
from .spread import affine, spread
from .windows import begin

FULL = wp.constant(real(0.9))
"""Share of a cell that two bodies that touch fill together around a node."""

LEAST = wp.constant(real(1.0e-4))
"""A body that fills less of a node does not meet others there."""


@wp.kernel
def fill(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    # State in:
    x: wp.array3d(dtype=real),
    volume: wp.array2d(dtype=real),
    # In:
    fault: wp.array2d(dtype=int),
    marks: wp.array2d(dtype=int),
    # Out:
    fill_out: wp.array2d(dtype=vec4),
):
    """The share of a cell that a body fills around each node, f_i = sum(w V) / dx^dim, last; first its slope.

    The slope, in 1 / cell, is -4 / dx sum(w V (x_i - x)) / dx^dim, with which stress acts on nodes as well.
    """
    world, p = wp.tid()
    begin(world, p, nodes, marks, fill_out)
    if takes_part(fault[world, p]):
        cell = dx * dx
        if nodes[2] != 1:
            cell = cell * dx
        share = volume[world, p] / cell
        slope = (real(-4.0) * share / dx) * wp.identity(n=3, dtype=real)
        field = affine(vec4(real(0.0), real(0.0), real(0.0), share), slope, dx, nodes)
        spread(world, p, lower, dx, nodes, x, field, fill_out)


@wp.kernel
def smooth(
    # Model:
    nodes: wp.vec3i,
    along: int,
    # In:
    fill: wp.array2d(dtype=vec4),
    # Out:
    fill_out: wp.array2d(dtype=vec4),
):
    """Each slope as the mean of three neighbours along an axis, weights 1/4, 1/2, 1/4; the share itself stays.

    The slopes of particles of one node scatter by some degrees from the surface's normal, and what they scatter is
    lost in contact as if it were friction.
    """
    world, node = wp.tid()
    step = stride_of(along, nodes)
    at = (node // step) % nodes[along]
    own = fill[world, node]
    mean = real(0.5) * own
    if at > 0:
        mean = mean + real(0.25) * fill[world, node - step]
    if at < nodes[along] - 1:
        mean = mean + real(0.25) * fill[world, node + step]
    fill_out[world, node] = vec4(mean[0], mean[1], mean[2], own[3])


@wp.func
def given(
    own: vec4, other: vec4, own_fill: vec4, other_fill: vec4, share: real, other_share: real, friction: real
) -> vec3:
    """The impulse that a body takes from another at a node, if they fill it together and approach.

    Its normal is that of the difference of their slopes, each times the body's share. It stops what approaches, and
    Coulomb's friction what slides.
    """
    if not (own_fill[3] > LEAST and other_fill[3] > LEAST and own_fill[3] + other_fill[3] > FULL):
        return vec3()
    slope = share * own_fill - other_share * other_fill
    away = vec3(slope[0], slope[1], slope[2])
    normal = away / wp.sqrt(wp.max(wp.dot(away, away), SMALL_SQUARED))
    u = fallen(own, vec3()) - fallen(other, vec3())
    change = against(u, normal, SEPARATE, friction) - u
    return own[3] * (other[3] / (own[3] + other[3])) * change


@wp.kernel
def meet(
    # Model:
    first: int,
    second: int,
    friction: wp.array(dtype=real),
    share: wp.array2d(dtype=real),
    # In:
    fill: wp.array3d(dtype=vec4),
    grid: wp.array3d(dtype=vec4),
    # Out:
    grid_out: wp.array3d(dtype=vec4),
):
    """Momentum and mass of every body's nodes after two of them have met; Bardenhagen et al. 2001."""
    world, body, node = wp.tid()
    own = grid[world, body, node]
    if own[3] > real(0.0) and (body == first or body == second):
        to = wp.where(body == first, second, first)
        other = grid[world, to, node]
        push = given(
            own,
            other,
            fill[world, body, node],
            fill[world, to, node],
            share[world, body],
            share[world, to],
            friction[world],
        )
        grid_out[world, body, node] = vec4(own[0] + push[0], own[1] + push[1], own[2] + push[2], own[3])
    else:
        grid_out[world, body, node] = own
