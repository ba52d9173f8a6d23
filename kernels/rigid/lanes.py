"""Eight worlds side by side: one number of each in the lanes of a vector register.

A mechanism's rows are too short to fill vector registers, so each loop over them runs for eight worlds at once. Thread
``world`` of a kernel takes the worlds from there on if it is a multiple of eight, on a processor; on a GPU, and where
the stack has no room, the general code does its part. What a lane computes does not depend on what the others hold.

The text below is native code that such functions begin with. They have an argument ``world``, the first of eight, and
one named ``tiny``, a real number: what is small to them.
"""

from ..vectors import EIGHT

LANES = 8
"""Worlds side by side."""

BEGIN = (
    "typedef decltype(tiny + tiny) number;"
    + EIGHT
    + """
    const lanes none = number(0), all = number(1);
    const size_t stack = 1 << 20;  // bytes of it that a thread may use
    auto row = [](auto& a, int w) { return (decltype(a.data))((char*)a.data + w * a.strides[0]); };
    int at[8];  // the last world stands for those that are missing
    auto begin = [&](auto& a) -> int {
        const int left = a.shape[0] - world, count = left < 8 ? left : 8;
        for (int k = 0; k < 8; ++k) at[k] = world + (k < count ? k : count - 1);
        return count;
    };
    auto gather = [&](const number* const* from, lanes* to, int count) {  // lane k from from[k]
        int i = 0;
        for (; i + 8 <= count; i += 8) {
            lanes m[8];
            for (int k = 0; k < 8; ++k) m[k] = ((const packed*)(from[k] + i))->v;
            flip(m);
            for (int k = 0; k < 8; ++k) to[i + k] = m[k];
        }
        for (; i < count; ++i)
            for (int k = 0; k < 8; ++k) to[i][k] = from[k][i];
    };
    auto load = [&](auto& a, lanes* to, int count) {
        const number* from[8];
        for (int k = 0; k < 8; ++k) from[k] = (const number*)row(a, at[k]);
        gather(from, to, count);
    };
    auto store = [&](const lanes* from, auto& a, int count) {  // twice where the last world stands for others
        number* to[8];
        for (int k = 0; k < 8; ++k) to[k] = (number*)row(a, at[k]);
        int i = 0;
        for (; i + 8 <= count; i += 8) {
            lanes m[8];
            for (int k = 0; k < 8; ++k) m[k] = from[i + k];
            flip(m);
            for (int k = 0; k < 8; ++k) ((packed*)(to[k] + i))->v = m[k];
        }
        for (; i < count; ++i)
            for (int k = 0; k < 8; ++k) to[k][i] = from[i][k];
    };
"""
)
"""Types, which worlds, and the way between them and memory."""

DENSE = """
    auto factorise = [&](int n, lanes* L, lanes* inverse) {  // L^T L in place, as in dense.py; one over the diagonal
        for (int k = n - 1; k >= 0; --k) {
            lanes* const line = L + k * (k + 1) / 2;
            lanes whole = line[k];
            for (int m = k + 1; m < n; ++m) whole += L[m * (m + 1) / 2 + k] * L[m * (m + 1) / 2 + k];
            const lanes least = rounding * whole > tiny ? rounding * whole : lanes(tiny);
            line[k] = __builtin_elementwise_sqrt(line[k] > least ? line[k] : least);
            inverse[k] = all / line[k];
            for (int i = 0; i < k; ++i) line[i] *= inverse[k];
            for (int i = 0; i < k; ++i) {
                const lanes s = line[i];
                lanes* const to = L + i * (i + 1) / 2;
                if (any(s != none))
                    for (int j = 0; j <= i; ++j) to[j] -= s * line[j];
            }
        }
    };
    auto solve = [&](int n, const lanes* L, const lanes* inverse, lanes* x) {  // L^T L y = x, in place
        for (int k = n - 1; k >= 0; --k) {
            const lanes* const line = L + k * (k + 1) / 2;
            x[k] *= inverse[k];
            for (int i = 0; i < k; ++i) x[i] -= line[i] * x[k];
        }
        for (int k = 0; k < n; ++k) {
            const lanes* const line = L + k * (k + 1) / 2;
            lanes s = x[k];
            for (int i = 0; i < k; ++i) s -= line[i] * x[i];
            x[k] = s * inverse[k];
        }
    };
"""
"""Factor and solve. ``tiny`` is the least pivot, ``rounding``, an argument too, the part of one that is rounding."""


def native(body: str, otherwise: str = "") -> str:
    """A native function's text: the body on a processor, ``otherwise`` on a GPU."""
    return f"#ifndef __CUDACC__\n{BEGIN}{body}\n#else\n{otherwise}\n#endif\n"
