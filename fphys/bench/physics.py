"""Rigid mechanisms as benchmark cases: steps and rollouts, forward and gradient."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys

from .case import Case, Workload

Array = jax.Array

_FEW = 4  # how many worlds a validation runs again on their own
_SMOOTH = ("contact", "limit", "equality", "frictionloss")


def step_cases(asset: str) -> list[Case]:
    """One step of a mechanism, and one step with the gradient with respect to state and control."""
    name = f"rigid.{asset}.step"
    return [
        Case(name, lambda worlds: _forward(asset, worlds, 1, fphys.Full()), tags=("rigid", asset)),
        Case(
            f"{name}_grad",
            lambda worlds: _backward(asset, worlds, 1, fphys.Full()),
            relative_to=name,
            target=3.0,
            tags=("rigid", asset, "gradient"),
        ),
    ]


def rollout_cases(asset: str, steps: int) -> list[Case]:
    """Many steps; with the gradient, storing every step or every sixteenth step."""
    name = f"rigid.{asset}.rollout"

    def backward(suffix: str, adjoint: Any, target: float) -> Case:
        setup = functools.partial(_backward, asset, steps=steps, adjoint=adjoint)
        return Case(name + suffix, setup, steps, relative_to=name, target=target, tags=("rigid", asset, "gradient"))

    return [
        Case(name, lambda worlds: _forward(asset, worlds, steps, fphys.Full()), steps, tags=("rigid", asset)),
        backward("_grad", fphys.Full(), 3.0),
        backward("_checkpoint_grad", fphys.Checkpoint(every=16), 4.0),
    ]


def episode_cases(asset: str, steps: int) -> list[Case]:
    """Many steps of worlds that reset themselves when their time is up, compared with a rollout without resets."""
    name = f"rigid.{asset}.episodes"
    setup = functools.partial(_episodes, asset, steps=steps)
    tags = ("rigid", asset)
    return [Case(name, setup, steps, relative_to=f"rigid.{asset}.rollout", target=1.1, tags=tags)]


def _start(asset: str, worlds: int, steps: int) -> tuple[fphys.Model, fphys.State, Array]:
    """The mechanism in free motion. Every world has its own velocities and controls."""
    model = fphys.load(fphys.asset(asset), disable=_SMOOTH)
    real, s = model.qpos0.dtype, model.structure
    rng = np.random.default_rng(0)
    qvel = jnp.asarray(0.5 * rng.standard_normal((worlds, s.nv)), real)
    ctrls = jnp.asarray(rng.uniform(-0.5, 0.5, (worlds, steps, s.nu)), real).swapaxes(0, 1)
    return model, fphys.init(model, worlds, qvel=qvel), ctrls


def _advance(model: fphys.Model, state: fphys.State, ctrls: Array, adjoint: Any) -> fphys.State:
    """The states after each step, on a leading time axis."""
    if len(ctrls) == 1:
        return jax.tree.map(lambda x: x[None], fphys.step(model, state, ctrls[0]))
    return fphys.rollout(model, state, ctrls, adjoint=adjoint)


def _forward(asset: str, worlds: int, steps: int, adjoint: Any) -> Workload:
    model, state, ctrls = _start(asset, worlds, steps)

    def fn(model: fphys.Model, state: fphys.State, ctrls: Array) -> fphys.State:
        return _advance(model, state, ctrls, adjoint)

    def validate(states: fphys.State) -> None:
        fphys.check(jax.tree.map(lambda x: x[-1], states))
        _close("state.time", states.time[-1], state.time + steps * model.opt.timestep)
        few = jax.tree.map(lambda x: x[:_FEW], state)
        alone = jax.jit(fn)(model, few, ctrls[:, :_FEW])
        _close("state.qpos against a few worlds on their own", states.qpos[:, :_FEW], alone.qpos)
        _close("state.qvel against a few worlds on their own", states.qvel[:, :_FEW], alone.qvel)
        force = jnp.ones_like(few.qvel)
        qacc, _ = fphys.forward(model, few, None, force=force)
        _close("the inverse dynamics of forward", fphys.inverse(model, few, qacc), force)

    return Workload(fn, (model, state, ctrls), validate)


def _episodes(asset: str, worlds: int, steps: int) -> Workload:
    model, state, ctrls = _start(asset, worlds, steps)
    period = 1 + jnp.arange(worlds) % steps  # steps per episode, different in each world
    limit = (period - 0.5).astype(state.time.dtype) * model.opt.timestep

    def fn(model: fphys.Model, state: fphys.State, ctrls: Array) -> fphys.State:
        def play(state: fphys.State, ctrl: Array) -> tuple[fphys.State, fphys.State]:
            state = fphys.step(model, state, ctrl)
            state = fphys.reset(model, state, (state.time > limit) | (state.status != 0))
            return state, state

        return fphys.scan(play, state, ctrls)[1]

    def validate(states: fphys.State) -> None:
        age = 1 + jnp.arange(steps)[:, None]
        _close("time since the episode began", states.time, age % period * model.opt.timestep)
        begun = np.asarray(age % period == 0)
        fresh = fphys.init(model, 1)
        qpos, qvel = np.asarray(states.qpos)[begun], np.asarray(states.qvel)[begun]
        _close("qpos where an episode begins", jnp.asarray(qpos), fresh.qpos)
        _close("qvel where an episode begins", jnp.asarray(qvel) + 1.0, fresh.qvel + 1.0)

    return Workload(fn, (model, state, ctrls), validate)


def _backward(asset: str, worlds: int, steps: int, adjoint: Any) -> Workload:
    model, state, ctrls = _start(asset, worlds, steps)

    def losses(model: fphys.Model, state: fphys.State, inputs: tuple[Array, Array, Array]) -> Array:
        """One loss per world: half the squared norm of the last position and velocity."""
        qpos, qvel, ctrls = inputs
        states = _advance(model, dataclasses.replace(state, qpos=qpos, qvel=qvel), ctrls, adjoint)
        return 0.5 * (jnp.sum(states.qpos[-1] ** 2, axis=1) + jnp.sum(states.qvel[-1] ** 2, axis=1))

    def fn(model: fphys.Model, state: fphys.State, inputs: tuple[Array, Array, Array]) -> Any:
        return jax.grad(lambda inputs: jnp.sum(losses(model, state, inputs)))(inputs)

    inputs = (state.qpos, state.qvel, ctrls)

    def validate(grads: tuple[Array, Array, Array]) -> None:
        few, some = jax.tree.map(lambda x: x[:_FEW], (state, inputs[:2]))
        some = (*some, ctrls[:, :_FEW])
        _along(
            jax.jit(functools.partial(losses, model, few)), some, (grads[0][:_FEW], grads[1][:_FEW], grads[2][:, :_FEW])
        )

    return Workload(fn, (model, state, inputs), validate)


def _along(losses: Callable[[Any], Array], inputs: tuple[Array, ...], grads: tuple[Array, ...]) -> None:
    """Compare each input's gradient with the centred difference along it, world by world."""
    double = inputs[0].dtype == jnp.float64
    step, tol = (1e-6, 1e-6) if double else (3e-3, 2e-2)
    for i, grad in enumerate(grads):
        axes = tuple(a for a in range(grad.ndim) if a != grad.ndim - 2)
        size = jnp.sqrt(jnp.sum(grad**2, axis=axes, keepdims=True))
        unit = grad / jnp.maximum(size, jnp.finfo(grad.dtype).tiny)
        above, below = (losses((*inputs[:i], inputs[i] + h * unit, *inputs[i + 1 :])) for h in (step, -step))
        _close(f"gradient {i} against differences", size.ravel(), (above - below) / (2 * step), tol)


def _close(what: str, value: Array, wanted: Array, tol: float | None = None) -> None:
    """Raise unless the two agree to ``tol`` of the largest entry; by default to the rounding of some operations."""
    tol = float(1e4 * jnp.finfo(value.dtype).eps) if tol is None else tol
    found, right = np.broadcast_arrays(np.asarray(value), np.asarray(wanted))
    error = float(np.max(np.abs(found - right))) / max(float(np.max(np.abs(right))), 1e-30)
    if not error <= tol:
        raise ValueError(f"{what}: off by {error:.1e} of the largest entry, allowed {tol:.1e}")
