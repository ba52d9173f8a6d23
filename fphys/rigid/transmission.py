"""What can be asked of tendons and actuators: lengths, moments and forces."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import warp_op
from ..model import Model, State
from . import launches as L

Array = jax.Array


class Transmissions(NamedTuple):
    """Lengths and their gradients by the dofs; differentiable."""

    tendon_length: Array  # [m or rad], MuJoCo's ten_length, shape (world, ntendon)
    tendon_jacobian: Array  # MuJoCo's ten_J, shape (world, ntendon, nv)
    length: Array  # of actuators, MuJoCo's actuator_length, shape (world, nu)
    moment: Array  # of actuators, MuJoCo's actuator_moment, shape (world, nu, nv)


def transmissions(model: Model, state: State) -> Transmissions:
    """Lengths and Jacobians of tendons, lengths and moments of actuators.

    Returns:
        Transmissions. Gradients flow to qpos, coefficients and gears.
    """
    s, (worlds, nv), real = model.structure, state.qvel.shape, state.qpos.dtype
    tendon = np.repeat(np.arange(s.ntendon), np.diff(s.tendon.adr))
    coef = jnp.broadcast_to(model.tendon.coef, (worlds, model.tendon.coef.shape[1]))
    jacobian = jnp.zeros((worlds, s.ntendon, nv), real).at[:, tendon, s.joint.dof[s.tendon.joint]].add(coef)
    parts = coef * state.qpos[:, s.joint.qpos[s.tendon.joint]]
    tendon_length = jnp.zeros((worlds, s.ntendon), real).at[:, tendon].add(parts)
    if not s.nu:
        none = jnp.zeros((worlds, 0), real)
        return Transmissions(tendon_length, jacobian, none, none[..., None] * jnp.zeros(nv, real))
    each = jax.vmap(lambda d: _rates(model, state, jnp.broadcast_to(d, (worlds, nv)), jacobian @ d), out_axes=2)
    moment = each(jnp.eye(nv, dtype=real))
    return Transmissions(tendon_length, jacobian, _lengths(model, state, tendon_length), moment)


def actuator_force(model: Model, state: State, ctrl: Array) -> Array:
    """Force of every actuator [N or N m], MuJoCo's ``actuator_force``, shape (world, nu); all inputs get gradients."""
    return -_power(model, state, ctrl, jnp.ones_like(ctrl))


def _launch_lengths(launch: Any, model: Model, state: State, tendon_length: Any, out: Any) -> None:
    s = model.structure
    launch(
        L.modules(state.qpos).actuation.actuator_lengths,
        dim=out.shape,
        inputs=[s.actuator.transmission, s.actuator.target, s.joint.type, s.joint.qpos]
        + [model.actuator.gear, state.qpos, tendon_length],
        outputs=[out],
    )


def _launch_rates(launch: Any, model: Model, state: State, rate: Any, tendon_rate: Any, out: Any) -> None:
    s = model.structure
    launch(
        L.modules(state.qpos).actuation.actuator_rates,
        dim=out.shape,
        inputs=[s.actuator.transmission, s.actuator.target, s.joint.type, s.joint.qpos, s.joint.dof]
        + [model.actuator.gear, state.qpos, rate, tendon_rate],
        outputs=[out],
    )


def _launch_power(launch: Any, model: Model, state: State, ctrl: Any, trial: Any, out: Any) -> None:
    drives = L.drives(launch, model, state, ctrl, L.tendons(launch, model, state))
    launch(
        L.modules(state.qpos).actuation.actuator_power,
        dim=out.shape,
        inputs=[*L.force_arguments(model), *drives, trial],
        outputs=[out],
    )


def _per_actuator(model: Model, state: State, *_: Any) -> Any:
    return jax.ShapeDtypeStruct((state.qpos.shape[0], model.structure.nu), state.qpos.dtype)


_lengths = warp_op(_launch_lengths, _per_actuator, zeroed=False, name="actuator lengths")
_rates = warp_op(_launch_rates, _per_actuator, zeroed=False, name="actuator rates")
_power = warp_op(_launch_power, _per_actuator, zeroed=False, name="actuator forces")
