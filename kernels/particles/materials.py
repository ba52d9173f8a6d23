"""What materials do: the deformation that remains after plastic flow, and the stress that it makes.

Every material is a function of the trial deformation gradient F = (I + h C) F_n. Stress is Kirchhoff's, tau = P F^T
[Pa]. What a material remembers besides F is one number, its history. F is always 3 x 3: a plane scene is in plane
strain, so that its materials yield as those in space do.
"""

import warp as wp

from .._precision import mat33, real, vec3
from ..spectral import clamping, cofactor, exponential, half_log, identity, polar, pull_polar, symmetric
from .screen import fault_of

COROTATED = wp.constant(0)
NEO_HOOKEAN = wp.constant(1)
LIQUID = wp.constant(2)
SNOW = wp.constant(3)
SAND = wp.constant(4)

SMALL = wp.constant(real(1.0e-12))
"""Smallest determinant, and smallest norm of a deviator, that is divided by."""

STIFFEST = wp.constant(real(10.0))
"""Snow hardens by at most e to this."""


@wp.func
def volume_ratio(f: mat33) -> real:
    """J = det F, positive."""
    return wp.max(wp.determinant(f), SMALL)


@wp.func
def corotated(f: mat33, mu: real, lam: real) -> mat33:
    """tau = 2 mu (F - R) F^T + lambda J (J - 1) I (Stomakhin et al. 2012), also where an element is inside out."""
    j = wp.determinant(f)
    return real(2.0) * mu * (f - polar(f)) * wp.transpose(f) + lam * j * (j - real(1.0)) * identity()


@wp.func_replay(corotated)
def no_replay_of_corotated(f: mat33, mu: real, lam: real):
    """A backward pass needs the rotation, not the stress."""
    return mat33()


@wp.func_grad(corotated)
def adj_corotated(f: mat33, mu: real, lam: real, adj_ret: mat33):
    """By hand, so that the rotation is found once."""
    j = wp.determinant(f)
    r = polar(f)
    e = f - r
    t = wp.trace(adj_ret)
    pulled = adj_ret * f
    shear = pulled + wp.transpose(adj_ret) * e - pull_polar(r, f, pulled)
    wp.adjoint[f] += real(2.0) * mu * shear + (lam * (real(2.0) * j - real(1.0)) * t) * cofactor(f)
    wp.adjoint[mu] += real(2.0) * wp.ddot(adj_ret, e * wp.transpose(f))
    wp.adjoint[lam] += j * (j - real(1.0)) * t


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
def yielded(h: mat33, mu: real, strength: real) -> real:
    """Factor on the deviator of a Hencky strain that brings its stress back to von Mises's radius.

    |2 mu dev h| = sqrt(2/3) sigma_y.
    """
    dev = h - wp.trace(h) / real(3.0) * identity()
    radius = wp.sqrt(real(2.0) / real(3.0)) * strength / (real(2.0) * mu)
    size = norm(dev)
    if size <= radius:
        return real(1.0)
    return radius / size


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
def answer(
    world: int,
    p: int,
    f: mat33,
    history: real,
    tau: mat33,
    muscle: mat33,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    stress_out: wp.array2d(dtype=mat33),
):
    """Store what a material answers."""
    gradient_out[world, p] = f
    history_out[world, p] = history
    if actuated != 0:
        stress_out[world, p] = tau + f * muscle * wp.transpose(f)
    else:
        stress_out[world, p] = tau


@wp.func_replay(answer)
def no_replay_of_answer(
    world: int,
    p: int,
    f: mat33,
    history: real,
    tau: mat33,
    muscle: mat33,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    stress_out: wp.array2d(dtype=mat33),
):
    """A backward pass does not store it again."""


@wp.kernel
def deform(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    # In:
    force: wp.array3d(dtype=real),
    each_force: int,
    actuation: wp.array2d(dtype=mat33),
    each_actuation: int,
    actuated: int,
    # Out:
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    stress_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """F, history and tau after the step's deformation; actuation adds F S F^T, with S in the material's own axes."""
    world, p = wp.tid()
    f0 = gradient[world, p]
    q0 = history[world, p]
    c = rate[world, p]
    s = actuation[world, p * each_actuation]
    fault = fault_of(
        world,
        p,
        x,
        v,
        rate,
        gradient,
        history,
        force,
        each_force,
        actuation,
        each_actuation,
        lower,
        dx,
        nodes,
        fault_out,
    )
    if fault != 0:
        answer(world, p, f0, q0, mat33(), s, 0, gradient_out, history_out, stress_out)
    else:
        m = material[world, p]
        k = kind[m]
        young = table[world, m, 1]
        poisson = table[world, m, 2]
        mu = young / (real(2.0) * (real(1.0) + poisson))
        lam = young * poisson / ((real(1.0) + poisson) * (real(1.0) - real(2.0) * poisson))
        trial = f0 + timestep[world] * (c * f0)
        if k == COROTATED:
            tau = corotated(trial, mu, lam)
            answer(world, p, trial, q0, tau, s, actuated, gradient_out, history_out, stress_out)
        elif k == NEO_HOOKEAN:
            tau = neo_hookean(trial, mu, lam)
            answer(world, p, trial, q0, tau, s, actuated, gradient_out, history_out, stress_out)
        elif k == LIQUID:
            j = wp.max(wp.determinant(f0) * (real(1.0) + timestep[world] * wp.trace(c)), real(0.1))
            f = wp.pow(j, real(1.0) / real(3.0)) * identity()
            tau = liquid(j, c, young, table[world, m, 3], table[world, m, 4])
            answer(world, p, f, q0, tau, s, actuated, gradient_out, history_out, stress_out)
        elif k == SNOW:
            low = real(1.0) - table[world, m, 3]
            high = real(1.0) + table[world, m, 4]
            f = clamping(trial * wp.transpose(trial), low, high) * trial
            q = q0 * wp.determinant(trial) / volume_ratio(f)
            hard = wp.exp(wp.min(table[world, m, 5] * (real(1.0) - q), STIFFEST))
            tau = corotated(f, mu * hard, lam * hard)
            answer(world, p, f, q, tau, s, actuated, gradient_out, history_out, stress_out)
        elif k == SAND:
            h = half_log(trial * wp.transpose(trial))
            moved = h + q0 / real(3.0) * identity()
            sine = wp.sin(table[world, m, 3])
            slope = wp.sqrt(real(2.0) / real(3.0)) * real(2.0) * sine / (real(3.0) - sine)
            e = settled(moved, mu, lam, slope, table[world, m, 4])
            q = q0 + wp.trace(h) - wp.trace(e)
            f = exponential(e - h) * trial
            tau = hencky(e, mu, lam)
            answer(world, p, f, q, tau, s, actuated, gradient_out, history_out, stress_out)
        else:
            h = half_log(trial * wp.transpose(trial))
            keep = yielded(h, mu, table[world, m, 3] + table[world, m, 4] * q0)
            dev = h - wp.trace(h) / real(3.0) * identity()
            flow = (real(1.0) - keep) * dev
            q = q0 + wp.sqrt(real(2.0) / real(3.0)) * norm(flow)
            f = exponential(-flow) * trial
            tau = hencky(h - flow, mu, lam)
            answer(world, p, f, q, tau, s, actuated, gradient_out, history_out, stress_out)
