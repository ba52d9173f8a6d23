"""Forces and rates of density over the neighbours of a slot, eight at a time, with their gradients written out.

Warp has no vectors over pairs: one pair after another took four times as long. A slot's row of neighbours ends in its
own number, and a particle does nothing to itself, so that whole eights are read; the eight sums are added in a fixed
order. A GPU, whose threads are its lanes, reads one neighbour at a time by the same text.
"""

import warp as wp

from .._precision import real, vec3, vec4, vec11

_LANES = """
#ifdef __CUDACC__
    typedef decltype(h * h) number;
    typedef number many;
    constexpr int LANES = 1;
    auto root = [](many a) -> many { return sqrt(a); };
    auto nearest = [](many a) -> many { return rint(a); };
    auto total = [](many a) -> number { return a; };
    auto gather = [](const number* values, const int* at) -> many { return values[*at]; };
    auto gather_four = [](const number* records, const int* at, many* out) {
        for (int c = 0; c < 4; ++c) out[c] = records[4 * *at + c];
    };
#else
#pragma clang fp contract(fast)
    typedef decltype(h * h) number;
    typedef number many __attribute__((ext_vector_type(8)));
    typedef number four __attribute__((ext_vector_type(4)));
    constexpr int LANES = 8;
    auto root = [](many a) -> many { return __builtin_elementwise_sqrt(a); };
    auto nearest = [](many a) -> many { return __builtin_elementwise_rint(a); };
    auto total = [](many a) -> number {
        const four b = a.lo + a.hi;
        return (b.x + b.y) + (b.z + b.w);
    };
    auto gather = [](const number* values, const int* at) -> many {
        return many{values[at[0]], values[at[1]], values[at[2]], values[at[3]],
                    values[at[4]], values[at[5]], values[at[6]], values[at[7]]};
    };
    auto gather_four = [](const number* records, const int* at, many* out) {
        auto both = [&](int lane) -> many {  // a record and the one four lanes on
            four low, high;
            __builtin_memcpy(&low, records + 4 * at[lane], sizeof(four));
            __builtin_memcpy(&high, records + 4 * at[lane + 4], sizeof(four));
            return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
        };
        const many a = both(0), b = both(1), c = both(2), d = both(3);
        const many p = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
        const many q = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
        const many r = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
        const many s = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
        out[0] = __builtin_shufflevector(p, q, 0, 1, 8, 9, 4, 5, 12, 13);
        out[1] = __builtin_shufflevector(p, q, 2, 3, 10, 11, 6, 7, 14, 15);
        out[2] = __builtin_shufflevector(r, s, 0, 1, 8, 9, 4, 5, 12, 13);
        out[3] = __builtin_shufflevector(r, s, 2, 3, 10, 11, 6, 7, 14, 15);
    };
#endif
    const many none = number(0), one = number(1);
    const int* near = index.data + (world * index.strides[0] + row * index.strides[1]) / sizeof(int);
    const int slot = near[index.shape[2] - 1];
    const number* places = (const number*)place.data + world * (place.strides[0] / sizeof(number));
    const number* motions = (const number*)motion.data + world * (motion.strides[0] / sizeof(number));
    const number *x = places + 4 * slot, *v = motions + 4 * slot, kind = x[3], rho = v[3];
    const bool wound = period[0] > 0 || period[1] > 0 || period[2] > 0;
    number turn[3];
    for (int c = 0; c < 3; ++c) turn[c] = period[c] > 0 ? number(1) / period[c] : number(0);
    const number closer = number(1) / (h * h), soften = number(0.01) * h * h;
    auto dot = [](const many* a, const many* b) -> many { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; };
"""
"""``many`` numbers, one for each lane; how they are read; and the slot itself."""

_PAIR = """
        many there[4], moving[4], d[3], u[3];
        gather_four(places, near + k, there);
        gather_four(motions, near + k, moving);
        for (int c = 0; c < 3; ++c) d[c] = x[c] - there[c], u[c] = v[c] - moving[c];
        if (wound)
            for (int c = 0; c < 3; ++c) d[c] = d[c] - period[c] * nearest(turn[c] * d[c]);
        const many square = dot(d, d), along = dot(u, d);
        const many q = root(closer * square + number(1e-12)), w = one - number(0.5) * q;
"""
"""A slot's neighbours: how far and how fast; q = r / h and the kernel's 1 - q / 2."""

_FRICTION = """
        const many share = there[3] == none ? one : none;
        const many acting = kind == number(0) ? one : share;
        const many rough = there[3] < number(1.5) && kind < number(1.5) ? one : none;
        const many p = gather(pressures, near + k);
        const many gap = one - coefficients[3] * square, close = gap > none ? gap : none;
        const many wall = kind + there[3] > number(0.5) ? one : none;
        const many push = coefficients[2] * wall * close;
"""
"""Whether one of the two is fluid; whether neither is a wall without friction; pressures; how close a wall is."""


@wp.func_native(
    _LANES
    + """
    const number* pressures = pressure.data + world * (pressure.strides[0] / sizeof(number));
    const number here = pressures[slot];
    many f[3] = {none, none, none};
    for (int k = 0; k < found; k += LANES) {
"""
    + _PAIR
    + _FRICTION
    + """
        const many soft = square + soften;
        const many slope = acting * w * w * w / (moving[3] * soft);
        const many radial = rough * coefficients[1] * along - (here + p + push * close) * soft;
        const many drag = rough * (number(2) * coefficients[0]) * soft;
        for (int c = 0; c < 3; ++c) f[c] = f[c] + slope * (radial * d[c] + drag * u[c]);
    }
    auto out = blank;
    for (int c = 0; c < 3; ++c) out[c] = number(-5) * scale * closer / rho * total(f[c]);
    return out;
"""
)
def sum_forces(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
    coefficients: vec4,
    blank: vec3,
) -> vec3:
    """Force for unit masses, antisymmetric in a pair.

    Pressure -(p_i + p_j) grad W / (rho_i rho_j); viscosity 2 mu F (v_i - v_j) / (rho_i rho_j) (Morris 1997); and the
    artificial one, along the line between them, without a switch (Marrone 2011). Between fluid and wall the pressures
    get coefficients[2] max(0, 1 - coefficients[3] r^2)^2 more.
    """


