"""Functions of matrices by their eigenvalues, with gradients that are right where eigenvalues meet.

Y = Q y(d) Q^T of a symmetric matrix B = Q d Q^T has dY = Q ((Q^T dB Q) * [y_i, y_j]) Q^T, where [y_i, y_j] is the
divided difference (y(d_i) - y(d_j)) / (d_i - d_j), and y'(d_i) where they are equal (Daleckii and Krein 1965). Written
without a difference of nearly equal numbers it is exact at every gap, so nothing that stands here has a singular
gradient where eigenvalues or singular values repeat; an eigenvector's own gradient would.
"""

import warp as wp

from . import _native
from ._precision import mat33, real, tolerance, vec3

TINY = wp.constant(tolerance(1.0e-100, 1.0e-30))
"""Guards divisions: far below any number that occurs."""

ROUNDING_SQUARED = wp.constant(tolerance(1.0e-32, 1.0e-15))
"""Relative square of the off-diagonal part at which a matrix counts as diagonal."""

CLOSE = wp.constant(tolerance(1.0e-6, 1.0e-3))
"""Relative gap below which a divided difference is taken as the mean of the two slopes."""

NEAR = wp.constant(real(0.01))
"""Squared size of a matrix below which the series for its logarithm and exponential are cut off by rounding alone."""

LOG_TERMS = wp.constant(int(tolerance(6, 2).value))
"""(|X| / 2)^(2 n) / (2 n + 1) is rounding where the series of the logarithm of 1 + X ends."""

EXP_TERMS = wp.constant(int(tolerance(10, 6).value))
"""|H|^n / n! is rounding where the series of the exponential ends."""

HALF_THE_DIGITS = wp.constant(tolerance(1.0e-17, 1.0e-8))
"""Squared step after which Newton's method, which doubles the digits, has all of them."""

elastic_h = _native.header("native/elastic.h")


@wp.func
def diagonal(d: vec3) -> mat33:
    """The matrix with this diagonal."""
    o = real(0.0)
    return mat33(d[0], o, o, o, d[1], o, o, o, d[2])


@wp.func
def identity() -> mat33:
    """The unit matrix."""
    return diagonal(vec3(real(1.0), real(1.0), real(1.0)))


@wp.func
def rotated(a: mat33, q: mat33, i: int, j: int):
    """One Jacobi rotation: the matrices A' = G^T A G with A'_ij = 0, and Q' = Q G."""
    b = a
    p = q
    off = a[i, j]
    if wp.abs(off) > TINY:
        theta = (a[j, j] - a[i, i]) / (real(2.0) * off)
        t = real(1.0) / (wp.abs(theta) + wp.sqrt(theta * theta + real(1.0)))
        if theta < real(0.0):
            t = -t
        c = real(1.0) / wp.sqrt(t * t + real(1.0))
        s = t * c
        k = 3 - i - j
        aik = a[i, k]
        ajk = a[j, k]
        b[i, i] = a[i, i] - t * off
        b[j, j] = a[j, j] + t * off
        b[i, j] = real(0.0)
        b[j, i] = real(0.0)
        b[i, k] = c * aik - s * ajk
        b[k, i] = b[i, k]
        b[j, k] = s * aik + c * ajk
        b[k, j] = b[j, k]
        for r in range(3):
            x = q[r, i]
            y = q[r, j]
            p[r, i] = c * x - s * y
            p[r, j] = s * x + c * y
    return b, p


@wp.func
def eigen(b: mat33):
    """Eigenvalues, and orthonormal eigenvectors as columns, of a symmetric matrix, by Jacobi's method.

    Not to be differentiated: what stands below has gradients of its own.
    """
    a = b
    q = identity()
    for _sweep in range(16):
        off = a[0, 1] * a[0, 1] + a[0, 2] * a[0, 2] + a[1, 2] * a[1, 2]
        size = a[0, 0] * a[0, 0] + a[1, 1] * a[1, 1] + a[2, 2] * a[2, 2]
        if off <= ROUNDING_SQUARED * size:
            break
        a, q = rotated(a, q, 0, 1)
        a, q = rotated(a, q, 0, 2)
        a, q = rotated(a, q, 1, 2)
    return vec3(a[0, 0], a[1, 1], a[2, 2]), q


@wp.func
def assembled(y: vec3, q: mat33) -> mat33:
    """Q y Q^T."""
    return q * diagonal(y) * wp.transpose(q)


