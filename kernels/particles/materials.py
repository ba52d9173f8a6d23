"""What materials answer to a deformation: the elastic part that flow leaves, and its stress.

Every material is a function of the trial deformation gradient F = (I + h C) F_n. Stress is Kirchhoff's, tau = P F^T
[Pa]. What a material remembers besides F is one number, its history. F is always 3 x 3: a plane scene is in plane
strain, so that its materials yield as those in space do.
"""

import warp as wp

from .. import _native
from .._precision import mat33, real
from ..spectral import clamping, elastic_h, exponential, half_log, identity, polar, symmetric

COROTATED = wp.constant(0)
NEO_HOOKEAN = wp.constant(1)
LIQUID = wp.constant(2)
SNOW = wp.constant(3)
SAND = wp.constant(4)
VON_MISES = wp.constant(5)
MOHR_COULOMB = wp.constant(6)

SMALL = wp.constant(real(1.0e-12))
"""Smallest determinant, and smallest norm of a deviator, that is divided by."""

ROUND = wp.constant(real(0.999))
"""How far into the edges of Mohr and Coulomb's pyramid its direction is followed: there it is 1.5 % inside at most."""

STIFFEST = wp.constant(real(10.0))
"""Snow hardens by at most e to this."""


@wp.func
def volume_ratio(f: mat33) -> real:
    """J = det F, positive."""
    return wp.max(wp.determinant(f), SMALL)


@_native.func_native(adjoint=True)
def corotated_stress(f: mat33, r: mat33, mu: real, lam: real) -> mat33:
    """The stress, and its gradient: that the rotation turns with F is in the gradient by F."""
    elastic_h()


@wp.func
def rotation_of(f: mat33) -> mat33:
    """R, which the stress turns with F itself."""
    return polar(f)


@wp.func_grad(rotation_of)
def no_slope_of_rotation(f: mat33, adj_ret: mat33):
    """So that the rotation is found once."""


@wp.func
def corotated(f: mat33, mu: real, lam: real) -> mat33:
    """tau = 2 mu (F - R) F^T + lambda J (J - 1) I (Stomakhin et al. 2012), also where an element is inside out."""
    return corotated_stress(f, rotation_of(f), mu, lam)


@wp.func
def neo_hookean(f: mat33, mu: real, lam: real) -> mat33:
    """tau = mu (F F^T - I) + lambda ln(J) I (Bonet and Wood 2008, eq. 6.28)."""
    return mu * (f * wp.transpose(f) - identity()) + lam * wp.log(volume_ratio(f)) * identity()


@wp.func
def hencky(h: mat33, mu: real, lam: real) -> mat33:
    """tau = 2 mu h + lambda tr(h) I, h = ln(F F^T) / 2."""
    return real(2.0) * mu * h + lam * wp.trace(h) * identity()


@wp.func
def liquid(j: real, rate: mat33, bulk: real, gamma: real, viscosity: real) -> mat33:
    """tau = -J p I + 2 J eta dev(D), p = K / gamma (J^-gamma - 1) (Tait)."""
    p = bulk / gamma * (wp.pow(j, -gamma) - real(1.0))
    d = symmetric(rate)
    return real(2.0) * viscosity * j * (d - wp.trace(d) / real(3.0) * identity()) - j * p * identity()


@wp.func
def norm(m: mat33) -> real:
    """Frobenius norm, at least SMALL."""
    return wp.sqrt(wp.max(wp.ddot(m, m), SMALL * SMALL))


@wp.func
def yielded(h: mat33, mu: real, strength: real, hardening: real) -> real:
    """Factor on the deviator of a Hencky strain that brings its stress back to von Mises's radius, which grows with it.

    |2 mu dev h| = sqrt(2/3) (sigma_y + H sqrt(2/3) |flow|) (Simo and Hughes 1998, box 3.1, isotropic hardening).
    """
    dev = h - wp.trace(h) / real(3.0) * identity()
    radius = wp.sqrt(real(2.0) / real(3.0)) * strength / (real(2.0) * mu)
    size = norm(dev)
    if size <= radius:
        return real(1.0)
    growth = hardening / (real(3.0) * mu)
    return (radius / size + growth) / (real(1.0) + growth)


