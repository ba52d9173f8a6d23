"""Eight fixed-corotated particles at once, with their adjoint by hand: what ``deform_one`` does with one.

On a processor the vector instructions take one number of each of eight particles, which stand in its lanes. What does
not go so, particles of another material, with faults, actuated or turned inside out, is left to the general code.

The eight follow one another in memory. Where fewer than eight are left at the end, the last eight are taken, of which
those that the batch before has done are skipped.
"""

import warp as wp

from .._precision import mat33, real, vec3, vec4
from ..vectors import EIGHT
from .stencil import BATCH, MOMENTS, PARTICLES, PLACE, ROW, ROWS, SPREAD, TYPES

_LANES = (
    """{
#pragma clang fp contract(fast)
    typedef decltype(dx + dx) number;
"""
    + EIGHT
    + """
    struct mat { lanes e[9]; };
    const int first = 8 * batch + 8 <= x.shape[1] ? 8 * batch : x.shape[1] - 8, skipped = 8 * batch - first;
    const bool flat = nodes[2] == 1;
    const int dim = flat ? 2 : 3;
    const number one = 1, two = 2;
    const lanes none = number(0);
    auto numbers = [&](auto& a) -> number* { return (number*)((char*)a.data + world * a.strides[0]); };
    auto scalars_of = [&](auto& a) -> packed* { return (packed*)(numbers(a) + first); };
    auto points_of = [&](auto& a) -> packed* { return (packed*)(numbers(a) + dim * first); };
    auto get_points = [&](auto& a, int each, lanes* to) {
        to[2] = none;
        if (!each) {
            for (int i = 0; i < dim; ++i) to[i] = lanes(numbers(a)[i]);
            return;
        }
        const packed* const from = points_of(a);
        const lanes p = from[0].v, q = from[1].v;
        if (flat) {
            to[0] = __builtin_shufflevector(p, q, 0, 2, 4, 6, 8, 10, 12, 14);
            to[1] = __builtin_shufflevector(p, q, 1, 3, 5, 7, 9, 11, 13, 15);
            return;
        }
        const lanes r = from[2].v, a_0 = __builtin_shufflevector(p, q, 0, 3, 6, 9, 12, 15, -1, -1);
        const lanes a_1 = __builtin_shufflevector(p, q, 1, 4, 7, 10, 13, -1, -1, -1);
        const lanes a_2 = __builtin_shufflevector(p, q, 2, 5, 8, 11, 14, -1, -1, -1);
        to[0] = __builtin_shufflevector(a_0, r, 0, 1, 2, 3, 4, 5, 10, 13);
        to[1] = __builtin_shufflevector(a_1, r, 0, 1, 2, 3, 4, 8, 11, 14);
        to[2] = __builtin_shufflevector(a_2, r, 0, 1, 2, 3, 4, 9, 12, 15);
    };
    auto get_matrix = [&](auto& a) -> mat {
        mat m;
        const number* const from = numbers(a) + 9 * first;
        for (int k = 0; k < 8; ++k) m.e[k] = ((const packed*)(from + 9 * k))->v, m.e[8][k] = from[9 * k + 8];
        flip(m.e);
        return m;
    };
    auto times = [](const mat& a, const mat& b) -> mat {
        mat m;
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j)
                m.e[3 * i + j] = a.e[3 * i] * b.e[j] + a.e[3 * i + 1] * b.e[3 + j] + a.e[3 * i + 2] * b.e[6 + j];
        return m;
    };
    auto turned = [](const mat& a) -> mat {
        return {a.e[0], a.e[3], a.e[6], a.e[1], a.e[4], a.e[7], a.e[2], a.e[5], a.e[8]};
    };
    auto dot = [&](const mat& a, const mat& b) -> lanes {
        lanes s = none;
        for (int i = 0; i < 9; ++i) s += a.e[i] * b.e[i];
        return s;
    };
    auto cofactor = [](const mat& a) -> mat {
        mat c;
        for (int i = 0; i < 3; ++i) {
            const lanes* y = a.e + 3 * ((i + 1) % 3);
            const lanes* z = a.e + 3 * ((i + 2) % 3);
            for (int j = 0; j < 3; ++j)
                c.e[3 * i + j] = y[(j + 1) % 3] * z[(j + 2) % 3] - y[(j + 2) % 3] * z[(j + 1) % 3];
        }
        return c;
    };
    auto first_row = [](const mat& a, const mat& c) -> lanes {  // determinant, from the cofactors
        return a.e[0] * c.e[0] + a.e[1] * c.e[1] + a.e[2] * c.e[2];
    };
    auto rotation = [&](const mat& f, mask active) -> mat {  // Higham 1986; a lane that has converged stays
        mat r = f;
        for (int step = 0; step < 24 && any(active); ++step) {
            const mat c = cofactor(r);
            const lanes scale = number(0.5) / first_row(r, c);
            lanes moved = none;
            for (int i = 0; i < 9; ++i) {
                const lanes y = number(0.5) * r.e[i] + c.e[i] * scale, e = y - r.e[i];
                moved += e * e;
                r.e[i] = active ? y : r.e[i];
            }
            active = active & (moved >= lanes(half_the_digits));
        }
        return r;
    };
    const number h = *numbers(timestep);
    const int* const kinds = (const int*)((const char*)material.data + world * material.strides[0]) + first;
    bool same = true;
    for (int k = 1; k < 8; ++k) same &= kinds[k] == kinds[0];
    lanes density, young, poisson;
    mask good;
    for (int k = 0; k < (same ? 1 : 8); ++k) {
        const number* const t = numbers(table) + kinds[k] * table.shape[2];
        density[k] = t[0], young[k] = t[1], poisson[k] = t[2];
        good[k] = -(kind.data[kinds[k]] == corotated);
    }
    if (same) {
        density = lanes(density[0]), young = lanes(young[0]), poisson = lanes(poisson[0]);
        for (int k = 1; k < 8; ++k) good[k] = good[0];
    }
    for (int k = 0; k < skipped; ++k) good[k] = 0;
"""
)

