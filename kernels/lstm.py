"""An LSTM over all times in one launch, and its transposed derivative: native code, in float32, on a processor.

A thread takes a world, some rows of the batch, through time. What the rows share, the recurrent kernel, comes packed in
panels of 64 columns, so that six rows by four vector registers are summed without leaving them; gates follow at once,
while the sums are still there.
"""

import warp as wp

from ._precision import real

_BEGIN = """
    typedef decltype(one + one) number;
    typedef number lanes __attribute__((ext_vector_type(16)));
    typedef int whole __attribute__((ext_vector_type(16)));
    struct packed { lanes v; } __attribute__((packed, aligned(sizeof(number)), may_alias));
    auto load = [](const number* from) -> lanes { return ((const packed*)from)->v; };
    auto store = [](number* to, const lanes x) { ((packed*)to)->v = x; };
    auto fma = [](const lanes a, const lanes b, const lanes c) { return __builtin_elementwise_fma(a, b, c); };
    auto row = [&](auto& a) { return (number*)((char*)a.data + world * a.strides[0]); };
    // sums[m * 4 + g] += rows of x times a panel's vector g, for as many rows as the type of sums says
    auto multiply = [&](auto& sums, const number* x, size_t stride, const number* panel, int count) {
        constexpr int rows = sizeof(sums) / sizeof(lanes) / 4;
        lanes own[rows * 4];
#pragma unroll
        for (int m = 0; m < rows * 4; ++m) own[m] = sums[m];
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
        for (int m = 0; m < rows * 4; ++m) sums[m] = own[m];
    };
    auto in_groups = [&](int rows, auto& with) {  // six rows at a time
        lanes six[24], two[8], one_row[4];
        int r = 0;
        for (; r + 6 <= rows; r += 6) with(six, r);
        for (; r + 2 <= rows; r += 2) with(two, r);
        for (; r < rows; ++r) with(one_row, r);
    };
"""

_FORWARD = """
    auto expm1 = [&](lanes x) -> lanes {  // by 2^n (1 + r + ...) - 1, |r| <= ln 2 / 2; keeps what is not a number
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
        const whole bits = (__builtin_convertvector(n, whole) + 127) << 23;
        const lanes scale = *(const lanes*)&bits;
        return fma(scale, p, scale - number(1));
    };
    auto sigmoid = [&](const lanes x) -> lanes { return number(1) / (expm1(-x) + number(2)); };
    auto tanh = [&](const lanes x) -> lanes {
        const lanes e = expm1(x * number(-2));
        return -e / (e + number(2));
    };
    const int rows = given.shape[1], times = given.shape[2], hidden = h_out.shape[3];
    const size_t wide = (size_t)times * hidden;
    const number* const x = row(given);
    const number* const u = row(panels);
    number* const h = row(h_out);
    number* const c = row(c_out);
    number* const slopes = row(slopes_out);
    __builtin_memcpy(c, row(c_in), rows * hidden * sizeof(number));
    for (int step = 0; step < times; ++step) {
        const int t = backwards ? times - 1 - step : step, last = backwards ? t + 1 : t - 1;
        const number* const before = step ? h + (size_t)last * hidden : row(h_in);
        const size_t stride = step ? wide : hidden;
        for (int j = 0; j < hidden; j += 16) {
            auto gates = [&](auto& sums, int first) {
                constexpr int count = sizeof(sums) / sizeof(lanes) / 4;
                for (int m = 0; m < count; ++m)
                    for (int g = 0; g < 4; ++g)
                        sums[m * 4 + g] = load(x + (first + m) * 4 * wide + (size_t)t * 4 * hidden + g * hidden + j);
                multiply(sums, before + first * stride, stride, u + (size_t)j * hidden * 4, hidden);
                for (int m = 0; m < count; ++m) {
                    const int r = first + m;
                    const lanes i = sigmoid(sums[m * 4]), f = sigmoid(sums[m * 4 + 1]), g = tanh(sums[m * 4 + 2]);
                    const lanes o = sigmoid(sums[m * 4 + 3]), old = load(c + r * hidden + j);
                    const lanes now = f * old + i * g, s = tanh(now), all = lanes(number(1));
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
            in_groups(rows, gates);
        }
    }
"""

_TRANSPOSED = """
    const int rows = slopes.shape[1], times = slopes.shape[2], hidden = h_in.shape[3];
    const size_t wide = (size_t)times * hidden;
    const number* const u = row(panels);
    const number* const noted = row(slopes);
    const number* const dh = row(h_in);
    number* const share = row(share_out);
    number* const h = row(h_out);
    number* const c = row(c_out);
    __builtin_memcpy(c, row(c_in), rows * hidden * sizeof(number));
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
                multiply(sums, share + first * 4 * wide + (size_t)t * 4 * hidden, 4 * wide,
                         u + (size_t)j * 4 * hidden, 4 * hidden);
                for (int m = 0; m < count; ++m)
                    for (int g = 0; g < 4; ++g) store(h + (first + m) * hidden + j + g * 16, sums[m * 4 + g]);
            };
            in_groups(rows, back);
        }
    }
"""


def _native(body: str) -> str:
    """A native function's text: none on a GPU."""
    return f"#ifndef __CUDACC__\n{_BEGIN}{body}\n#endif\n"


@wp.func_native(_native(_FORWARD))
def _forward(
    world: int,
    backwards: int,
    one: real,
    given: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array3d(dtype=real),
    c_in: wp.array3d(dtype=real),
    h_out: wp.array4d(dtype=real),
    c_out: wp.array3d(dtype=real),
    slopes_out: wp.array4d(dtype=real),
):  # type: ignore[empty-body]
    ...


@wp.func_native(_native(_TRANSPOSED))
def _transposed(
    world: int,
    backwards: int,
    one: real,
    slopes: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array4d(dtype=real),
    c_in: wp.array3d(dtype=real),
    share_out: wp.array4d(dtype=real),
    h_out: wp.array3d(dtype=real),
    c_out: wp.array3d(dtype=real),
):  # type: ignore[empty-body]
    ...


@wp.kernel(enable_backward=False)
def lstm(
    # Structure:
    backwards: int,
    # In:
    given: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array3d(dtype=real),
    c_in: wp.array3d(dtype=real),
    # Out:
    h_out: wp.array4d(dtype=real),
    c_out: wp.array3d(dtype=real),
    slopes_out: wp.array4d(dtype=real),
):
    """Hidden states at all times, the last c, and the slopes, of a world, a tile of rows.

    Shapes by world and row: ``given`` (time, 4 hidden), ``h_out`` (time, hidden), ``slopes_out`` (time, 6 hidden), the
    others (hidden,). ``panels``, shared, has the recurrent kernel's columns 16 j of each gate in panel j, shape
    (hidden / 16, hidden, 64).
    """
    world = wp.tid()
    _forward(world, backwards, real(1.0), given, panels, h_in, c_in, h_out, c_out, slopes_out)


@wp.kernel(enable_backward=False)
def lstm_transposed(
    # Structure:
    backwards: int,
    # In:
    slopes: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array4d(dtype=real),
    c_in: wp.array3d(dtype=real),
    # Out:
    share_out: wp.array4d(dtype=real),
    h_out: wp.array3d(dtype=real),
    c_out: wp.array3d(dtype=real),
):
    """From cotangents of all h and of the last c, those of the gates before activation and of the first h and c.

    ``panels`` has the recurrent kernel transposed, in blocks of 64 columns: (hidden / 64, 4 hidden, 64).
    """
    world = wp.tid()
    _transposed(world, backwards, real(1.0), slopes, panels, h_in, c_in, share_out, h_out, c_out)
