#pragma once
// Newton's method for eight worlds side by side: what newton.py does, where no contact has a cone.
//
// Every loop runs over what any of the eight needs: where a world does not need it a row is zero, and a world whose
// method has ended stays as it is. Memory is the thread's stack, which stays in the core's cache.
#include "lanes.h"

#ifndef __CUDACC__
namespace fphys {
namespace {

template <class V> V clamped(const V x, const V low, const V high)
{
    const V y = x > low ? x : low;
    return y < high ? y : high;
}

template <class number> eight<number> one_each(const Worlds& worlds, const array<number>& a)
{
    eight<number> v;
    for (int k = 0; k < 8; ++k) v[k] = *part(a, worlds.at[k]);
    return v;
}

template <class number>
void solve_eight(
    int world, int max_iterations, int ls_iterations, int first, int contact_rows, int unconverged, number rounding,
    number tiny, number slope_tolerance, number still_part, const array<number>& tolerance,
    const array<number>& meaninertia, const array<number>& matrix, const array<number>& force,
    const array<number>& start, const array<number>& jacobian, const array<number>& weight,
    const array<number>& reference, const array<vec2<number>>& bound, const array<int>& contact_pair,
    const array<int>& contact_row,
    const array<number>& qacc_out, const array<number>& factor_out, const array<number>& residual_out,
    const array<int>& iterations_out, const array<unsigned>& status_out)
{
    using lanes = eight<number>;
    using choice = mask<lanes>;
    const lanes none = number(0), all = number(1);
    const Worlds worlds(force, world);
    const int* const at = worlds.at;
    const int n = force.shape[1], size = n * (n + 1) / 2;

    // the rows that act in any of the worlds
    int end = first;
    for (int k = 0; k < 8; ++k) {
        const int* const pair = part(contact_pair, at[k]);
        int contacts = 0;
        while (contacts < contact_pair.shape[1] && pair[contacts] >= 0) ++contacts;
        const int own = contacts ? first + part(contact_row, at[k])[contacts - 1] + contact_rows : first;
        end = own > end ? own : end;
    }
    if (end > weight.shape[1]) end = weight.shape[1];
    int* const listed = (int*)__builtin_alloca((end + 1) * sizeof(int));
    int rows = 0;
    for (int r = 0; r < end; ++r) {
        bool acts = false;
        for (int k = 0; k < 8; ++k) acts |= part(weight, at[k])[r] > 0;
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
            const number own = part(weight, at[k])[r];
            const bool acts = own > 0;
            const number* const limits = (const number*)(part(bound, at[k]) + r);
            w[q][k] = acts ? own : 0;
            low[q][k] = acts ? limits[0] : 0;
            high[q][k] = acts ? limits[1] : 0;
            error[q][k] = acts ? -part(reference, at[k])[r] : 0;
            from[k] = part(jacobian, at[k], r);
        }
        gather(from, J, n);
        const choice acting = w[q] > none;
        for (int i = 0; i < n; ++i) J[i] = acting ? J[i] : none;
        int count = 0;
        for (int i = 0; i < n; ++i)
            if (any(J[i] != none)) columns[q * n + count++] = i;
        filled[q] = count;
        within[q] = none;
    }
    load(worlds, matrix, M, size);
    load(worlds, start, x, n);
    load(worlds, force, applied, n);

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
    const lanes allowed = one_each(worlds, tolerance);
    const lanes scale = all / (one_each(worlds, meaninertia) * number(n > 1 ? n : 1));
    multiply(x, net);
    lanes scale_squared = none;
    for (int i = 0; i < n; ++i) {
        const lanes free = applied[i] / M[i * (i + 1) / 2 + i];
        scale_squared += free * free;
        net[i] -= applied[i];
    }
    for (int q = 0; q < rows; ++q) error[q] += along(q, x);

    int iterations[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    choice going = none == none, still = none != none;
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
            factorise(n, rounding, tiny, H, inverse);
        }
        lanes norm = none;
        for (int i = 0; i < n; ++i) norm += gradient[i] * gradient[i];
        residual = scale * __builtin_elementwise_sqrt(norm);
        going = going & ~(residual <= allowed) & ~still;
        if (count == max_iterations || !any(going)) break;
        // search direction: -H^-1 gradient
        for (int k = 0; k < 8; ++k) iterations[k] += going[k] != 0;
        for (int i = 0; i < n; ++i) search[i] = -gradient[i];
        solve<number>(n, H, inverse, search);
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
        choice searching = going, known = none != none;
        for (int _ = 0; _ < ls_iterations; ++_) {
            lanes slope = lin + t * quad, curve = quad;
            for (int q = 0; q < rows; ++q) {
                const lanes s = clamped(w[q] * (error[q] + t * change[q]), low[q], high[q]);
                slope += s * change[q];
                curve += ((s > low[q]) & (s < high[q])) ? w[q] * change[q] * change[q] : none;
            }
            searching = searching & ~(__builtin_elementwise_abs(slope) <= enough);
            if (!any(searching)) break;
            const choice below = slope < none;
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

    store(worlds, x, qacc_out, n);
    store(worlds, H, factor_out, size);
    for (int k = 0; k < worlds.count; ++k) {
        *part(residual_out, at[k]) = residual[k];
        *part(iterations_out, at[k]) = iterations[k];
        *part(status_out, at[k]) = residual[k] > allowed[k] && !still[k] ? unconverged : 0;
    }
}

}
}
#endif
