"""Calls outside ``jit``, as notebooks make them: the second one traces and compiles nothing.

A loop or branch that is traced anew at each call takes seconds where the step itself takes a millisecond.
"""

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fphys
from fphys import coupling, envs

from .. import test_worlds
from ..coupling import scenes

RIGID = (
    *("step", "several steps", "rollout", "forward", "inverse", "bias", "energy", "mass matrix", "kinematics"),
    *("jacobian", "difference", "linearize", "sensors"),
)
TRACED = ("Finished tracing", "Finished XLA compilation", "Finished jaxpr to MLIR")


def rigid() -> dict[str, Callable[[], Any]]:
    model = fphys.load(fphys.asset("ball"))
    state, qacc = fphys.init(model, 2), jnp.zeros((2, model.structure.nv))
    return {
        "step": lambda: fphys.step(model, state),
        "several steps": lambda: fphys.step(model, state, substeps=3),
        "rollout": lambda: fphys.rollout(model, state, jnp.zeros((3, 2, model.structure.nu))),
        "forward": lambda: fphys.forward(model, state),
        "inverse": lambda: fphys.inverse(model, state, qacc),
        "bias": lambda: fphys.bias(model, state),
        "energy": lambda: fphys.energy(model, state),
        "mass matrix": lambda: fphys.mass_matrix(model, state),
        "kinematics": lambda: fphys.kinematics(model, state),
        "jacobian": lambda: fphys.jacobian(model, state, "body", 1),
        "difference": lambda: fphys.difference(model, state.qpos, state.qpos),
        "linearize": lambda: fphys.linearize(model, state),
        "sensors": lambda: fphys.sensors(model, state),
    }


def matter(make: Callable[[Any], Any]) -> Callable[[], Any]:
    case = make(jnp.float64)
    return lambda: case.solver.step(case.params, case.state)


def coupled() -> Callable[[], Any]:
    scene = scenes.in_pbd()
    return lambda: coupling.step(scene.model, scene.state, scene.media, scene.matter, substeps=scene.substeps)


def task() -> dict[str, Callable[[], Any]]:
    env = envs.make("InvertedPendulum-v5", 3)
    state, _ = env.reset(jax.random.key(0))
    action = jnp.zeros((3, *env.action_spec.shape), env.action_spec.dtype)
    return {
        "reset": lambda: env.reset(jax.random.key(1)),
        "env.step": lambda: env.step(state, action),
        "restart": lambda: env.restart(state, jnp.ones(3, bool)),
    }


def traced_again(call: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the second of two calls traces and compiles."""
    jax.block_until_ready(call())
    with jax.log_compiles(True), caplog.at_level(logging.WARNING):
        caplog.clear()
        jax.block_until_ready(call())
        return [r.getMessage() for r in caplog.records if r.getMessage().startswith(TRACED)]


@pytest.mark.parametrize("name", RIGID)
def test_rigid_bodies(name, caplog):
    assert not traced_again(rigid()[name], caplog)


@pytest.mark.parametrize("solver", ["mpm", "sph", "fem", "pbd", "rod"])
def test_matter(solver, caplog):
    assert not traced_again(matter(getattr(test_worlds, f"of_{solver}")), caplog)


def test_coupled(caplog):
    assert not traced_again(coupled(), caplog)


@pytest.mark.parametrize("name", ["reset", "env.step", "restart"])
def test_environments(name, caplog):
    assert not traced_again(task()[name], caplog)


def test_what_is_traced_anew_is_found(caplog):
    """The test's own test: a scan of a function that is made anew is traced again."""
    assert traced_again(lambda: jax.lax.scan(lambda c, _: (c + 1, None), 0.0, None, 3), caplog)