@wp.func
def cone(sine: real) -> real:
    """Drucker and Prager's slope |dev tau| / -tr(tau), which is Mohr and Coulomb's at triaxial compression."""
    return wp.sqrt(real(2.0) / real(3.0)) * real(2.0) * sine / (real(3.0) - sine)


@wp.func
def pyramid(h: mat33, sine: real) -> real:
    """Mohr and Coulomb's slope |dev tau| / -tr(tau) along the deviator of h, its edges rounded (Podgorski 1985).

    sqrt(2/3) sin(f) / (sqrt(3) cos(t) + sin(t) sin(f)), sin(3 t) = 3 sqrt(6) det(n), n = dev h / |dev h|.
    """
    dev = h - wp.trace(h) / real(3.0) * identity()
    n = dev / norm(dev)
    t = wp.asin(ROUND * wp.clamp(real(3.0) * wp.sqrt(real(6.0)) * wp.determinant(n), real(-1.0), real(1.0))) / real(3.0)
    return wp.sqrt(real(2.0) / real(3.0)) * sine / (wp.sqrt(real(3.0)) * wp.cos(t) + wp.sin(t) * sine)


@wp.func
def settled(h: mat33, mu: real, lam: real, slope: real, cohesion: real) -> mat33:
    """Drucker and Prager's return (Klar et al. 2016, eq. 27-29): the Hencky strain that sand can bear.

    In expansion, beyond the tip at tr(h) = cohesion, none; else the deviator shrinks to
    -(3 lambda + 2 mu) / (2 mu) alpha (tr(h) - cohesion).
    """
    pull = wp.trace(h) - cohesion
    if pull >= real(0.0):
        return cohesion / real(3.0) * identity()
    dev = h - wp.trace(h) / real(3.0) * identity()
    size = norm(dev)
    bound = -(real(3.0) * lam + real(2.0) * mu) / (real(2.0) * mu) * slope * pull
    if size <= bound:
        return h
    return wp.trace(h) / real(3.0) * identity() + dev * (bound / size)


@wp.func
def snow(trial: mat33, q0: real, mu: real, lam: real, compression: real, stretch: real, hardening: real):
    """Snow: F with its singular values held, the plastic volume ratio, and tau."""
    f = clamping(trial * wp.transpose(trial), real(1.0) - compression, real(1.0) + stretch) * trial
    q = q0 * wp.determinant(trial) / volume_ratio(f)
    hard = wp.exp(wp.min(hardening * (real(1.0) - q), STIFFEST))
    return f, q, corotated(f, mu * hard, lam * hard)


@wp.func
def sand(trial: mat33, q0: real, mu: real, lam: real, friction: real, cohesion: real, kind: int):
    """Sand: F that it can bear, the volume gained while apart, and tau."""
    e0 = half_log(trial * wp.transpose(trial))
    moved = e0 + q0 / real(3.0) * identity()
    sine = wp.sin(friction)
    slope = cone(sine)
    if kind == MOHR_COULOMB:
        slope = pyramid(moved, sine)
    e = settled(moved, mu, lam, slope, cohesion)
    return exponential(e - e0) * trial, q0 + wp.trace(e0) - wp.trace(e), hencky(e, mu, lam)


@wp.func
def metal(trial: mat33, q0: real, mu: real, lam: real, strength: real, hardening: real):
    """Metal: F whose stress has yielded, the plastic strain, and tau."""
    e0 = half_log(trial * wp.transpose(trial))
    keep = yielded(e0, mu, strength + hardening * q0, hardening)
    flow = (real(1.0) - keep) * (e0 - wp.trace(e0) / real(3.0) * identity())
    return exponential(-flow) * trial, q0 + wp.sqrt(real(2.0) / real(3.0)) * norm(flow), hencky(e0 - flow, mu, lam)
