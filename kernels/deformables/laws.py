"""Elastic laws: energy per volume, stress and its derivative, as functions of the deformation gradient F.

All are isotropic and defined for every F, also where an element is flat or inside out. With F = U diag(s) V^T, U and V
rotations and s_2 of any sign, an energy is a function e(s). Its second derivative is diagonal in blocks (Irving et al.
2004; Smith, de Goes and Kim 2019): the matrix e_ij in the stretches, and for each pair i, j, (e_i - e_j) / (s_i - s_j)
in what is symmetric of U^T dF V and (e_i + e_j) / (s_i + s_j) in what is antisymmetric. Both are written without the
difference, so that equal stretches are no exception.

mu and lam are Lame's parameters, J = det F, E = (F^T F - I) / 2.

Two things add a second Piola-Kirchhoff stress S, which is P = F S: muscles, S given, of energy S : E; and damping by
stiffness, S = C : (E - E before the step) / h times a time b, C being Hooke's law: Rayleigh's at small strain, and
without effect on a rotation.
"""

import warp as wp

from .._precision import mat33, real, tolerance, vec3
from ..spectral import assembled, eigen, identity, polar, rotated

COROTATED = wp.constant(0)
NEO_HOOKEAN = wp.constant(1)
ST_VENANT = wp.constant(2)

LEAST = wp.constant(tolerance(1.0e-9, 1.0e-4))
"""Smallest sum of two stretches that is divided by: a rotation has no derivative where they add up to zero."""

NOTHING = wp.constant(tolerance(1.0e-150, 1.0e-18))
"""A length below this is zero."""


@wp.func
def moduli(law: int, mu: real, lam: real) -> vec3:
    """A law's own mu m, its lambda l, and the J a at which the part l (J - a)^2 / 2 of its energy is least.

    The Neo-Hookean law's make it Hooke's at small strain (Smith et al. 2018).
    """
    if law != NEO_HOOKEAN:
        return vec3(mu, lam, real(1.0))
    m = real(4.0) / real(3.0) * mu
    l = lam + real(5.0) / real(6.0) * mu
    return vec3(m, l, real(1.0) + real(0.75) * m / l)


@wp.func
def cofactor(f: mat33) -> mat33:
    """dJ / dF."""
    a = vec3(f[0, 0], f[1, 0], f[2, 0])
    b = vec3(f[0, 1], f[1, 1], f[2, 1])
    c = vec3(f[0, 2], f[1, 2], f[2, 2])
    return wp.matrix_from_cols(wp.cross(b, c), wp.cross(c, a), wp.cross(a, b))


@wp.func
def strain(f: mat33) -> mat33:
    """Green's strain E."""
    return real(0.5) * (wp.transpose(f) * f - identity())


@wp.func
def energy_density(law: int, f: mat33, k: vec3) -> real:
    """Energy per volume at rest [J/m^3], of the law's moduli; that of Neo-Hookean matter is not zero at rest."""
    if law == ST_VENANT:
        e = strain(f)
        return k[0] * wp.ddot(e, e) + real(0.5) * k[1] * wp.trace(e) * wp.trace(e)
    j = wp.determinant(f)
    volume = real(0.5) * k[1] * (j - k[2]) * (j - k[2])
    if law == COROTATED:
        d = f - polar(f)
        return k[0] * wp.ddot(d, d) + volume
    i = wp.ddot(f, f)
    return real(0.5) * k[0] * (i - real(3.0) - wp.log(i + real(1.0))) + volume


@wp.func
def pressure_of(f: mat33, k: vec3) -> real:
    """l (J - a), which acts with dJ/dF; St. Venant-Kirchhoff's law has no such part."""
    return k[1] * (wp.determinant(f) - k[2])


@wp.func
def stress(law: int, f: mat33, k: vec3, pressure: real) -> mat33:
    """The first Piola-Kirchhoff stress P [Pa], the energy's derivative, given l (J - a) or another pressure.

    corotated: 2 mu (F - R) + pressure dJ/dF, as in MPM (Stomakhin et al. 2012).
    Neo-Hookean: m (1 - 1 / (|F|^2 + 1)) F + pressure dJ/dF (Smith, de Goes and Kim 2018, eq. 14).
    St. Venant-Kirchhoff: F (2 mu E + lam tr(E) I).
    """
    if law == COROTATED:
        return real(2.0) * k[0] * (f - polar(f)) + pressure * cofactor(f)
    if law == NEO_HOOKEAN:
        return k[0] * (real(1.0) - real(1.0) / (wp.ddot(f, f) + real(1.0))) * f + pressure * cofactor(f)
    e = strain(f)
    return f * (real(2.0) * k[0] * e + k[1] * wp.trace(e) * identity())