_TRIAL = """
    const lanes mu = young / (two * (one + poisson));
    const lanes lam = young * poisson / ((one + poisson) * (one - two * poisson));
    const mat c = get_matrix(rate), f0 = get_matrix(gradient), cf = times(c, f0);
    mat f;
    for (int i = 0; i < 9; ++i) f.e[i] = f0.e[i] + h * cf.e[i];
    const mat cof = cofactor(f);
    const lanes j = first_row(f, cof), volumes = scalars_of(volume)->v, mass = density * volumes;
    const lanes per_stress = (number(4) * h / (dx * dx)) * volumes;
    lanes velocities[3], pushes[3];
    get_points(v, 1, velocities), get_points(force, each_force, pushes);
"""

_STRESS = """
    mat strain;
    for (int i = 0; i < 9; ++i) strain.e[i] = f.e[i] - r.e[i];
    mat tau = times(strain, turned(f));
    for (int i = 0; i < 9; ++i) tau.e[i] = two * mu * tau.e[i];
    for (int i = 0; i < 9; i += 4) tau.e[i] += lam * j * (j - one);
"""


_FIELDS = (
    """
    lanes fields[16] = {none, none, none, mass};
    for (int k = 0; k < dim; ++k) {
        fields[k] = mass * velocities[k] + h * pushes[k];
        for (int i = 0; i < dim; ++i)
            fields[4 * k + 4 + i] = dx * (mass * c.e[3 * i + k] - per_stress * tau.e[3 * i + k]);
    }
    flip(fields), flip(fields + 8);
    {
        const int count = 8, stride = 1;
"""
    + ROW
    + TYPES
    + PARTICLES
    + """
            if (!good[k]) continue;
"""
    + PLACE
    + """
            const four rows[4] = {fields[k].lo, fields[k].hi, fields[8 + k].lo, fields[8 + k].hi};
"""
    + ROWS
)
"""What each of them spreads, one after another."""


@wp.func_native(
    """
#ifdef __CUDACC__
    return 255;
#else
    int& left = left_out.data[world * left_out.shape[1] + batch];
    left = 255;
    if (actuated || x.shape[1] < 8) return 255;
"""
    + _LANES
    + """
    if (!any(good)) return 255;
"""
    + _TRIAL
    + """
    const number huge = number(1e20);
    lanes size = none, push = none, places[3];
    get_points(x, 1, places);
    for (int a = 0; a < dim; ++a) {
        const lanes y = (places[a] - lower[a]) / dx + number(1.5);
        good = good & (y >= lanes(one)) & (y < lanes(number(nodes[a]) - two));
        size += places[a] * places[a] + velocities[a] * velocities[a], push += pushes[a] * pushes[a];
    }
    const lanes q = scalars_of(history)->v;
    size += dot(c, c) + dot(f0, f0) + q * q;
    good = good & (size < lanes(huge)) & (push < lanes(huge)) & (j > lanes(number(1e-6)));
    const mat r = rotation(f, good);
"""
    + _STRESS
    + """
    const lanes f_8 = f.e[8];
    flip(f.e);
    number* const gradients = numbers(gradient_out) + 9 * first;
    number* const histories = numbers(history_out) + first;
    int* const faults = (int*)((char*)fault_out.data + world * fault_out.strides[0]) + first;
    left = 0;
    for (int k = skipped; k < 8; ++k) {
        if (!good[k]) {
            left |= 1 << (k - skipped);
            continue;
        }
        ((packed*)(gradients + 9 * k))->v = f.e[k];
        gradients[9 * k + 8] = f_8[k], histories[k] = q[k], faults[k] = 0;
    }
"""
    + _FIELDS
    + """
            four* const to = (four*)row(grid_out, first_node);
"""
    + SPREAD
    + """
        }
    }
    return left;
}
#endif
"""
)
def deform_lanes(
    world: int,
    batch: int,
    corotated: int,
    half_the_digits: real,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
    grid_out: wp.array2d(dtype=vec4),
) -> int:
    """Which of eight particles, as bits, are left to the general code; the others are done."""


