"""Time integration: positions move along velocities, activations along their rates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op
from ..model import Model

Array = jax.Array

INTEGRATOR, FILTER, FILTEREXACT = 1, 2, 3
"""MuJoCo's mjtDyn, the types that are supported besides none."""


def _positions(launch: Any, model: Model, qpos: Any, velocity: Any, duration: Any, out: Any) -> None:
    joint = model.structure.joint
    k = kernels(qpos.dtype, "rigid.integrate")
    launch(
        k.integrate_positions,
        dim=(launch.worlds, joint.type.size),
        inputs=[joint.type, joint.qpos, joint.dof, qpos, velocity, duration],
        outputs=[out],
    )


_integrate = warp_op(_positions, lambda model, qpos, velocity, duration: qpos, zeroed=False, name="integrate")


def integrate_positions(model: Model, qpos: Array, velocity: Array, duration: Array) -> Array:
    """Positions after moving along constant velocities.

    Args:
        qpos: shape (world, nq).
        velocity: shape (world, nv) [m/s or rad/s].
        duration: shape (1 | world,) [s].

    Returns:
        Positions of shape (world, nq), quaternions unit. All three arguments get gradients.
    """
    return _integrate(model, qpos, velocity, duration)


def _rates(launch: Any, model: Model, displacement: Any, velocity: Any, out: Any) -> None:
    joint = model.structure.joint
    k = kernels(velocity.dtype, "rigid.integrate")
    launch(
        k.chart_rates,
        dim=(launch.worlds, joint.type.size),
        inputs=[joint.type, joint.dof, displacement, velocity],
        outputs=[out],
    )


_chart_rates = warp_op(_rates, lambda model, displacement, velocity: velocity, zeroed=False, name="chart_rates")


def chart_rates(model: Model, displacement: Array, velocity: Array) -> Array:
    """Rate of a displacement in the tangent space of a base position, for a velocity at the displaced position.

    For orientations this is the inverse of the differential of the exponential map, which a
    Runge-Kutta method on a manifold needs to keep its order (Munthe-Kaas 1998).

    Args:
        displacement, velocity: shape (world, nv).
    """
    return _chart_rates(model, displacement, velocity)


def activation_rate(model: Model, act: Array, ctrl: Array) -> Array:
    """d(act)/dt of every activation [1/s], shape (world, na); integrator: u, filters: (u - act) / tau."""
    a = model.structure.actuator
    index = np.flatnonzero(a.act >= 0)
    u = clamp_ctrl(model, ctrl)[:, index]
    filtered = np.isin(a.dynamics[index], (FILTER, FILTEREXACT))
    tau = jnp.maximum(model.actuator.dynprm[:, index, 0], 1e-15)
    return jnp.where(filtered, (u - act) / jnp.where(filtered, tau, 1.0), u)


def clamp_ctrl(model: Model, ctrl: Array) -> Array:
    """Controls held inside their ranges; a control at or beyond its range gets no gradient there."""
    a = model.structure.actuator
    if "clampctrl" in model.structure.disabled or not a.ctrllimited.any():
        return ctrl
    low, high = model.actuator.ctrlrange[..., 0], model.actuator.ctrlrange[..., 1]
    return jnp.where(a.ctrllimited, jnp.clip(ctrl, low, high), ctrl)


def integrate_activations(model: Model, act: Array, rate: Array) -> Array:
    """Activations after one time step; ``filterexact`` by its exponential, the others explicitly."""
    a = model.structure.actuator
    index = np.flatnonzero(a.act >= 0)
    h = model.opt.timestep[:, None]
    exact = a.dynamics[index] == FILTEREXACT
    tau = jnp.where(exact, jnp.maximum(model.actuator.dynprm[:, index, 0], 1e-15), 1.0)
    new = act + rate * jnp.where(exact, -tau * jnp.expm1(-h / tau), h)
    limited = a.actlimited[index]
    low, high = model.actuator.actrange[:, index, 0], model.actuator.actrange[:, index, 1]
    return jnp.where(limited, jnp.clip(new, low, high), new)
