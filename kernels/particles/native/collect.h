#pragma once
// From nodes to particles: how a batch of particles moves, and its adjoint by hand.
#include "stencil.h"

namespace fphys {
namespace {

// v = sum(w v_i), C = 4 / dx^2 sum(w v_i (x_i - x)^T), x + h v, of eight particles. In a plane C is 2 x 2.
template <class number>
CUDA_CALLABLE void collect_batch(
    int world, int batch, const vec3<number>& lower, number dx, const vec3i& nodes, const array<number>& timestep,
    int too_far, int nonfinite, int inverted, const array<number>& x, const array<number>& v,
    const array<mat33<number>>& rate, const array<int>& fault, const array<vec4<number>>& grid,
    const array<number>& x_out, const array<number>& v_out, const array<mat33<number>>& rate_out,
    const array<int>& fault_out)
{
#pragma clang fp contract(fast)
    const Mesh<number> mesh(lower, dx, nodes);
    const Batch own = batch_of(batch, x.shape[1]);
    const bool flat = mesh.flat;
    const number h = *part(timestep, world), one = 1, z = flat ? 0 : 1;
    Places<number> places;
    for (int k = 0; k < own.count; ++k) {
        const int p = own.first + k * own.stride;
        if (k % WIDE == 0) places.locate(mesh, x, world, own, k);
        const number* const at = part(x, world, p);
        number* const x_to = part(x_out, world, p);
        number* const v_to = part(v_out, world, p);
        number* const rate_to = (number*)part(rate_out, world, p);
        const int bits = *part(fault, world, p);
        if (bits & ~inverted) {
            for (int a = 0; a < (flat ? 2 : 3); ++a) x_to[a] = at[a], v_to[a] = part(v, world, p)[a];
            for (int a = 0; a < 9; ++a) rate_to[a] = ((const number*)part(rate, world, p))[a];
            *part(fault_out, world, p) = bits;
            continue;
        }
        const Site<number> site(places, k);
        const Moments<number> found = collect(mesh, site, (const four<number>*)part(grid, world, site.first_node));
        const four<number> way = h * found.total;
        x_to[0] = at[0] + way[0], x_to[1] = at[1] + way[1];
        v_to[0] = found.total[0], v_to[1] = found.total[1];
        if (!flat) x_to[2] = at[2] + way[2], v_to[2] = found.total[2];
        bool near = true;  // false for NaN, too
        for (int a = 0; a < 3; ++a) {
            near = near && way[a] <= dx && -way[a] <= dx;
            const number scale = number(4) / dx * (a == 2 ? z : one);
            rate_to[3 * a] = scale * found.moment_1[a], rate_to[3 * a + 1] = scale * found.moment_2[a];
            rate_to[3 * a + 2] = scale * found.moment_3[a];
        }
        const bool lost = !(way[0] * way[0] + way[1] * way[1] + way[2] * way[2] < number(1e20));
        *part(fault_out, world, p) = bits | (near ? 0 : lost ? nonfinite : too_far);
    }
}

// what is collected is spread; moving the particle turns the weights, and shifts the first moments
template <class number>
CUDA_CALLABLE void pull_collect(
    int world, int batch, const vec3<number>& lower, number dx, const vec3i& nodes, int inverted,
    const array<number>& timestep, const array<number>& x, const array<int>& fault, const array<vec4<number>>& grid,
    const array<number>& x_out_bar, const array<number>& v_out_bar, const array<mat33<number>>& rate_out_bar,
    const array<number>& timestep_bar, const array<number>& x_bar, const array<number>&, const array<mat33<number>>&,
    const array<vec4<number>>& grid_bar)
{
#pragma clang fp contract(fast)
    const Mesh<number> mesh(lower, dx, nodes);
    const Batch own = batch_of(batch, x.shape[1]);
    const bool flat = mesh.flat;
    const number h = *part(timestep, world), scale = number(4) / dx, none = 0, z = flat ? 0 : 1;
    number h_bar = none;
    Places<number> places;
    for (int k = 0; k < own.count; ++k) {
        const int p = own.first + k * own.stride;
        if (k % WIDE == 0) places.locate(mesh, x, world, own, k);
        number at_bar[3] = {none, none, none}, u_bar[3] = {none, none, none}, c_bar[9];
        const number* const from_x = part(x_out_bar, world, p);
        const number* const from_v = part(v_out_bar, world, p);
        const number* const from_rate = (const number*)part(rate_out_bar, world, p);
        if (x_out_bar.data) at_bar[0] = from_x[0], at_bar[1] = from_x[1], at_bar[2] = flat ? none : from_x[2];
        if (v_out_bar.data) u_bar[0] = from_v[0], u_bar[1] = from_v[1], u_bar[2] = flat ? none : from_v[2];
        for (int a = 0; a < 9; ++a) c_bar[a] = rate_out_bar.data ? from_rate[a] : none;
        if (*part(fault, world, p) & ~inverted) continue;  // it stays as it is, and passes no gradient
        const Site<number> site(places, k);
        const four<number> way = make(at_bar[0], at_bar[1], at_bar[2], none);
        four<number> rows[4];
        rows[0] = make(u_bar[0], u_bar[1], u_bar[2], none) + h * way;
        rows[1] = scale * make(c_bar[0], c_bar[3], z * c_bar[6], none);
        rows[2] = scale * make(c_bar[1], c_bar[4], z * c_bar[7], none);
        rows[3] = (z * scale) * make(c_bar[2], c_bar[5], c_bar[8], none);
        const Field<number> field(mesh, site, rows);
        number slope[3];
        const four<number>* const from = (const four<number>*)part(grid, world, site.first_node);
        const four<number> passed = times<number>(collect(mesh, site, field, from, slope).total, way);
        h_bar += (passed[0] + passed[1]) + (passed[2] + passed[3]);
        if (x_bar.data) {
            number* const turned = part(x_bar, world, p);
            turned[0] += at_bar[0] + slope[0] / dx, turned[1] += at_bar[1] + slope[1] / dx;
            if (!flat) turned[2] += at_bar[2] + slope[2] / dx;
        }
        if (grid_bar.data) spread(mesh, site, field, (four<number>*)part(grid_bar, world, site.first_node));
    }
    if (timestep_bar.data) sum_up(part(timestep_bar, world), h_bar);
}

}
}
