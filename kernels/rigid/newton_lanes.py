"""Newton's method for eight worlds side by side (:mod:`lanes`): what :mod:`newton` does, where no contact has a cone.

Every loop runs over what any of the eight needs: where a world does not need it a row is zero, and a world whose method
has ended stays as it is. Memory is the thread's stack, which stays in the core's cache.
"""

import warp as wp

from .._precision import real, vec2
from .constraint import TINY
from .dense import ROUNDING
from .lanes import DENSE, LANES, native
from .newton import CONTACT_ROWS, SLOPE_TOLERANCE, STILL, UNCONVERGED

_NEWTON = """
    auto clamped = [](const lanes x, const lanes low, const lanes high) -> lanes {
        const lanes y = x > low ? x : low;
        return y < high ? y : high;
    };
    auto one_each = [&](auto& a) -> lanes {
        lanes v;
        for (int k = 0; k < 8; ++k) v[k] = *row(a, at[k]);
        return v;
    };
    const int worlds = begin(force), n = force.shape[1], size = n * (n + 1) / 2;

    // the rows that act in any of the worlds
    int end = first;
    for (int k = 0; k < 8; ++k) {
        const int* const pair = row(contact_pair, at[k]);
        int contacts = 0;
        while (contacts < contact_pair.shape[1] && pair[contacts] >= 0) ++contacts;
        const int own = contacts ? first + row(contact_row, at[k])[contacts - 1] + contact_rows : first;
        end = own > end ? own : end;
    }
    if (end > weight.shape[1]) end = weight.shape[1];
    int* const listed = (int*)__builtin_alloca((end + 1) * sizeof(int));
    int rows = 0;
    for (int r = 0; r < end; ++r) {
        bool acts = false;
        for (int k = 0; k < 8; ++k) acts |= row(weight, at[k])[r] > 0;
        if (acts) listed[rows++] = r;
    }

    // memory: of each row seven numbers, its entries and their columns; of each dof seven; M and its factor
    const int numbers = rows * (7 + n) + 7 * n + 2 * size;
    lanes* memory = (lanes*)__builtin_alloca_with_align((numbers + 1) * sizeof(lanes), 8 * sizeof(lanes));
    auto take = [&](int count) -> lanes* { return (memory += count) - count; };
    lanes* const w = take(rows);
    lanes* const low = take(rows);
    lanes* const high = take(rows);
    lanes* const error = take(rows);
    lanes* const change = take(rows);
    lanes* const within = take(rows);
    lanes* const push = take(rows);
    lanes* const entries = take(rows * n);
    lanes* const x = take(n);
    lanes* const net = take(n);
    lanes* const gradient = take(n);
    lanes* const search = take(n);
    lanes* const change_net = take(n);
    lanes* const applied = take(n);
    lanes* const inverse = take(n);
    lanes* const M = take(size);
    lanes* const H = take(size);
    int* const columns = (int*)__builtin_alloca((rows * n + 1) * sizeof(int));
    int* const filled = (int*)__builtin_alloca((rows + 1) * sizeof(int));

    for (int q = 0; q < rows; ++q) {
        const int r = listed[q];
        lanes* const J = entries + q * n;
        const number* from[8];
        for (int k = 0; k < 8; ++k) {
            const number own = row(weight, at[k])[r];
            const bool acts = own > 0;
            const number* const limits = (const number*)(row(bound, at[k]) + r);
            w[q][k] = acts ? own : 0;
            low[q][k] = acts ? limits[0] : 0;
            high[q][k] = acts ? limits[1] : 0;
            error[q][k] = acts ? -row(reference, at[k])[r] : 0;
            from[k] = (const number*)((char*)row(jacobian, at[k]) + r * jacobian.strides[1]);
        }
        gather(from, J, n);
        const mask acting = w[q] > none;
        for (int i = 0; i < n; ++i) J[i] = acting ? J[i] : none;
        int count = 0;
        for (int i = 0; i < n; ++i)
            if (any(J[i] != none)) columns[q * n + count++] = i;
        filled[q] = count;
        within[q] = none;
    }
    load(matrix, M, size);
    load(start, x, n);
    load(force, applied, n);

    auto multiply = [&](const lanes* v, lanes* to) {  // M v
        for (int i = 0; i < n; ++i) {
            const lanes* const line = M + i * (i + 1) / 2;
            const lanes own = v[i];
            lanes s = line[i] * own;
            for (int j = 0; j < i; ++j) {
                s += line[j] * v[j];
                to[j] += line[j] * own;
            }
            to[i] = s;
        }
    };
    auto along = [&](int q, const lanes* v) -> lanes {  // J v
        lanes s = none;
        for (int c = 0; c < filled[q]; ++c) s += entries[q * n + columns[q * n + c]] * v[columns[q * n + c]];
        return s;
    };
    const lanes allowed = one_each(tolerance), scale = all / (one_each(meaninertia) * number(n > 1 ? n : 1));
    multiply(x, net);
    lanes scale_squared = none;
    for (int i = 0; i < n; ++i) {
        const lanes free = applied[i] / M[i * (i + 1) / 2 + i];
        scale_squared += free * free;
        net[i] -= applied[i];
    }
    for (int q = 0; q < rows; ++q) error[q] += along(q, x);

    int iterations[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    mask going = none == none, still = none != none;
    lanes residual = none;
    for (int count = 0;; ++count) {
        // gradient, Hessian and its factor, which stays where no row came to its bound or left it
        bool changes = count == 0;
        for (int i = 0; i < n; ++i) gradient[i] = net[i];
        for (int q = 0; q < rows; ++q) {
            const lanes s = clamped(w[q] * error[q], low[q], high[q]);
            const lanes inside = ((s > low[q]) & (s < high[q])) ? all : none;
            changes |= any(inside != within[q]);
            within[q] = inside;
            push[q] = s;
        }
        for (int q = 0; q < rows; ++q) {
            const lanes s = push[q];
            for (int c = 0; c < filled[q]; ++c) gradient[columns[q * n + c]] += s * entries[q * n + columns[q * n + c]];
        }
        if (changes) {
            for (int i = 0; i < size; ++i) H[i] = M[i];
            for (int q = 0; q < rows; ++q) {
                const lanes s = w[q] * within[q];
                const lanes* const J = entries + q * n;
                const int* const column = columns + q * n;
                if (!any(s != none)) continue;
                for (int c = 0; c < filled[q]; ++c) {
                    const lanes part = s * J[column[c]];
                    lanes* const to = H + column[c] * (column[c] + 1) / 2;
                    for (int d = 0; d <= c; ++d) to[column[d]] += part * J[column[d]];
                }
            }
            factorise(n, H, inverse);
        }
        lanes norm = none;
        for (int i = 0; i < n; ++i) norm += gradient[i] * gradient[i];
        residual = scale * __builtin_elementwise_sqrt(norm);
        going = going & ~(residual <= allowed) & ~still;
        if (count == max_iterations || !any(going)) break;
        // search direction: -H^-1 gradient
        for (int k = 0; k < 8; ++k) iterations[k] += going[k] != 0;
        for (int i = 0; i < n; ++i) search[i] = -gradient[i];
        solve(n, H, inverse, search);
        multiply(search, change_net);
        for (int q = 0; q < rows; ++q) change[q] = along(q, search);
        lanes quad = none, lin = none, descent = none;
        for (int i = 0; i < n; ++i) {
            quad += search[i] * change_net[i];
            lin += search[i] * net[i];
            descent += search[i] * gradient[i];
        }
        // the step at which the slope along it vanishes
        const lanes enough = slope_tolerance * __builtin_elementwise_abs(descent);
        lanes t = all, least = none, most = none;
        mask searching = going, known = none != none;
        for (int _ = 0; _ < ls_iterations; ++_) {
            lanes slope = lin + t * quad, curve = quad;
            for (int q = 0; q < rows; ++q) {
                const lanes s = clamped(w[q] * (error[q] + t * change[q]), low[q], high[q]);
                slope += s * change[q];
                curve += ((s > low[q]) & (s < high[q])) ? w[q] * change[q] * change[q] : none;
            }
            searching = searching & ~(__builtin_elementwise_abs(slope) <= enough);
            if (!any(searching)) break;
            const mask below = slope < none;
            least = below ? t : least;
            most = below ? most : t;
            known = known | ~below;
            lanes next = t - slope / curve;
            next = known & ((next <= least) | (next >= most)) ? number(0.5) * (least + most) : next;
            searching = searching & (next != t);
            t = searching ? next : t;
        }
        // take it
        lanes moved = none, total = scale_squared;
        for (int i = 0; i < n; ++i) {
            const lanes step = t * search[i];
            x[i] = going ? x[i] + step : x[i];
            net[i] = going ? net[i] + t * change_net[i] : net[i];
            moved += step * step;
            total += x[i] * x[i];
        }
        for (int q = 0; q < rows; ++q) error[q] = going ? error[q] + t * change[q] : error[q];
        still = still | (going & (moved <= still_part * still_part * total));
    }

    store(x, qacc_out, n);
    store(H, factor_out, size);
    for (int k = 0; k < worlds; ++k) {
        *row(residual_out, at[k]) = residual[k];
        *row(iterations_out, at[k]) = iterations[k];
        *row(status_out, at[k]) = residual[k] > allowed[k] && !still[k] ? unconverged : 0;
    }
"""


