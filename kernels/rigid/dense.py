"""Dense symmetric matrices as packed lower triangles: rank-one updates, Cholesky factors and solves."""

import warp as wp

from .._precision import real, tolerance
from ..math import lower
from .constraint import TINY

ROUNDING = wp.constant(tolerance(1.0e-16, 1.0e-7))


@wp.func
def add_outer(world: int, row: int, scale: real, rows: wp.array3d(dtype=real), matrix_out: wp.array2d(dtype=real)):
    """matrix += scale row row^T, of a packed lower triangle."""
    for i in range(rows.shape[2]):
        x = scale * rows[world, row, i]
        if x != real(0.0):
            for j in range(i + 1):
                matrix_out[world, lower(i, j)] = matrix_out[world, lower(i, j)] + x * rows[world, row, j]


@wp.func
def factorise(world: int, n: int, matrix_out: wp.array2d(dtype=real)):
    """L L^T = matrix, in place. A pivot that rounding made negative is as small as rounding explains."""
    for i in range(n):
        least = ROUNDING * matrix_out[world, lower(i, i)]
        for j in range(i + 1):
            s = matrix_out[world, lower(i, j)]
            for k in range(j):
                s -= matrix_out[world, lower(i, k)] * matrix_out[world, lower(j, k)]
            if i == j:
                matrix_out[world, lower(i, i)] = wp.sqrt(wp.max(s, wp.max(least, TINY)))
            else:
                matrix_out[world, lower(i, j)] = s / matrix_out[world, lower(j, j)]


@wp.func
def solve_in_place(world: int, n: int, factor: wp.array2d(dtype=real), x: wp.array2d(dtype=real)):
    """Solve L L^T y = x, and put y where x was."""
    for i in range(n):
        s = x[world, i]
        for k in range(i):
            s -= factor[world, lower(i, k)] * x[world, k]
        x[world, i] = s / factor[world, lower(i, i)]
    for m in range(n):
        i = n - 1 - m
        s = x[world, i]
        for k in range(i + 1, n):
            s -= factor[world, lower(k, i)] * x[world, k]
        x[world, i] = s / factor[world, lower(i, i)]


@wp.kernel(enable_backward=False)
def solve_dense(
    # In:
    factor: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=real),
):
    """Solve L L^T x = force."""
    world = wp.tid()
    n = force.shape[1]
    for i in range(n):
        x_out[world, i] = force[world, i]
    solve_in_place(world, n, factor, x_out)
