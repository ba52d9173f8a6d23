#pragma once
// Forces and rates of density over the neighbours of a slot, eight at a time, with their gradients written out.
//
// A slot's row of neighbours ends in its own number, and a particle does nothing to itself, so that whole eights are
// read; the eight sums are added in a fixed order. A GPU, whose threads are its lanes, reads one neighbour at a
// time.
#include "../../native/eight.h"

namespace fphys {
namespace {

// as many numbers as are read at once, and how
#ifdef __CUDACC__
const int MANY = 1;
template <class number> using many = number;
template <class number> CUDA_CALLABLE number root(number a) { return sqrt(a); }
template <class number> CUDA_CALLABLE number nearest(number a) { return rint(a); }
template <class number> CUDA_CALLABLE number total(number a) { return a; }
template <class number> CUDA_CALLABLE number gather(const number* values, const int* at) { return values[*at]; }
template <class number> CUDA_CALLABLE void gather_four(const number* records, const int* at, number* out)
{
    for (int c = 0; c < 4; ++c) out[c] = records[4 * *at + c];
}
#else
const int MANY = 8;
template <class number> using many = eight<number>;
template <class number> many<number> root(const many<number> a) { return __builtin_elementwise_sqrt(a); }
template <class number> many<number> nearest(const many<number> a) { return __builtin_elementwise_rint(a); }
template <class number> number total(const many<number> a)
{
#pragma clang fp contract(fast)
    const auto b = a.lo + a.hi;
    return (b.x + b.y) + (b.z + b.w);
}
template <class number> many<number> gather(const number* values, const int* at)
{
    return many<number>{values[at[0]], values[at[1]], values[at[2]], values[at[3]],
                        values[at[4]], values[at[5]], values[at[6]], values[at[7]]};
}
template <class number> void gather_four(const number* records, const int* at, many<number>* out)
{
    typedef number four __attribute__((ext_vector_type(4)));
    auto both = [&](int lane) -> many<number> {  // a record and the one four lanes on
        four low, high;
        __builtin_memcpy(&low, records + 4 * at[lane], sizeof(four));
        __builtin_memcpy(&high, records + 4 * at[lane + 4], sizeof(four));
        return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    };
    const many<number> a = both(0), b = both(1), c = both(2), d = both(3);
    const many<number> p = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    const many<number> q = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    const many<number> r = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    const many<number> s = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    out[0] = __builtin_shufflevector(p, q, 0, 1, 8, 9, 4, 5, 12, 13);
    out[1] = __builtin_shufflevector(p, q, 2, 3, 10, 11, 6, 7, 14, 15);
    out[2] = __builtin_shufflevector(r, s, 0, 1, 8, 9, 4, 5, 12, 13);
    out[3] = __builtin_shufflevector(r, s, 2, 3, 10, 11, 6, 7, 14, 15);
}
#endif

template <class V> CUDA_CALLABLE V dot(const V* a, const V* b)
{
#pragma clang fp contract(fast)
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

// The slot itself, and where its neighbours are.
template <class number> struct Slot {
    const int *near, slot;
    const number *places, *motions, *x, *v;
    number kind, rho, closer, soften, turn[3];
    const vec3<number>& period;
    const bool wound;

    CUDA_CALLABLE WP_FORCEINLINE Slot(
        int world, int row, const vec3<number>& period, number h, const array<int>& index,
        const array<vec4<number>>& place, const array<vec4<number>>& motion)
        : near(part(index, world, row)), slot(near[index.shape[2] - 1]), places((const number*)part(place, world)),
          motions((const number*)part(motion, world)), x(places + 4 * slot), v(motions + 4 * slot), period(period),
          wound(period[0] > 0 || period[1] > 0 || period[2] > 0)
    {
#pragma clang fp contract(fast)
        kind = x[3], rho = v[3], closer = number(1) / (h * h), soften = number(0.01) * h * h;
        for (int c = 0; c < 3; ++c) turn[c] = period[c] > 0 ? number(1) / period[c] : number(0);
    }
};

// Some of its neighbours: how far and how fast; q = r / h and the kernel's 1 - q / 2.
template <class number> struct Pairs {
    many<number> there[4], moving[4], d[3], u[3], square, along, q, w;

    CUDA_CALLABLE WP_FORCEINLINE Pairs(const Slot<number>& own, int k)
    {
#pragma clang fp contract(fast)
        gather_four<number>(own.places, own.near + k, there);
        gather_four<number>(own.motions, own.near + k, moving);
        for (int c = 0; c < 3; ++c) d[c] = own.x[c] - there[c], u[c] = own.v[c] - moving[c];
        if (own.wound)
            for (int c = 0; c < 3; ++c) d[c] = d[c] - own.period[c] * nearest<number>(own.turn[c] * d[c]);
        square = dot(d, d), along = dot(u, d);
        q = root<number>(own.closer * square + number(1e-12)), w = many<number>(number(1)) - number(0.5) * q;
    }
};

// Sum of the kernel over all particles, the slot's own included. What fills up the last eight is the slot, too.
template <class number>
CUDA_CALLABLE number sum_densities(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, place);
    many<number> sum = number(0);
    for (int k = 0; k < found; k += MANY) {
        const Pairs<number> by(own, k);
        sum = sum + by.w * by.w * by.w * by.w * (number(2) * by.q + number(1));
    }
    const int more = (MANY - found % MANY) % MANY;
    return scale * (total<number>(sum) + number(1 - more));
}

template <class number>
CUDA_CALLABLE vec3<number> sum_density_gradients(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<number>& pull)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, place);
    const number *const pulls = part(pull, world), here = pulls[own.slot];
    const many<number> none = number(0);
    many<number> sum[3] = {none, none, none};
    for (int k = 0; k < found; k += MANY) {
        const Pairs<number> by(own, k);
        const many<number> l = (gather<number>(pulls, own.near + k) + here) * by.w * by.w * by.w;
        for (int c = 0; c < 3; ++c) sum[c] = sum[c] + l * by.d[c];
    }
    vec3<number> out;
    for (int c = 0; c < 3; ++c) out[c] = number(-5) * scale * own.closer * total<number>(sum[c]);
    return out;
}

