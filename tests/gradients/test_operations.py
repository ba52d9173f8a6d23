"""Gradients of every operation by every continuous leaf of the model and by every other input."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import fphys
from fphys.testing import check_grads

from ..rigid.mechanisms import (
    INTEGRATORS,
    Case,
    at_sites,
    case,
    in_own_units,
    loads,
    random_inputs,
    to_state,
    with_leaves,
)

OPERATIONS: dict[str, Callable[..., Any]] = {
    "forward": lambda model, state, ctrl, wrench, force: fphys.forward(model, state, ctrl, wrench, force)[0],
    "kinematics": lambda model, state, *_: fphys.kinematics(model, state),
    "places": lambda model, state, *_: at_sites(model, state),
    "jacobian": lambda model, state, *_: fphys.jacobian(model, state, "site", "tip"),
    "mass_matrix": lambda model, state, *_: fphys.mass_matrix(model, state),
    "bias": lambda model, state, *_: fphys.bias(model, state),
    "inverse": lambda model, state, ctrl, wrench, force: fphys.inverse(model, state, force),
    "energy": lambda model, state, *_: fphys.energy(model, state),
}


def arguments(case: Case, worlds: int = 2) -> tuple[Any, ...]:
    x = random_inputs(case.source, worlds, seed=6, size=0.3)
    return (case.model, to_state(case.model, x), *loads(case.model, x))


def check(operation: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> None:
    """Joint axes are made unit first, for off the sphere they mean nothing; each input moves in its own unit."""

    def on_sphere(model: Any, *rest: Any) -> Any:
        axis = model.joint.axis / jnp.linalg.norm(model.joint.axis, axis=-1, keepdims=True)
        return operation(with_leaves(model, {"joint.axis": axis}), *rest)

    check_grads(*in_own_units(on_sphere, args), tol=1e-6, **options)


REDUCED = {(name, "small") for name in ("forward", "places", "mass_matrix", "bias", "inverse", "energy")}
CASES = [
    pytest.param(operation, name, marks=[] if (operation, name) in REDUCED else pytest.mark.slow)
    for operation in OPERATIONS
    for name in ("small", "everything")
]


@pytest.mark.parametrize(("operation", "name"), CASES)
def test_gradient_by_every_leaf(operation: str, name: str, full: bool):
    check(OPERATIONS[operation], arguments(case(name)), directions=16 if full else 3)


STEPS = [
    pytest.param(name, integrator, marks=pytest.mark.slow if name == "everything" and integrator != "euler" else [])
    for name in ("small", "everything")
    for integrator in INTEGRATORS
]


@pytest.mark.parametrize(("name", "integrator"), STEPS)
def test_gradient_of_a_step_by_every_leaf(name: str, integrator: str, full: bool):
    """A long step, so that forces show in the velocities; the widest difference is for those that hardly do."""

    def step(model: Any, state: Any, ctrl: Any, wrench: Any, force: Any) -> Any:
        after = fphys.step(model, state, ctrl, wrench, force)
        return after.qpos, after.qvel, after.act, after.time

    model, *rest = arguments(case(name, integrator), worlds=1)
    model = with_leaves(model, {"opt.timestep": jnp.full(1, 0.004)})
    check(step, (model, *rest), directions=16 if full else 3, steps=(1e-4, 1e-5, 1e-6, 1e-7))


@pytest.mark.parametrize(
    "operation", [o if o == "forward" else pytest.param(o, marks=pytest.mark.slow) for o in OPERATIONS]
)
def test_every_element(operation: str):
    check(OPERATIONS[operation], arguments(case("small"), 1), elementwise=True)


def test_pd_control():
    def closed_loop(gains: Any, state: Any) -> Any:
        model = case("double-pendulum").model
        for _ in range(5):
            u = fphys.control.pd(jnp.zeros_like(state.qpos), state.qpos, state.qvel, gains["kp"], gains["kd"])
            state = fphys.step(model, state, u)
        return state.qpos, state.qvel

    x = random_inputs(case("double-pendulum").source, 3)
    state = to_state(case("double-pendulum").model, x)
    check_grads(closed_loop, ({"kp": jnp.full((1, 2), 20.0), "kd": jnp.full((1, 2), 2.0)}, state), tol=1e-6)
