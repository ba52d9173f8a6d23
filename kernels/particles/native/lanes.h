#pragma once
// Eight fixed-corotated particles at once, with their adjoint by hand: what `deform_one` does with one.
//
// The eight follow one another in memory. Where fewer than eight are left at the end, the last eight are taken, of
// which those that the batch before has done are skipped.
#include "../../native/elastic.h"
#include "stencil.h"

#ifndef __CUDACC__
namespace fphys {
namespace {

// Eight particles in memory, and which of them are meant. A loop over `dim` axes has a bound that the compiler knows,
// for only what is indexed by known numbers stays in registers.
template <class number> struct Lanes {
    using lanes = eight<number>;
    const int world, first, skipped, dim;
    mask<lanes> good;

    Lanes(int world, int batch, int count, bool flat)
        : world(world), first(8 * batch + 8 <= count ? 8 * batch : count - 8), skipped(8 * batch - first),
          dim(flat ? 2 : 3)
    {
    }

    template <class T> number* numbers(const array<T>& a) const { return (number*)part(a, world); }
    Packed<number>* scalars(const array<number>& a) const { return packed(numbers(a) + first); }
    Packed<number>* points(const array<number>& a) const { return packed(numbers(a) + dim * first); }

    WP_FORCEINLINE void get_points(const array<number>& a, int each, lanes* to) const
    {
        to[2] = number(0);
        if (!each) {
            for (int i = 0; i < 3 && i < dim; ++i) to[i] = lanes(numbers(a)[i]);
            return;
        }
        const Packed<number>* const from = points(a);
        const lanes p = from[0].v, q = from[1].v;
        if (dim == 2) {
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
    }

    WP_FORCEINLINE Matrix<lanes> get_matrix(const array<mat33<number>>& a) const
    {
        Matrix<lanes> m;
        const number* const from = numbers(a) + 9 * first;
        for (int k = 0; k < 8; ++k) m.e[k] = packed(from + 9 * k)->v, m.e[8][k] = from[9 * k + 8];
        flip<number>(m.e);
        return m;
    }

    WP_FORCEINLINE number total(const lanes v) const
    {
        number t = 0;
        for (int k = 0; k < 8; ++k) t += good[k] ? v[k] : number(0);
        return t;
    }
    WP_FORCEINLINE void add_scalars(const array<number>& a, const lanes v) const
    {
#pragma clang fp contract(fast)
        if (a.data) scalars(a)->v += good ? v : lanes(number(0));
    }
    WP_FORCEINLINE void add_points(const array<number>& a, int each, const lanes* given) const
    {
#pragma clang fp contract(fast)
        if (!a.data) return;
        if (!each) {
            for (int i = 0; i < 3 && i < dim; ++i) numbers(a)[i] += total(given[i]);
            return;
        }
        const lanes none = number(0);
        const lanes p = good ? given[0] : none, q = good ? given[1] : none, r = good ? given[2] : none;
        Packed<number>* const to = points(a);
        if (dim == 2) {
            to[0].v += __builtin_shufflevector(p, q, 0, 8, 1, 9, 2, 10, 3, 11);
            to[1].v += __builtin_shufflevector(p, q, 4, 12, 5, 13, 6, 14, 7, 15);
            return;
        }
        const lanes a_0 = __builtin_shufflevector(p, q, 0, 8, -1, 1, 9, -1, 2, 10);
        const lanes a_1 = __builtin_shufflevector(p, q, -1, 3, 11, -1, 4, 12, -1, 5);
        const lanes a_2 = __builtin_shufflevector(p, q, 13, -1, 6, 14, -1, 7, 15, -1);
        to[0].v += __builtin_shufflevector(a_0, r, 0, 1, 8, 3, 4, 9, 6, 7);
        to[1].v += __builtin_shufflevector(a_1, r, 10, 1, 2, 11, 4, 5, 12, 7);
        to[2].v += __builtin_shufflevector(a_2, r, 0, 13, 2, 3, 14, 5, 6, 15);
    }
    WP_FORCEINLINE void add_matrix(const array<mat33<number>>& a, const Matrix<lanes>& given) const
    {
#pragma clang fp contract(fast)
        if (!a.data) return;
        Matrix<lanes> m;
        for (int i = 0; i < 9; ++i) m.e[i] = good ? given.e[i] : lanes(number(0));
        flip<number>(m.e);
        number* const to = numbers(a) + 9 * first;
        for (int k = 0; k < 8; ++k) packed(to + 9 * k)->v += m.e[k], to[9 * k + 8] += m.e[8][k];
    }
};

// What their materials are; `good` become those that are corotated.
template <class number> struct Materials {
    eight<number> density, young, poisson, mu, lam;
    const int* kinds;
    const int own_row;  // of the first particle, where each has its own numbers; else negative

    WP_FORCEINLINE Materials(
        Lanes<number>& own, int corotated, const array<int>& kind, const array<number>& table,
        const array<int>& material)
        : own_row(table.shape[1] > kind.shape[0] ? kind.shape[0] + own.first : -1)
    {
#pragma clang fp contract(fast)
        using lanes = eight<number>;
        const number one = 1, two = 2;
        kinds = part(material, own.world) + own.first;
        bool same = own_row < 0;
        for (int k = 1; k < 8; ++k) same &= kinds[k] == kinds[0];
        for (int k = 0; k < (same ? 1 : 8); ++k) {
            const number* const t = own.numbers(table) + row(k) * table.shape[2];
            density[k] = t[0], young[k] = t[1], poisson[k] = t[2];
            own.good[k] = -(kind.data[kinds[k]] == corotated);
        }
        if (same) {
            density = lanes(density[0]), young = lanes(young[0]), poisson = lanes(poisson[0]);
            for (int k = 1; k < 8; ++k) own.good[k] = own.good[0];
        }
        for (int k = 0; k < own.skipped; ++k) own.good[k] = 0;
        mu = young / (two * (one + poisson));
        lam = young * poisson / ((one + poisson) * (one - two * poisson));
    }
    int row(int k) const { return own_row < 0 ? kinds[k] : own_row + k; }
};

// How they deform, and what they spread.
template <class number> struct Deformed {
    using lanes = eight<number>;
    Matrix<lanes> c, f0, cf, f, cof;
    lanes j, volumes, mass, per_stress, velocities[3], pushes[3];

    WP_FORCEINLINE Deformed(
        const Lanes<number>& own, const Materials<number>& of, number h, number dx, const array<number>& v,
        const array<mat33<number>>& rate, const array<mat33<number>>& gradient, const array<number>& volume,
        const array<number>& force, int each_force)
    {
#pragma clang fp contract(fast)
        c = own.get_matrix(rate), f0 = own.get_matrix(gradient), cf = times(c, f0);
        for (int i = 0; i < 9; ++i) f.e[i] = f0.e[i] + h * cf.e[i];
        cof = cofactor(f);
        j = determinant(f, cof), volumes = own.scalars(volume)->v, mass = of.density * volumes;
        per_stress = (number(4) * h / (dx * dx)) * volumes;
        own.get_points(v, 1, velocities), own.get_points(force, each_force, pushes);
    }

    // four numbers for each row of the affine field, of two particles in a vector
    WP_FORCEINLINE void fields(const Lanes<number>& own, number h, number dx, const Matrix<lanes>& tau, lanes* to) const
    {
#pragma clang fp contract(fast)
        for (int i = 0; i < 16; ++i) to[i] = number(0);
        to[3] = mass;
        for (int k = 0; k < 3 && k < own.dim; ++k) {
            to[k] = mass * velocities[k] + h * pushes[k];
            for (int i = 0; i < 3 && i < own.dim; ++i)
                to[4 * k + 4 + i] = dx * (mass * c.e[3 * i + k] - per_stress * tau.e[3 * i + k]);
        }
        flip<number>(to), flip<number>(to + 8);
    }
};

// one after another, with the field that each of them spreads
template <class number, class Act>
WP_FORCEINLINE void one_by_one(
    const Lanes<number>& own, const Mesh<number>& mesh, const array<number>& x, const eight<number>* fields, Act act)
{
    const Batch batch = {own.first, 1, 8};
    Places<number> places;
    places.locate(mesh, x, own.world, batch, 0);
    const mask<eight<number>> good = own.good;
    for (int k = 0; k < 8; ++k) {
        if (!good[k]) continue;
        const Site<number> site(places, k);
        const four<number> rows[4] = {fields[k].lo, fields[k].hi, fields[8 + k].lo, fields[8 + k].hi};
        act(k, site, Field<number>(mesh, site, rows));
    }
}

// which of eight particles, as bits, are left to the general code; the others are done
template <class number>
int deform_lanes(
    int world, int batch, int corotated, number half_the_digits, const vec3<number>& lower, number dx,
    const vec3i& nodes, const array<int>& kind, const array<number>& table, const array<number>& timestep,
    const array<number>& x, const array<number>& v, const array<int>& material, const array<mat33<number>>& rate,
    const array<mat33<number>>& gradient, const array<number>& history, const array<number>& volume,
    const array<number>& force, int each_force, int actuated, const array<mat33<number>>& gradient_out,
    const array<number>& history_out, const array<int>& fault_out, const array<int>& left_out,
    const array<vec4<number>>& grid_out)
{
#pragma clang fp contract(fast)
    using lanes = eight<number>;
    int& left = left_out.data[world * left_out.shape[1] + batch];
    left = 255;
    if (actuated || x.shape[1] < 8) return 255;
    const Mesh<number> mesh(lower, dx, nodes);
    Lanes<number> own(world, batch, x.shape[1], mesh.flat);
    const Materials<number> of(own, corotated, kind, table, material);
    if (!any(own.good)) return 255;
    const number h = *part(timestep, world), one = 1, two = 2, huge = number(1e20);
    const Deformed<number> now(own, of, h, dx, v, rate, gradient, volume, force, each_force);
    lanes size = number(0), push = number(0), places[3];
    own.get_points(x, 1, places);
    for (int a = 0; a < 3 && a < own.dim; ++a) {
        const lanes y = (places[a] - lower[a]) / dx + number(1.5);
        own.good = own.good & (y >= lanes(one)) & (y < lanes(number(nodes[a]) - two));
        size += places[a] * places[a] + now.velocities[a] * now.velocities[a], push += now.pushes[a] * now.pushes[a];
    }
    const lanes q = own.scalars(history)->v;
    size += dot(now.c, now.c) + dot(now.f0, now.f0) + q * q;
    own.good = own.good & (size < lanes(huge)) & (push < lanes(huge)) & (now.j > lanes(number(1e-6)));
    const Matrix<lanes> r = rotation(now.f, own.good, half_the_digits);
    const Matrix<lanes> tau = fphys::corotated(now.f, r, now.j, of.mu, of.lam);
    Matrix<lanes> stored = now.f;
    const lanes f_8 = stored.e[8];
    flip<number>(stored.e);
    number* const gradients = own.numbers(gradient_out) + 9 * own.first;
    number* const histories = own.numbers(history_out) + own.first;
    int* const faults = part(fault_out, world) + own.first;
    left = 0;
    const mask<lanes> good = own.good;
    for (int k = own.skipped; k < 8; ++k) {
        if (!good[k]) {
            left |= 1 << (k - own.skipped);
            continue;
        }
        packed(gradients + 9 * k)->v = stored.e[k];
        gradients[9 * k + 8] = f_8[k], histories[k] = q[k], faults[k] = 0;
    }
    lanes fields[16];
    now.fields(own, h, dx, tau, fields);
    one_by_one(own, mesh, x, fields, [&](int, const Site<number>& site, const Field<number>& field) {
        spread(mesh, site, field, (four<number>*)part(grid_out, world, site.first_node));
    });
    return left;
}

// the adjoint of the eight particles that were done at once
template <class number>
void pull_lanes(
    int world, int batch, int corotated, number half_the_digits, const vec3<number>& lower, number dx,
    const vec3i& nodes, const array<int>& kind, const array<number>& table, const array<number>& timestep,
    const array<number>& x, const array<number>& v, const array<int>& material, const array<mat33<number>>& rate,
    const array<mat33<number>>& gradient, const array<number>&, const array<number>& volume, const array<number>& force,
    int each_force, int, const array<int>& left_out, const array<mat33<number>>& gradient_out_bar,
    const array<number>& history_out_bar, const array<vec4<number>>& grid_out_bar, const array<number>& table_bar,
    const array<number>& timestep_bar, const array<number>& x_bar, const array<number>& v_bar,
    const array<mat33<number>>& rate_bar, const array<mat33<number>>& gradient_bar, const array<number>& history_bar,
    const array<number>& volume_bar, const array<number>& force_bar)
{
#pragma clang fp contract(fast)
    using lanes = eight<number>;
    const int left = left_out.data[world * left_out.shape[1] + batch];
    if (left == 255) return;
    const Mesh<number> mesh(lower, dx, nodes);
    Lanes<number> own(world, batch, x.shape[1], mesh.flat);
    const Materials<number> of(own, corotated, kind, table, material);
    for (int k = own.skipped; k < 8; ++k)
        if (left >> (k - own.skipped) & 1) own.good[k] = 0;
    const int dim = own.dim;
    const number h = *part(timestep, world), one = 1, two = 2;
    const lanes none = number(0);
    const Deformed<number> now(own, of, h, dx, v, rate, gradient, volume, force, each_force);
    const Matrix<lanes> r = rotation(now.f, own.good, half_the_digits);
    const Matrix<lanes> tau = fphys::corotated(now.f, r, now.j, of.mu, of.lam);
    lanes fields[16], bars[16] = {};
    now.fields(own, h, dx, tau, fields);
    one_by_one(own, mesh, x, fields, [&](int k, const Site<number>& site, const Field<number>& field) {
        number slope[3];
        const four<number>* const from = (const four<number>*)part(grid_out_bar, world, site.first_node);
        const Moments<number> found = collect(mesh, site, field, from, slope);
        bars[k] = pair<number>(found.total, found.moment_1), bars[8 + k] = pair<number>(found.moment_2, found.moment_3);
        turn(mesh, slope, x_bar, world, own.first + k);
    });
    flip<number>(bars), flip<number>(bars + 8);
    Matrix<lanes> slope_bar, tau_bar;
    for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 3; ++k)
            slope_bar.e[3 * i + k] = i < dim && k < dim ? dx * bars[4 * k + 4 + i] : none;
    for (int i = 0; i < 9; ++i) tau_bar.e[i] = -now.per_stress * slope_bar.e[i];
    const lanes per_stress_bar = -dot(tau, slope_bar);
    Matrix<lanes> f_bar = pull_corotated(now.f, r, now.cof, now.j, of.mu, of.lam, own.good, tau_bar);
    if (gradient_out_bar.data) {
        const Matrix<lanes> more = own.get_matrix(gradient_out_bar);
        for (int i = 0; i < 9; ++i) f_bar.e[i] += more.e[i];
    }

    // F = (I + h C) F_0, and what is spread
    lanes by_velocity[3] = {none, none, none}, by_push[3] = {none, none, none};
    lanes mass_bar = bars[3] + dot(now.c, slope_bar);
    lanes h_bar = dot(f_bar, now.cf) + per_stress_bar * (number(4) / (dx * dx)) * now.volumes;
    for (int a = 0; a < 3 && a < dim; ++a) {
        mass_bar += now.velocities[a] * bars[a], h_bar += now.pushes[a] * bars[a];
        by_velocity[a] = now.mass * bars[a], by_push[a] = h * bars[a];
    }
    own.add_points(v_bar, 1, by_velocity), own.add_points(force_bar, each_force, by_push);
    Matrix<lanes> by_rate = times(f_bar, turned(now.f0)), by_gradient = times(turned(now.c), f_bar);
    for (int i = 0; i < 9; ++i) {
        by_rate.e[i] = h * by_rate.e[i] + now.mass * slope_bar.e[i];
        by_gradient.e[i] = f_bar.e[i] + h * by_gradient.e[i];
    }
    own.add_matrix(rate_bar, by_rate), own.add_matrix(gradient_bar, by_gradient);
    if (history_out_bar.data) own.add_scalars(history_bar, own.scalars(history_out_bar)->v);
    own.add_scalars(volume_bar, of.density * mass_bar + per_stress_bar * (number(4) * h / (dx * dx)));
    if (timestep_bar.data) *own.numbers(timestep_bar) += own.total(h_bar);
    if (table_bar.data) {
        lanes mu_bar, lam_bar;
        pull_moduli(now.f, r, now.j, tau_bar, mu_bar, lam_bar);
        const lanes poisson = of.poisson, a = one + poisson, b = one - two * poisson;
        const lanes by_young = mu_bar / (two * a) + lam_bar * poisson / (a * b);
        const lanes by_poisson =
            lam_bar * of.young * (one + two * poisson * poisson) / (a * a * b * b) - mu_bar * of.mu / a;
        const lanes by_density = now.volumes * mass_bar;
        const mask<lanes> good = own.good;
        for (int k = 0; k < 8; ++k) {
            if (!good[k]) continue;
            number* const t = own.numbers(table_bar) + of.row(k) * table.shape[2];
            t[0] += by_density[k], t[1] += by_young[k], t[2] += by_poisson[k];
        }
    }
}

}
}
#endif
