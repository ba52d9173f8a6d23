"""Which particles take part in a step: those that are finite, and whose stencil lies on the grid."""

import warp as wp

from .. import _native
from .._precision import mat33, real, tolerance, vec3

NONFINITE = wp.constant(1)
BADCTRL = wp.constant(2)
OOB = wp.constant(32)
INVERTED = wp.constant(256)
"""The particle takes part all the same."""
FLATTEST = wp.constant(tolerance(6.7e7, 2.9e3))
"""Most of |F| |F^-1|: beyond it F^T F, of which the stretches are the roots, is singular to rounding."""
ROUNDING = wp.constant(tolerance(1.8e-15, 9.5e-7))
"""Of |F|^3, what det F is known to."""

HUGE_SQUARED = wp.constant(real(1.0e20))
"""A number beyond 1e10 counts as infinite."""


@wp.func
def point(x: wp.array3d(dtype=real), world: int, p: int) -> vec3:
    """A vector of a particle; its third component is zero in a plane."""
    z = real(0.0)
    if x.shape[2] == 3:
        z = x[world, p, 2]
    return vec3(x[world, p, 0], x[world, p, 1], z)


@wp.func
def row_of(world: int, p: int, material: wp.array2d(dtype=int), kinds: int, table: wp.array3d(dtype=real)) -> int:
    """The row of the table with a particle's numbers: its material's, or its own, which follow those of materials."""
    if table.shape[1] > kinds:
        return kinds + p
    return material[world, p]


@wp.func
def place(x: vec3, lower: vec3, dx: real) -> vec3:
    """Position on the grid in cells; node 0 lies one cell and a half below the domain, nodes in the middle of cells."""
    return (x - lower) / dx + vec3(real(1.5), real(1.5), real(1.5))


@wp.func
def within(y: real, nodes: int) -> bool:
    """Whether a place is at most half a cell outside the domain, where the stencil has all its nodes."""
    return y >= real(1.0) and y < real(nodes) - real(2.0)


@wp.func
def square(m: mat33) -> real:
    """Sum of the squares of all elements; NaN or infinite where one is."""
    return wp.ddot(m, m)


@wp.func
def is_solid(f: mat33) -> bool:
    """Whether det F is positive beyond rounding, and |F| |F^-1| < FLATTEST; det F F^-1 is the cofactors' transpose."""
    a = vec3(f[0, 0], f[1, 0], f[2, 0])
    b = vec3(f[0, 1], f[1, 1], f[2, 1])
    c = vec3(f[0, 2], f[1, 2], f[2, 2])
    bc, ca, ab = wp.cross(b, c), wp.cross(c, a), wp.cross(a, b)
    cofactors = wp.sqrt(wp.dot(bc, bc) + wp.dot(ca, ca) + wp.dot(ab, ab))
    size = wp.sqrt(square(f))
    det = wp.dot(a, bc)
    return det > ROUNDING * size * size * size and size * cofactors < FLATTEST * det


@wp.func
def fault_of(
    world: int,
    p: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuation: wp.array2d(dtype=mat33),
    each_actuation: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    fault_out: wp.array2d(dtype=int),
) -> int:
    """Find and store the fault bits of a particle. It takes part where there are none, or INVERTED alone.

    Arrays come whole, to take no cotangents.
    """
    at = point(x, world, p)
    u = point(v, world, p)
    push = point(force, world, p * each_force)
    q = history[world, p]
    y = place(at, lower, dx)
    fault = int(0)
    size = wp.dot(at, at) + wp.dot(u, u) + square(rate[world, p]) + square(gradient[world, p]) + q * q
    if not (size < HUGE_SQUARED):
        fault = NONFINITE
    elif not (wp.dot(push, push) + square(actuation[world, p * each_actuation]) < HUGE_SQUARED):
        fault = BADCTRL
    elif not (within(y[0], nodes[0]) and within(y[1], nodes[1]) and (nodes[2] == 1 or within(y[2], nodes[2]))):
        fault = OOB
    elif not is_solid(gradient[world, p]):
        fault = INVERTED
    fault_out[world, p] = fault
    return fault_out[world, p]


@_native.func_replay(fault_of)
def fault_found(
    world: int,
    p: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuation: wp.array2d(dtype=mat33),
    each_actuation: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    fault_out: wp.array2d(dtype=int),
):
    """A backward pass reads what the kernel has found: being read, it has run again before its adjoint does."""
    return fault_out[world, p]


@wp.func_grad(fault_of)
def no_slope_of_fault_of(
    world: int,
    p: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuation: wp.array2d(dtype=mat33),
    each_actuation: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    fault_out: wp.array2d(dtype=int),
    adj_ret: int,
):
    """An event."""
