"""MLS-MPM (Hu et al. 2018) with APIC transfers (Jiang et al. 2015): particles to nodes, nodes, nodes to particles."""

import warp as wp

from .._precision import mat33, real, vec3, vec4
from .stencil import affine, collect, spread

NONFINITE = wp.constant(1)
BADCTRL = wp.constant(2)
OUTSIDE = wp.constant(32)
COURANT = wp.constant(64)

HUGE = wp.constant(real(1.0e10))
"""A number beyond it counts as infinite."""


@wp.func
def point(x: wp.array3d(dtype=real), world: int, p: int) -> vec3:
    """A vector of a particle; its third component is zero in a plane."""
    z = real(0.0)
    if x.shape[2] == 3:
        z = x[world, p, 2]
    return vec3(x[world, p, 0], x[world, p, 1], z)


@wp.func
def put(value: vec3, world: int, p: int, x_out: wp.array3d(dtype=real)):
    """Store a vector of a particle."""
    x_out[world, p, 0] = value[0]
    x_out[world, p, 1] = value[1]
    if x_out.shape[2] == 3:
        x_out[world, p, 2] = value[2]


@wp.func
def place(x: vec3, lower: vec3, dx: real) -> vec3:
    """Position on the grid in cells; node 0 lies one cell and a half below the domain, nodes in the middle of cells."""
    return (x - lower) / dx + vec3(real(1.5), real(1.5), real(1.5))


@wp.func
def corner(y: vec3, nodes: wp.vec3i) -> wp.vec3i:
    """First node of the stencil around a place."""
    k = int(0)
    if nodes[2] != 1:
        k = int(wp.floor(y[2] - real(0.5)))
    return wp.vec3i(int(wp.floor(y[0] - real(0.5))), int(wp.floor(y[1] - real(0.5))), k)


@wp.func
def within(y: real, nodes: int) -> bool:
    """Whether the stencil around a place has all its nodes: at most half a cell outside the domain."""
    return y >= real(1.0) and y < real(nodes) - real(2.0)


@wp.func
def offset(y: vec3, base: wp.vec3i) -> vec3:
    """Place of a particle in its stencil, in cells from its first node."""
    return y - vec3(real(base[0]), real(base[1]), real(base[2]))


@wp.func
def square(m: mat33) -> real:
    """Sum of the squares of all elements; NaN or infinite where one is."""
    return wp.ddot(m, m)


@wp.kernel(enable_backward=False)
def screen(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    # In:
    force: wp.array3d(dtype=real),
    each_force: int,
    actuation: wp.array2d(dtype=mat33),
    each_actuation: int,
    # Out:
    alive_out: wp.array2d(dtype=int),
    fault_out: wp.array2d(dtype=int),
):
    """Which particles take part: those that are finite, and whose stencil lies on the grid."""
    world, p = wp.tid()
    at = point(x, world, p)
    u = point(v, world, p)
    push = point(force, world, p * each_force)
    q = history[world, p]
    y = place(at, lower, dx)
    size = wp.dot(at, at) + wp.dot(u, u) + square(rate[world, p]) + square(gradient[world, p]) + q * q
    fault = int(0)
    if not (within(y[0], nodes[0]) and within(y[1], nodes[1]) and (nodes[2] == 1 or within(y[2], nodes[2]))):
        fault = OUTSIDE
    if not (wp.dot(push, push) + square(actuation[world, p * each_actuation]) < HUGE * HUGE):
        fault = BADCTRL
    if not (size < HUGE * HUGE):
        fault = NONFINITE
    alive_out[world, p] = wp.where(fault == 0, int(1), int(0))
    fault_out[world, p] = fault


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
    alive: wp.array2d(dtype=int),
    stress: wp.array2d(dtype=mat33),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """m_i = sum(w m), (m v)_i = sum(w (m v + h f + (m C - 4 h V / dx^2 tau) (x_i - x)))."""
    world, p = wp.tid()
    if alive[world, p] != 0:
        h = timestep[world]
        mass = table[world, material[world, p], 0] * volume[world, p]
        y = place(point(x, world, p), lower, dx)
        base = corner(y, nodes)
        f = offset(y, base)
        u = mass * point(v, world, p) + h * point(force, world, p * each_force)
        slope = mass * rate[world, p] - (real(4.0) * h * volume[world, p] / (dx * dx)) * stress[world, p]
        spread(world, base, f, affine(f, vec4(u[0], u[1], u[2], mass), slope, dx, nodes), nodes, grid_out)


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
    alive: wp.array2d(dtype=int),
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
    u = point(v, world, p)
    c = rate[world, p]
    bits = fault[world, p]
    if alive[world, p] != 0:
        h = timestep[world]
        y = place(at, lower, dx)
        base = corner(y, nodes)
        f = offset(y, base)
        m = collect(world, base, f, nodes, grid)
        u = vec3(m[0, 0], m[0, 1], m[0, 2])
        o = real(0.0)
        k = real(4.0) / dx
        c = k * mat33(m[1, 0], m[2, 0], m[3, 0], m[1, 1], m[2, 1], m[3, 1], m[1, 2], m[2, 2], m[3, 2])
        at = at + h * u
        if nodes[2] == 1:
            c = k * mat33(m[1, 0], m[2, 0], o, m[1, 1], m[2, 1], o, o, o, o)
        if h * wp.max(wp.abs(u)) > dx:
            bits = COURANT
    put(at, world, p, x_out)
    put(u, world, p, v_out)
    rate_out[world, p] = c
    fault_out[world, p] = bits
