"""What spatial tendons do to the bodies at their sites, for the sensors of force and torque.

A tendon's tension is the sum of its spring and damper, its actuators, its limit, its dry friction, its equalities and
its armature. All of these but the actuators' are known by their virtual power, which is minus the tension times the
rate of the length: a rate of one gives the tension.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import warp_op
from ..math import einsum
from ..model import Model, State
from . import stages
from .forces import armature, tendon
from .forces.actuation import TENDON
from .solve import equality, friction, limit

Array = jax.Array


class Parts(NamedTuple):
    """Virtual power by what acts on tendons, (world, n); None where there is none."""

    spring: Any
    friction: Any
    limit: Any
    equality: Any
    drift: Any  # no power: how the lengths of tendons with armature accelerate when no dof does


def _power(launch: Any, model: Model, state: State, given: equality.Bonds, qacc: Any, trial: Any, out: Parts) -> None:
    """The power of all that acts on tendons, at trial rates of their lengths."""
    k = stages.modules(state.qpos)
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    ten = tendon.tendons(launch, model, state, frames, axes)
    rates = stages.Rates(tendon.rates(launch, model, ten, qacc), trial)
    t = model.tendon
    inputs = [*stages.switches(model), t.stiffness, t.damping, t.lengthspring, ten.length, ten.velocity, trial]
    launch(k.tendon.tendon_power, dim=out.spring.shape, inputs=inputs, outputs=[out.spring])
    friction.friction_power(launch, model, state, rates, ten, rates, friction.Power(None, out.friction))
    limit.limit_power(launch, model, state, rates, ten, rates, limit.Power(None, out.limit))
    if out.equality is not None:
        none: Any = None
        parts = equality.Power(None, None, out.equality)
        equality.equality_power(launch, model, state, given, none, rates, ten, rates, parts)
    if out.drift is not None:
        velocity = stages.frame_motion(launch, model, axes, state.qvel)
        armature.drifts(launch, model, state, frames, axes, velocity, out.drift)


def _parts(model: Model, state: State, *_: Any) -> Parts:
    sizes = (friction.friction_sizes(model)[1], limit.limit_sizes(model)[1], equality.equality_sizes(model)[2])
    sizes = (model.structure.ntendon, *sizes, armature.count(model.structure))
    return Parts(*(stages.part(state, n) for n in sizes))


_power_op = warp_op(_power, _parts, name="tension of tendons")


def _pull(launch: Any, model: Model, state: State, out: Any) -> None:
    tendon.pulls(launch, model, state, stages.frame_poses(launch, model, state), out)


def _pull_shape(model: Model, state: State) -> Any:
    count = tendon.segments(model.structure).geom.size
    return jax.ShapeDtypeStruct((state.qpos.shape[0], count, 3, 6), state.qpos.dtype)


_pull_op = warp_op(_pull, _pull_shape, name="pulls of tendons")


def tensions(model: Model, state: State, qacc: Array, rate: Array, actuator_force: Array) -> Array:
    """The force of each tendon along its length, (world, ntendon): positive where it pushes its ends apart [N].

    Args:
        qacc: the accelerations that the solver found, (world, nv).
        rate: J qacc of the tendons [m/s^2], (world, ntendon).
        actuator_force: (world, nu).
    """
    s, real = model.structure, state.qpos.dtype
    worlds, count = state.qpos.shape[0], s.ntendon
    given, one = equality.bonds(model), jnp.ones((worlds, count), real)
    part = _power_op(model, state, given, qacc, one)
    total = -part.spring
    for which, power in ((s.friction.tendon, part.friction), (s.limit.tendon, part.limit)):
        if power is not None:
            total = total.at[:, which].add(-power)
    if part.drift is not None:
        heavy = armature.heavy(s).tendon
        total = total.at[:, heavy].add(-model.tendon.armature[:, heavy] * (rate[:, heavy] + part.drift))
    if part.equality is not None:  # c (l1' - y l2'): two rates give c and c y
        first, second = equality.tied(model).T
        own, there = part.equality, second >= 0
        mixed = _power_op(model, state, given, qacc, one * jnp.arange(1, count + 1, dtype=real)[None]).equality
        apart = jnp.asarray(np.where(there, first - second, 1), real)[None]
        weight = jnp.asarray(np.where(there, second + 1, 0), real)[None]
        force = jnp.where(there[None], (mixed - weight * own) / apart, own)
        total = total.at[:, first].add(-force)
        total = total.at[:, np.where(there, second, first)].add(jnp.where(there[None], force - own, 0))
    a = s.actuator
    pulled = (a.transmission == TENDON) & (a.target == np.arange(count)[:, None])
    gear = jnp.broadcast_to(model.actuator.gear[..., 0], actuator_force.shape)
    return total + einsum("ti,wi->wt", jnp.asarray(pulled, real), gear * actuator_force)


def wrenches(model: Model, state: State, tension: Array) -> tuple[np.ndarray, Array, Array]:
    """What tendons do to bodies: the bodies (k,), and torques about their trees' origins and forces, (world, k, 3)."""
    cut = tendon.segments(model.structure)
    owner = np.repeat(np.arange(model.structure.ntendon), np.diff(cut.adr))
    pull = tension[:, owner, None, None] * _pull_op(model, state)
    pull = pull.reshape(len(pull), -1, 6)
    return cut.body.reshape(-1), pull[..., :3], pull[..., 3:]
