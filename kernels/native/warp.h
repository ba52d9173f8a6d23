#pragma once
// What the headers take from Warp, and where an array keeps what. An editor reads the declarations; in a kernel's
// compile unit Warp's own header stands before them.

#ifndef CUDA_CALLABLE
#define CUDA_CALLABLE
#define WP_NOINLINE __attribute__((noinline))
#define WP_FORCEINLINE inline __attribute__((always_inline))
typedef decltype(sizeof(0)) size_t;
double sqrt(double);
namespace wp {
struct shape_t {
    int operator[](int axis) const;
};
template <class T> struct array_t {
    T *data, *grad;
    shape_t shape;
    int strides[4];  // bytes
};
template <unsigned count, class T> struct vec_t {
    T c[count];
    T operator[](int i) const;
    T& operator[](int i);
};
template <unsigned rows, unsigned columns, class T> struct mat_t {
    T data[rows][columns];
};
template <class T> T sin(T x);
template <class T> T cos(T x);
template <class T> T atomic_add(T* to, T value);
template <unsigned count, class T> vec_t<count, T> add(vec_t<count, T> a, vec_t<count, T> b);
}
#endif

namespace fphys {
namespace {

template <class T> using array = wp::array_t<T>;
template <class number> using vec2 = wp::vec_t<2, number>;
template <class number> using vec3 = wp::vec_t<3, number>;
template <class number> using vec4 = wp::vec_t<4, number>;
template <class number> using mat33 = wp::mat_t<3, 3, number>;
template <class number> using mat44 = wp::mat_t<4, 4, number>;
template <class number> using vec11 = wp::vec_t<11, number>;
using vec3i = wp::vec_t<3, int>;

// An array's part that belongs to a world, and to one of its particles, rows or nodes; null if there is no array.
template <class T> CUDA_CALLABLE T* part(const array<T>& a, int world)
{
    return (T*)((char*)a.data + (long long)world * a.strides[0]);
}
template <class T> CUDA_CALLABLE T* part(const array<T>& a, int world, int i)
{
    return (T*)((char*)a.data + (long long)world * a.strides[0] + (long long)i * a.strides[1]);
}

}
}