@wp.func
def log_slope(a: real, b: real) -> real:
    """(ln a - ln b) / (a - b) for positive numbers: atanh(r) / r times 2 / (a + b), r = (a - b) / (a + b)."""
    r = (a - b) / (a + b)
    r2 = r * r
    ratio = real(1.0) + r2 * (real(1.0) / real(3.0) + r2 * (real(1.0) / real(5.0) + r2 / real(7.0)))
    if r2 > real(1.0e-4):
        ratio = wp.log(a / b) / (real(2.0) * r)
    return real(2.0) * ratio / (a + b)


@wp.func
def exp_slope(a: real, b: real) -> real:
    """(e^a - e^b) / (a - b) = e^((a + b) / 2) sinh(t) / t, t = (a - b) / 2."""
    t = real(0.5) * (a - b)
    t2 = t * t
    ratio = real(1.0) + t2 / real(6.0) * (real(1.0) + t2 / real(20.0) * (real(1.0) + t2 / real(42.0)))
    if t2 > real(1.0e-3):
        ratio = (wp.exp(t) - wp.exp(-t)) / (real(2.0) * t)
    return wp.exp(real(0.5) * (a + b)) * ratio


@wp.func
def symmetric(m: mat33) -> mat33:
    """Symmetric part."""
    return real(0.5) * (m + wp.transpose(m))


@wp.func
def half_log_near_one(b: mat33) -> mat33:
    """ln(B) / 2 = Z + Z^3 / 3 + Z^5 / 5 + ..., Z = (B - 1) (B + 1)^-1, for B near 1."""
    z = (b - identity()) * wp.inverse(b + identity())
    w = z * z
    y = real(1.0) / real(2 * LOG_TERMS + 1) * identity()
    for k in range(LOG_TERMS):
        y = w * y + real(1.0) / real(2 * (LOG_TERMS - k) - 1) * identity()
    return z * y


@wp.func
def half_log_near_one_along(b: mat33, g: mat33) -> mat33:
    """Its derivative along a symmetric G, term by term; between symmetric matrices that is its own adjoint."""
    m = wp.inverse(b + identity())
    z = (b - identity()) * m
    dz = real(2.0) * m * g * m
    w = z * z
    dw = dz * z + z * dz
    y = real(1.0) / real(2 * LOG_TERMS + 1) * identity()
    dy = mat33()
    for k in range(LOG_TERMS):
        dy = dw * y + w * dy
        y = w * y + real(1.0) / real(2 * (LOG_TERMS - k) - 1) * identity()
    return dz * y + z * dy


@wp.func
def exponential_near_one(h: mat33) -> mat33:
    """exp(H) = 1 + H (1 + H / 2 (1 + H / 3 (1 + ...))) of a small matrix."""
    y = identity()
    for k in range(EXP_TERMS):
        y = identity() + real(1.0) / real(EXP_TERMS - k) * (h * y)
    return y


@wp.func
def exponential_near_one_along(h: mat33, g: mat33) -> mat33:
    """Its derivative along a symmetric G, term by term; between symmetric matrices that is its own adjoint."""
    y = identity()
    dy = mat33()
    for k in range(EXP_TERMS):
        dy = real(1.0) / real(EXP_TERMS - k) * (g * y + h * dy)
        y = identity() + real(1.0) / real(EXP_TERMS - k) * (h * y)
    return dy


@wp.func
def half_log(b: mat33) -> mat33:
    """ln(B) / 2 of a symmetric positive matrix: the Hencky strain where B = F F^T."""
    x = b - identity()
    if wp.ddot(x, x) < NEAR:
        return half_log_near_one(b)
    d, q = eigen(b)
    return assembled(
        vec3(
            real(0.5) * wp.log(wp.max(d[0], TINY)),
            real(0.5) * wp.log(wp.max(d[1], TINY)),
            real(0.5) * wp.log(wp.max(d[2], TINY)),
        ),
        q,
    )


@wp.func_grad(half_log)
def adj_half_log(b: mat33, adj_ret: mat33):
    """Divided differences of ln(d) / 2."""
    x = b - identity()
    if wp.ddot(x, x) < NEAR:
        wp.adjoint[b] += half_log_near_one_along(b, symmetric(adj_ret))
    else:
        d, q = eigen(b)
        m = wp.transpose(q) * symmetric(adj_ret) * q
        for i in range(3):
            for j in range(3):
                m[i, j] = m[i, j] * real(0.5) * log_slope(wp.max(d[i], TINY), wp.max(d[j], TINY))
        wp.adjoint[b] += q * m * wp.transpose(q)


