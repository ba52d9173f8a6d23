#pragma once
// Spatial vectors, three numbers for turning and three for shifting, in the first six lanes of eight; the others are 0.
#include "../../native/eight.h"

namespace fphys {
namespace {

template <class number> struct Six {
#ifdef __CUDACC__
    number v[8];
    CUDA_CALLABLE void add(const number s, const Six& o)
    {
        for (int i = 0; i < 6; ++i) v[i] += s * o.v[i];
    }
    CUDA_CALLABLE Six operator*(const number s) const
    {
        Six out;
        for (int i = 0; i < 8; ++i) out.v[i] = s * v[i];
        return out;
    }
#else
    eight<number> v;
    WP_FORCEINLINE void add(const number s, const Six& o) { v += s * o.v; }
    WP_FORCEINLINE Six operator*(const number s) const { return {s * v}; }
#endif
    CUDA_CALLABLE number operator[](int i) const { return v[i]; }
    CUDA_CALLABLE void set(int i, const number x) { v[i] = x; }
}
#ifndef __CUDACC__
__attribute__((packed, aligned(sizeof(number)), may_alias))
#endif
;

template <class number> CUDA_CALLABLE Six<number> nothing()
{
    Six<number> out;
    for (int i = 0; i < 8; ++i) out.set(i, 0);
    return out;
}

template <class number> CUDA_CALLABLE Six<number> six(const number* from)
{
    Six<number> out = nothing<number>();
    for (int i = 0; i < 6; ++i) out.set(i, from[i]);
    return out;
}

template <class number> CUDA_CALLABLE number dot(const Six<number>& a, const Six<number>& b)
{
#ifdef __CUDACC__
    number s = 0;
    for (int i = 0; i < 6; ++i) s += a.v[i] * b.v[i];
    return s;
#else
    const eight<number> p = a.v * b.v;
    const auto q = __builtin_shufflevector(p, p, 0, 1, 2, 3) + __builtin_shufflevector(p, p, 4, 5, 6, 7);
    return (q[0] + q[2]) + (q[1] + q[3]);
#endif
}

// A motion, referred to the point that is r away from where it was
template <class number> CUDA_CALLABLE Six<number> carried(Six<number> m, const number* r)
{
    m.set(3, m[3] + m[1] * r[2] - m[2] * r[1]);
    m.set(4, m[4] + m[2] * r[0] - m[0] * r[2]);
    m.set(5, m[5] + m[0] * r[1] - m[1] * r[0]);
    return m;
}

// A wrench about a point, referred to the one from which that point is r away
template <class number> CUDA_CALLABLE Six<number> handed_on(Six<number> f, const number* r)
{
    f.set(0, f[0] + r[1] * f[5] - r[2] * f[4]);
    f.set(1, f[1] + r[2] * f[3] - r[0] * f[5]);
    f.set(2, f[2] + r[0] * f[4] - r[1] * f[3]);
    return f;
}

// The same for the columns of a matrix of six rows, each of which is a wrench
template <class number> CUDA_CALLABLE void hand_on(Six<number>* m, const number* r)
{
    m[0].add(r[1], m[5]), m[0].add(-r[2], m[4]);
    m[1].add(r[2], m[3]), m[1].add(-r[0], m[5]);
    m[2].add(r[0], m[4]), m[2].add(-r[1], m[3]);
}

template <class number> CUDA_CALLABLE void add_block(const Six<number>* m, const bool turned, Six<number>* to)
{
    for (int i = 0; i < 6; ++i)
        if (turned)
            for (int j = 0; j < 6; ++j) to[i].set(j, to[i][j] + m[j][i]);
        else
            to[i].add(1, m[i]);
}

// m x of a symmetric matrix
template <class number> CUDA_CALLABLE Six<number> times(const Six<number>* m, const Six<number>& x)
{
    Six<number> out = m[0] * x[0];
    for (int i = 1; i < 6; ++i) out.add(x[i], m[i]);
    return out;
}

}
}
