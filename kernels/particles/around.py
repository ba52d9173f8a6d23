"""Periodic axes: the two rows of nodes outside each end are images of those inside the other."""

import warp as wp

from .._precision import vec4


@wp.func
def stride_of(along: int, nodes: wp.vec3i) -> int:
    """From a node to the next along an axis."""
    return wp.where(along == 2, 1, wp.where(along == 1, nodes[2], nodes[1] * nodes[2]))


@wp.kernel
def fold(
    # Model:
    nodes: wp.vec3i,
    along: int,
    # In:
    grid: wp.array2d(dtype=vec4),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """Momentum and mass of the images go to the nodes inside; the images are left with none."""
    world, node = wp.tid()
    step = stride_of(along, nodes)
    at = (node // step) % nodes[along]
    period = nodes[along] - 4
    if at < 2 or at >= period + 2:
        grid_out[world, node] = vec4()
    elif at < 4:
        grid_out[world, node] = grid[world, node] + grid[world, node + period * step]
    elif at >= period:
        grid_out[world, node] = grid[world, node] + grid[world, node - period * step]
    else:
        grid_out[world, node] = grid[world, node]


@wp.kernel
def unfold(
    # Model:
    nodes: wp.vec3i,
    along: int,
    # In:
    grid: wp.array2d(dtype=vec4),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """The images move as the nodes inside."""
    world, node = wp.tid()
    step = stride_of(along, nodes)
    at = (node // step) % nodes[along]
    period = nodes[along] - 4
    if at < 2:
        grid_out[world, node] = grid[world, node + period * step]
    elif at >= period + 2:
        grid_out[world, node] = grid[world, node - period * step]
    else:
        grid_out[world, node] = grid[world, node]
