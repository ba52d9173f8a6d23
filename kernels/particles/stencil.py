"""Between a particle and the nodes around it: quadratic B-splines, and the two sums of a transfer.

A particle spreads an affine field q0 + (i - f0) q1 + (j - f1) q2 + (k - f2) q3 over the 3 x 3 x 3 nodes (i, j, k) of
its stencil (3 x 3 in a plane), where it stands at f, and collects from them the moments sum(w g), sum(w (i - f0) g) and
so on. Each is the other's transpose; their adjoints are written out, in one pass over the nodes. A node holds four
numbers (momentum or velocity, mass), which a processor adds at once; in a plane the third is zero.

Arrays are indexed [world, node], nodes in row-major order; ``nodes`` counts them per axis, 1 along z in a plane. The
sums are native code, for Warp's own vectors and indices do not stay in a processor's registers here: they go along
lines of three nodes that follow one another in memory, lines along the middle axis, and planes along the outer one. A
scene in a plane is one plane.
"""

import warp as wp

from .._precision import mat33, mat44, mat54, real, vec3, vec4

_AXES = """
#ifdef __CUDACC__
    typedef decltype(f[0] * f[0]) number;
    typedef wp::vec_t<4, number> four;
    auto times = [](const four a, const four b) -> four { return wp::cw_mul(a, b); };
#else
#pragma clang fp contract(fast)
    typedef decltype(f[0] * f[0]) number;
    typedef number four __attribute__((ext_vector_type(4)));
    auto times = [](const four a, const four b) -> four { return a * b; };
#endif
    const bool flat = nodes[2] == 1;
    const number one = 1, half = number(0.5), none = 0;
    const number fo = flat ? one : f[0], fm = flat ? f[0] : f[1], fi = flat ? f[1] : f[2];
    const int planes = flat ? 1 : 3, to_plane = flat ? 0 : nodes[1] * nodes[2], to_line = flat ? nodes[1] : nodes[2];
    auto weigh = [&](number x, number* w) {  // Steffen et al. 2008
        const number l = number(1.5) - x, m = x - one, r = x - half;
        w[0] = half * l * l, w[1] = number(0.75) - m * m, w[2] = half * r * r;
    };
    number wo[3], wm[3], wi[3];
    weigh(fo, wo), weigh(fm, wm), weigh(fi, wi);
    if (flat) wo[0] = one;
    const auto* world_grid = grid.data + world * (grid.strides[0] / sizeof(*grid.data));
    four* const corner = (four*)(world_grid + (base[0] * nodes[1] + base[1]) * nodes[2] + base[2]);
"""
"""Weights along the outer, middle and inner axis, and the first of a stencil's nodes."""

_ROWS = """
    const four* rows = (const four*)q.data;
    const four qo = rows[1], qm = flat ? rows[1] : rows[2], qi = flat ? rows[2] : rows[3];
    four start = rows[0] - fm * qm - fi * qi;
    if (!flat) start = start - fo * qo;
"""
"""The affine field at the first node, and by how much it grows along the axes."""


@wp.func_native(
    _AXES
    + _ROWS
    + """
    auto add = [](four* node, const four value) {
#ifdef __CUDACC__
        wp::atomic_add(node, value);
#else
        *node += value;
#endif
    };
    for (int i = 0; i < planes; ++i) {
        four row = start;
        for (int j = 0; j < 3; ++j) {
            four* const line = corner + i * to_plane + j * to_line;
            const number w = wo[i] * wm[j];
            add(line, (w * wi[0]) * row);
            add(line + 1, (w * wi[1]) * (row + qi));
            add(line + 2, (w * wi[2]) * (row + number(2) * qi));
            row = row + qm;
        }
        start = start + qo;
    }
"""
)
def spread_lines(world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4)):
    """Add w times the affine field of rows q to every node of the stencil."""


@wp.func_native(
    _AXES
    + """
    four sum = none * corner[0], sum_outer = sum, sum_middle = sum, sum_inner = sum;
    for (int i = 0; i < planes; ++i) {
        for (int j = 0; j < 3; ++j) {
            const four* const line = corner + i * to_plane + j * to_line;
            const number w = wo[i] * wm[j];
            const four a = (w * wi[0]) * line[0], b = (w * wi[1]) * line[1], c = (w * wi[2]) * line[2];
            const four m = a + b + c;
            sum = sum + m;
            sum_outer = sum_outer + (number(i) - fo) * m;
            sum_middle = sum_middle + (number(j) - fm) * m;
            sum_inner = sum_inner + b + number(2) * c - fi * m;
        }
    }
    auto out = blank;
    four* const rows = (four*)out.data;
    rows[0] = sum;
    rows[1] = flat ? sum_middle : sum_outer;
    rows[2] = flat ? sum_inner : sum_middle;
    if (!flat) rows[3] = sum_inner;
    return out;
"""
)
def collect_lines(
    world: int, base: wp.vec3i, f: vec3, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4), blank: mat44
) -> mat44:
    """The moments of a field g, rows sum(w g), sum(w (i - f) g), along j and k likewise; ``blank`` is zero."""


