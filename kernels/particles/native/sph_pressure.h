#pragma once
// What pressure does to velocity, what velocity does to density, and what both do to places, eight pairs at a time.
#include "sph_pairs.h"

namespace fphys {
namespace {

// Some neighbours of a slot: how far; q = r / h and the kernel's 1 - q / 2; whether they, or one of the two, are fluid.
template <class number> struct Facing {
    many<number> there[4], d[3], q, w, fluid, weight;

    CUDA_CALLABLE WP_FORCEINLINE Facing(const Slot<number>& own, int k)
    {
#pragma clang fp contract(fast)
        gather_four<number>(own.places, own.near + k, there);
        for (int c = 0; c < 3; ++c) d[c] = own.x[c] - there[c];
        if (own.wound)
            for (int c = 0; c < 3; ++c) d[c] = d[c] - own.period[c] * nearest<number>(own.turn[c] * d[c]);
        q = root<number>(own.closer * dot(d, d) + number(1e-12)), w = many<number>(number(1)) - number(0.5) * q;
        const many<number> none = number(0), one = number(1);
        fluid = there[3] == none ? one : none, weight = own.kind == number(0) ? one : fluid;
    }
};

template <class number>
CUDA_CALLABLE vec4<number> sum_squeeze(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<number>& pressure, const array<number>& value)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, place);
    const number *const pressures = part(pressure, world), *const values = part(value, world);
    const number here = pressures[own.slot];
    const many<number> none = number(0);
    many<number> f[3] = {none, none, none}, sum = none;
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        const many<number> p = gather<number>(pressures, own.near + k) + here;
        const many<number> slope = by.w * by.w * by.w, push = by.weight * slope * p;
        for (int c = 0; c < 3; ++c) f[c] = f[c] + push * by.d[c];
        sum = sum + slope * by.w * (number(2) * by.q + number(1)) * gather<number>(values, own.near + k);
    }
    vec4<number> out;
    for (int c = 0; c < 3; ++c) out[c] = number(-5) * scale * own.closer * total<number>(f[c]);
    out[3] = scale * (total<number>(sum) + number(1 - (MANY - found % MANY) % MANY) * values[own.slot]);
    return out;
}

template <class number>
CUDA_CALLABLE number sum_squeeze_rate(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<vec4<number>>& velocity)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, velocity);
    many<number> rate = number(0);
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        many<number> u[4];
        gather_four<number>(own.motions, own.near + k, u);
        for (int c = 0; c < 3; ++c) u[c] = own.v[c] - u[c];
        rate = rate + by.weight * by.w * by.w * by.w * dot(u, by.d);
    }
    return number(-5) * scale * own.closer * total<number>(rate);
}

template <class number>
CUDA_CALLABLE vec3<number> sum_squeeze_gradient(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<number>& pressure, const array<vec4<number>>& velocity)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, velocity);
    const number *const pressures = part(pressure, world), here = pressures[own.slot];
    const many<number> none = number(0);
    many<number> sum[3] = {none, none, none};
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        many<number> u[4];
        gather_four<number>(own.motions, own.near + k, u);
        for (int c = 0; c < 3; ++c) u[c] = own.v[c] - u[c];
        const many<number> p = gather<number>(pressures, own.near + k) + here;
        const many<number> push = by.weight * by.w * by.w * p;
        const many<number> bend = number(-1.5) * own.closer * push * dot(u, by.d) / by.q;
        for (int c = 0; c < 3; ++c) sum[c] = sum[c] + push * by.w * u[c] + bend * by.d[c];
    }
    vec3<number> out;
    for (int c = 0; c < 3; ++c) out[c] = number(-5) * scale * own.closer * total<number>(sum[c]);
    return out;
}

