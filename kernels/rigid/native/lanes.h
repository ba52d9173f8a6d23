#pragma once
// Eight worlds side by side: which they are, the way between them and memory, and dense factors of their matrices.
#include "../../native/eight.h"

#ifndef __CUDACC__
namespace fphys {
namespace {

// whether a thread's stack has room for so many numbers of eight worlds
template <class number> bool has_room(int numbers, number) { return numbers * sizeof(eight<number>) <= 1 << 20; }

struct Worlds {
    int at[8], count;  // the last world stands for those that are missing

    template <class T> Worlds(const array<T>& a, int world)
    {
        const int left = a.shape[0] - world;
        count = left < 8 ? left : 8;
        for (int k = 0; k < 8; ++k) at[k] = world + (k < count ? k : count - 1);
    }
};

template <class number> void gather(const number* const* from, eight<number>* to, int count)  // lane k from from[k]
{
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        eight<number> m[8];
        for (int k = 0; k < 8; ++k) m[k] = packed(from[k] + i)->v;
        flip<number>(m);
        for (int k = 0; k < 8; ++k) to[i + k] = m[k];
    }
    for (; i < count; ++i)
        for (int k = 0; k < 8; ++k) to[i][k] = from[k][i];
}

template <class number, class T> void load(const Worlds& worlds, const array<T>& a, eight<number>* to, int count)
{
    const number* from[8];
    for (int k = 0; k < 8; ++k) from[k] = (const number*)part(a, worlds.at[k]);
    gather(from, to, count);
}

// twice where the last world stands for others
template <class number, class T>
void store(const Worlds& worlds, const eight<number>* from, const array<T>& a, int count)
{
    number* to[8];
    for (int k = 0; k < 8; ++k) to[k] = (number*)part(a, worlds.at[k]);
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        eight<number> m[8];
        for (int k = 0; k < 8; ++k) m[k] = from[i + k];
        flip<number>(m);
        for (int k = 0; k < 8; ++k) packed(to[k] + i)->v = m[k];
    }
    for (; i < count; ++i)
        for (int k = 0; k < 8; ++k) to[k][i] = from[i][k];
}

// L^T L in place, as in dense.h, and one over the diagonal; `tiny` is the least pivot, `rounding` the part that
// rounding is
template <class number> void factorise(int n, number rounding, number tiny, eight<number>* L, eight<number>* inverse)
{
    using lanes = eight<number>;
    const lanes none = number(0), all = number(1);
    for (int k = n - 1; k >= 0; --k) {
        lanes* const line = L + k * (k + 1) / 2;
        lanes whole = line[k];
        for (int m = k + 1; m < n; ++m) whole += L[m * (m + 1) / 2 + k] * L[m * (m + 1) / 2 + k];
        const lanes least = rounding * whole > tiny ? rounding * whole : lanes(tiny);
        line[k] = __builtin_elementwise_sqrt(line[k] > least ? line[k] : least);
        inverse[k] = all / line[k];
        for (int i = 0; i < k; ++i) line[i] *= inverse[k];
        for (int i = 0; i < k; ++i) {
            const lanes s = line[i];
            lanes* const to = L + i * (i + 1) / 2;
            if (any(s != none))
                for (int j = 0; j <= i; ++j) to[j] -= s * line[j];
        }
    }
}

// L^T L y = x, in place
template <class number> void solve(int n, const eight<number>* L, const eight<number>* inverse, eight<number>* x)
{
    using lanes = eight<number>;
    for (int k = n - 1; k >= 0; --k) {
        const lanes* const line = L + k * (k + 1) / 2;
        x[k] *= inverse[k];
        for (int i = 0; i < k; ++i) x[i] -= line[i] * x[k];
    }
    for (int k = 0; k < n; ++k) {
        const lanes* const line = L + k * (k + 1) / 2;
        lanes s = x[k];
        for (int i = 0; i < k; ++i) s -= line[i] * x[i];
        x[k] = s * inverse[k];
    }
}

}
}
#endif
