"""Places on eight mechanisms side by side (:mod:`lanes`): what :func:`chain.chain_places` does for each of them."""

import warp as wp

from .._precision import quat, real, vec3
from .lanes import native

_PLACES = """
    struct vector {
        lanes x, y, z;
        vector operator+(const vector& o) const { return {x + o.x, y + o.y, z + o.z}; }
        vector operator-(const vector& o) const { return {x - o.x, y - o.y, z - o.z}; }
        vector operator*(const lanes s) const { return {x * s, y * s, z * s}; }
    };
    struct turning { lanes w; vector u; };
    auto cross = [](const vector& a, const vector& b) -> vector {
        return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
    };
    auto rotate = [&](const turning& q, const vector& v) -> vector {
        const vector t = cross(q.u, v) * (all + all);
        return v + t * q.w + cross(q.u, t);
    };
    auto multiply = [&](const turning& a, const turning& b) -> turning {
        return {a.w * b.w - a.u.x * b.u.x - a.u.y * b.u.y - a.u.z * b.u.z, b.u * a.w + a.u * b.w + cross(a.u, b.u)};
    };
    auto unit = [&](const turning& q) -> turning {
        const lanes n = q.w * q.w + q.u.x * q.u.x + q.u.y * q.u.y + q.u.z * q.u.z;
        const mask some = n >= tiny;  // as quat_unit has it
        const lanes s = all / __builtin_elementwise_sqrt(some ? n : all);
        return {some ? q.w * s : all, q.u * (some ? s : none)};
    };
    auto about = [&](const vector& axis, const lanes angle) -> turning {
        lanes s, c;
        for (int k = 0; k < 8; ++k) {
            const number half = number(0.5) * angle[k];
            s[k] = wp::sin(half), c[k] = wp::cos(half);
        }
        return {c, axis * s};
    };

    const int links = link_parent.shape[0], inner = link_pos_out.shape[1];
    begin(qpos);
    auto entry = [&](auto& a, int i) -> lanes {
        if (!a.strides[0]) return all * ((const number*)a.data)[i];
        lanes v;
        for (int k = 0; k < 8; ++k) v[k] = ((const number*)row(a, at[k]))[i];
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
                q = unit(four(qpos, a + 3));
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
                    q = multiply(q, unit(four(qpos, a)));
                    spin = rotate(q, three(qvel, d));
                } else {
                    spin = rotate(q, axis * entry(qvel, d));
                    q = multiply(q, about(axis, entry(qpos, a) - entry(qpos0, a)));
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
        store((const lanes*)from, inner_out, numbers * inner);
        store((const lanes*)(from + inner), out, numbers * (links - inner));
    };
    put(pos, link_pos_out, pos_out);
    put(rot, link_quat_out, quat_out);
    put(linear, link_linear_out, linear_out);
    put(angular, link_angular_out, angular_out);
"""


@wp.func_native(
    "#ifdef __CUDACC__\n    return false;\n#else\n    return numbers * 8 * sizeof(tiny) <= 1 << 20;\n#endif\n"
)
def has_room(numbers: int, tiny: real) -> bool:  # type: ignore[empty-body]
    """Whether a processor's thread has room on its stack for so many numbers of eight worlds; never on a GPU."""


@wp.func
def side_by_side(numbers: int, tiny: real):
    """Whether eight worlds go together."""
    return has_room(numbers, tiny)


@wp.func_replay(side_by_side)
def one_by_one(numbers: int, tiny: real):
    """A backward pass goes through the general code, which has an adjoint."""
    return False


@wp.func_grad(side_by_side)
def no_slope_of_side_by_side(numbers: int, tiny: real, adj_ret: bool):
    """None."""


@wp.func_native(native(_PLACES))
def places_of_eight(
    world: int,
    free: int,
    ball: int,
    slide: int,
    tiny: real,
    link_parent: wp.array(dtype=int),
    link_joint: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    offset: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=quat),
    joint_pos: wp.array2d(dtype=vec3),
    joint_axis: wp.array2d(dtype=vec3),
    qpos0: wp.array2d(dtype=real),
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    link_pos_out: wp.array2d(dtype=vec3),
    link_quat_out: wp.array2d(dtype=quat),
    link_linear_out: wp.array2d(dtype=vec3),
    link_angular_out: wp.array2d(dtype=vec3),
    pos_out: wp.array2d(dtype=vec3),
    quat_out: wp.array2d(dtype=quat),
    linear_out: wp.array2d(dtype=vec3),
    angular_out: wp.array2d(dtype=vec3),
):  # type: ignore[empty-body]
    """Poses and velocities in the worlds from ``world`` on, eight of them or as many as there are."""