@wp.func
def exponential(h: mat33) -> mat33:
    """exp(H) of a symmetric matrix."""
    if wp.ddot(h, h) < NEAR:
        return exponential_near_one(h)
    d, q = eigen(h)
    return assembled(vec3(wp.exp(d[0]), wp.exp(d[1]), wp.exp(d[2])), q)


@wp.func_grad(exponential)
def adj_exponential(h: mat33, adj_ret: mat33):
    """Divided differences of e^d."""
    if wp.ddot(h, h) < NEAR:
        wp.adjoint[h] += exponential_near_one_along(h, symmetric(adj_ret))
    else:
        d, q = eigen(h)
        m = wp.transpose(q) * symmetric(adj_ret) * q
        for i in range(3):
            for j in range(3):
                m[i, j] = m[i, j] * exp_slope(d[i], d[j])
        wp.adjoint[h] += q * m * wp.transpose(q)


@wp.func
def held(d: real, low: real, high: real) -> real:
    """clamp(s, low, high) / s of a singular value s = sqrt(d)."""
    s = wp.sqrt(wp.max(d, TINY))
    return wp.clamp(s, low, high) / s


@wp.func
def held_slope(d: real, low: real, high: real) -> real:
    """Derivative of clamp(s, low, high) / s by d = s^2: zero within, -c / (2 s^3) where s is held at c."""
    s = wp.sqrt(wp.max(d, TINY))
    c = wp.clamp(s, low, high)
    if c == s:
        return real(0.0)
    return -c / (real(2.0) * s * s * s)


@wp.func
def clamping(b: mat33, low: real, high: real) -> mat33:
    """The symmetric matrix K for which K F has the singular values of F held in [low, high], B = F F^T."""
    d, q = eigen(b)
    return assembled(vec3(held(d[0], low, high), held(d[1], low, high), held(d[2], low, high)), q)


@wp.func_grad(clamping)
def adj_clamping(b: mat33, low: real, high: real, adj_ret: mat33):
    """Divided differences of clamp(s) / s by s^2, and 1 / s by the bound at which s is held."""
    d, q = eigen(b)
    m = wp.transpose(q) * symmetric(adj_ret) * q
    for i in range(3):
        s = wp.sqrt(wp.max(d[i], TINY))
        if s < low:
            wp.adjoint[low] += m[i, i] / s
        if s > high:
            wp.adjoint[high] += m[i, i] / s
    for i in range(3):
        for j in range(3):
            slope = real(0.5) * (held_slope(d[i], low, high) + held_slope(d[j], low, high))
            gap = d[i] - d[j]
            if wp.abs(gap) > CLOSE * (wp.abs(d[i]) + wp.abs(d[j])):
                slope = (held(d[i], low, high) - held(d[j], low, high)) / gap
            m[i, j] = m[i, j] * slope
    wp.adjoint[b] += q * m * wp.transpose(q)


@wp.func
def polar_of_inverted(f: mat33) -> mat33:
    """The rotation nearest to a matrix of negative or no determinant: its smallest stretch counts as negative."""
    d, q = eigen(f * wp.transpose(f))
    y = vec3()
    least = wp.min(wp.min(d[0], d[1]), d[2])
    spent = int(0)
    for i in range(3):
        s = wp.sqrt(wp.max(d[i], TINY))
        y[i] = real(1.0) / s
        if d[i] == least and spent == 0:
            y[i] = -y[i]
            spent = 1
    return assembled(y, q) * f


@_native.func_native()
def nearest_rotation(f: mat33, half_the_digits: real) -> mat33:
    """The rotation R of F = R S, S symmetric, for a positive determinant."""
    elastic_h()


@_native.func_native()
def pull_nearest_rotation(r: mat33, f: mat33, r_bar: mat33) -> mat33:
    """Cotangent of F for one of R."""
    elastic_h()


@wp.func
def polar(f: mat33) -> mat33:
    """The rotation R of F = R S, S symmetric.

    The gradient is that of the rotation itself, not of the iterates. It is singular only where two stretches
    add up to zero, as in an element turned inside out; there it is bounded.
    """
    if wp.determinant(f) <= real(1.0e-6):
        return polar_of_inverted(f)
    return nearest_rotation(f, HALF_THE_DIGITS)


@wp.func_grad(polar)
def adj_polar(f: mat33, adj_ret: mat33):
    """The derivative of the rotation itself."""
    wp.adjoint[f] += pull_nearest_rotation(polar(f), f, adj_ret)
