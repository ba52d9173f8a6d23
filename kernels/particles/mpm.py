"""MLS-MPM (Hu et al. 2018) with APIC transfers (Jiang et al. 2015): particles to nodes, nodes to particles."""

import warp as wp

from .._precision import mat33, mat44, real, vec3, vec4
from .collect import collect
from .spread import spread

COURANT = wp.constant(64)
"""A particle moved farther than a cell in one step."""


@wp.kernel
def scatter(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    # State in:
    x: wp.array3d(dtype=real),
    # In:
    fault: wp.array2d(dtype=int),
    field: wp.array2d(dtype=mat44),
    batches: wp.array2d(dtype=int),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """Momentum and mass of the nodes: what the particles of a batch spread, added to what others have.

    ``batches`` has the extent of the launch, here and below.
    """
    world, batch = wp.tid()
    spread(world, batch, lower, dx, nodes, x, fault, field, grid_out)


@wp.kernel
def gather(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    # In:
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    batches: wp.array2d(dtype=int),
    # Out:
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """v = sum(w v_i), C = 4 / dx^2 sum(w v_i (x_i - x)^T), x + h v. What does not take part stays as it is."""
    world, batch = wp.tid()
    collect(
        world, batch, lower, dx, nodes, timestep, COURANT, x, v, rate, fault, grid, x_out, v_out, rate_out, fault_out
    )