// Whether one of the two is fluid; whether neither is a wall without friction; pressures; how close a wall is.
template <class number> struct Friction {
    many<number> acting, rough, p, close, wall, push;

    CUDA_CALLABLE WP_FORCEINLINE Friction(
        const Slot<number>& own, const Pairs<number>& by, int k, const number* pressures,
        const vec4<number>& coefficients)
    {
#pragma clang fp contract(fast)
        const many<number> none = number(0), one = number(1), share = by.there[3] == none ? one : none;
        acting = own.kind == number(0) ? one : share;
        rough = by.there[3] < number(1.5) && own.kind < number(1.5) ? one : none;
        p = gather<number>(pressures, own.near + k);
        const many<number> gap = one - coefficients[3] * by.square;
        close = gap > none ? gap : none;
        wall = own.kind + by.there[3] > number(0.5) ? one : none;
        push = coefficients[2] * wall * close;
    }
};

template <class number>
CUDA_CALLABLE vec3<number> sum_forces(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<vec4<number>>& motion, const array<number>& pressure,
    const vec4<number>& coefficients)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, motion);
    const number *const pressures = part(pressure, world), here = pressures[own.slot];
    const many<number> none = number(0);
    many<number> f[3] = {none, none, none};
    for (int k = 0; k < found; k += MANY) {
        const Pairs<number> by(own, k);
        const Friction<number> wall(own, by, k, pressures, coefficients);
        const many<number> soft = by.square + own.soften, w = by.w;
        const many<number> slope = wall.acting * w * w * w / (by.moving[3] * soft);
        const many<number> radial =
            wall.rough * coefficients[1] * by.along - (here + wall.p + wall.push * wall.close) * soft;
        const many<number> drag = wall.rough * (number(2) * coefficients[0]) * soft;
        for (int c = 0; c < 3; ++c) f[c] = f[c] + slope * (radial * by.d[c] + drag * by.u[c]);
    }
    vec3<number> out;
    for (int c = 0; c < 3; ++c) out[c] = number(-5) * scale * own.closer / own.rho * total<number>(f[c]);
    return out;
}

