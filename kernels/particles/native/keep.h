#pragma once
// The mean of the nodes' motion where a particle is, and its adjoint by hand.
#include "stencil.h"

namespace fphys {
namespace {

// sum(w v_i)
template <class number>
CUDA_CALLABLE vec3<number> mean_one(
    int world, int p, const vec3<number>& lower, number dx, const vec3i& nodes, const array<number>& x,
    const array<vec4<number>>& grid)
{
    const Mesh<number> mesh(lower, dx, nodes);
    Places<number> places;
    places.locate(mesh, x, world, {p, 1, 1}, 0);
    const Site<number> site(places, 0);
    const four<number> total = collect(mesh, site, (const four<number>*)part(grid, world, site.first_node)).total;
    return vec3<number>(total[0], total[1], total[2]);
}

// what is collected is spread; moving the particle turns the weights
template <class number>
CUDA_CALLABLE void pull_mean(
    int world, int p, const vec3<number>& lower, number dx, const vec3i& nodes, const array<number>& x,
    const array<vec4<number>>& grid, const vec3<number>& bar, const array<number>& x_bar,
    const array<vec4<number>>& grid_bar)
{
    const Mesh<number> mesh(lower, dx, nodes);
    Places<number> places;
    places.locate(mesh, x, world, {p, 1, 1}, 0);
    const Site<number> site(places, 0);
    const four<number> rows[4] = {
        make(bar[0], bar[1], bar[2], number(0)), zero<number>(), zero<number>(), zero<number>()};
    const Field<number> field(mesh, site, rows);
    number slope[3];
    collect(mesh, site, field, (const four<number>*)part(grid, world, site.first_node), slope);
    turn(mesh, slope, x_bar, world, p);
    if (grid_bar.data) spread(mesh, site, field, (four<number>*)part(grid_bar, world, site.first_node));
}

}
}
