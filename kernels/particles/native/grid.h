#pragma once
// What happens at the nodes where no wall or collider is near, and what happens at all of them before these do.
#include "../../native/warp.h"

namespace fphys {
namespace {

// v = p / m + what it falls in a step
template <class number>
CUDA_CALLABLE vec3<number> fallen(const vec4<number>& node, const vec3<number>& fall)
{
    vec3<number> u;
    for (int a = 0; a < 3; ++a) u[a] = node[a] / node[3] + fall[a];
    return u;
}

// By mass: -(p / m) / m, for the square of what a far particle leaves at a node underflows.
template <class number>
CUDA_CALLABLE void adj_fallen(
    const vec4<number>& node, const vec3<number>&, vec4<number>& node_bar, vec3<number>& fall_bar,
    const vec3<number>& bar)
{
    const number mass = node[3];
    for (int a = 0; a < 3; ++a) {
        const number per_mass = bar[a] / mass;
        node_bar[3] -= node[a] / mass * per_mass;
        node_bar[a] += per_mass, fall_bar[a] += bar[a];
    }
}

// A thread's nodes: sixteen, or as many as there are.
struct Nodes {
    int first, stride, count;
};
CUDA_CALLABLE inline Nodes nodes_of(int batch, int lanes, int n)
{
#ifdef __CUDACC__
    const int first = batch, stride = lanes;  // neighbours in memory go to neighbours among the threads
#else
    const int first = 16 * batch, stride = 1;
#endif
    const int left = (n - first + stride - 1) / stride;
    return {first, stride, left < 16 ? left : 16};
}
template <class number> CUDA_CALLABLE int node_of(int batch, int k, int lanes, const array<vec4<number>>& grid)
{
    const Nodes own = nodes_of(batch, lanes, grid.shape[1]);
    return own.first + k * own.stride;
}

// Most of a grid has no mass.
template <class number> CUDA_CALLABLE bool massive(const Nodes& own, const vec4<number>* from)
{
    vec4<number> sum = from[own.first];
    for (int m = 1; m < own.count; ++m) sum = wp::add(sum, from[own.first + m * own.stride]);
    return sum[3] > 0;
}

CUDA_CALLABLE inline bool no_wall(const vec3i& nodes, int dim, int node)
{
    const int line = node / nodes[2], k = node - line * nodes[2], i = line / nodes[1], j = line - i * nodes[1];
    auto inner = [&](int at, int a) -> bool { return at > 2 && at < nodes[a] - 3; };
    return inner(i, 0) && inner(j, 1) && (dim == 2 || inner(k, 2));
}

// The number of a world's first node: a world may be a plane of nodes.
CUDA_CALLABLE inline int first_node(int world, const array<int>& first)
{
    return first.shape[0] > 0 ? *part(first, world) : 0;
}

// Whether a node meets no wall and no collider; without colliders `touched` is shorter than the grid.
CUDA_CALLABLE inline bool apart(
    const vec3i& nodes, int dim, int first, const array<int>& touched, int world, int n, int node)
{
    return no_wall(nodes, dim, first + node) && (touched.shape[1] < n || !part(touched, world)[node]);
}

// which nodes of a batch, as bits, meet a wall or a collider and have mass; the others are done
template <class number>
CUDA_CALLABLE int move_free(
    int world, int batch, int lanes, const vec3i& nodes, int dim, const array<int>& first, const array<int>& touched,
    const array<number>& gravity, const array<number>& timestep, const array<vec4<number>>& grid,
    const array<vec4<number>>& velocity_out)
{
    const Nodes own = nodes_of(batch, lanes, grid.shape[1]);
    const int start = first_node(world, first);
    const vec4<number>* const from = part(grid, world);
    const number* const g = part(gravity, world);
    const number h = *part(timestep, world);
    vec4<number>* const to = part(velocity_out, world);
    const bool some = massive(own, from);
    for (int m = 0; m < own.count; ++m) {
        vec4<number> u = from[own.first + m * own.stride];
        u[0] = u[1] = u[2] = 0;
        to[own.first + m * own.stride] = u;
    }
    if (!some) return 0;
    const vec3<number> fall(h * g[0], h * g[1], dim == 3 ? h * g[2] : number(0));
    int left = 0;
    for (int m = 0; m < own.count; ++m) {
        const int node = own.first + m * own.stride;
        const vec4<number> p = from[node];
        if (!(p[3] > 0)) continue;
        const vec3<number> u = fallen(p, fall);
        for (int a = 0; a < 3; ++a) to[node][a] = u[a];
        if (!apart(nodes, dim, start, touched, world, grid.shape[1], node)) left |= 1 << m;
    }
    return left;
}

template <class number>
CUDA_CALLABLE int which_met(
    int world, int batch, int lanes, const vec3i& nodes, int dim, const array<int>& first, const array<int>& touched,
    const array<vec4<number>>& grid)
{
    const Nodes own = nodes_of(batch, lanes, grid.shape[1]);
    const int start = first_node(world, first);
    const vec4<number>* const from = part(grid, world);
    int left = 0;
    if (!massive(own, from)) return 0;
    for (int m = 0; m < own.count; ++m) {
        const int node = own.first + m * own.stride;
        if (from[node][3] > 0 && !apart(nodes, dim, start, touched, world, grid.shape[1], node)) left |= 1 << m;
    }
    return left;
}

// the adjoint of the nodes that meet nothing
template <class number>
CUDA_CALLABLE void pull_free(
    int world, int batch, int lanes, const vec3i& nodes, int dim, const array<int>& first, const array<int>& touched,
    const array<number>& gravity, const array<number>& timestep, const array<vec4<number>>& grid,
    const array<vec4<number>>& velocity_out_bar, const array<number>& gravity_bar, const array<number>& timestep_bar,
    const array<vec4<number>>& grid_bar)
{
    const Nodes own = nodes_of(batch, lanes, grid.shape[1]);
    const int start = first_node(world, first);
    const vec4<number>* const from = part(grid, world);
    const vec4<number>* const bars = part(velocity_out_bar, world);
    const number* const g = part(gravity, world);
    const number h = *part(timestep, world);
    if (!massive(own, from)) return;
    vec3<number> fall, fall_bar;
    for (int m = 0; m < own.count; ++m) {
        const int node = own.first + m * own.stride;
        const vec4<number> at = from[node];
        if (!(at[3] > 0) || !apart(nodes, dim, start, touched, world, grid.shape[1], node)) continue;
        const vec4<number> bar = bars[node];
        const vec3<number> u_bar(bar[0], bar[1], dim == 3 ? bar[2] : number(0));
        vec4<number> by(number(0), number(0), number(0), bar[3]);
        adj_fallen(at, fall, by, fall_bar, u_bar);
        if (!grid_bar.data) continue;  // nobody asks how the momentum matters
        vec4<number>* const to = part(grid_bar, world) + node;
        for (int a = 0; a < 4; ++a) (*to)[a] += by[a];
    }
    if (timestep_bar.data) {
        number h_bar = g[0] * fall_bar[0] + g[1] * fall_bar[1];
        if (dim == 3) h_bar += g[2] * fall_bar[2];
        wp::atomic_add(part(timestep_bar, world), h_bar);
    }
    if (gravity_bar.data)
        for (int a = 0; a < dim; ++a) wp::atomic_add(part(gravity_bar, world) + a, h * fall_bar[a]);
}

}
}