@wp.func_native(
    """
#ifndef __CUDACC__
    const int left = left_out.data[world * left_out.shape[1] + batch];
    if (left == 255) return;
"""
    + _LANES
    + """
    for (int k = skipped; k < 8; ++k)
        if (left >> (k - skipped) & 1) good[k] = 0;
"""
    + _TRIAL
    + """
    const mat r = rotation(f, good);
"""
    + _STRESS
    + """
    lanes bars[16] = {};
"""
    + _FIELDS
    + """
            const four* const from = (const four*)row(grid_out_bar, first_node);
"""
    + MOMENTS
    + """
            bars[k] = pair(total, moment_1), bars[8 + k] = pair(moment_2, moment_3);
            if (!x_bar.data) continue;
            number* const turned = row(x_bar, p);
            turned[0] += slope[0] / dx, turned[1] += slope[1] / dx;
            if (!flat) turned[2] += slope[2] / dx;
        }
    }
    flip(bars), flip(bars + 8);
    mat slope_bar, tau_bar, f_bar;
    for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 3; ++k)
            slope_bar.e[3 * i + k] = i < dim && k < dim ? dx * bars[4 * k + 4 + i] : none;
    for (int i = 0; i < 9; ++i) tau_bar.e[i] = -per_stress * slope_bar.e[i];
    const lanes per_stress_bar = -dot(tau, slope_bar), trace = tau_bar.e[0] + tau_bar.e[4] + tau_bar.e[8];

    // tau
    const mat pulled = times(tau_bar, f), turn = times(turned(r), pulled), other = times(turned(tau_bar), strain);
    const mat stretch = times(turned(r), f);
    mat s, g;
    for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 3; ++k) s.e[3 * i + k] = number(0.5) * (stretch.e[3 * i + k] + stretch.e[3 * k + i]);
    for (int i = 0; i < 9; ++i) g.e[i] = (i % 4 ? none : s.e[0] + s.e[4] + s.e[8]) - s.e[i];
    const mat minors = cofactor(g);
    const lanes size = dot(s, s), det = first_row(g, minors);
    const mask sound = (det * det > number(1e-18) * size * size * size) & good;
    const lanes inverse = one / (sound ? det : lanes(one));
    const lanes axial[3] = {turn.e[7] - turn.e[5], turn.e[2] - turn.e[6], turn.e[3] - turn.e[1]};
    lanes w[3];
    for (int i = 0; i < 3; ++i) {
        const lanes* m = minors.e + 3 * i;
        w[i] = sound ? inverse * (m[0] * axial[0] + m[1] * axial[1] + m[2] * axial[2]) : none;
    }
    const mat spin = times(r, mat{none, -w[2], w[1], w[2], none, -w[0], -w[1], w[0], none});
    const lanes by_volume = lam * (two * j - one) * trace;
    for (int i = 0; i < 9; ++i)
        f_bar.e[i] = two * mu * (pulled.e[i] + other.e[i] - spin.e[i]) + by_volume * cof.e[i];
    if (gradient_out_bar.data) {
        const mat add = get_matrix(gradient_out_bar);
        for (int i = 0; i < 9; ++i) f_bar.e[i] += add.e[i];
    }

    // F = (I + h C) F_0, and what is spread
    auto total = [&](const lanes v) -> number {
        number t = 0;
        for (int k = 0; k < 8; ++k) t += good[k] ? v[k] : number(0);
        return t;
    };
    auto add = [&](packed* to, const lanes v) { to->v += v; };
    auto add_scalars = [&](auto& a, const lanes v) {
        if (a.data) add(scalars_of(a), good ? v : none);
    };
    auto add_points = [&](auto& a, int each, const lanes* given) {
        if (!a.data) return;
        if (!each) {
            for (int i = 0; i < dim; ++i) numbers(a)[i] += total(given[i]);
            return;
        }
        const lanes p = good ? given[0] : none, q = good ? given[1] : none, r = good ? given[2] : none;
        packed* const to = points_of(a);
        if (flat) {
            add(to, __builtin_shufflevector(p, q, 0, 8, 1, 9, 2, 10, 3, 11));
            add(to + 1, __builtin_shufflevector(p, q, 4, 12, 5, 13, 6, 14, 7, 15));
            return;
        }
        const lanes a_0 = __builtin_shufflevector(p, q, 0, 8, -1, 1, 9, -1, 2, 10);
        const lanes a_1 = __builtin_shufflevector(p, q, -1, 3, 11, -1, 4, 12, -1, 5);
        const lanes a_2 = __builtin_shufflevector(p, q, 13, -1, 6, 14, -1, 7, 15, -1);
        add(to, __builtin_shufflevector(a_0, r, 0, 1, 8, 3, 4, 9, 6, 7));
        add(to + 1, __builtin_shufflevector(a_1, r, 10, 1, 2, 11, 4, 5, 12, 7));
        add(to + 2, __builtin_shufflevector(a_2, r, 0, 13, 2, 3, 14, 5, 6, 15));
    };
    auto add_matrix = [&](auto& a, const mat& given) {
        if (!a.data) return;
        mat m;
        for (int i = 0; i < 9; ++i) m.e[i] = good ? given.e[i] : none;
        flip(m.e);
        number* const to = numbers(a) + 9 * first;
        for (int k = 0; k < 8; ++k) add((packed*)(to + 9 * k), m.e[k]), to[9 * k + 8] += m.e[8][k];
    };
    lanes by_velocity[3] = {none, none, none}, by_push[3] = {none, none, none};
    lanes mass_bar = bars[3] + dot(c, slope_bar);
    lanes h_bar = dot(f_bar, cf) + per_stress_bar * (number(4) / (dx * dx)) * volumes;
    for (int a = 0; a < dim; ++a) {
        mass_bar += velocities[a] * bars[a], h_bar += pushes[a] * bars[a];
        by_velocity[a] = mass * bars[a], by_push[a] = h * bars[a];
    }
    add_points(v_bar, 1, by_velocity), add_points(force_bar, each_force, by_push);
    mat by_rate = times(f_bar, turned(f0)), by_gradient = times(turned(c), f_bar);
    for (int i = 0; i < 9; ++i) {
        by_rate.e[i] = h * by_rate.e[i] + mass * slope_bar.e[i];
        by_gradient.e[i] = f_bar.e[i] + h * by_gradient.e[i];
    }
    add_matrix(rate_bar, by_rate), add_matrix(gradient_bar, by_gradient);
    if (history_out_bar.data) add_scalars(history_bar, scalars_of(history_out_bar)->v);
    add_scalars(volume_bar, density * mass_bar + per_stress_bar * (number(4) * h / (dx * dx)));
    if (timestep_bar.data) *numbers(timestep_bar) += total(h_bar);
    if (table_bar.data) {
        const lanes mu_bar = two * dot(tau_bar, times(strain, turned(f))), lam_bar = j * (j - one) * trace;
        const lanes a = one + poisson, b = one - two * poisson;
        const lanes by_young = mu_bar / (two * a) + lam_bar * poisson / (a * b);
        const lanes by_poisson = lam_bar * young * (one + two * poisson * poisson) / (a * a * b * b) - mu_bar * mu / a;
        const lanes by_density = volumes * mass_bar;
        for (int k = 0; k < 8; ++k) {
            if (!good[k]) continue;
            number* const t = numbers(table_bar) + kinds[k] * table.shape[2];
            t[0] += by_density[k], t[1] += by_young[k], t[2] += by_poisson[k];
        }
    }
}
#endif
"""
)
def pull_lanes(
    world: int,
    batch: int,
    corotated: int,
    half_the_digits: real,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuated: int,
    left_out: wp.array2d(dtype=int),
    gradient_out_bar: wp.array2d(dtype=mat33),
    history_out_bar: wp.array2d(dtype=real),
    grid_out_bar: wp.array2d(dtype=vec4),
    table_bar: wp.array3d(dtype=real),
    timestep_bar: wp.array(dtype=real),
    x_bar: wp.array3d(dtype=real),
    v_bar: wp.array3d(dtype=real),
    rate_bar: wp.array2d(dtype=mat33),
    gradient_bar: wp.array2d(dtype=mat33),
    history_bar: wp.array2d(dtype=real),
    volume_bar: wp.array2d(dtype=real),
    force_bar: wp.array3d(dtype=real),
):
    """The adjoint of the eight particles that were done at once: materials.adj_corotated says how."""


@wp.func_native(
    BATCH
    + """
    return k < count ? first + k * stride : -1;
"""
)
def member(batch: int, k: int, x: wp.array3d(dtype=real), world: int) -> int:
    """The k-th particle of a batch; -1 where it has not so many."""
