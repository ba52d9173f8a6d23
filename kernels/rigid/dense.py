"""Dense symmetric matrices as packed lower triangles: products, rank-one updates, factors and solves.

The functions are native, for what is next to each other in memory lets the compiler use vector instructions, which
Warp's own indexing, with its strides, does not. Rows are contiguous.

The factor is M = L^T L rather than L L^T: it proceeds from the last row to the first, every update is along rows, and
where a mechanism's tree leaves zeros in M, L has them, too (Featherstone 2008, table 6.3), and they cost nothing.

On a GPU the threads of a team (:mod:`team`) share a world: each has columns, or rows, of its own.
"""

import warp as wp

from .._precision import real, tolerance
from .constraint import TINY
from .lanes import DENSE, native
from .team import DEAL, WAIT, wait

REASSOCIATE = "    #pragma clang fp reassociate(on)\n"  # has to come first
ROUNDING = wp.constant(tolerance(1.0e-16, 1.0e-7))


@wp.func_native(
    DEAL
    + """
    const auto* J = rows.data + (world * rows.strides[0] + row * rows.strides[1]) / sizeof(*rows.data);
    auto* M = matrix.data + world * (matrix.strides[0] / sizeof(*matrix.data));
    for (int i = 0; i < n; ++i) {
        const auto s = scale * J[i];
        if (s != 0) {
            auto* __restrict to = M + i * (i + 1) / 2;
            for (int j = own; j <= i; j += step) to[j] += s * J[j];
        }
    }
"""
)
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


@wp.func_native(
    DEAL
    + """
    const auto* J = rows.data + (world * rows.strides[0] + row * rows.strides[1]) / sizeof(*rows.data);
    auto* __restrict to = out.data + world * (out.strides[0] / sizeof(*out.data));
    for (int i = own; i < n; i += step) to[i] += scale * J[i];
"""
)
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


@wp.func_native(
    DEAL
    + """
    const auto* from = matrix.data + world * (matrix.strides[0] / sizeof(*matrix.data));
    auto* __restrict to = out.data + world * (out.strides[0] / sizeof(*out.data));
    for (int i = own; i < n * (n + 1) / 2; i += step) to[i] = from[i];
"""
)
def copy_packed(world: int, lane: int, lanes: int, n: int, matrix: wp.array2d(dtype=real), out: wp.array2d(dtype=real)):
    """out = matrix; the entries are dealt."""


@wp.func_native(
    REASSOCIATE
    + DEAL
    + """
    const auto* X = x.data + world * (x.strides[0] / sizeof(*x.data));
    for (int k = own; k < count; k += step) {
        const int r = index.data[world * (index.strides[0] / sizeof(*index.data)) + k];
        const auto* J = rows.data + (world * rows.strides[0] + r * rows.strides[1]) / sizeof(*rows.data);
        auto s = X[0] * 0;
        for (int i = 0; i < n; ++i) s += J[i] * X[i];
        out.data[world * (out.strides[0] / sizeof(*out.data)) + r] = s;
    }
"""
)
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


@wp.func_native("""
    #pragma clang fp reassociate(on)
    const auto* M = matrix.data + world * (matrix.strides[0] / sizeof(*matrix.data));
    const auto* X = x.data + world * (x.strides[0] / sizeof(*x.data));
    auto* __restrict to = out.data + world * (out.strides[0] / sizeof(*out.data));
#ifdef __CUDA_ARCH__
    for (int i = lane; i < n; i += lanes) {
        auto s = X[0] * 0;
        for (int j = 0; j <= i; ++j) s += M[i * (i + 1) / 2 + j] * X[j];
        for (int j = i + 1; j < n; ++j) s += M[j * (j + 1) / 2 + i] * X[j];
        to[i] = s;
    }
#else
    for (int i = 0; i < n; ++i) {
        const auto* row = M + i * (i + 1) / 2;
        auto s = row[i] * X[i];
        for (int j = 0; j < i; ++j) s += row[j] * X[j];
        for (int j = 0; j < i; ++j) to[j] += row[j] * X[i];
        to[i] = s;
    }
#endif
""")
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


@wp.func_native("""
    const auto* A = first.data + world * (first.strides[0] / sizeof(*first.data));
    const auto* B = second.data + world * (second.strides[0] / sizeof(*second.data));
    const auto* X = x.data + world * (x.strides[0] / sizeof(*x.data));
    auto* __restrict to = out.data + world * (out.strides[0] / sizeof(*out.data));
    for (int i = 0, e = 0; i < n; ++i) {
        to[i] = 0;
        for (int j = 0; j <= i; ++j, ++e) {
            const auto d = A[e] - B[e];
            to[i] += d * X[j];
            if (j < i) to[j] += d * X[i];
        }
    }
""")
def multiply_difference(
    world: int,
    n: int,
    first: wp.array2d(dtype=real),
    second: wp.array2d(dtype=real),
    x: wp.array2d(dtype=real),
    out: wp.array2d(dtype=real),
):
    """out = (first - second) x, symmetric matrices both; what is equal in them adds no rounding."""


