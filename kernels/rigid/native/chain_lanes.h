#pragma once
// Places on eight mechanisms side by side: what chain.py does for each of them.
#include "lanes.h"

#ifndef __CUDACC__
namespace fphys {
namespace {

template <class V> struct Vector {
    V x, y, z;
    Vector operator+(const Vector& o) const { return {x + o.x, y + o.y, z + o.z}; }
    Vector operator-(const Vector& o) const { return {x - o.x, y - o.y, z - o.z}; }
    Vector operator*(const V s) const { return {x * s, y * s, z * s}; }
};

template <class V> struct Turning {
    V w;
    Vector<V> u;
};

template <class V> Vector<V> cross(const Vector<V>& a, const Vector<V>& b)
{
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

template <class V> Vector<V> rotate(const Turning<V>& q, const Vector<V>& v)
{
    const Vector<V> once = cross(q.u, v), t = once + once;
    return v + t * q.w + cross(q.u, t);
}

template <class V> Turning<V> multiply(const Turning<V>& a, const Turning<V>& b)
{
    return {a.w * b.w - a.u.x * b.u.x - a.u.y * b.u.y - a.u.z * b.u.z, b.u * a.w + a.u * b.w + cross(a.u, b.u)};
}

template <class number> Turning<eight<number>> unit(number tiny, const Turning<eight<number>>& q)
{
    using lanes = eight<number>;
    const lanes none = number(0), all = number(1);
    const lanes n = q.w * q.w + q.u.x * q.u.x + q.u.y * q.u.y + q.u.z * q.u.z;
    const mask<lanes> some = n >= tiny;  // as quat_unit has it
    const lanes s = all / __builtin_elementwise_sqrt(some ? n : all);
    return {some ? q.w * s : all, q.u * (some ? s : none)};
}

template <class number> Turning<eight<number>> about(const Vector<eight<number>>& axis, const eight<number> angle)
{
    eight<number> s, c;
    for (int k = 0; k < 8; ++k) {
        const number half = number(0.5) * angle[k];
        s[k] = wp::sin(half), c[k] = wp::cos(half);
    }
    return {c, axis * s};
}

// poses and velocities in the worlds from `world` on
template <class number>
void places_of_eight(
    int world, int free, int ball, int slide, number tiny, const array<int>& link_parent, const array<int>& link_joint,
    const array<int>& joint_type, const array<int>& joint_qpos, const array<int>& joint_dof,
    const array<vec3<number>>& offset, const array<vec4<number>>& turn, const array<vec3<number>>& joint_pos,
    const array<vec3<number>>& joint_axis, const array<number>& qpos0, const array<number>& qpos,
    const array<number>& qvel, const array<vec3<number>>& link_pos_out, const array<vec4<number>>& link_quat_out,
    const array<vec3<number>>& link_linear_out, const array<vec3<number>>& link_angular_out,
    const array<vec3<number>>& pos_out, const array<vec4<number>>& quat_out, const array<vec3<number>>& linear_out,
    const array<vec3<number>>& angular_out)
{
    using lanes = eight<number>;
    using vector = Vector<lanes>;
    using turning = Turning<lanes>;
    const lanes none = number(0), all = number(1);
    const int links = link_parent.shape[0], inner = link_pos_out.shape[1];
    const Worlds worlds(qpos, world);
    auto entry = [&](auto& a, int i) -> lanes {
        if (!a.strides[0]) return all * ((const number*)a.data)[i];
        lanes v;
        for (int k = 0; k < 8; ++k) v[k] = ((const number*)part(a, worlds.at[k]))[i];
        return v;
    };
    auto three = [&](auto& a, int i) -> vector { return {entry(a, i), entry(a, i + 1), entry(a, i + 2)}; };
    auto four = [&](auto& a, int i) -> turning { return {entry(a, i), three(a, i + 1)}; };

    lanes* memory = (lanes*)__builtin_alloca_with_align(13 * links * sizeof(lanes), 8 * sizeof(lanes));
    vector* const pos = (vector*)memory;
    turning* const rot = (turning*)(memory + 3 * links);
    vector* const linear = (vector*)(memory + 7 * links);
    vector* const angular = (vector*)(memory + 10 * links);
    for (int f = 0; f < links; ++f) {
        const int p = link_parent.data[f], j = link_joint.data[f];
        vector x = three(offset, 3 * f), v = {none, none, none}, w = v;
        turning q = four(turn, 4 * f);
        if (p >= 0) {
            const vector arm = rotate(rot[p], x);
            x = pos[p] + arm;
            q = multiply(rot[p], q);
            w = angular[p];
            v = linear[p] + cross(w, arm);
        }
        if (j >= 0) {
            const int type = joint_type.data[j], a = joint_qpos.data[j], d = joint_dof.data[j];
            if (type == free) {
                x = three(qpos, a);
                q = unit(tiny, four(qpos, a + 3));
                v = three(qvel, d);
                w = rotate(q, three(qvel, d + 3));
            } else if (type == slide) {
                const vector axis = rotate(q, three(joint_axis, 3 * j));
                const vector shift = axis * (entry(qpos, a) - entry(qpos0, a));
                x = x + shift;
                v = v + cross(w, shift) + axis * entry(qvel, d);
            } else {
                const vector axis = three(joint_axis, 3 * j), held = three(joint_pos, 3 * j);
                const vector before = rotate(q, held);
                vector spin;
                if (type == ball) {
                    q = multiply(q, unit(tiny, four(qpos, a)));
                    spin = rotate(q, three(qvel, d));
                } else {
                    spin = rotate(q, axis * entry(qvel, d));
                    q = multiply(q, about<number>(axis, entry(qpos, a) - entry(qpos0, a)));
                }
                const vector after = rotate(q, held);
                x = x + before - after;
                v = v + cross(w, before - after) - cross(spin, after);
                w = w + spin;
            }
        }
        pos[f] = x, rot[f] = q, linear[f] = v, angular[f] = w;
    }
    auto put = [&](auto* from, auto& inner_out, auto& out) {
        const int numbers = sizeof(*from) / sizeof(lanes);
        store(worlds, (const lanes*)from, inner_out, numbers * inner);
        store(worlds, (const lanes*)(from + inner), out, numbers * (links - inner));
    };
    put(pos, link_pos_out, pos_out);
    put(rot, link_quat_out, quat_out);
    put(linear, link_linear_out, linear_out);
    put(angular, link_angular_out, angular_out);
}

}
}
#endif