@wp.func
def pull_work(f: mat33, before: mat33, mu: real, lam: real, muscle: mat33) -> real:
    """Energy per volume of a muscle, and of damping with b / h times Lame's parameters."""
    e = strain(f)
    d = e - strain(before)
    return wp.ddot(muscle, e) + mu * wp.ddot(d, d) + real(0.5) * lam * wp.trace(d) * wp.trace(d)


@wp.func
def second_stress(f: mat33, before: mat33, mu: real, lam: real, muscle: mat33) -> mat33:
    """S [Pa] of both."""
    d = strain(f) - strain(before)
    return muscle + real(2.0) * mu * d + lam * wp.trace(d) * identity()


@wp.func
def pulled_stiffness(ga: vec3, gb: vec3, f: mat33, s: mat33, mu: real, lam: real) -> mat33:
    """Block of two corners, per volume, of S and of its change with F; ga and gb are slopes of shape functions."""
    inner = mu * (wp.dot(ga, gb) * identity() + wp.outer(gb, ga)) + lam * wp.outer(ga, gb)
    return wp.dot(ga, s * gb) * identity() + f * inner * wp.transpose(f)


@wp.func
def positive(s: mat33) -> mat33:
    """A symmetric matrix without its negative eigenvalues."""
    d, q = eigen(s)
    zero = real(0.0)
    return assembled(vec3(wp.max(d[0], zero), wp.max(d[1], zero), wp.max(d[2], zero)), q)


@wp.func
def perpendicular(a: vec3) -> vec3:
    """A unit vector at right angles to a unit vector."""
    b = vec3(real(1.0), real(0.0), real(0.0))
    if wp.abs(a[0]) > real(0.7):
        b = vec3(real(0.0), real(1.0), real(0.0))
    return wp.normalize(b - wp.dot(a, b) * a)


@wp.func
def stretches(f: mat33):
    """Rotations U and V and stretches s with F = U diag(s) V^T, s_0 >= s_1 >= |s_2|; s_2 has the sign of det F."""
    d, q = eigen(wp.transpose(f) * f)
    most = int(0)
    least = int(0)
    for i in range(1, 3):
        if d[i] > d[most]:
            most = i
        if d[i] <= d[least]:
            least = i
    if most == least:
        least = 2 - most
    middle = 3 - most - least
    v0 = vec3(q[0, most], q[1, most], q[2, most])
    v1 = vec3(q[0, middle], q[1, middle], q[2, middle])
    v2 = wp.cross(v0, v1)
    u0 = f * v0
    s0 = wp.length(u0)
    if s0 > NOTHING:
        u0 = u0 / s0
    else:
        u0 = v0
    u1 = f * v1
    u1 = u1 - wp.dot(u0, u1) * u0
    s1 = wp.length(u1)
    if s1 > NOTHING:
        u1 = u1 / s1
        u1 = wp.normalize(u1 - wp.dot(u0, u1) * u0)
    else:
        u1 = perpendicular(u0)
    u2 = wp.cross(u0, u1)
    s = vec3(s0, s1, wp.dot(u2, f * v2))
    return wp.matrix_from_cols(u0, u1, u2), s, wp.matrix_from_cols(v0, v1, v2)


