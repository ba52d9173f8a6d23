"""Dense symmetric matrices as packed lower triangles: products, rank-one updates, factors and solves.

The functions are native, for what is next to each other in memory lets the compiler use vector instructions, which
Warp's own indexing, with its strides, does not. Rows are contiguous.

The factor is M = L^T L rather than L L^T: it proceeds from the last row to the first, every update is along rows, and
where a mechanism's tree leaves zeros in M, L has them, too (Featherstone 2008, table 6.3), and they cost nothing.

On a GPU the threads of a team (``team.py``) share a world: each has columns, or rows, of its own.
"""

import warp as wp

from .. import _native
from .._precision import real, tolerance
from .solve.constraint import TINY
from .team import wait

ROUNDING = wp.constant(tolerance(1.0e-16, 1.0e-7))

dense_h = _native.header("rigid/native/dense.h")


@_native.func_native()
def add_outer(
    world: int,
    lane: int,
    lanes: int,
    row: int,
    n: int,
    scale: real,
    rows: wp.array3d(dtype=real),
    matrix: wp.array2d(dtype=real),
):
    """matrix += scale row row^T, in place; each thread has columns of its own."""
    dense_h()


@_native.func_native()
def add_scaled(
    world: int,
    lane: int,
    lanes: int,
    row: int,
    n: int,
    scale: real,
    rows: wp.array3d(dtype=real),
    out: wp.array2d(dtype=real),
):
    """out += scale row, in place; each thread has entries of its own."""
    dense_h()


@_native.func_native()
def copy_packed(world: int, lane: int, lanes: int, n: int, matrix: wp.array2d(dtype=real), out: wp.array2d(dtype=real)):
    """out = matrix; the entries are dealt."""
    dense_h()


@_native.func_native()
def multiply_rows(
    world: int,
    lane: int,
    lanes: int,
    count: int,
    n: int,
    index: wp.array2d(dtype=int),
    rows: wp.array3d(dtype=real),
    x: wp.array2d(dtype=real),
    out: wp.array2d(dtype=real),
):
    """out[r] = row r . x, for the first ``count`` rows r that ``index`` lists, which are dealt."""
    dense_h()


@_native.func_native()
def multiply_symmetric(
    world: int,
    lane: int,
    lanes: int,
    n: int,
    matrix: wp.array2d(dtype=real),
    x: wp.array2d(dtype=real),
    out: wp.array2d(dtype=real),
):
    """out = matrix x; the entries of out are dealt."""
    dense_h()


@_native.func_native()
def multiply_difference(
    world: int,
    n: int,
    first: wp.array2d(dtype=real),
    second: wp.array2d(dtype=real),
    x: wp.array2d(dtype=real),
    out: wp.array2d(dtype=real),
):
    """out = (first - second) x, symmetric matrices both; what is equal in them adds no rounding."""
    dense_h()


@_native.func_native()
def factorise_in_place(
    world: int, lane: int, lanes: int, n: int, rounding: real, tiny: real, matrix: wp.array2d(dtype=real)
):
    """L^T L = matrix; L takes its place."""
    dense_h()


@wp.func
def factorise(world: int, lane: int, lanes: int, n: int, matrix: wp.array2d(dtype=real)):
    """L^T L = matrix, in place, for all to read.

    A pivot that rounding made negative is as small as rounding explains.
    """
    factorise_in_place(world, lane, lanes, n, ROUNDING, TINY, matrix)


@_native.func_native()
def solve_in_place(
    world: int, lane: int, lanes: int, n: int, factor: wp.array2d(dtype=real), x: wp.array2d(dtype=real)
):
    """Solve L^T L y = x, and put y where x was, for all to read."""
    dense_h()


@_native.func_native("return false;")
def factor_lanes(
    world: int, n: int, rounding: real, tiny: real, matrix: wp.array2d(dtype=real), factor_out: wp.array2d(dtype=real)
) -> bool:
    """Whether eight worlds were factored side by side, by this thread or another's."""
    dense_h()


@_native.func_native("return false;")
def solve_lanes(
    world: int,
    n: int,
    factor: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    x_out: wp.array2d(dtype=real),
) -> bool:
    """Whether eight worlds were solved side by side, by this thread or another's."""
    dense_h()


@wp.kernel(enable_backward=False)
def factor_dense(
    # Structure:
    lanes: int,
    n: int,
    # In:
    matrix: wp.array2d(dtype=real),
    # Out:
    factor_out: wp.array2d(dtype=real),
):
    """L^T L = matrix."""
    world, lane = wp.tid()
    if not factor_lanes(world, n, ROUNDING, TINY, matrix, factor_out):
        copy_packed(world, lane, lanes, n, matrix, factor_out)
        wait(lanes)
        factorise(world, lane, lanes, n, factor_out)


@wp.kernel(enable_backward=False)
def solve_dense(
    # Structure:
    lanes: int,
    # In:
    factor: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=real),
):
    """Solve L^T L x = force."""
    world, lane = wp.tid()
    n = force.shape[1]
    if not solve_lanes(world, n, factor, force, x_out):
        for i in range(lane, n, lanes):
            x_out[world, i] = force[world, i]
        wait(lanes)
        solve_in_place(world, lane, lanes, n, factor, x_out)


@wp.kernel(enable_backward=False)
def multiply_dense(
    # Structure:
    lanes: int,
    # In:
    matrix: wp.array2d(dtype=real),
    x: wp.array2d(dtype=real),
    # Out:
    y_out: wp.array2d(dtype=real),
):
    """y = matrix x."""
    world, lane = wp.tid()
    multiply_symmetric(world, lane, lanes, x.shape[1], matrix, x, y_out)


@wp.kernel(enable_backward=False)
def multiply_change(
    # In:
    before: wp.array2d(dtype=real),
    after: wp.array2d(dtype=real),
    x: wp.array2d(dtype=real),
    # Out:
    y_out: wp.array2d(dtype=real),
):
    """y = (before - after) x."""
    world = wp.tid()
    multiply_difference(world, x.shape[1], before, after, x, y_out)