template <class number>
CUDA_CALLABLE vec11<number> sum_force_gradients(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<vec4<number>>& motion, const array<number>& pressure,
    const vec4<number>& coefficients, const array<vec4<number>>& pull)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, motion);
    const number *const pressures = part(pressure, world), *const pulls = (const number*)part(pull, world);
    const number here = pressures[own.slot];
    const many<number> one = number(1);
    many<number> sum[11];
    for (int c = 0; c < 11; ++c) sum[c] = number(0);
    for (int k = 0; k < found; k += MANY) {
        const Pairs<number> by(own, k);
        const Friction<number> at(own, by, k, pressures, coefficients);
        many<number> l[4];
        gather_four<number>(pulls, own.near + k, l);
        for (int c = 0; c < 3; ++c) l[c] = pulls[4 * own.slot + c] - l[c];
        const many<number> soft = one / (by.square + own.soften), ld = dot(l, by.d), lu = dot(l, by.u);
        const many<number> art = at.rough * coefficients[1] * soft, drag = at.rough * (number(2) * coefficients[0]);
        const many<number> radial = art * by.along - here - at.p - at.push * at.close, power = radial * ld + drag * lu;
        const many<number> weight = at.acting * by.w * by.w / by.moving[3], slope = weight * by.w, lean = ld * art;
        const many<number> bend =
            number(-1.5) * own.closer * weight * power / by.q
            - number(2) * slope * (lean * by.along * soft - number(2) * coefficients[3] * at.push * ld);
        for (int c = 0; c < 3; ++c) {
            sum[c] = sum[c] + bend * by.d[c] + slope * (radial * l[c] + lean * by.u[c]);
            sum[3 + c] = sum[3 + c] + slope * (lean * by.d[c] + drag * l[c]);
        }
        sum[6] = sum[6] - slope * power;
        sum[7] = sum[7] - slope * ld;
        sum[8] = sum[8] + slope * at.rough * number(2) * lu;
        sum[9] = sum[9] + slope * at.rough * ld * by.along * soft;
        sum[10] = sum[10] - slope * at.wall * ld * at.close * at.close;
    }
    vec11<number> out;
    for (int c = 0; c < 11; ++c) out[c] = number(-5) * scale * own.closer / own.rho * total<number>(sum[c]);
    out[6] = out[6] / own.rho;
    return out;
}

// By how much denser it is there than it would be at rest, between fluid.
template <class number> struct Strata {
    many<number> both_fluid, excess;

    CUDA_CALLABLE WP_FORCEINLINE Strata(
        const Slot<number>& own, const Pairs<number>& by, const vec3<number>& stratification)
    {
#pragma clang fp contract(fast)
        const many<number> none = number(0), one = number(1);
        both_fluid = own.kind + by.there[3] < number(0.5) ? one : none;
        excess = by.moving[3] - own.rho;
        for (int c = 0; c < 3; ++c) excess = excess + stratification[c] * by.d[c];
        excess = both_fluid * excess;
    }
};

template <class number>
CUDA_CALLABLE number sum_rates(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<vec4<number>>& motion, number diffusion,
    const vec3<number>& stratification)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, motion);
    many<number> rate = number(0);
    for (int k = 0; k < found; k += MANY) {
        const Pairs<number> by(own, k);
        const Strata<number> at(own, by, stratification);
        rate = rate + by.w * by.w * by.w / by.moving[3] * (own.rho * by.along - diffusion * at.excess);
    }
    return number(-5) * scale * own.closer * total<number>(rate);
}

template <class number>
CUDA_CALLABLE vec11<number> sum_rate_gradients(
    int world, int row, int found, const vec3<number>& period, number h, number scale, const array<int>& index,
    const array<vec4<number>>& place, const array<vec4<number>>& motion, number diffusion,
    const vec3<number>& stratification, const array<number>& pull)
{
#pragma clang fp contract(fast)
    const Slot<number> own(world, row, period, h, index, place, motion);
    const number *const pulls = part(pull, world), mine_here = own.kind == number(0) ? pulls[own.slot] : number(0);
    const many<number> none = number(0);
    many<number> sum[11];
    for (int c = 0; c < 11; ++c) sum[c] = none;
    for (int k = 0; k < found; k += MANY) {
        const Pairs<number> by(own, k);
        const Strata<number> at(own, by, stratification);
        const many<number> l = by.there[3] == none ? gather<number>(pulls, own.near + k) : none;
        const many<number> w = by.w, slope = w * w * w, density = by.moving[3];
        const many<number> less = number(1) / density, mine = mine_here * less, yours = l * (number(1) / own.rho);
        const many<number> squeeze = mine * own.rho + yours * density, spread = mine - yours;
        const many<number> bend = number(-1.5) * own.closer * w * w / by.q
                                  * (by.along * squeeze - diffusion * at.excess * spread);
        const many<number> apart = slope * at.both_fluid * spread * diffusion;
        for (int c = 0; c < 3; ++c) {
            sum[c] = sum[c] + bend * by.d[c] + slope * squeeze * by.u[c] - apart * stratification[c];
            sum[3 + c] = sum[3 + c] + slope * squeeze * by.d[c];
            sum[8 + c] = sum[8 + c] - apart * by.d[c];
        }
        sum[6] = sum[6] + slope * (by.along * (mine - yours * density * (number(1) / own.rho))
                                   - diffusion * at.excess * yours * (number(1) / own.rho)) + apart;
        sum[7] = sum[7] - slope * spread * at.excess;
    }
    vec11<number> out;
    for (int c = 0; c < 11; ++c) out[c] = number(-5) * scale * own.closer * total<number>(sum[c]);
    return out;
}

}
}
