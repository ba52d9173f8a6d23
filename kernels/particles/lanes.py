"""Eight fixed-corotated particles at once, with their adjoint by hand: what ``deform_one`` does with one.

On a processor the vector instructions take one number of each of eight particles, which stand in its lanes. What does
not go so, particles of another material, with faults, actuated or turned inside out, is left to the general code.
"""

import warp as wp

from .._precision import mat33, mat44, real, vec3
from ..vectors import EIGHT
from .stencil import BATCH

_LANES = (
    "{"
    + BATCH
    + """
    typedef decltype(dx + dx) number;
"""
    + EIGHT
    + """
    struct mat { lanes e[9]; };
    const number one = 1, two = 2;
    const lanes none = number(0);
    int at[8];
    for (int k = 0; k < 8; ++k) at[k] = first + (k < count ? k : count - 1);
    auto number_of = [&](auto& a, int each, int i) -> lanes {  // the i-th number of a particle's
        lanes v;
        for (int k = 0; k < 8; ++k) v[k] = ((const number*)row(a, at[k] * each))[i];
        return v;
    };
    auto matrix_of = [&](auto& a) -> mat {
        mat m;
        for (int k = 0; k < 8; ++k) m.e[k] = ((const packed*)row(a, at[k]))->v;
        flip(m.e);
        m.e[8] = number_of(a, 1, 8);
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
    const bool flat = nodes[2] == 1;
    const int dim = flat ? 2 : 3;
    const number h = *row(timestep, 0);
    lanes density, young, poisson;
    for (int k = 0; k < 8; ++k) {
        const number* const t = row(table, *row(material, at[k]));
        density[k] = t[0], young[k] = t[1], poisson[k] = t[2];
    }
    const lanes mu = young / (two * (one + poisson));
    const lanes lam = young * poisson / ((one + poisson) * (one - two * poisson));
    const mat c = matrix_of(rate), f0 = matrix_of(gradient), cf = times(c, f0);
    mat f;
    for (int i = 0; i < 9; ++i) f.e[i] = f0.e[i] + h * cf.e[i];
    const mat cof = cofactor(f);
    const lanes j = first_row(f, cof), volumes = number_of(volume, 1, 0), mass = density * volumes;
    const lanes per_stress = (number(4) * h / (dx * dx)) * volumes;
"""
)

_STRESS = """
    mat strain;
    for (int i = 0; i < 9; ++i) strain.e[i] = f.e[i] - r.e[i];
    mat tau = times(strain, turned(f));
    for (int i = 0; i < 9; ++i) tau.e[i] = two * mu * tau.e[i];
    for (int i = 0; i < 9; i += 4) tau.e[i] += lam * j * (j - one);
"""