@wp.func_native(native(DENSE + _NEWTON))
def solve_eight(
    world: int,
    max_iterations: int,
    ls_iterations: int,
    first: int,
    contact_rows: int,
    unconverged: int,
    rounding: real,
    tiny: real,
    slope_tolerance: real,
    still_part: real,
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    matrix: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    jacobian: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    qacc_out: wp.array2d(dtype=real),
    factor_out: wp.array2d(dtype=real),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):  # type: ignore[empty-body]
    """Newton's method for the worlds from ``world`` on, eight of them or as many as there are; none on a GPU."""


@wp.kernel(enable_backward=False)
def newton_lanes(
    # Structure:
    max_iterations: int,
    ls_iterations: int,
    first: int,
    # Model:
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    # In:
    matrix: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    jacobian: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    # Out:
    qacc_out: wp.array2d(dtype=real),
    factor_out: wp.array2d(dtype=real),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Solve for the acceleration of every world; leaves the Cholesky factor of H at the solution. As :func:`newton`."""
    world = wp.tid()
    if world % LANES == 0:
        solve_eight(
            world,
            max_iterations,
            ls_iterations,
            first,
            CONTACT_ROWS,
            UNCONVERGED,
            ROUNDING,
            TINY,
            SLOPE_TOLERANCE,
            STILL,
            tolerance,
            meaninertia,
            matrix,
            force,
            start,
            jacobian,
            weight,
            reference,
            bound,
            contact_pair,
            contact_row,
            qacc_out,
            factor_out,
            residual_out,
            iterations_out,
            status_out,
        )
