#pragma once
// Matrices, the rotation in a deformation, and the corotated stress, with their adjoints: for one particle or eight.
#include "eight.h"

namespace fphys {
namespace {

template <class V> struct Matrix {
    V e[9];
};

template <class V> CUDA_CALLABLE WP_FORCEINLINE Matrix<V> times(const Matrix<V>& a, const Matrix<V>& b)
{
#pragma clang fp contract(fast)
    Matrix<V> m;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            m.e[3 * i + j] = a.e[3 * i] * b.e[j] + a.e[3 * i + 1] * b.e[3 + j] + a.e[3 * i + 2] * b.e[6 + j];
    return m;
}

template <class V> CUDA_CALLABLE WP_FORCEINLINE Matrix<V> turned(const Matrix<V>& a)
{
    return {a.e[0], a.e[3], a.e[6], a.e[1], a.e[4], a.e[7], a.e[2], a.e[5], a.e[8]};
}

template <class V> CUDA_CALLABLE WP_FORCEINLINE V dot(const Matrix<V>& a, const Matrix<V>& b)
{
#pragma clang fp contract(fast)
    V s = element<V>(0);
    for (int i = 0; i < 9; ++i) s += a.e[i] * b.e[i];
    return s;
}

template <class V> CUDA_CALLABLE WP_FORCEINLINE Matrix<V> cofactor(const Matrix<V>& a)
{
#pragma clang fp contract(fast)
    Matrix<V> c;
    for (int i = 0; i < 3; ++i) {
        const V* y = a.e + 3 * ((i + 1) % 3);
        const V* z = a.e + 3 * ((i + 2) % 3);
        for (int j = 0; j < 3; ++j) c.e[3 * i + j] = y[(j + 1) % 3] * z[(j + 2) % 3] - y[(j + 2) % 3] * z[(j + 1) % 3];
    }
    return c;
}

template <class V> CUDA_CALLABLE WP_FORCEINLINE V determinant(const Matrix<V>& a, const Matrix<V>& cofactors)
{
#pragma clang fp contract(fast)
    return a.e[0] * cofactors.e[0] + a.e[1] * cofactors.e[1] + a.e[2] * cofactors.e[2];
}

// R of F = R S, S symmetric, by X <- (X + X^-T) / 2 from X = F (Higham 1986), quadratic; a lane that has converged
// stays
template <class V, class M>
CUDA_CALLABLE WP_FORCEINLINE Matrix<V> rotation(const Matrix<V>& f, M active, element<V> half_the_digits)
{
#pragma clang fp contract(fast)
    using number = element<V>;
    Matrix<V> r = f;
    for (int step = 0; step < 24 && any(active); ++step) {
        const Matrix<V> c = cofactor(r);
        const V scale = number(0.5) / determinant(r, c);
        V moved = number(0);
        for (int i = 0; i < 9; ++i) {
            const V y = number(0.5) * r.e[i] + c.e[i] * scale, e = y - r.e[i];
            moved += e * e;
            r.e[i] = active ? y : r.e[i];
        }
        active = active & (moved >= V(half_the_digits));
    }
    return r;
}

// The cotangent of F for one of R: R^T dR = [w]x with (tr(S) I - S) w = axial(R^T dF - dF^T R). None where that is
// singular, as where two stretches add up to zero in an element turned inside out.
template <class V, class M>
CUDA_CALLABLE WP_FORCEINLINE Matrix<V> pull_rotation(
    const Matrix<V>& r, const Matrix<V>& f, const Matrix<V>& r_bar, const M good)
{
#pragma clang fp contract(fast)
    using number = element<V>;
    const V none = number(0), one = number(1);
    const Matrix<V> turn = times(turned(r), r_bar), stretch = times(turned(r), f);
    Matrix<V> s, g;
    for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 3; ++k) s.e[3 * i + k] = number(0.5) * (stretch.e[3 * i + k] + stretch.e[3 * k + i]);
    for (int i = 0; i < 9; ++i) g.e[i] = (i % 4 ? none : s.e[0] + s.e[4] + s.e[8]) - s.e[i];
    const Matrix<V> minors = cofactor(g);
    const V size = dot(s, s), det = determinant(g, minors);
    const M sound = (det * det > number(1e-18) * size * size * size) & good;
    const V inverse = one / (sound ? det : one);
    const V axial[3] = {turn.e[7] - turn.e[5], turn.e[2] - turn.e[6], turn.e[3] - turn.e[1]};
    V w[3];
    for (int i = 0; i < 3; ++i) {
        const V* m = minors.e + 3 * i;
        w[i] = sound ? inverse * (m[0] * axial[0] + m[1] * axial[1] + m[2] * axial[2]) : none;
    }
    return times(r, Matrix<V>{none, -w[2], w[1], w[2], none, -w[0], -w[1], w[0], none});
}

// tau = 2 mu (F - R) F^T + lambda J (J - 1) I (Stomakhin et al. 2012)
template <class V>
CUDA_CALLABLE WP_FORCEINLINE Matrix<V> corotated(
    const Matrix<V>& f, const Matrix<V>& r, const V j, const V mu, const V lam)
{
#pragma clang fp contract(fast)
    using number = element<V>;
    Matrix<V> strain;
    for (int i = 0; i < 9; ++i) strain.e[i] = f.e[i] - r.e[i];
    Matrix<V> tau = times(strain, turned(f));
    for (int i = 0; i < 9; ++i) tau.e[i] = number(2) * mu * tau.e[i];
    for (int i = 0; i < 9; i += 4) tau.e[i] += lam * j * (j - number(1));
    return tau;
}

// the cotangent of F, of which R is a function
template <class V, class M>
CUDA_CALLABLE WP_FORCEINLINE Matrix<V> pull_corotated(
    const Matrix<V>& f, const Matrix<V>& r, const Matrix<V>& cofactors, const V j, const V mu, const V lam,
    const M good, const Matrix<V>& tau_bar)
{
#pragma clang fp contract(fast)
    using number = element<V>;
    const number one = 1, two = 2;
    Matrix<V> strain, f_bar;
    for (int i = 0; i < 9; ++i) strain.e[i] = f.e[i] - r.e[i];
    const V trace = tau_bar.e[0] + tau_bar.e[4] + tau_bar.e[8], by_volume = lam * (two * j - one) * trace;
    const Matrix<V> pulled = times(tau_bar, f), other = times(turned(tau_bar), strain);
    const Matrix<V> spin = pull_rotation(r, f, pulled, good);
    for (int i = 0; i < 9; ++i)
        f_bar.e[i] = two * mu * (pulled.e[i] + other.e[i] - spin.e[i]) + by_volume * cofactors.e[i];
    return f_bar;
}

// those of mu and lambda, with which the stress grows
template <class V>
CUDA_CALLABLE WP_FORCEINLINE void pull_moduli(
    const Matrix<V>& f, const Matrix<V>& r, const V j, const Matrix<V>& tau_bar, V& mu_bar, V& lam_bar)
{
#pragma clang fp contract(fast)
    using number = element<V>;
    Matrix<V> strain;
    for (int i = 0; i < 9; ++i) strain.e[i] = f.e[i] - r.e[i];
    const V trace = tau_bar.e[0] + tau_bar.e[4] + tau_bar.e[8];
    mu_bar = number(2) * dot(tau_bar, times(strain, turned(f))), lam_bar = j * (j - number(1)) * trace;
}

// The same for one particle, in Warp's matrices; for a deformation whose determinant is positive.
template <class number> CUDA_CALLABLE const Matrix<number>& of(const mat33<number>& m)
{
    return (const Matrix<number>&)m;
}
template <class number> CUDA_CALLABLE mat33<number> out(const Matrix<number>& m) { return (const mat33<number>&)m; }

template <class number>
CUDA_CALLABLE WP_NOINLINE mat33<number> nearest_rotation(const mat33<number>& f, number half_the_digits)
{
    return out(rotation(of(f), true, half_the_digits));
}

template <class number>
CUDA_CALLABLE WP_NOINLINE mat33<number> pull_nearest_rotation(
    const mat33<number>& r, const mat33<number>& f, const mat33<number>& r_bar)
{
    return out(pull_rotation(of(r), of(f), of(r_bar), true));
}

template <class number>
CUDA_CALLABLE WP_NOINLINE mat33<number> corotated_stress(
    const mat33<number>& f, const mat33<number>& r, number mu, number lam)
{
    return out(corotated(of(f), of(r), determinant(of(f), cofactor(of(f))), mu, lam));
}

template <class number>
CUDA_CALLABLE WP_NOINLINE void adj_corotated_stress(
    const mat33<number>& f, const mat33<number>& r, number mu, number lam, mat33<number>& f_bar, mat33<number>&,
    number& mu_bar, number& lam_bar, const mat33<number>& bar)
{
    const Matrix<number> cofactors = cofactor(of(f));
    const number j = determinant(of(f), cofactors);
    const Matrix<number> by_f = pull_corotated(of(f), of(r), cofactors, j, mu, lam, true, of(bar));
    number by_mu, by_lam;
    pull_moduli(of(f), of(r), j, of(bar), by_mu, by_lam);
    for (int i = 0; i < 9; ++i) f_bar.data[i / 3][i % 3] += by_f.e[i];
    mu_bar += by_mu, lam_bar += by_lam;
}

}
}