@wp.func_native(
    """
#ifdef __CUDACC__
    return 255;
#else
    {
        const int n = x.shape[1], last = 8 * batch + 8 < n ? 8 * batch + 8 : n;
        bool found = false;
        for (int p = 8 * batch; p < last; ++p)
            found |= kind.data[wp::load(wp::address(material, world, p))] == corotated;
        left_out.data[world * left_out.shape[1] + batch] = 255;
        if (actuated || !found) return 255;
    }
"""
    + _LANES
    + """
    const number huge = number(1e20);
    lanes size = none, push = none, u[3] = {none, none, none};
    mask inside = size == size;
    for (int a = 0; a < dim; ++a) {
        const lanes place = number_of(x, 1, a), v_a = number_of(v, 1, a), f_a = number_of(force, each_force, a);
        const lanes y = (place - lower[a]) / dx + number(1.5);
        inside = inside & (y >= lanes(one)) & (y < lanes(number(nodes[a]) - two));
        size += place * place + v_a * v_a, push += f_a * f_a;
        u[a] = mass * v_a + h * f_a;
    }
    const lanes q = number_of(history, 1, 0);
    size += dot(c, c) + dot(f0, f0) + q * q;
    mask good = inside & (size < lanes(huge)) & (push < lanes(huge)) & (j > lanes(number(1e-6)));
    for (int k = 0; k < 8; ++k)
        if (k >= count || kind.data[*row(material, at[k])] != corotated) good[k] = 0;
    const mat r = rotation(f, good);
"""
    + _STRESS
    + """
    lanes rows[16] = {u[0], u[1], u[2], mass};
    for (int k = 0; k < dim; ++k)
        for (int i = 0; i < dim; ++i)
            rows[4 * k + 4 + i] = dx * (mass * c.e[3 * i + k] - per_stress * tau.e[3 * i + k]);
    const lanes f_8 = f.e[8];
    flip(rows), flip(rows + 8), flip(f.e);
    int left = 0;
    for (int k = 0; k < count; ++k) {
        if (!good[k]) {
            left |= 1 << k;
            continue;
        }
        packed* const to = (packed*)row(field_out, at[k]);
        to[0].v = rows[k], to[1].v = rows[8 + k];
        ((packed*)row(gradient_out, at[k]))->v = f.e[k];
        ((number*)row(gradient_out, at[k]))[8] = f_8[k];
        *row(history_out, at[k]) = q[k];
        *row(fault_out, at[k]) = 0;
    }
    left_out.data[world * left_out.shape[1] + batch] = left;
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
    field_out: wp.array2d(dtype=mat44),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
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
    mask good = none == none;
    for (int k = 0; k < 8; ++k)
        if (k >= count || (left >> k & 1)) good[k] = 0;
    const mat r = rotation(f, good);
"""
    + _STRESS
    + """
    lanes rows[16];
    for (int k = 0; k < 8; ++k) {
        const packed* const from = (const packed*)row(field_out_bar, at[k]);
        rows[k] = from[0].v, rows[8 + k] = from[1].v;
    }
    flip(rows), flip(rows + 8);
    mat slope_bar, tau_bar, f_bar;
    for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 3; ++k)
            slope_bar.e[3 * i + k] = i < dim && k < dim ? dx * rows[4 * k + 4 + i] : none;
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
        const mat add = matrix_of(gradient_out_bar);
        for (int i = 0; i < 9; ++i) f_bar.e[i] += add.e[i];
    }

    // F = (I + h C) F_0, and what is spread
    auto total = [&](const lanes v) -> number {
        number t = 0;
        for (int k = 0; k < 8; ++k) t += good[k] ? v[k] : number(0);
        return t;
    };
    auto add_to = [&](auto& a, int each, int i, const lanes v) {
        if (!a.data) return;
        for (int k = 0; k < count; ++k)
            if (good[k]) ((number*)row(a, at[k] * each))[i] += v[k];
    };
    auto add_matrix = [&](auto& a, const mat& given) {
        if (!a.data) return;
        mat m = given;
        const lanes m_8 = m.e[8];
        flip(m.e);
        for (int k = 0; k < count; ++k) {
            if (!good[k]) continue;
            ((packed*)row(a, at[k]))->v += m.e[k];
            ((number*)row(a, at[k]))[8] += m_8[k];
        }
    };
    lanes mass_bar = rows[3] + dot(c, slope_bar);
    lanes h_bar = dot(f_bar, cf) + per_stress_bar * (number(4) / (dx * dx)) * volumes;
    for (int a = 0; a < dim; ++a) {
        mass_bar += number_of(v, 1, a) * rows[a];
        h_bar += number_of(force, each_force, a) * rows[a];
        add_to(v_bar, 1, a, mass * rows[a]);
        add_to(force_bar, each_force, a, h * rows[a]);
    }
    mat by_rate = times(f_bar, turned(f0)), by_gradient = times(turned(c), f_bar);
    for (int i = 0; i < 9; ++i) {
        by_rate.e[i] = h * by_rate.e[i] + mass * slope_bar.e[i];
        by_gradient.e[i] = f_bar.e[i] + h * by_gradient.e[i];
    }
    add_matrix(rate_bar, by_rate), add_matrix(gradient_bar, by_gradient);
    if (history_out_bar.data) add_to(history_bar, 1, 0, number_of(history_out_bar, 1, 0));
    add_to(volume_bar, 1, 0, density * mass_bar + per_stress_bar * (number(4) * h / (dx * dx)));
    if (timestep_bar.data) *row(timestep_bar, 0) += total(h_bar);
    if (table_bar.data) {
        const lanes mu_bar = two * dot(tau_bar, times(strain, turned(f))), lam_bar = j * (j - one) * trace;
        const lanes a = one + poisson, b = one - two * poisson;
        const lanes by_young = mu_bar / (two * a) + lam_bar * poisson / (a * b);
        const lanes by_poisson = lam_bar * young * (one + two * poisson * poisson) / (a * a * b * b) - mu_bar * mu / a;
        const lanes by_density = volumes * mass_bar;
        for (int k = 0; k < count; ++k) {
            if (!good[k]) continue;
            number* const t = row(table_bar, *row(material, at[k]));
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
    half_the_digits: real,
    dx: real,
    nodes: wp.vec3i,
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    left_out: wp.array2d(dtype=int),
    gradient_out_bar: wp.array2d(dtype=mat33),
    history_out_bar: wp.array2d(dtype=real),
    field_out_bar: wp.array2d(dtype=mat44),
    table_bar: wp.array3d(dtype=real),
    timestep_bar: wp.array(dtype=real),
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
