"""MLS-MPM (Hu et al. 2018) with APIC transfers (Jiang et al. 2015): particles to nodes, nodes, nodes to particles."""

import warp as wp

from .._precision import mat33, real, vec3, vec4
from .screen import place, point
from .stencil import affine, collect, spread

COURANT = wp.constant(64)
"""A particle moved farther than a cell in one step."""


@wp.func
def put(value: vec3, world: int, p: int, x_out: wp.array3d(dtype=real)):
    """Store a vector of a particle."""
    x_out[world, p, 0] = value[0]
    x_out[world, p, 1] = value[1]
    if x_out.shape[2] == 3:
        x_out[world, p, 2] = value[2]


@wp.func_replay(put)
def no_replay_of_put(value: vec3, world: int, p: int, x_out: wp.array3d(dtype=real)):
    """A backward pass does not store it again."""


@wp.func
def corner(y: vec3, nodes: wp.vec3i) -> wp.vec3i:
    """First node of the stencil around a place."""
    k = int(0)
    if nodes[2] != 1:
        k = int(wp.floor(y[2] - real(0.5)))
    return wp.vec3i(int(wp.floor(y[0] - real(0.5))), int(wp.floor(y[1] - real(0.5))), k)


@wp.func
def offset(y: vec3, base: wp.vec3i) -> vec3:
    """Place of a particle in its stencil, in cells from its first node."""
    return y - vec3(real(base[0]), real(base[1]), real(base[2]))


@wp.kernel
def scatter(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    volume: wp.array2d(dtype=real),
    material: wp.array2d(dtype=int),
    # In:
    force: wp.array3d(dtype=real),
    each_force: int,
    fault: wp.array2d(dtype=int),
    stress: wp.array2d(dtype=mat33),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """m_i = sum(w m), (m v)_i = sum(w (m v + h f + (m C - 4 h V / dx^2 tau) (x_i - x)))."""
    world, p = wp.tid()
    if fault[world, p] == 0:
        h = timestep[world]
        mass = table[world, material[world, p], 0] * volume[world, p]
        y = place(point(x, world, p), lower, dx)
        base = corner(y, nodes)
        f = offset(y, base)
        u = mass * point(v, world, p) + h * point(force, world, p * each_force)
        slope = mass * rate[world, p] - (real(4.0) * h * volume[world, p] / (dx * dx)) * stress[world, p]
        spread(world, base, f, affine(vec4(u[0], u[1], u[2], mass), slope, dx, nodes), nodes, grid_out)


@wp.func
def flat(c: mat33, nodes: wp.vec3i) -> mat33:
    """A velocity gradient, without what a plane has not."""
    o = real(0.0)
    if nodes[2] == 1:
        return mat33(c[0, 0], c[0, 1], o, c[1, 0], c[1, 1], o, o, o, o)
    return c


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
    # Out:
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """v = sum(w v_i), C = 4 / dx^2 sum(w v_i (x_i - x)^T), x + h v. What does not take part stays as it is."""
    world, p = wp.tid()
    at = point(x, world, p)
    bits = fault[world, p]
    if bits == 0:
        h = timestep[world]
        y = place(at, lower, dx)
        base = corner(y, nodes)
        m = collect(world, base, offset(y, base), h, nodes, grid)
        u = vec3(m[0, 0], m[0, 1], m[0, 2])
        way = vec3(m[4, 0], m[4, 1], m[4, 2])
        c = (real(4.0) / dx) * mat33(m[1, 0], m[2, 0], m[3, 0], m[1, 1], m[2, 1], m[3, 1], m[1, 2], m[2, 2], m[3, 2])
        put(at + way, world, p, x_out)
        put(u, world, p, v_out)
        rate_out[world, p] = flat(c, nodes)
        fault_out[world, p] = wp.where(wp.max(wp.abs(way)) > dx, COURANT, 0)
    else:
        put(at, world, p, x_out)
        put(point(v, world, p), world, p, v_out)
        rate_out[world, p] = rate[world, p]
        fault_out[world, p] = bits
