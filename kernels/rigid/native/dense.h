#pragma once
// Dense symmetric matrices as packed lower triangles: dense.py says what for. Rows are contiguous.
#include "lanes.h"
#include "team.h"

namespace fphys {
namespace {

template <class number>
CUDA_CALLABLE void add_outer(
    int world, int lane, int lanes, int row, int n, number scale, const array<number>& rows,
    const array<number>& matrix)
{
    const Team team(lane, lanes);
    const number* J = part(rows, world, row);
    number* M = part(matrix, world);
    for (int i = 0; i < n; ++i) {
        const number s = scale * J[i];
        if (s != 0) {
            number* __restrict to = M + i * (i + 1) / 2;
            for (int j = team.own; j <= i; j += team.step) to[j] += s * J[j];
        }
    }
}

template <class number>
CUDA_CALLABLE void add_scaled(
    int world, int lane, int lanes, int row, int n, number scale, const array<number>& rows, const array<number>& out)
{
    const Team team(lane, lanes);
    const number* J = part(rows, world, row);
    number* __restrict to = part(out, world);
    for (int i = team.own; i < n; i += team.step) to[i] += scale * J[i];
}

template <class number>
CUDA_CALLABLE void copy_packed(
    int world, int lane, int lanes, int n, const array<number>& matrix, const array<number>& out)
{
    const Team team(lane, lanes);
    const number* from = part(matrix, world);
    number* __restrict to = part(out, world);
    for (int i = team.own; i < n * (n + 1) / 2; i += team.step) to[i] = from[i];
}

template <class number>
CUDA_CALLABLE void multiply_rows(
    int world, int lane, int lanes, int count, int n, const array<int>& index, const array<number>& rows,
    const array<number>& x, const array<number>& out)
{
#pragma clang fp reassociate(on)
    const Team team(lane, lanes);
    const number* X = part(x, world);
    for (int k = team.own; k < count; k += team.step) {
        const int r = part(index, world)[k];
        const number* J = part(rows, world, r);
        number s = 0;
        for (int i = 0; i < n; ++i) s += J[i] * X[i];
        part(out, world)[r] = s;
    }
}

template <class number>
CUDA_CALLABLE void multiply_symmetric(
    int world, int lane, int lanes, int n, const array<number>& matrix, const array<number>& x,
    const array<number>& out)
{
#pragma clang fp reassociate(on)
    const number* M = part(matrix, world);
    const number* X = part(x, world);
    number* __restrict to = part(out, world);
#ifdef __CUDA_ARCH__
    for (int i = lane; i < n; i += lanes) {
        number s = 0;
        for (int j = 0; j <= i; ++j) s += M[i * (i + 1) / 2 + j] * X[j];
        for (int j = i + 1; j < n; ++j) s += M[j * (j + 1) / 2 + i] * X[j];
        to[i] = s;
    }
#else
    for (int i = 0; i < n; ++i) {
        const number* row = M + i * (i + 1) / 2;
        number s = row[i] * X[i];
        for (int j = 0; j < i; ++j) s += row[j] * X[j];
        for (int j = 0; j < i; ++j) to[j] += row[j] * X[i];
        to[i] = s;
    }
#endif
}

template <class number>
CUDA_CALLABLE void multiply_difference(
    int world, int n, const array<number>& first, const array<number>& second, const array<number>& x,
    const array<number>& out)
{
    const number* A = part(first, world);
    const number* B = part(second, world);
    const number* X = part(x, world);
    number* __restrict to = part(out, world);
    for (int i = 0, e = 0; i < n; ++i) {
        to[i] = 0;
        for (int j = 0; j <= i; ++j, ++e) {
            const number d = A[e] - B[e];
            to[i] += d * X[j];
            if (j < i) to[j] += d * X[i];
        }
    }
}

template <class number>
CUDA_CALLABLE void factorise_in_place(
    int world, int lane, int lanes, int n, number rounding, number tiny, const array<number>& matrix)
{
    const Team team(lane, lanes);
    number* M = part(matrix, world);
    for (int k = n - 1; k >= 0; --k) {
        number* row = M + k * (k + 1) / 2;
        const number pivot = row[k];
        number squares = 0;
        for (int m = k + 1 + team.own; m < n; m += team.step)
            squares += M[m * (m + 1) / 2 + k] * M[m * (m + 1) / 2 + k];
        const number whole = pivot + team.total(squares);
        const number least = rounding * whole > tiny ? rounding * whole : tiny;
        const auto root = sqrt(pivot > least ? pivot : least);
        const auto inverse = 1 / root;
        team.wait();
        for (int i = team.own; i < k; i += team.step) row[i] *= inverse;
        if (team.own == 0) row[k] = root;
        team.wait();
        for (int i = 0; i < k; ++i) {
            const number s = row[i];
            if (s != 0) {
                number* __restrict to = M + i * (i + 1) / 2;
                for (int j = team.own; j <= i; j += team.step) to[j] -= s * row[j];
            }
        }
        team.wait();
    }
}

template <class number>
CUDA_CALLABLE void solve_in_place(
    int world, int lane, int lanes, int n, const array<number>& factor, const array<number>& x)
{
#pragma clang fp reassociate(on)
    const number* L = part(factor, world);
    number* __restrict X = part(x, world);
#ifdef __CUDA_ARCH__
    const Team team(lane, lanes);
    for (int k = n - 1; k >= 0; --k) {
        const number* row = L + k * (k + 1) / 2;
        const number y = X[k] / row[k];
        for (int i = lane; i < k; i += lanes) X[i] -= row[i] * y;
        team.wait();
    }
    for (int i = lane; i < n; i += lanes) X[i] /= L[i * (i + 1) / 2 + i];
    team.wait();
    for (int k = 0; k < n; ++k) {
        const number* row = L + k * (k + 1) / 2;
        number s = 0;
        for (int i = lane; i < k; i += lanes) s += row[i] * X[i];
        const number y = (X[k] - team.total(s)) / row[k];
        team.wait();
        if (lane == 0) X[k] = y;
        team.wait();
    }
#else
    for (int k = n - 1; k >= 0; --k) {
        const number* row = L + k * (k + 1) / 2;
        const number y = X[k] / row[k];
        X[k] = y;
        for (int i = 0; i < k; ++i) X[i] -= row[i] * y;
    }
    for (int k = 0; k < n; ++k) {
        const number* row = L + k * (k + 1) / 2;
        number s = X[k];
        for (int i = 0; i < k; ++i) s -= row[i] * X[i];
        X[k] = s / row[k];
    }
#endif
}

#ifndef __CUDACC__
template <class number>
bool factor_lanes(
    int world, int n, number rounding, number tiny, const array<number>& matrix, const array<number>& factor_out)
{
    using lanes = eight<number>;
    const int size = n * (n + 1) / 2;
    if (!has_room(size + 2 * n, tiny)) return false;
    if (world % 8) return true;
    lanes* const L = (lanes*)__builtin_alloca_with_align((size + n + 1) * sizeof(lanes), 8 * sizeof(lanes));
    const Worlds worlds(matrix, world);
    load(worlds, matrix, L, size);
    factorise<number>(n, rounding, tiny, L, L + size);
    store(worlds, L, factor_out, size);
    return true;
}

template <class number>
bool solve_lanes(
    int world, int n, const array<number>& factor, const array<number>& force, const array<number>& x_out)
{
    using lanes = eight<number>;
    const int size = n * (n + 1) / 2;
    if (!has_room(size + 2 * n, number())) return false;
    if (world % 8) return true;
    lanes* const L = (lanes*)__builtin_alloca_with_align((size + 2 * n + 1) * sizeof(lanes), 8 * sizeof(lanes));
    lanes *const inverse = L + size, *const X = inverse + n;
    const Worlds worlds(x_out, world);
    load(worlds, factor, L, size);
    load(worlds, force, X, n);
    for (int k = 0; k < n; ++k) inverse[k] = lanes(number(1)) / L[k * (k + 1) / 2 + k];
    solve<number>(n, L, inverse, X);
    store(worlds, X, x_out, n);
    return true;
}
#endif

}
}
