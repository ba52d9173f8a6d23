"""Between particles and the nodes around them: quadratic B-splines, and the two sums of a transfer, as native code.

A particle spreads an affine field q0 + (i - f0) q1 + (j - f1) q2 + (k - f2) q3 over the 3 x 3 x 3 nodes (i, j, k) of
its stencil (3 x 3 in a plane), where it stands at f, and collects from them the moments sum(w g), sum(w (i - f0) g) and
so on. Each is the other's transpose; their adjoints are written out, in one pass over the nodes. A node holds four
numbers (momentum or velocity, mass), which a processor adds at once; in a plane the third is zero.

Arrays are indexed [world, node], nodes in row-major order; ``nodes`` counts them per axis, 1 along z in a plane. The
sums are native code, for Warp's own vectors and indices do not stay in a processor's registers here: pieces of it stand
here, the wholes in spread.py and collect.py. A thread takes a batch of eight particles, for to begin one costs as much
as half a particle. The sums go along lines of three nodes that follow one another in memory, two of them at once, lines
along the middle axis, and planes along the outer one. A scene in a plane is one plane.
"""

BATCH = """
#ifndef __CUDACC__
#pragma clang fp contract(fast)
#endif
    const int n = x.shape[1];
#ifdef __CUDACC__
    const int first = batch, stride = (n + 7) / 8;  // neighbours in memory go to neighbours among the threads
#else
    const int first = 8 * batch, stride = 1;
#endif
    const int count = first + 7 * stride < n ? 8 : (n - first + stride - 1) / stride;
"""
"""Which particles are a thread's: ``count`` of them from ``first`` on."""

ALONE = """
#ifndef __CUDACC__
#pragma clang fp contract(fast)
#endif
    const int first = p, stride = 1, count = 1, k = 0;
"""
"""One particle, ``p``."""

ROW = """
    auto row = [&](auto& a, int p) {
        return (decltype(a.data))((char*)a.data + world * a.strides[0] + p * a.strides[1]);
    };
"""
"""Where an array keeps a particle's, or a node's."""

TYPES = """
    typedef decltype(dx + dx) number;
#ifdef __CUDACC__
    typedef wp::vec_t<4, number> four;
    struct eight {
        four a, b;
        CUDA_CALLABLE eight operator+(const eight o) const { return {a + o.a, b + o.b}; }
        CUDA_CALLABLE eight operator*(const eight o) const { return {wp::cw_mul(a, o.a), wp::cw_mul(b, o.b)}; }
        CUDA_CALLABLE eight operator*(const number w) const { return {w * a, w * b}; }
    };
    auto make = [](number a, number b, number c, number d) -> four { return four(a, b, c, d); };
    auto pair = [](const four a, const four b) -> eight { return {a, b}; };
    auto folded = [](const eight v) -> four { return v.a + v.b; };
    auto times = [](const four a, const four b) -> four { return wp::cw_mul(a, b); };
    auto get = [](const four* node) -> eight { return {node[0], node[1]}; };
    auto add = [](four* node, const eight v, const four c) {
        wp::atomic_add(node, v.a), wp::atomic_add(node + 1, v.b), wp::atomic_add(node + 2, c);
    };
    auto sum_up = [](number* to, const number value) { wp::atomic_add(to, value); };
    const int wide = 1;
    typedef number lanes;
    typedef int whole;
    auto truncated = [](const number v) -> int { return (int)v; };
    auto widened = [](const int v) -> number { return number(v); };
    auto set = [](auto& v, int, auto value) { v = value; };
#else
    typedef number four __attribute__((ext_vector_type(4)));
    typedef number eight __attribute__((ext_vector_type(8)));
    struct two { eight v; } __attribute__((packed, aligned(4 * sizeof(number)), may_alias));
    auto make = [](number a, number b, number c, number d) -> four { return four{a, b, c, d}; };
    auto pair = [](const four a, const four b) -> eight {
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
    };
    auto folded = [](const eight v) -> four { return v.lo + v.hi; };
    auto times = [](const four a, const four b) -> four { return a * b; };
    auto get = [](const four* node) -> eight { return ((const two*)node)->v; };
    auto add = [](four* node, const eight v, const four c) { ((two*)node)->v += v, node[2] += c; };
    auto sum_up = [](number* to, const number value) { *to += value; };
    const int wide = 8;
    typedef eight lanes;
    typedef int whole __attribute__((ext_vector_type(8)));
    auto truncated = [](const lanes v) -> whole { return __builtin_convertvector(v, whole); };
    auto widened = [](const whole v) -> lanes { return __builtin_convertvector(v, lanes); };
    auto set = [](auto& v, int k, auto value) { v[k] = value; };
#endif
    const bool flat = nodes[2] == 1;
    const number z = flat ? 0 : 1, one = 1, half = number(0.5), none = 0;
    const four zero = make(none, none, none, none);
    const int to_plane = flat ? 0 : nodes[1] * nodes[2], to_line = flat ? nodes[1] : nodes[2];
    auto each = [&](const number a, const number b) -> eight { return pair(make(a, a, a, a), make(b, b, b, b)); };
    lanes places[3], weight[9];  // of as many particles as are wide, along the outer, middle and inner axis
    whole nodes_first;
    auto locate = [&](int begin) {
        whole base[3];
        for (int a = 0; a < 3; ++a) {
            lanes away;
            for (int k = 0; k < wide; ++k) {
                const int p = first + (begin + k < count ? begin + k : begin) * stride;
                set(away, k, a < 2 || !flat ? row(x, p)[a] - lower[a] : -dx);
            }
            const lanes y = away / dx + number(1.5);
            base[a] = truncated(y - half);
            places[a] = y - widened(base[a]);
        }
        nodes_first = (base[0] * nodes[1] + base[1]) * nodes[2] + base[2];
        if (flat) places[2] = places[1], places[1] = places[0], places[0] = lanes(one);
        for (int a = 0; a < 3; ++a) {  // Steffen et al. 2008
            const lanes l = number(1.5) - places[a], m = places[a] - one, r = places[a] - half;
            weight[3 * a] = half * l * l, weight[3 * a + 1] = number(0.75) - m * m, weight[3 * a + 2] = half * r * r;
        }
        if (flat) weight[0] = lanes(one);
    };
    auto of = [&](auto& v, int k) { return ((const decltype(one + one)*)&v)[k % wide]; };
"""
"""Two nodes beside each other are eight numbers."""

