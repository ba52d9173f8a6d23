#pragma once
// Newton's method on one island after another: islands.py says what for.
#include "islands.h"

namespace fphys {
namespace {

// What a solve is given
template <class number> struct Limits {
    int iterations, ls_iterations, sweeps;
    number tolerance, slope, still, rest;
};

// How it ended
template <class number> struct Ending {
    number square;  // of the gradient
    int iterations;
    bool converged;
};

// Newton's method from the accelerations x; `net` and `change_net` are scratch of each dof
template <class number>
CUDA_CALLABLE Ending<number> minimise(
    Island<number>& s, const Limits<number>& limits, const number* applied, number* x, number* net, number* change_net)
{
    const int n = s.f.dofs;
    s.factorise();  // no row acts yet: of M
    s.solve(limits.sweeps, limits.rest, applied, net);
    const number free = s.product_of(net, net);
    s.err(x);
    s.resist(x, net);
    s.collect(net);
    for (int d = 0; d < n; ++d) net[d] -= applied[d];
    Ending<number> end{0, 0, false};
    bool still = false;
    for (bool first = true;; first = false) {
        const bool moved = s.respond() || first;
        for (int b = 0; b < s.f.bodies; ++b) s.load[b] = nothing<number>();
        for (int d = 0; d < n; ++d) s.gradient[d] = net[d];
        s.push(s.force, s.gradient);
        s.collect(s.gradient);
        end.square = s.product_of(s.gradient, s.gradient);
        end.converged = still || sqrt(end.square) <= limits.tolerance;
        if (end.converged || end.iterations == limits.iterations || !(end.square >= 0)) break;
        ++end.iterations;
        if (moved) s.factorise();
        for (int d = 0; d < n; ++d) s.gradient[d] = -s.gradient[d];
        s.solve(limits.sweeps, limits.rest, s.gradient, s.search);
        s.rates(s.search, s.change);
        s.resist(s.search, change_net);
        s.collect(change_net);
        const number descent = s.product_of(s.search, s.gradient), quad = s.product_of(s.search, change_net);
        const number lin = s.product_of(s.search, net);
        const number slope = limits.slope * (descent < 0 ? -descent : descent);
        const number t = s.search_line(limits.ls_iterations, slope, lin, quad);
        number step = 0, size = free;
        for (int d = 0; d < n; ++d) {
            const number change = t * s.search[d];
            x[d] += change, net[d] += t * change_net[d];
            step += change * change, size += x[d] * x[d];
        }
        for (int i = 0; i < s.rows; ++i) s.error[i] += t * s.change[i];
        still = step <= limits.still * limits.still * size;
    }
    return end;
}

// Call `work` with each island
template <class number, class Tree, class Inertia, class Rows, class F>
CUDA_CALLABLE void each_island(
    const int world, const Tree& t, const Inertia& m, const Rows& r, const array<int>& ints,
    const array<number>& numbers, F work)
{
    Room<int> whole{part(ints, world), part(ints, world) + ints.shape[1]};
    Room<number> room{part(numbers, world), part(numbers, world) + numbers.shape[1]};
    const Parts parts = divide(world, t, r, whole);
    for (int i = 0; i < parts.count; ++i) {
        int dofs = 0;
        for (int k = parts.bodies[i]; k < parts.bodies[i + 1]; ++k) dofs += part(t.dofs, parts.body[k])[1];
        Room<number> rest = room;
        number* const x = rest.take(4 * dofs);
        Island<number> island(world, t, m, r, parts, i, whole, rest);
        work(island, x);
    }
}

template <class number> CUDA_CALLABLE void gather(const Island<number>& s, const number* from, number* to)
{
    for (int d = 0; d < s.f.dofs; ++d) to[d] = from[s.dof[d]];
}

template <class number> CUDA_CALLABLE void scatter(const Island<number>& s, const number* from, number* to)
{
    for (int d = 0; d < s.f.dofs; ++d) to[s.dof[d]] = from[d];
}

template <class number, class Tree, class Inertia, class Rows>
CUDA_CALLABLE void newton_islands(
    const int world, const int iterations, const int ls_iterations, const int sweeps, const int unconverged,
    const number slope, const number still, const number rest, const array<number>& tolerance,
    const array<number>& meaninertia, const Tree& t, const Inertia& m, const Rows& r, const array<number>& force,
    const array<number>& start, const array<int>& ints, const array<number>& numbers, const array<number>& qacc,
    const array<number>& residual, const array<int>& count, const array<unsigned>& status)
{
    const number scale = *part(meaninertia, world);
    number square = 0;
    int most = 0;
    bool converged = true;
    each_island(world, t, m, r, ints, numbers, [&](Island<number>& s, number* x) {
        const int n = s.f.dofs;
        const number enough = *part(tolerance, world) * scale * n;
        const Limits<number> limits{iterations, ls_iterations, sweeps, enough, slope, still, rest};
        gather(s, part(start, world), x), gather(s, part(force, world), x + n);
        const Ending<number> end = minimise(s, limits, x + n, x, x + 2 * n, x + 3 * n);
        scatter(s, x, part(qacc, world));
        square += end.square;
        if (end.iterations > most) most = end.iterations;
        converged = converged && end.converged;
    });
    const int nv = force.shape[1];
    *part(residual, world) = sqrt(square) / (scale * (nv > 1 ? nv : 1));
    *part(count, world) = most;
    *part(status, world) = converged ? 0 : unconverged;
}

template <class number, class Tree, class Inertia, class Rows>
CUDA_CALLABLE void solve_islands(
    const int world, const int sweeps, const number rest, const Tree& t, const Inertia& m, const Rows& r,
    const array<number>& qacc, const array<number>& right, const array<int>& ints, const array<number>& numbers,
    const array<number>& out)
{
    each_island(world, t, m, r, ints, numbers, [&](Island<number>& s, number* x) {
        gather(s, part(qacc, world), x);
        s.err(x), s.respond(), s.factorise();
        gather(s, part(right, world), x);
        s.solve(sweeps, rest, x, s.search);
        scatter(s, s.search, part(out, world));
    });
}

template <class number, class Tree, class Inertia, class Rows>
CUDA_CALLABLE void restore_islands(
    const int world, const Tree& t, const Inertia& m, const Rows& r, const array<number>& qacc, const array<int>& ints,
    const array<number>& numbers, const array<number>& out)
{
    each_island(world, t, m, r, ints, numbers, [&](Island<number>& s, number* x) {
        gather(s, part(qacc, world), x);
        s.err(x), s.respond();
        for (int b = 0; b < s.f.bodies; ++b) s.load[b] = nothing<number>();
        for (int d = 0; d < s.f.dofs; ++d) s.gradient[d] = 0;
        s.push(s.force, s.gradient), s.collect(s.gradient);
        scatter(s, s.gradient, part(out, world));
    });
}

}
}
