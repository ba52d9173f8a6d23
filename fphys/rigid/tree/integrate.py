"""Time integration: positions move along velocities, activations along their rates."""

from typing import Any

import jax
import numpy as np

from ...bridge import kernels, warp_op
from ...model import Model
from .. import team

Array = jax.Array


def _positions(launch: Any, model: Model, qpos: Any, velocity: Any, duration: Any, out: Any) -> None:
    joint, count = model.structure.joint, team.lanes(launch, model.structure.njnt)
    launch(
        kernels(qpos.dtype, "rigid.tree.integrate").integrate_positions,
        dim=(launch.worlds, count),
        inputs=[count, joint.type, joint.qpos, joint.dof, qpos, velocity, duration],
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


def _stage(
    launch: Any, model: Model, qpos: Any, qvel: Any, velocity: Any, qacc: Any, duration: Any, *outs: Any
) -> None:
    joint, count = model.structure.joint, team.lanes(launch, model.structure.njnt)
    launch(
        kernels(qpos.dtype, "rigid.tree.integrate").stage,
        dim=(launch.worlds, count),
        inputs=[count, joint.type, joint.qpos, joint.dof, qpos, qvel, velocity, qacc, duration],
        outputs=list(outs),
    )


_stage_op = warp_op(_stage, lambda model, qpos, qvel, *_: (qpos, qvel, qvel), zeroed=False, name="Runge-Kutta stage")


def runge_kutta_stage(
    model: Model, qpos: Array, qvel: Array, velocity: Array, qacc: Array, duration: Array
) -> tuple[Array, Array, Array]:
    """Positions and velocities a given time after a base point, and the rate of change there.

    The rate is that of the displacement from the base in its tangent space. For orientations this needs the inverse of
    the differential of the exponential map, so that a Runge-Kutta method on a manifold keeps its order
    (Munthe-Kaas 1998).

    Args:
        qpos, qvel: of the base, shape (world, nq) and (world, nv).
        velocity, qacc: constant rates of positions and velocities, shape (world, nv).
        duration: shape (1 | world,) [s].

    Returns:
        qpos, qvel and rate, shape (world, nq), (world, nv), (world, nv). All but the model's structure gets gradients.
    """
    return _stage_op(model, qpos, qvel, velocity, qacc, duration)


def _activation_rates(launch: Any, model: Model, act: Any, ctrl: Any, out: Any) -> None:
    s, p = model.structure, model.actuator
    a = s.actuator
    limited = (a.ctrllimited & ("clampctrl" not in s.disabled)).astype(np.int32)
    launch(
        kernels(act.dtype, "rigid.forces.activation").activation_rates,
        dim=(launch.worlds, s.na),
        inputs=[_owners(model), a.dynamics, limited, p.dynprm, p.ctrlrange, act, ctrl],
        outputs=[out],
    )


_rate_op = warp_op(_activation_rates, lambda model, act, ctrl: act, zeroed=False, name="activation rate")


def activation_rate(model: Model, act: Array, ctrl: Array) -> Array:
    """d(act)/dt of every activation [1/s], shape (world, na).

    Integrator: u; filters: (u - act) / tau; muscle: the same with tau chosen by the sign of u - act. A control or
    activation outside its range gets no gradient. All arguments get gradients.
    """
    return _rate_op(model, act, ctrl)


def _next_activations(launch: Any, model: Model, act: Any, rate: Any, out: Any) -> None:
    s, p = model.structure, model.actuator
    launch(
        kernels(act.dtype, "rigid.forces.activation").next_activations,
        dim=(launch.worlds, s.na),
        inputs=[_owners(model), s.actuator.dynamics, s.actuator.actlimited.astype(np.int32)]
        + [p.dynprm, p.actrange, model.opt.timestep, act, rate],
        outputs=[out],
    )


_next_op = warp_op(_next_activations, lambda model, act, rate: act, zeroed=False, name="next activation")


def integrate_activations(model: Model, act: Array, rate: Array) -> Array:
    """Activations after one time step; ``filterexact`` by the exact exponential, the others explicitly."""
    return _next_op(model, act, rate)


def _owners(model: Model) -> np.ndarray:
    """The actuator of each activation."""
    act = model.structure.actuator.act
    index = np.flatnonzero(act >= 0)
    return index[np.argsort(act[index])].astype(np.int32)