@wp.func
def sheet_stretches(f: mat33, normal: vec3):
    """As :func:`stretches`, of a sheet, whose normal at rest is v_2: s_0 >= s_1 >= 0, and s_2 = 1."""
    t = perpendicular(normal)
    w = wp.cross(normal, t)
    a = f * t
    b = f * w
    o = real(0.0)
    metric = mat33(wp.dot(a, a), wp.dot(a, b), o, wp.dot(a, b), wp.dot(b, b), o, o, o, real(1.0))
    d, q = rotated(metric, identity(), 0, 1)
    v0 = q[0, 0] * t + q[1, 0] * w
    v1 = q[0, 1] * t + q[1, 1] * w
    if d[1, 1] > d[0, 0]:
        v0 = v1
        v1 = wp.cross(normal, v0)
    n = f * normal
    u0 = f * v0
    s0 = wp.length(u0)
    if s0 > NOTHING:
        u0 = u0 / s0
    else:
        u0 = t
    u1 = wp.cross(n, u0)
    s = vec3(s0, wp.max(wp.dot(u1, f * v1), o), real(1.0))
    return wp.matrix_from_cols(u0, u1, n), s, wp.matrix_from_cols(v0, v1, normal)


@wp.func
def tension(p: mat33, u: mat33, s: vec3, v: mat33, b: mat33, projected: int) -> mat33:
    """B of a sheet: what turns out of it is held by the principal stresses over their stretches, for its normal turns.

    Args:
        p: the first Piola-Kirchhoff stress. u, s, v: of :func:`sheet_stretches`. b: of :func:`curvature`.
    """
    pulls = wp.transpose(u) * p * v
    out = b
    for m in range(2):
        hold = pulls[m, m] / wp.max(s[m], LEAST)
        if projected != 0:
            hold = wp.max(hold, real(0.0))
        out[m, 2] = hold
        out[2, m] = hold
    return out


@wp.func
def pair(symmetric: real, antisymmetric: real, projected: int):
    """Of a pair's two values the mean and half the difference; projected: of their positive parts."""
    a = symmetric
    b = antisymmetric
    if projected != 0:
        a = wp.max(a, real(0.0))
        b = wp.max(b, real(0.0))
    return real(0.5) * (a + b), real(0.5) * (a - b)


@wp.func
def curvature(law: int, s: vec3, k: vec3, pressure: real, projected: int):
    """The second derivative of the energy in the principal frame; of the pressure at its given value.

    dP_ii = sum_j A_ij dF_jj, dP_ij = B_ij dF_ij + C_ij dF_ji.

    Args:
        projected: whether negative eigenvalues count as zero.

    Returns:
        A, B and C, symmetric; the diagonals of B and C are zero.
    """
    mu = k[0]
    lam = k[1]
    volume = vec3(s[1] * s[2], s[2] * s[0], s[0] * s[1])
    a = mat33()
    b = mat33()
    c = mat33()
    square = wp.dot(s, s)
    shape = k[0] * (real(1.0) - real(1.0) / (square + real(1.0)))
    bend = real(2.0) * k[0] / ((square + real(1.0)) * (square + real(1.0)))
    t = real(0.5) * (square - real(3.0))
    for m in range(3):
        n = (m + 1) % 3
        o = 3 - m - n
        flip = real(0.0)
        twist = real(0.0)
        if law == COROTATED:
            total = s[m] + s[n]
            if wp.abs(total) < LEAST:
                total = LEAST
            a[m, m] = real(2.0) * mu + lam * volume[m] * volume[m]
            a[m, n] = lam * volume[m] * volume[n] + pressure * s[o]
            flip = real(2.0) * mu - pressure * s[o]
            twist = real(2.0) * mu * (real(1.0) - real(2.0) / total) + pressure * s[o]
        elif law == NEO_HOOKEAN:
            a[m, m] = shape + bend * s[m] * s[m] + k[1] * volume[m] * volume[m]
            a[m, n] = bend * s[m] * s[n] + k[1] * volume[m] * volume[n] + pressure * s[o]
            flip = shape - pressure * s[o]
            twist = shape + pressure * s[o]
        else:
            pull = mu * (s[m] * s[m] - real(1.0)) + lam * t
            both = mu * (s[m] * s[m] + s[n] * s[n] - real(1.0)) + lam * t
            a[m, m] = pull + s[m] * s[m] * (real(2.0) * mu + lam)
            a[m, n] = lam * s[m] * s[n]
            flip = both + mu * s[m] * s[n]
            twist = both - mu * s[m] * s[n]
        a[n, m] = a[m, n]
        mean, half = pair(flip, twist, projected)
        b[m, n] = mean
        b[n, m] = mean
        c[m, n] = half
        c[n, m] = half
    if projected != 0:
        a = positive(a)
    return a, b, c
