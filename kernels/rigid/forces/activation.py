"""Activations: states of actuators that follow their controls."""

import warp as wp

from ..._precision import real, vec2, vec3
from ...math import held
from .muscle import muscle_rate

INTEGRATOR = wp.constant(1)
FILTER = wp.constant(2)
FILTEREXACT = wp.constant(3)
MUSCLE = wp.constant(4)
TINY = wp.constant(real(1.0e-15))


@wp.func
def clamped(x: real, limited: int, bounds: vec2) -> real:
    """x, held inside the bounds where they count."""
    out = x
    if limited != 0:
        out = held(x, bounds[0], bounds[1])
    return out


@wp.func
def rate_of(dynamics: int, act: real, ctrl: real, prm: vec3) -> real:
    """d(act)/dt: u, (u - act) / tau, or a muscle's."""
    out = ctrl
    if dynamics == FILTER or dynamics == FILTEREXACT:
        out = (ctrl - act) / wp.max(prm[0], TINY)
    elif dynamics == MUSCLE:
        out = muscle_rate(ctrl, act, prm)
    return out


@wp.func
def exact_fraction(x: real) -> real:
    """(1 - exp(-x)) / x, by its series where the difference would lose digits."""
    out = real(1.0) - x * (real(0.5) - x * (real(1.0) / real(6.0) - x * (real(1.0) / real(24.0) - x / real(120.0))))
    if x > real(0.01):
        out = (real(1.0) - wp.exp(-x)) / x
    return out


@wp.func
def advanced(dynamics: int, act: real, rate: real, prm: vec3, h: real, limited: int, bounds: vec2) -> real:
    """The activation after a time h: act + h rate, or the filter's exponential; held inside its range."""
    span = h
    if dynamics == FILTEREXACT:
        span = h * exact_fraction(h / wp.max(prm[0], TINY))
    return clamped(act + rate * span, limited, bounds)


@wp.kernel
def activation_rates(
    # Structure:
    act_actuator: wp.array(dtype=int),
    dynamics: wp.array(dtype=int),
    ctrllimited: wp.array(dtype=int),
    # Model:
    dynprm: wp.array2d(dtype=vec3),
    ctrlrange: wp.array2d(dtype=vec2),
    # State in:
    activation: wp.array2d(dtype=real),
    ctrl: wp.array2d(dtype=real),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """Rate of every activation."""
    world, a = wp.tid()
    i = act_actuator[a]
    u = clamped(ctrl[world, i], ctrllimited[i], ctrlrange[world, i])
    rate_out[world, a] = rate_of(dynamics[i], activation[world, a], u, dynprm[world, i])


@wp.kernel
def next_activations(
    # Structure:
    act_actuator: wp.array(dtype=int),
    dynamics: wp.array(dtype=int),
    actlimited: wp.array(dtype=int),
    # Model:
    dynprm: wp.array2d(dtype=vec3),
    actrange: wp.array2d(dtype=vec2),
    timestep: wp.array(dtype=real),
    # State in:
    activation: wp.array2d(dtype=real),
    # In:
    rate: wp.array2d(dtype=real),
    # Out:
    activation_out: wp.array2d(dtype=real),
):
    """Every activation after one time step at a rate."""
    world, a = wp.tid()
    i = act_actuator[a]
    activation_out[world, a] = advanced(
        dynamics[i],
        activation[world, a],
        rate[world, a],
        dynprm[world, i],
        timestep[world],
        actlimited[i],
        actrange[world, i],
    )


@wp.func
def next_activation(
    dynamics: int,
    limited: int,
    dynprm: wp.array2d(dtype=vec3),
    actrange: wp.array2d(dtype=vec2),
    timestep: wp.array(dtype=real),
    act: real,
    ctrl: real,
    world: int,
    i: int,
) -> real:
    """The activation of the next step."""
    prm = dynprm[world, i]
    rate = rate_of(dynamics, act, ctrl, prm)
    return advanced(dynamics, act, rate, prm, timestep[world], limited, actrange[world, i])


@wp.kernel
def actuator_signals(
    # Structure:
    act: wp.array(dtype=int),
    early: wp.array(dtype=int),
    dynamics: wp.array(dtype=int),
    ctrllimited: wp.array(dtype=int),
    actlimited: wp.array(dtype=int),
    # Model:
    dynprm: wp.array2d(dtype=vec3),
    ctrlrange: wp.array2d(dtype=vec2),
    actrange: wp.array2d(dtype=vec2),
    timestep: wp.array(dtype=real),
    # State in:
    activation: wp.array2d(dtype=real),
    ctrl: wp.array2d(dtype=real),
    # Out:
    signal_out: wp.array2d(dtype=real),
):
    """What drives each actuator: its control held inside its range, its activation, or that of the next step."""
    world = wp.tid()
    for i in range(act.shape[0]):
        u = clamped(ctrl[world, i], ctrllimited[i], ctrlrange[world, i])
        signal = u
        if act[i] >= 0:
            signal = activation[world, act[i]]
            if early[i] != 0:
                signal = next_activation(
                    dynamics[i], actlimited[i], dynprm, actrange, timestep, activation[world, act[i]], u, world, i
                )
        signal_out[world, i] = signal