PLACE = """
        const number* const at = row(x, p);
        const number fo = of(places[0], k), fm = of(places[1], k), fi = of(places[2], k);
        const number wo[3] = {of(weight[0], k), of(weight[1], k), of(weight[2], k)};
        const number wm[3] = {of(weight[3], k), of(weight[4], k), of(weight[5], k)};
        const number wi[3] = {of(weight[6], k), of(weight[7], k), of(weight[8], k)};
        const int first_node = ((const int*)&nodes_first)[k % wide];
        const eight weights = each(wi[0], wi[1]);
"""
"""Where a particle stands, its weights along the axes, and the first of its stencil's nodes."""

ROWS = """
        const four qm = flat ? rows[1] : rows[2], qi = flat ? rows[2] : rows[3], qo = rows[1];
        four start = rows[0] - fm * qm - fi * qi;
        if (!flat) start = start - fo * qo;
"""
"""The affine field at the first node, and by how much it grows along the axes."""

SPREAD = """
        {
            const eight middle = weights * pair(qm, qm), outer = weights * pair(qo, qo);
            const four middle_2 = wi[2] * qm, outer_2 = wi[2] * qo;
            eight begin = weights * pair(start, start + qi);
            four begin_2 = wi[2] * (start + number(2) * qi);
            auto plane = [&](int i) {
                eight line = begin;
                four line_2 = begin_2;
                for (int j = 0; j < 3; ++j) {
                    const number w = wo[i] * wm[j];
                    add(to + i * to_plane + j * to_line, line * w, w * line_2);
                    line = line + middle, line_2 = line_2 + middle_2;
                }
                begin = begin + outer, begin_2 = begin_2 + outer_2;
            };
            plane(0);
            if (!flat) plane(1), plane(2);
        }
"""
"""Add w times the affine field of rows q to every node of the stencil."""

