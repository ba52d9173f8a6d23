#pragma once
// Between particles and the nodes around them: quadratic B-splines, and the two sums of a transfer.
//
// A particle spreads an affine field q0 + (i - f0) q1 + (j - f1) q2 + (k - f2) q3 over the 3 x 3 x 3 nodes (i, j, k)
// of its stencil (3 x 3 in a plane), where it stands at f, and collects from them the moments sum(w g), sum(w (i -
// f0) g) and so on. Each is the other's transpose; their adjoints are written out, in one pass over the nodes. A
// node holds four numbers (momentum or velocity, mass), which a processor adds at once; in a plane the third is
// zero.
//
// Arrays are indexed [world, node], nodes in row-major order; `nodes` counts them per axis, 1 along z in a plane. A
// thread takes a batch of eight particles, for to begin one costs as much as half a particle. The sums go along
// lines of three nodes that follow one another in memory, two of them at once, lines along the middle axis, and
// planes along the outer one. A scene in a plane is one plane.
#include "../../native/eight.h"

namespace fphys {
namespace {

// two nodes beside each other are eight numbers
#ifdef __CUDACC__
template <class number> using four = vec4<number>;
template <class number> struct eight {
    four<number> a, b;
    CUDA_CALLABLE eight operator+(const eight o) const { return {a + o.a, b + o.b}; }
    CUDA_CALLABLE eight operator*(const eight o) const { return {wp::cw_mul(a, o.a), wp::cw_mul(b, o.b)}; }
    CUDA_CALLABLE eight operator*(const number w) const { return {w * a, w * b}; }
};
template <class number> CUDA_CALLABLE four<number> make(number a, number b, number c, number d) { return {a, b, c, d}; }
template <class number> CUDA_CALLABLE eight<number> pair(const four<number> a, const four<number> b) { return {a, b}; }
template <class number> CUDA_CALLABLE four<number> folded(const eight<number> v) { return v.a + v.b; }
template <class number> CUDA_CALLABLE four<number> times(const four<number> a, const four<number> b)
{
    return wp::cw_mul(a, b);
}
template <class number> CUDA_CALLABLE eight<number> get(const four<number>* node) { return {node[0], node[1]}; }
template <class number> CUDA_CALLABLE void add(four<number>* node, const eight<number> v, const four<number> c)
{
    wp::atomic_add(node, v.a), wp::atomic_add(node + 1, v.b), wp::atomic_add(node + 2, c);
}
template <class number> CUDA_CALLABLE void sum_up(number* to, const number value) { wp::atomic_add(to, value); }

// Numbers of as many particles as are located at once, and what they are rounded to.
const int WIDE = 1;
template <class number> using wide = number;
using whole = int;
template <class number> CUDA_CALLABLE whole truncated(const number v) { return (int)v; }
template <class number> CUDA_CALLABLE number widened(const whole v) { return number(v); }
template <class V, class T> CUDA_CALLABLE void set(V& v, int, const T value) { v = value; }
#else
template <class number> using four = number __attribute__((ext_vector_type(4)));
template <class number> struct TwoNodes {
    eight<number> v;
} __attribute__((packed, aligned(4 * sizeof(number)), may_alias));
template <class number> four<number> make(number a, number b, number c, number d) { return four<number>{a, b, c, d}; }
template <class number> eight<number> pair(const four<number> a, const four<number> b)
{
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
template <class number> four<number> folded(const eight<number> v)
{
#pragma clang fp contract(fast)
    return v.lo + v.hi;
}
template <class number> four<number> times(const four<number> a, const four<number> b)
{
#pragma clang fp contract(fast)
    return a * b;
}
template <class number> eight<number> get(const four<number>* node) { return ((const TwoNodes<number>*)node)->v; }
template <class number> void add(four<number>* node, const eight<number> v, const four<number> c)
{
#pragma clang fp contract(fast)
    ((TwoNodes<number>*)node)->v += v, node[2] += c;
}
template <class number> void sum_up(number* to, const number value)
{
#pragma clang fp contract(fast)
    *to += value;
}

const int WIDE = 8;
template <class number> using wide = eight<number>;
typedef int whole __attribute__((ext_vector_type(8)));
template <class number> whole truncated(const eight<number> v) { return __builtin_convertvector(v, whole); }
template <class number> eight<number> widened(const whole v) { return __builtin_convertvector(v, eight<number>); }
template <class V, class T> void set(V& v, int k, const T value) { v[k] = value; }
#endif
template <class number, class V> CUDA_CALLABLE number of(const V& v, int k) { return ((const number*)&v)[k % WIDE]; }
template <class number> CUDA_CALLABLE four<number> zero() { return make(number(0), number(0), number(0), number(0)); }
template <class number> CUDA_CALLABLE eight<number> each(const number a, const number b)
{
    return pair<number>(make(a, a, a, a), make(b, b, b, b));
}

// Which particles are a thread's: `count` of them from `first` on.
struct Batch {
    int first, stride, count;
};
CUDA_CALLABLE inline Batch batch_of(int batch, int n)
{
#ifdef __CUDACC__
    const int first = batch, stride = (n + 7) / 8;  // neighbours in memory go to neighbours among the threads
#else
    const int first = 8 * batch, stride = 1;
#endif
    return {first, stride, first + 7 * stride < n ? 8 : (n - first + stride - 1) / stride};
}
template <class number> CUDA_CALLABLE int member(int batch, int k, const array<number>& x, int)
{
    const Batch own = batch_of(batch, x.shape[1]);
    return k < own.count ? own.first + k * own.stride : -1;
}

template <class number> struct Mesh {
    const vec3<number> lower;
    const number dx;
    const vec3i nodes;
    const bool flat;
    const int to_plane, to_line;
    CUDA_CALLABLE Mesh(const vec3<number>& lower, number dx, const vec3i& nodes)
        : lower(lower), dx(dx), nodes(nodes), flat(nodes[2] == 1), to_plane(flat ? 0 : nodes[1] * nodes[2]),
          to_line(flat ? nodes[1] : nodes[2])
    {
    }
};

// Where particles stand, along the outer, middle and inner axis.
template <class number> struct Places {
    wide<number> place[3], weight[9];
    whole first_node;
    CUDA_CALLABLE WP_FORCEINLINE void locate(
        const Mesh<number>& mesh, const array<number>& x, int world, const Batch& batch, int begin)
    {
#pragma clang fp contract(fast)
        using V = wide<number>;
        const number one = 1, half = number(0.5);
        whole base[3];
        for (int a = 0; a < 3; ++a) {
            V away;
            for (int k = 0; k < WIDE; ++k) {
                const int p = batch.first + (begin + k < batch.count ? begin + k : begin) * batch.stride;
                set(away, k, a < 2 || !mesh.flat ? part(x, world, p)[a] - mesh.lower[a] : -mesh.dx);
            }
            const V y = away / mesh.dx + number(1.5);
            base[a] = truncated<number>(y - half);
            place[a] = y - widened<number>(base[a]);
        }
        first_node = (base[0] * mesh.nodes[1] + base[1]) * mesh.nodes[2] + base[2];
        if (mesh.flat) place[2] = place[1], place[1] = place[0], place[0] = V(one);
        for (int a = 0; a < 3; ++a) {  // Steffen et al. 2008
            const V l = number(1.5) - place[a], m = place[a] - one, r = place[a] - half;
            weight[3 * a] = half * l * l, weight[3 * a + 1] = number(0.75) - m * m, weight[3 * a + 2] = half * r * r;
        }
        if (mesh.flat) weight[0] = V(one);
    }
};

// One of them: its place, its weights, and the first of its stencil's nodes.
template <class number> struct Site {
    number fo, fm, fi, wo[3], wm[3], wi[3];
    int first_node;
    eight<number> weights;
    CUDA_CALLABLE WP_FORCEINLINE Site(const Places<number>& places, int k)
        : fo(of<number>(places.place[0], k)), fm(of<number>(places.place[1], k)), fi(of<number>(places.place[2], k)),
          first_node(of<int>(places.first_node, k))
    {
        for (int i = 0; i < 3; ++i) {
            wo[i] = of<number>(places.weight[i], k), wm[i] = of<number>(places.weight[3 + i], k);
            wi[i] = of<number>(places.weight[6 + i], k);
        }
        weights = each(wi[0], wi[1]);
    }
};

// The affine field at the first node, and by how much it grows along the axes.
template <class number> struct Field {
    four<number> qo, qm, qi, start;
    CUDA_CALLABLE WP_FORCEINLINE Field(const Mesh<number>& mesh, const Site<number>& site, const four<number>* rows)
    {
#pragma clang fp contract(fast)
        qm = mesh.flat ? rows[1] : rows[2], qi = mesh.flat ? rows[2] : rows[3], qo = rows[1];
        start = rows[0] - site.fm * qm - site.fi * qi;
        if (!mesh.flat) start = start - site.fo * qo;
    }
};

// Add w times an affine field to every node of the stencil.
template <class number>
CUDA_CALLABLE WP_FORCEINLINE void spread(
    const Mesh<number>& mesh, const Site<number>& site, const Field<number>& field, four<number>* to)
{
#pragma clang fp contract(fast)
    const eight<number> middle = site.weights * pair<number>(field.qm, field.qm);
    const eight<number> outer = site.weights * pair<number>(field.qo, field.qo);
    const four<number> middle_2 = site.wi[2] * field.qm, outer_2 = site.wi[2] * field.qo;
    eight<number> begin = site.weights * pair<number>(field.start, field.start + field.qi);
    four<number> begin_2 = site.wi[2] * (field.start + number(2) * field.qi);
    auto plane = [&](int i) {
        eight<number> line = begin;
        four<number> line_2 = begin_2;
        for (int j = 0; j < 3; ++j) {
            const number w = site.wo[i] * site.wm[j];
            add<number>(to + i * mesh.to_plane + j * mesh.to_line, line * w, w * line_2);
            line = line + middle, line_2 = line_2 + middle_2;
        }
        begin = begin + outer, begin_2 = begin_2 + outer_2;
    };
    plane(0);
    if (!mesh.flat) plane(1), plane(2);
}

// The moments of a field g: sum(w g), sum(w (i - f) g), along j and k likewise.
template <class number> struct Moments {
    four<number> total, moment_1, moment_2, moment_3;
    CUDA_CALLABLE WP_FORCEINLINE Moments(
        const Mesh<number>& mesh, const Site<number>& site, const eight<number> sum, const four<number> sum_2,
        const eight<number> outer, const four<number> outer_2, const eight<number> middle, const four<number> middle_2)
    {
#pragma clang fp contract(fast)
        const eight<number> weights = site.weights;
        const number none = 0, last = site.wi[2];
        total = folded<number>(weights * sum) + last * sum_2;
        const four<number> along =
            folded<number>(each(none, site.wi[1]) * sum) + (number(2) * last) * sum_2 - site.fi * total;
        const four<number> across = folded<number>(weights * middle) + last * middle_2;
        moment_1 = mesh.flat ? across : folded<number>(weights * outer) + last * outer_2;
        moment_2 = mesh.flat ? along : across, moment_3 = mesh.flat ? zero<number>() : along;
    }
};

template <class number>
CUDA_CALLABLE WP_FORCEINLINE Moments<number> collect(
    const Mesh<number>& mesh, const Site<number>& site, const four<number>* from)
{
#pragma clang fp contract(fast)
    const number none = 0;
    eight<number> sum = each(none, none), outer = sum, middle = sum;
    four<number> sum_2 = zero<number>(), outer_2 = sum_2, middle_2 = sum_2;
    auto plane = [&](int i) {
        eight<number> m = each(none, none), m_middle = m;
        four<number> m_2 = zero<number>(), m_middle_2 = m_2;
        for (int j = 0; j < 3; ++j) {
            const four<number>* const line = from + i * mesh.to_plane + j * mesh.to_line;
            const number w = site.wm[j], arm = w * (number(j) - site.fm);
            const eight<number> a = get<number>(line);
            const four<number> c = line[2];
            m = m + a * w, m_2 = m_2 + w * c;
            m_middle = m_middle + a * arm, m_middle_2 = m_middle_2 + arm * c;
        }
        const number w = site.wo[i], arm = w * (number(i) - site.fo);
        sum = sum + m * w, sum_2 = sum_2 + w * m_2;
        outer = outer + m * arm, outer_2 = outer_2 + arm * m_2;
        middle = middle + m_middle * w, middle_2 = middle_2 + w * m_middle_2;
    };
    plane(0);
    if (!mesh.flat) plane(1), plane(2);
    return Moments<number>(mesh, site, sum, sum_2, outer, outer_2, middle, middle_2);
}

// The same, and the derivative by f of sum(w q(i) g), q an affine field.
template <class number>
CUDA_CALLABLE WP_FORCEINLINE Moments<number> collect(
    const Mesh<number>& mesh, const Site<number>& site, const Field<number>& field, const four<number>* from,
    number* slope)
{
#pragma clang fp contract(fast)
    const number none = 0, one = 1, half = number(0.5), fo = site.fo, fm = site.fm, fi = site.fi;
    const number dO[3] = {fo - number(1.5), number(2) * (one - fo), fo - half};
    const number dm[3] = {fm - number(1.5), number(2) * (one - fm), fm - half};
    const number di[3] = {fi - number(1.5), number(2) * (one - fi), fi - half};
    const eight<number> grow = pair<number>(field.qm, field.qm), grow_outer = pair<number>(field.qo, field.qo);
    eight<number> begin = pair<number>(field.start, field.start + field.qi);
    eight<number> sum = each(none, none), outer = sum, middle = sum, dx_ = sum, dy_ = sum, dz_ = sum;
    four<number> begin_2 = field.start + number(2) * field.qi;
    four<number> sum_2 = zero<number>(), outer_2 = sum_2, middle_2 = sum_2, dx_2 = sum_2, dy_2 = sum_2, dz_2 = sum_2;
    auto plane = [&](int i) {
        eight<number> line = begin, m = each(none, none), m_middle = m, e = m, e_middle = m;
        four<number> line_2 = begin_2, m_2 = zero<number>(), m_middle_2 = m_2, e_2 = m_2, e_middle_2 = m_2;
        for (int j = 0; j < 3; ++j) {
            const four<number>* const node = from + i * mesh.to_plane + j * mesh.to_line;
            const number w = site.wm[j], arm = w * (number(j) - fm), d = dm[j];
            const eight<number> a = get<number>(node), ea = line * a;
            const four<number> c = node[2], ec = times<number>(line_2, c);
            m = m + a * w, m_2 = m_2 + w * c;
            m_middle = m_middle + a * arm, m_middle_2 = m_middle_2 + arm * c;
            e = e + ea * w, e_2 = e_2 + w * ec;
            e_middle = e_middle + ea * d, e_middle_2 = e_middle_2 + d * ec;
            line = line + grow, line_2 = line_2 + field.qm;
        }
        const number w = site.wo[i], arm = w * (number(i) - fo), d = dO[i];
        sum = sum + m * w, sum_2 = sum_2 + w * m_2;
        outer = outer + m * arm, outer_2 = outer_2 + arm * m_2;
        middle = middle + m_middle * w, middle_2 = middle_2 + w * m_middle_2;
        dx_ = dx_ + e * d, dx_2 = dx_2 + d * e_2;
        dy_ = dy_ + e_middle * w, dy_2 = dy_2 + w * e_middle_2;
        dz_ = dz_ + e * w, dz_2 = dz_2 + w * e_2;
        begin = begin + grow_outer, begin_2 = begin_2 + field.qo;
    };
    plane(0);
    if (!mesh.flat) plane(1), plane(2);
    const Moments<number> found(mesh, site, sum, sum_2, outer, outer_2, middle, middle_2);
    const eight<number> weights = site.weights;
    const number last = site.wi[2];
    const four<number> by_o = folded<number>(weights * dx_) + last * dx_2 - times<number>(found.total, field.qo);
    const four<number> by_m = folded<number>(weights * dy_) + last * dy_2 - times<number>(found.total, field.qm);
    const four<number> by_i =
        folded<number>(each(di[0], di[1]) * dz_) + di[2] * dz_2 - times<number>(found.total, field.qi);
    auto all = [](const four<number> v) -> number { return (v[0] + v[1]) + (v[2] + v[3]); };
    slope[0] = all(mesh.flat ? by_m : by_o), slope[1] = all(mesh.flat ? by_i : by_m);
    slope[2] = mesh.flat ? none : all(by_i);
    return found;
}

// Moving a particle by dx turns the weights by this much.
template <class number>
CUDA_CALLABLE WP_FORCEINLINE void turn(
    const Mesh<number>& mesh, const number* slope, const array<number>& x_bar, int world, int p)
{
#pragma clang fp contract(fast)
    if (!x_bar.data) return;
    number* const turned = part(x_bar, world, p);
    turned[0] += slope[0] / mesh.dx, turned[1] += slope[1] / mesh.dx;
    if (!mesh.flat) turned[2] += slope[2] / mesh.dx;
}

}
}
