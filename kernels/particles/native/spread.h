#pragma once
// From a particle to nodes: what it spreads, and the adjoint by hand.
#include "stencil.h"

namespace fphys {
namespace {

// add w times the affine field of rows q to every node of the stencil
template <class number>
CUDA_CALLABLE void spread_one(
    int world, int p, const vec3<number>& lower, number dx, const vec3i& nodes, const array<number>& x,
    const mat44<number>& field, const array<vec4<number>>& grid_out)
{
    const Mesh<number> mesh(lower, dx, nodes);
    Places<number> places;
    places.locate(mesh, x, world, {p, 1, 1}, 0);
    const Site<number> site(places, 0);
    four<number> rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = make(field.data[i][0], field.data[i][1], field.data[i][2], field.data[i][3]);
    spread(mesh, site, Field<number>(mesh, site, rows), (four<number>*)part(grid_out, world, site.first_node));
}

// what is spread is collected; moving the particle turns the weights, and shifts the field
template <class number>
CUDA_CALLABLE mat44<number> pull_spread(
    int world, int p, const vec3<number>& lower, number dx, const vec3i& nodes, const array<number>& x,
    const mat44<number>& field, const array<vec4<number>>& grid_out_bar, const array<number>& x_bar)
{
    const Mesh<number> mesh(lower, dx, nodes);
    Places<number> places;
    places.locate(mesh, x, world, {p, 1, 1}, 0);
    const Site<number> site(places, 0);
    four<number> rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = make(field.data[i][0], field.data[i][1], field.data[i][2], field.data[i][3]);
    const four<number>* const from = (const four<number>*)part(grid_out_bar, world, site.first_node);
    number slope[3];
    const Moments<number> found = collect(mesh, site, Field<number>(mesh, site, rows), from, slope);
    turn(mesh, slope, x_bar, world, p);
    const four<number> moments[4] = {found.total, found.moment_1, found.moment_2, found.moment_3};
    mat44<number> field_bar;
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) field_bar.data[i][j] = moments[i][j];
    return field_bar;
}

}
}