// Sums of the kernel over the fluid around a slot, and over the walls, its own included; and about the diagonal of the
// matrix: |dL/du|^2 over the fluid, for a pressure of one here and at the walls around. What fills up the last eight is
// the slot itself.
template <class number>
CUDA_CALLABLE vec3<number> sum_around(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, place);
    const many<number> none = number(0);
    many<number> f[3] = {none, none, none}, squares = none, fluid = none, walls = none;
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        const many<number> slope = by.w * by.w * by.w, shape = slope * by.w * (number(2) * by.q + number(1));
        for (int c = 0; c < 3; ++c) f[c] = f[c] + (number(2) - by.fluid) * slope * by.d[c];
        squares = squares + by.fluid * slope * slope * dot(by.d, by.d);
        fluid = fluid + by.fluid * shape, walls = walls + (number(1) - by.fluid) * shape;
    }
    const number self = number(1 - (MANY - found % MANY) % MANY), factor = number(-5) * scale * own.closer;
    const bool inside = own.kind == number(0);
    number sum = total<number>(squares);
    for (int c = 0; c < 3; ++c) sum += total<number>(f[c]) * total<number>(f[c]);
    vec3<number> out;
    out[0] = scale * (total<number>(fluid) + (inside ? self : number(0)));
    out[1] = scale * (total<number>(walls) + (inside ? number(0) : self));
    out[2] = inside ? factor * factor * sum : number(0);
    return out;
}

// What pressure does to a fluid slot; a record is (position, pressure).
template <class number>
CUDA_CALLABLE vec3<number> sum_inner_squeeze(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& record)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, record, record);
    const many<number> none = number(0);
    many<number> f[3] = {none, none, none};
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        const many<number> push = by.w * by.w * by.w * (by.there[3] + own.kind);
        for (int c = 0; c < 3; ++c) f[c] = f[c] + push * by.d[c];
    }
    vec3<number> out;
    for (int c = 0; c < 3; ++c) out[c] = number(-5) * scale * own.closer * total<number>(f[c]);
    return out;
}

// What velocity, zero at walls, does to the density in a plane; a record is (two of position, two of velocity).
template <class number>
CUDA_CALLABLE number sum_flat_rate(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& record)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, record, record);
    many<number> rate = number(0);
    for (int k = 0; k < found; k += MANY) {
        many<number> there[4], d[2];
        gather_four<number>(own.places, own.near + k, there);
        for (int c = 0; c < 2; ++c) d[c] = own.x[c] - there[c];
        if (own.wound)
            for (int c = 0; c < 2; ++c) d[c] = d[c] - own.period[c] * nearest<number>(own.turn[c] * d[c]);
        const many<number> q = root<number>(own.closer * (d[0] * d[0] + d[1] * d[1]) + number(1e-12));
        const many<number> w = many<number>(number(1)) - number(0.5) * q;
        rate = rate + w * w * w * ((own.x[2] - there[2]) * d[0] + (own.x[3] - there[3]) * d[1]);
    }
    return number(-5) * scale * own.closer * total<number>(rate);
}

// Sum of the kernel times a value over the walls around a fluid slot.
template <class number>
CUDA_CALLABLE number sum_beside(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<number>& value)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, place);
    const number* const values = part(value, world);
    many<number> sum = number(0);
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        const many<number> shape = by.w * by.w * by.w * by.w * (number(2) * by.q + number(1));
        sum = sum + (number(1) - by.fluid) * shape * gather<number>(values, own.near + k);
    }
    return scale * total<number>(sum);
}

// Sum of the kernel times a value over all particles. What fills up the last eight is the slot itself.
template <class number>
CUDA_CALLABLE number sum_blur(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<number>& value)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, place);
    const number* const values = part(value, world);
    many<number> sum = number(0);
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        const many<number> shape = by.w * by.w * by.w * by.w * (number(2) * by.q + number(1));
        sum = sum + shape * gather<number>(values, own.near + k);
    }
    const int more = (MANY - found % MANY) % MANY;
    return scale * (total<number>(sum) + number(1 - more) * values[own.slot]);
}

template <class number>
CUDA_CALLABLE vec3<number> sum_blur_gradient(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<number>& value, const array<number>& pull)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, place);
    const number *const values = part(value, world), *const pulls = part(pull, world);
    const number here = values[own.slot], mine = pulls[own.slot];
    const many<number> none = number(0);
    many<number> sum[3] = {none, none, none};
    for (int k = 0; k < found; k += MANY) {
        const Facing<number> by(own, k);
        const int* const near = own.near + k;
        const many<number> both = here * gather<number>(pulls, near) + mine * gather<number>(values, near);
        const many<number> slope = both * by.w * by.w * by.w;
        for (int c = 0; c < 3; ++c) sum[c] = sum[c] + slope * by.d[c];
    }
    vec3<number> out;
    for (int c = 0; c < 3; ++c) out[c] = number(-5) * scale * own.closer * total<number>(sum[c]);
    return out;
}

}
}
