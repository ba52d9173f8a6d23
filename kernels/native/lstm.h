#pragma once
// An LSTM over all times, and its transposed derivative, on a processor: lstm.py says of what.
#include "warp.h"

#ifndef __CUDACC__
namespace fphys {
namespace {

template <class number> using sixteen = number __attribute__((ext_vector_type(16)));
typedef int whole_sixteen __attribute__((ext_vector_type(16)));
template <class number> struct PackedSixteen {
    sixteen<number> v;
} __attribute__((packed, aligned(sizeof(number)), may_alias));

template <class number> sixteen<number> load(const number* from) { return ((const PackedSixteen<number>*)from)->v; }
template <class number> void store(number* to, const sixteen<number> x) { ((PackedSixteen<number>*)to)->v = x; }
template <class V> V fma(const V a, const V b, const V c) { return __builtin_elementwise_fma(a, b, c); }

// sums[m * 4 + g] += rows of x times a panel's vector g, for as many rows as the type of sums says
template <class number, int size>
void multiply(sixteen<number> (&sums)[size], const number* x, size_t stride, const number* panel, int count)
{
    using lanes = sixteen<number>;
    constexpr int rows = size / 4;
    lanes own[size];
#pragma unroll
    for (int m = 0; m < size; ++m) own[m] = sums[m];
    for (int k = 0; k < count; ++k, panel += 64) {
        const lanes a = load(panel), b = load(panel + 16), c = load(panel + 32), d = load(panel + 48);
#pragma unroll
        for (int m = 0; m < rows; ++m) {
            const lanes s = lanes(x[m * stride + k]);
            own[m * 4] = fma(s, a, own[m * 4]);
            own[m * 4 + 1] = fma(s, b, own[m * 4 + 1]);
            own[m * 4 + 2] = fma(s, c, own[m * 4 + 2]);
            own[m * 4 + 3] = fma(s, d, own[m * 4 + 3]);
        }
    }
#pragma unroll
    for (int m = 0; m < size; ++m) sums[m] = own[m];
}

template <class number, class With> void in_groups(int rows, With& with)  // six rows at a time
{
    sixteen<number> six[24], two[8], one_row[4];
    int r = 0;
    for (; r + 6 <= rows; r += 6) with(six, r);
    for (; r + 2 <= rows; r += 2) with(two, r);
    for (; r < rows; ++r) with(one_row, r);
}

// by 2^n (1 + r + ...) - 1, |r| <= ln 2 / 2; keeps what is not a number
template <class number> sixteen<number> expm1(sixteen<number> x)
{
    using lanes = sixteen<number>;
    x = x < lanes(-87) ? lanes(-87) : x;
    x = x > lanes(87) ? lanes(87) : x;
    const lanes n = __builtin_elementwise_roundeven(x * number(1.44269504));
    const lanes r = fma(n, lanes(number(2.12194440e-4)), fma(n, lanes(number(-0.693359375)), x));
    lanes p = lanes(number(1.0 / 5040));
    p = fma(p, r, lanes(number(1.0 / 720)));
    p = fma(p, r, lanes(number(1.0 / 120)));
    p = fma(p, r, lanes(number(1.0 / 24)));
    p = fma(p, r, lanes(number(1.0 / 6)));
    p = fma(p, r, lanes(number(0.5)));
    p = fma(p * r, r, r);
    const whole_sixteen bits = (__builtin_convertvector(n, whole_sixteen) + 127) << 23;
    const lanes scale = *(const lanes*)&bits;
    return fma(scale, p, scale - number(1));
}
template <class number> sixteen<number> sigmoid(const sixteen<number> x)
{
    return number(1) / (expm1<number>(-x) + number(2));
}
template <class number> sixteen<number> tanh(const sixteen<number> x)
{
    const sixteen<number> e = expm1<number>(x * number(-2));
    return -e / (e + number(2));
}

template <class number>
void lstm_forward(
    int world, int backwards, const array<number>& given, const array<number>& panels, const array<number>& h_in,
    const array<number>& c_in, const array<number>& h_out, const array<number>& c_out, const array<number>& slopes_out)
{
    using lanes = sixteen<number>;
    const int rows = given.shape[1], times = given.shape[2], hidden = h_out.shape[3];
    const size_t wide = (size_t)times * hidden;
    const number* const x = part(given, world);
    const number* const u = part(panels, world);
    number* const h = part(h_out, world);
    number* const c = part(c_out, world);
    number* const slopes = part(slopes_out, world);
    __builtin_memcpy(c, part(c_in, world), rows * hidden * sizeof(number));
    for (int step = 0; step < times; ++step) {
        const int t = backwards ? times - 1 - step : step, last = backwards ? t + 1 : t - 1;
        const number* const before = step ? h + (size_t)last * hidden : part(h_in, world);
        const size_t stride = step ? wide : hidden;
        for (int j = 0; j < hidden; j += 16) {
            auto gates = [&](auto& sums, int first) {
                constexpr int count = sizeof(sums) / sizeof(lanes) / 4;
                for (int m = 0; m < count; ++m)
                    for (int g = 0; g < 4; ++g)
                        sums[m * 4 + g] = load(x + (first + m) * 4 * wide + (size_t)t * 4 * hidden + g * hidden + j);
                multiply<number>(sums, before + first * stride, stride, u + (size_t)j * hidden * 4, hidden);
                for (int m = 0; m < count; ++m) {
                    const int r = first + m;
                    const lanes i = sigmoid<number>(sums[m * 4]), f = sigmoid<number>(sums[m * 4 + 1]);
                    const lanes g = tanh<number>(sums[m * 4 + 2]), o = sigmoid<number>(sums[m * 4 + 3]);
                    const lanes old = load(c + r * hidden + j);
                    const lanes now = f * old + i * g, s = tanh<number>(now), all = lanes(number(1));
                    store(c + r * hidden + j, now);
                    store(h + r * wide + (size_t)t * hidden + j, o * s);
                    number* const to = slopes + r * 6 * wide + (size_t)t * 6 * hidden + j;
                    store(to, g * i * (all - i));
                    store(to + hidden, old * f * (all - f));
                    store(to + 2 * hidden, i * (all - g * g));
                    store(to + 3 * hidden, s * o * (all - o));
                    store(to + 4 * hidden, f);
                    store(to + 5 * hidden, o * (all - s * s));
                }
            };
            in_groups<number>(rows, gates);
        }
    }
}

template <class number>
void lstm_backward(
    int world, int backwards, const array<number>& slopes, const array<number>& panels, const array<number>& h_in,
    const array<number>& c_in, const array<number>& share_out, const array<number>& h_out, const array<number>& c_out)
{
    using lanes = sixteen<number>;
    const int rows = slopes.shape[1], times = slopes.shape[2], hidden = h_in.shape[3];
    const size_t wide = (size_t)times * hidden;
    const number* const u = part(panels, world);
    const number* const noted = part(slopes, world);
    const number* const dh = part(h_in, world);
    number* const share = part(share_out, world);
    number* const h = part(h_out, world);
    number* const c = part(c_out, world);
    __builtin_memcpy(c, part(c_in, world), rows * hidden * sizeof(number));
    __builtin_memset(h, 0, rows * hidden * sizeof(number));
    for (int step = 0; step < times; ++step) {
        const int t = backwards ? step : times - 1 - step;
        for (int r = 0; r < rows; ++r)
            for (int j = 0; j < hidden; j += 16) {
                const number* const from = noted + r * 6 * wide + (size_t)t * 6 * hidden + j;
                number* const to = share + r * 4 * wide + (size_t)t * 4 * hidden + j;
                const lanes at = load(h + r * hidden + j) + load(dh + r * wide + (size_t)t * hidden + j);
                const lanes now = load(c + r * hidden + j) + load(from + 5 * hidden) * at;
                store(to, load(from) * now);
                store(to + hidden, load(from + hidden) * now);
                store(to + 2 * hidden, load(from + 2 * hidden) * now);
                store(to + 3 * hidden, load(from + 3 * hidden) * at);
                store(c + r * hidden + j, load(from + 4 * hidden) * now);
            }
        for (int j = 0; j < hidden; j += 64) {
            auto back = [&](auto& sums, int first) {
                constexpr int count = sizeof(sums) / sizeof(lanes) / 4;
                for (int m = 0; m < 4 * count; ++m) sums[m] = lanes(number(0));
                multiply<number>(sums, share + first * 4 * wide + (size_t)t * 4 * hidden, 4 * wide,
                         u + (size_t)j * 4 * hidden, 4 * hidden);
                for (int m = 0; m < count; ++m)
                    for (int g = 0; g < 4; ++g) store(h + (first + m) * hidden + j + g * 16, sums[m * 4 + g]);
            };
            in_groups<number>(rows, back);
        }
    }
}

}
}
#endif