@wp.func_native(
    _AXES
    + _ROWS
    + """
    number dO[3] = {fo - number(1.5), number(2) * (one - fo), fo - half};
    number dm[3] = {fm - number(1.5), number(2) * (one - fm), fm - half};
    number di[3] = {fi - number(1.5), number(2) * (one - fi), fi - half};
    four sum = none * qm, sum_outer = sum, sum_middle = sum, sum_inner = sum, x = sum, y = sum, z = sum;
    for (int i = 0; i < planes; ++i) {
        four row = start, m = none * qm, m_middle = m, m_inner = m, e = m, e_middle = m, e_inner = m;
        for (int j = 0; j < 3; ++j) {
            const four* const line = corner + i * to_plane + j * to_line;
            const four a = line[0], b = line[1], c = line[2];
            const four ea = times(row, a), eb = times(row + qi, b), ec = times(row + number(2) * qi, c);
            const four wa = wi[0] * a, wb = wi[1] * b, wc = wi[2] * c, l = wa + wb + wc;
            const four le = wi[0] * ea + wi[1] * eb + wi[2] * ec;
            m = m + wm[j] * l;
            m_middle = m_middle + (wm[j] * (number(j) - fm)) * l;
            m_inner = m_inner + wm[j] * (wb + number(2) * wc - fi * l);
            e = e + wm[j] * le;
            e_middle = e_middle + dm[j] * le;
            e_inner = e_inner + wm[j] * (di[0] * ea + di[1] * eb + di[2] * ec);
            row = row + qm;
        }
        sum = sum + wo[i] * m;
        sum_outer = sum_outer + (wo[i] * (number(i) - fo)) * m;
        sum_middle = sum_middle + wo[i] * m_middle;
        sum_inner = sum_inner + wo[i] * m_inner;
        x = x + dO[i] * e;
        y = y + wo[i] * e_middle;
        z = z + wo[i] * e_inner;
        start = start + qo;
    }
    x = x - times(sum, qo), y = y - times(sum, qm), z = z - times(sum, qi);
    auto out = blank;
    four* const to = (four*)out.data;
    to[0] = sum;
    to[1] = flat ? sum_middle : sum_outer;
    to[2] = flat ? sum_inner : sum_middle;
    if (!flat) to[3] = sum_inner;
    auto total = [](const four v) { return (v[0] + v[1]) + (v[2] + v[3]); };
    out.data[4][0] = total(flat ? y : x);
    out.data[4][1] = total(flat ? z : y);
    out.data[4][2] = flat ? none : total(z);
    return out;
"""
)
def moments(
    world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4), blank: mat54
) -> mat54:
    """The moments of a field g, and in a fifth row the derivative by f of sum(w q(i) g), q affine."""


@wp.func
def spread(world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid_out: wp.array2d(dtype=vec4)):
    """Add w times the affine field of rows q to every node of the stencil that begins at ``base``."""
    spread_lines(world, base, f, q, nodes, grid_out)


@wp.func_replay(spread)
def no_replay_of_spread(
    world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid_out: wp.array2d(dtype=vec4)
):
    """A backward pass has no use for the sums."""


@wp.func
def collect(world: int, base: wp.vec3i, f: vec3, h: real, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4)) -> mat54:
    """The moments of a field on the nodes of the stencil, rows sum(w g), sum(w (i - f) g), along j and k likewise.

    In a fifth row h times the first: with a field of velocities, the way that is gone.
    """
    m = collect_lines(world, base, f, nodes, grid, mat44())
    return wp.matrix_from_rows(m[0], m[1], m[2], m[3], h * m[0])


@wp.func_replay(collect)
def no_replay_of_collect(world: int, base: wp.vec3i, f: vec3, h: real, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4)):
    """A backward pass has no use for the moments: what becomes of them is linear."""
    return mat54()


@wp.func_grad(spread)
def adj_spread(world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid_out: wp.array2d(dtype=vec4)):
    """What is spread is collected; moving the particle turns the weights, and shifts the field."""
    m = moments(world, base, f, q, nodes, wp.adjoint[grid_out], mat54())
    wp.adjoint[q] += wp.matrix_from_rows(m[0], m[1], m[2], m[3])
    wp.adjoint[f] += vec3(m[4, 0], m[4, 1], m[4, 2])


@wp.func_grad(collect)
def adj_collect(
    world: int, base: wp.vec3i, f: vec3, h: real, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4), adj_ret: mat54
):
    """What is collected is spread; moving the particle turns the weights, and shifts the first moments."""
    q = wp.matrix_from_rows(adj_ret[0] + h * adj_ret[4], adj_ret[1], adj_ret[2], adj_ret[3])
    m = moments(world, base, f, q, nodes, grid, mat54())
    spread_lines(world, base, f, q, nodes, wp.adjoint[grid])
    wp.adjoint[f] += vec3(m[4, 0], m[4, 1], m[4, 2])
    wp.adjoint[h] += wp.dot(m[0], adj_ret[4])


@wp.func
def affine(value: vec4, rate: mat33, dx: real, nodes: wp.vec3i) -> mat44:
    """Rows of the field value + rate (x_node - x), its fourth component constant; nothing along z in a plane."""
    o = real(0.0)
    a = dx * vec4(rate[0, 0], rate[1, 0], rate[2, 0], o)
    b = dx * vec4(rate[0, 1], rate[1, 1], rate[2, 1], o)
    c = dx * vec4(rate[0, 2], rate[1, 2], rate[2, 2], o)
    if nodes[2] == 1:
        a = dx * vec4(rate[0, 0], rate[1, 0], o, o)
        b = dx * vec4(rate[0, 1], rate[1, 1], o, o)
        c = vec4()
    return wp.matrix_from_rows(value, a, b, c)
