"""Which particles take part in a step: those that are finite, and whose stencil lies on the grid."""

import warp as wp

from .._precision import mat33, real, vec3

NONFINITE = wp.constant(1)
BADCTRL = wp.constant(2)
OUTSIDE = wp.constant(32)

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
def fault_of(
    x: vec3,
    v: vec3,
    rate: mat33,
    gradient: mat33,
    history: real,
    force: vec3,
    actuation: mat33,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
) -> int:
    """Fault bits of a particle; 0 where it takes part."""
    y = place(x, lower, dx)
    if not (wp.dot(x, x) + wp.dot(v, v) + square(rate) + square(gradient) + history * history < HUGE_SQUARED):
        return NONFINITE
    if not (wp.dot(force, force) + square(actuation) < HUGE_SQUARED):
        return BADCTRL
    if not (within(y[0], nodes[0]) and within(y[1], nodes[1]) and (nodes[2] == 1 or within(y[2], nodes[2]))):
        return OUTSIDE
    return 0


@wp.func_grad(fault_of)
def no_slope_of_fault_of(
    x: vec3,
    v: vec3,
    rate: mat33,
    gradient: mat33,
    history: real,
    force: vec3,
    actuation: mat33,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    adj_ret: int,
):
    """An event."""