@wp.func_native(
    _LANES
    + """
    const number* pressures = pressure.data + world * (pressure.strides[0] / sizeof(number));
    const number* pulls = (const number*)pull.data + world * (pull.strides[0] / sizeof(number));
    const number here = pressures[slot];
    many by[11];
    for (int c = 0; c < 11; ++c) by[c] = none;
    for (int k = 0; k < found; k += LANES) {
"""
    + _PAIR
    + _FRICTION
    + """
        many l[4];
        gather_four(pulls, near + k, l);
        for (int c = 0; c < 3; ++c) l[c] = pulls[4 * slot + c] - l[c];
        const many soft = one / (square + soften), ld = dot(l, d), lu = dot(l, u);
        const many art = rough * coefficients[1] * soft, drag = rough * (number(2) * coefficients[0]);
        const many radial = art * along - here - p - push * close, power = radial * ld + drag * lu;
        const many weight = acting * w * w / moving[3], slope = weight * w, lean = ld * art;
        const many bend = number(-1.5) * closer * weight * power / q
                          - number(2) * slope * (lean * along * soft - number(2) * coefficients[3] * push * ld);
        for (int c = 0; c < 3; ++c) {
            by[c] = by[c] + bend * d[c] + slope * (radial * l[c] + lean * u[c]);
            by[3 + c] = by[3 + c] + slope * (lean * d[c] + drag * l[c]);
        }
        by[6] = by[6] - slope * power;
        by[7] = by[7] - slope * ld;
        by[8] = by[8] + slope * rough * number(2) * lu;
        by[9] = by[9] + slope * rough * ld * along * soft;
        by[10] = by[10] - slope * wall * ld * close * close;
    }
    auto out = blank;
    for (int c = 0; c < 11; ++c) out[c] = number(-5) * scale * closer / rho * total(by[c]);
    out[6] = out[6] / rho;
    return out;
"""
)
def sum_force_gradients(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
    coefficients: vec4,
    pull: wp.array2d(dtype=vec4),
    blank: vec11,
) -> vec11:
    """Gradient of the forces' power by a slot's position, velocity, density, pressure, and by three coefficients."""


_STRATA = """
        const many both_fluid = kind + there[3] < number(0.5) ? one : none;
        many excess = moving[3] - rho;
        for (int c = 0; c < 3; ++c) excess = excess + stratification[c] * d[c];
        excess = both_fluid * excess;
"""
"""By how much denser it is there than it would be at rest, between fluid."""


@wp.func_native(
    _LANES
    + """
    many rate = none;
    for (int k = 0; k < found; k += LANES) {
"""
    + _PAIR
    + _STRATA
    + """
        rate = rate + w * w * w / moving[3] * (rho * along - diffusion * excess);
    }
    return number(-5) * scale * closer * total(rate);
"""
)
def sum_rates(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    diffusion: real,
    stratification: vec3,
) -> real:
    """Rate of density for unit mass: rho_i / rho_j (v_i - v_j) . grad W, and diffusion between fluid.

    The diffusion -(rho_j - rho_i) F / rho_j (Molteni and Colagrossi 2009) leaves out the difference of density at
    rest under gravity (Fourtakas 2019), ``-stratification . d``.
    """


@wp.func_native(
    _LANES
    + """
    const number* pulls = pull.data + world * (pull.strides[0] / sizeof(number));
    const number own = kind == number(0) ? pulls[slot] : number(0);
    many by[11];
    for (int c = 0; c < 11; ++c) by[c] = none;
    for (int k = 0; k < found; k += LANES) {
"""
    + _PAIR
    + _STRATA
    + """
        const many l = there[3] == none ? gather(pulls, near + k) : none, slope = w * w * w;
        const many less = number(1) / moving[3], mine = own * less, yours = l * (number(1) / rho);
        const many squeeze = mine * rho + yours * moving[3], spread = mine - yours;
        const many bend = number(-1.5) * closer * w * w / q * (along * squeeze - diffusion * excess * spread);
        const many apart = slope * both_fluid * spread * diffusion;
        for (int c = 0; c < 3; ++c) {
            by[c] = by[c] + bend * d[c] + slope * squeeze * u[c] - apart * stratification[c];
            by[3 + c] = by[3 + c] + slope * squeeze * d[c];
            by[8 + c] = by[8 + c] - apart * d[c];
        }
        by[6] = by[6] + slope * (along * (mine - yours * moving[3] * (number(1) / rho))
                                 - diffusion * excess * yours * (number(1) / rho)) + apart;
        by[7] = by[7] - slope * spread * excess;
    }
    auto out = blank;
    for (int c = 0; c < 11; ++c) out[c] = number(-5) * scale * closer * total(by[c]);
    return out;
"""
)
def sum_rate_gradients(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    diffusion: real,
    stratification: vec3,
    pull: wp.array2d(dtype=real),
    blank: vec11,
) -> vec11:
    """Gradient of both rates' power by a slot's position, velocity, density, by diffusion and stratification.

    Walls' cotangents do not count.
    """
