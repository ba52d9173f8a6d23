#pragma once
// Eight numbers in a vector register, on a processor. What is written for any `V` is for one number, too.
#include "warp.h"

namespace fphys {
namespace {

template <class V> struct Element {
    using type = V;
};
CUDA_CALLABLE inline bool any(const bool m) { return m; }

#ifndef __CUDACC__
template <class number> using eight = number __attribute__((ext_vector_type(8)));
template <class V> using mask = decltype(V() < V());  // what comparing gives

// eight of them in memory, aligned as one is
template <class number> struct Packed {
    eight<number> v;
} __attribute__((packed, aligned(sizeof(number)), may_alias));
template <class number> Packed<number>* packed(number* at) { return (Packed<number>*)at; }
template <class number> const Packed<number>* packed(const number* at) { return (const Packed<number>*)at; }

template <class number> struct Element<number __attribute__((ext_vector_type(8)))> {
    using type = number;
};
template <class M> bool any(const M m) { return __builtin_reduce_or(m) != 0; }

template <class number> WP_FORCEINLINE void flip(eight<number>* m)  // transpose
{
    using lanes = eight<number>;
    for (int i = 0; i < 8; i += 2) {
        const lanes a = m[i], b = m[i + 1];
        m[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
        m[i + 1] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; ++i) {
        if (i & 2) continue;
        const lanes a = m[i], b = m[i + 2];
        m[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
        m[i + 2] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; ++i) {
        const lanes a = m[i], b = m[i + 4];
        m[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
        m[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#endif

// the type of one number, of `V` or of those in its lanes
template <class V> using element = typename Element<V>::type;

}
}
