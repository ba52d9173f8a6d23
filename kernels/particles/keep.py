"""What an affine FLIP transfer adds to APIC's: a part of the velocity that the grid does not represent stays."""

import warp as wp

from .. import _native
from .._precision import mat33, real, vec3, vec4
from .screen import BADCTRL, NONFINITE, OOB, point, row_of
from .spread import affine, spread
from .windows import begin, end

keep_h = _native.header("particles/native/keep.h")


@_native.func_native()
def mean_one(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    grid: wp.array2d(dtype=vec4),
) -> vec3:
    """sum(w v_i) where a particle is."""
    keep_h()


@_native.func_native()
def pull_mean(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    grid: wp.array2d(dtype=vec4),
    bar: vec3,
    x_bar: wp.array3d(dtype=real),
    grid_bar: wp.array2d(dtype=vec4),
):
    """What is collected is spread; moving the particle turns the weights."""
    keep_h()


@wp.func
def mean(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    grid: wp.array2d(dtype=vec4),
) -> vec3:
    """The mean of the nodes' motion where a particle is."""
    return mean_one(world, p, lower, dx, nodes, x, grid)


@wp.func_grad(mean)
def adj_mean(
    world: int,
    p: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    x: wp.array3d(dtype=real),
    grid: wp.array2d(dtype=vec4),
    adj_ret: vec3,
):
    """By hand, in one pass."""
    pull_mean(world, p, lower, dx, nodes, x, grid, adj_ret, wp.adjoint[x], wp.adjoint[grid])


@wp.func
def takes_part(fault: int) -> bool:
    """Whether a particle with these bits touches nodes."""
    return (fault & (NONFINITE | BADCTRL | OOB)) == 0


@wp.kernel
def carry(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kinds: int,
    table: wp.array3d(dtype=real),
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    volume: wp.array2d(dtype=real),
    # In:
    fault: wp.array2d(dtype=int),
    marks: wp.array2d(dtype=int),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """The momentum and mass that the particles bring to the nodes, without any force."""
    world, p = wp.tid()
    begin(world, p, nodes, marks, grid_out)
    if takes_part(fault[world, p]):
        mass = table[world, row_of(world, p, material, kinds, table), 0] * volume[world, p]
        u = mass * point(v, world, p)
        field = affine(vec4(u[0], u[1], u[2], mass), mass * rate[world, p], dx, nodes)
        spread(world, p, lower, dx, nodes, x, field, grid_out)


@wp.kernel
def keep(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    share: wp.array(dtype=real),
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    # In:
    fault: wp.array2d(dtype=int),
    marks: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    moved: wp.array3d(dtype=real),
    # Out:
    v_out: wp.array3d(dtype=real),
):
    """v' = sum(w v_i') + share (v - sum(w v_i)), v_i the nodes' velocity before forces and contacts."""
    world, p = wp.tid()
    u = point(moved, world, p)
    if takes_part(fault[world, p]):
        u = u + share[world] * (point(v, world, p) - mean(world, p, lower, dx, nodes, x, grid))
    for a in range(3):
        if a < x.shape[2]:
            v_out[world, p, a] = u[a]
    end(world, p, nodes, marks, grid)