COLLECT = """
        eight sum = each(none, none), outer = sum, middle = sum;
        four sum_2 = zero, outer_2 = zero, middle_2 = zero;
        auto plane = [&](int i) {
            eight m = each(none, none), m_middle = m;
            four m_2 = zero, m_middle_2 = zero;
            for (int j = 0; j < 3; ++j) {
                const four* const line = from + i * to_plane + j * to_line;
                const number w = wm[j], arm = w * (number(j) - fm);
                const eight a = get(line);
                const four c = line[2];
                m = m + a * w, m_2 = m_2 + w * c;
                m_middle = m_middle + a * arm, m_middle_2 = m_middle_2 + arm * c;
            }
            const number w = wo[i], arm = w * (number(i) - fo);
            sum = sum + m * w, sum_2 = sum_2 + w * m_2;
            outer = outer + m * arm, outer_2 = outer_2 + arm * m_2;
            middle = middle + m_middle * w, middle_2 = middle_2 + w * m_middle_2;
        };
        plane(0);
        if (!flat) plane(1), plane(2);
        const four total = folded(weights * sum) + wi[2] * sum_2;
        const four along = folded(each(none, wi[1]) * sum) + (number(2) * wi[2]) * sum_2 - fi * total;
        const four across = folded(weights * middle) + wi[2] * middle_2;
        const four moment_1 = flat ? across : folded(weights * outer) + wi[2] * outer_2;
        const four moment_2 = flat ? along : across, moment_3 = flat ? zero : along;
"""
"""The moments of a field g: sum(w g), sum(w (i - f) g), along j and k likewise."""

MOMENTS = """
        const number dO[3] = {fo - number(1.5), number(2) * (one - fo), fo - half};
        const number dm[3] = {fm - number(1.5), number(2) * (one - fm), fm - half};
        const number di[3] = {fi - number(1.5), number(2) * (one - fi), fi - half};
        const eight grow = pair(qm, qm), grow_outer = pair(qo, qo);
        eight begin = pair(start, start + qi), sum = each(none, none), outer = sum, middle = sum;
        eight dx_ = sum, dy_ = sum, dz_ = sum;
        four begin_2 = start + number(2) * qi, sum_2 = zero, outer_2 = zero, middle_2 = zero;
        four dx_2 = zero, dy_2 = zero, dz_2 = zero;
        auto plane = [&](int i) {
            eight line = begin, m = each(none, none), m_middle = m, e = m, e_middle = m;
            four line_2 = begin_2, m_2 = zero, m_middle_2 = zero, e_2 = zero, e_middle_2 = zero;
            for (int j = 0; j < 3; ++j) {
                const four* const node = from + i * to_plane + j * to_line;
                const number w = wm[j], arm = w * (number(j) - fm), d = dm[j];
                const eight a = get(node), ea = line * a;
                const four c = node[2], ec = times(line_2, c);
                m = m + a * w, m_2 = m_2 + w * c;
                m_middle = m_middle + a * arm, m_middle_2 = m_middle_2 + arm * c;
                e = e + ea * w, e_2 = e_2 + w * ec;
                e_middle = e_middle + ea * d, e_middle_2 = e_middle_2 + d * ec;
                line = line + grow, line_2 = line_2 + qm;
            }
            const number w = wo[i], arm = w * (number(i) - fo), d = dO[i];
            sum = sum + m * w, sum_2 = sum_2 + w * m_2;
            outer = outer + m * arm, outer_2 = outer_2 + arm * m_2;
            middle = middle + m_middle * w, middle_2 = middle_2 + w * m_middle_2;
            dx_ = dx_ + e * d, dx_2 = dx_2 + d * e_2;
            dy_ = dy_ + e_middle * w, dy_2 = dy_2 + w * e_middle_2;
            dz_ = dz_ + e * w, dz_2 = dz_2 + w * e_2;
            begin = begin + grow_outer, begin_2 = begin_2 + qo;
        };
        plane(0);
        if (!flat) plane(1), plane(2);
        const four total = folded(weights * sum) + wi[2] * sum_2;
        const four along = folded(each(none, wi[1]) * sum) + (number(2) * wi[2]) * sum_2 - fi * total;
        const four across = folded(weights * middle) + wi[2] * middle_2;
        const four moment_1 = flat ? across : folded(weights * outer) + wi[2] * outer_2;
        const four moment_2 = flat ? along : across, moment_3 = flat ? zero : along;
        const four by_o = folded(weights * dx_) + wi[2] * dx_2 - times(total, qo);
        const four by_m = folded(weights * dy_) + wi[2] * dy_2 - times(total, qm);
        const four by_i = folded(each(di[0], di[1]) * dz_) + di[2] * dz_2 - times(total, qi);
        auto all = [](const four v) -> number { return (v[0] + v[1]) + (v[2] + v[3]); };
        const number slope[3] = {all(flat ? by_m : by_o), all(flat ? by_i : by_m), flat ? none : all(by_i)};
"""
"""The moments of a field g, and the derivative by f of sum(w q(i) g), q affine."""

PARTICLES = """
    for (int k = 0; k < count; ++k) {
        const int p = first + k * stride;
        if (k % wide == 0) locate(k);
"""
