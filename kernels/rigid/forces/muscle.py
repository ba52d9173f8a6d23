"""Muscles: force by length, velocity and activation, and how activation follows excitation.

The model is MuJoCo's, a fit to Hill-type curves: length and velocity are measured in units of the length L0
at which the muscle is strongest. Parameters: (range 0, range 1, peak force, scale, lmin, lmax, vmax, fpmax,
fvmax). The tension is negative: muscles pull.
"""

import warp as wp

from ..._precision import real, vec2, vec3
from ...math import held

TINY = wp.constant(real(1.0e-15))


@wp.func
def peak_force(prm: wp.array3d(dtype=real), world: int, i: int, acc0: real) -> real:
    """The largest active force; where it is given as negative, scale / (acceleration by a unit force)."""
    force = prm[world, i, 2]
    if force < real(0.0):
        force = prm[world, i, 3] / wp.max(acc0, TINY)
    return force


@wp.func
def best_length(prm: wp.array3d(dtype=real), world: int, i: int, lengthrange: vec2) -> real:
    """L0, from the range of lengths in metres and in units of L0."""
    return (lengthrange[1] - lengthrange[0]) / wp.max(prm[world, i, 1] - prm[world, i, 0], TINY)


@wp.func
def relative_length(prm: wp.array3d(dtype=real), world: int, i: int, lengthrange: vec2, length: real) -> real:
    """Length in units of L0."""
    unit = wp.max(best_length(prm, world, i, lengthrange), TINY)
    return prm[world, i, 0] + (length - lengthrange[0]) / unit


@wp.func
def active_by_length(x: real, low: real, high: real) -> real:
    """Force by relative length: four parabolas, 0 at ``low`` and ``high``, 1 at 1."""
    a = real(0.5) * (low + real(1.0))
    b = real(0.5) * (real(1.0) + high)
    out = real(0.0)
    if x >= low and x <= high:
        if x <= a:
            y = (x - low) / wp.max(a - low, TINY)
            out = real(0.5) * y * y
        elif x <= real(1.0):
            y = (real(1.0) - x) / wp.max(real(1.0) - a, TINY)
            out = real(1.0) - real(0.5) * y * y
        elif x <= b:
            y = (x - real(1.0)) / wp.max(b - real(1.0), TINY)
            out = real(1.0) - real(0.5) * y * y
        else:
            y = (high - x) / wp.max(high - b, TINY)
            out = real(0.5) * y * y
    return out


@wp.func
def active_by_velocity(v: real, most: real) -> real:
    """Force by relative velocity: 0 for fast shortening, 1 at rest, ``most`` for fast lengthening."""
    y = most - real(1.0)
    out = most
    if v <= real(-1.0):
        out = real(0.0)
    elif v <= real(0.0):
        out = (v + real(1.0)) * (v + real(1.0))
    elif v <= y:
        out = most - (y - v) * (y - v) / wp.max(y, TINY)
    return out


@wp.func
def active_by_velocity_slope(v: real, most: real) -> real:
    """Derivative of :func:`active_by_velocity`."""
    y = most - real(1.0)
    out = real(0.0)
    if v > real(-1.0) and v <= real(0.0):
        out = real(2.0) * (v + real(1.0))
    elif v > real(0.0) and v <= y:
        out = real(2.0) * (y - v) / wp.max(y, TINY)
    return out


@wp.func
def muscle_gain(
    prm: wp.array3d(dtype=real), world: int, i: int, lengthrange: vec2, acc0: real, length: real, velocity: real
) -> real:
    """Active force of a full activation."""
    x = relative_length(prm, world, i, lengthrange, length)
    v = velocity / wp.max(best_length(prm, world, i, lengthrange) * prm[world, i, 6], TINY)
    by_length = active_by_length(x, prm[world, i, 4], prm[world, i, 5])
    return -peak_force(prm, world, i, acc0) * by_length * active_by_velocity(v, prm[world, i, 8])


@wp.func
def muscle_gain_slope(
    prm: wp.array3d(dtype=real), world: int, i: int, lengthrange: vec2, acc0: real, length: real, velocity: real
) -> real:
    """Derivative of :func:`muscle_gain` by velocity."""
    x = relative_length(prm, world, i, lengthrange, length)
    unit = wp.max(best_length(prm, world, i, lengthrange) * prm[world, i, 6], TINY)
    by_length = active_by_length(x, prm[world, i, 4], prm[world, i, 5])
    slope = active_by_velocity_slope(velocity / unit, prm[world, i, 8]) / unit
    return -peak_force(prm, world, i, acc0) * by_length * slope


@wp.func
def muscle_bias(prm: wp.array3d(dtype=real), world: int, i: int, lengthrange: vec2, acc0: real, length: real) -> real:
    """Passive force: none below L0, then a parabola, then a line."""
    x = relative_length(prm, world, i, lengthrange, length)
    b = real(0.5) * (real(1.0) + prm[world, i, 5])
    width = wp.max(b - real(1.0), TINY)
    out = real(0.0)
    if x > b:
        out = real(0.5) + (x - b) / width
    elif x > real(1.0):
        out = real(0.5) * (x - real(1.0)) * (x - real(1.0)) / (width * width)
    return -peak_force(prm, world, i, acc0) * prm[world, i, 7] * out


@wp.func
def smooth_step(x: real) -> real:
    """0 to 1 over the unit interval, with two continuous derivatives: 6 x^5 - 15 x^4 + 10 x^3."""
    y = wp.clamp(x, real(0.0), real(1.0))
    return y * y * y * (real(3.0) * y * (real(2.0) * y - real(5.0)) + real(10.0))


@wp.func
def muscle_rate(ctrl: real, act: real, prm: vec3) -> real:
    """Rate of the activation (Millard et al. 2013, eq. 1): (excitation - activation) / tau, tau by its sign.

    Parameters: time constants of activation and deactivation, and the width over which one goes over into the
    other; 0 switches.
    """
    slower = real(0.5) + real(1.5) * held(act, real(0.0), real(1.0))
    rise = prm[0] * slower
    fall = prm[1] / slower
    excess = held(ctrl, real(0.0), real(1.0)) - act
    tau = fall
    if prm[2] >= TINY:
        tau = fall + (rise - fall) * smooth_step(excess / prm[2] + real(0.5))
    elif excess >= real(0.0):  # at rest the slope is that of a muscle that is to pull
        tau = rise
    return excess / wp.max(tau, TINY)