@wp.func_native(
    DEAL
    + WAIT
    + """
    auto* M = matrix.data + world * (matrix.strides[0] / sizeof(*matrix.data));
    for (int k = n - 1; k >= 0; --k) {
        auto* row = M + k * (k + 1) / 2;
        const auto pivot = row[k];
        auto squares = pivot * 0;
        for (int m = k + 1 + own; m < n; m += step) squares += M[m * (m + 1) / 2 + k] * M[m * (m + 1) / 2 + k];
        const auto whole = pivot + total(squares);
        const auto least = rounding * whole > tiny ? rounding * whole : tiny;
        const auto root = sqrt(pivot > least ? pivot : least);
        const auto inverse = 1 / root;
        wait();
        for (int i = own; i < k; i += step) row[i] *= inverse;
        if (own == 0) row[k] = root;
        wait();
        for (int i = 0; i < k; ++i) {
            const auto s = row[i];
            if (s != 0) {
                auto* __restrict to = M + i * (i + 1) / 2;
                for (int j = own; j <= i; j += step) to[j] -= s * row[j];
            }
        }
        wait();
    }
"""
)
def factorise_in_place(
    world: int, lane: int, lanes: int, n: int, rounding: real, tiny: real, matrix: wp.array2d(dtype=real)
):
    """L^T L = matrix; L takes its place."""


@wp.func
def factorise(world: int, lane: int, lanes: int, n: int, matrix: wp.array2d(dtype=real)):
    """L^T L = matrix, in place, for all to read.

    A pivot that rounding made negative is as small as rounding explains.
    """
    factorise_in_place(world, lane, lanes, n, ROUNDING, TINY, matrix)


@wp.func_native(
    REASSOCIATE
    + WAIT
    + """
    const auto* L = factor.data + world * (factor.strides[0] / sizeof(*factor.data));
    auto* __restrict X = x.data + world * (x.strides[0] / sizeof(*x.data));
#ifdef __CUDA_ARCH__
    for (int k = n - 1; k >= 0; --k) {
        const auto* row = L + k * (k + 1) / 2;
        const auto y = X[k] / row[k];
        for (int i = lane; i < k; i += lanes) X[i] -= row[i] * y;
        wait();
    }
    for (int i = lane; i < n; i += lanes) X[i] /= L[i * (i + 1) / 2 + i];
    wait();
    for (int k = 0; k < n; ++k) {
        const auto* row = L + k * (k + 1) / 2;
        auto s = X[k] * 0;
        for (int i = lane; i < k; i += lanes) s += row[i] * X[i];
        const auto y = (X[k] - total(s)) / row[k];
        wait();
        if (lane == 0) X[k] = y;
        wait();
    }
#else
    for (int k = n - 1; k >= 0; --k) {
        const auto* row = L + k * (k + 1) / 2;
        const auto y = X[k] / row[k];
        X[k] = y;
        for (int i = 0; i < k; ++i) X[i] -= row[i] * y;
    }
    for (int k = 0; k < n; ++k) {
        const auto* row = L + k * (k + 1) / 2;
        auto s = X[k];
        for (int i = 0; i < k; ++i) s -= row[i] * X[i];
        X[k] = s / row[k];
    }
#endif
"""
)
def solve_in_place(
    world: int, lane: int, lanes: int, n: int, factor: wp.array2d(dtype=real), x: wp.array2d(dtype=real)
):
    """Solve L^T L y = x, and put y where x was, for all to read."""


_FIT = """
    const int size = n * (n + 1) / 2;
    if ((size + 2 * n) * sizeof(lanes) > stack) return false;
    if (world % 8) return true;
    lanes* const L = (lanes*)__builtin_alloca_with_align((size + 2 * n + 1) * sizeof(lanes), 8 * sizeof(lanes));
    lanes *const inverse = L + size, *const X = inverse + n;
"""


@wp.func_native(
    native(
        DENSE
        + _FIT
        + """
    begin(matrix);
    load(matrix, L, size);
    factorise(n, L, inverse);
    store(L, factor_out, size);
    return true;
""",
        "return false;",
    )
)
def factor_lanes(
    world: int, n: int, rounding: real, tiny: real, matrix: wp.array2d(dtype=real), factor_out: wp.array2d(dtype=real)
) -> bool:  # type: ignore[empty-body]
    """Whether eight worlds were factored side by side, by this thread or another's."""


@wp.func_native(
    native(
        DENSE
        + _FIT
        + """
    begin(x_out);
    load(factor, L, size);
    load(force, X, n);
    for (int k = 0; k < n; ++k) inverse[k] = all / L[k * (k + 1) / 2 + k];
    solve(n, L, inverse, X);
    store(X, x_out, n);
    return true;
""",
        "return false;",
    )
)
def solve_lanes(
    world: int,
    n: int,
    rounding: real,
    tiny: real,
    factor: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    x_out: wp.array2d(dtype=real),
) -> bool:  # type: ignore[empty-body]
    """Whether eight worlds were solved side by side, by this thread or another's."""


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
    if not solve_lanes(world, n, ROUNDING, TINY, factor, force, x_out):
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
