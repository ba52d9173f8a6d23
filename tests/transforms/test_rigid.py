"""Every rigid-body operation under every transform, different worlds holding different data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.rigid.tree.integrate import integrate_positions, runge_kutta_stage
from fphys.testing import check_transforms

from ..rigid.mechanisms import INTEGRATORS, at_sites, case, random_inputs, to_state, with_leaves

WORLDS, STEPS = 3, 3


def after(state: fphys.State) -> Any:
    return state.qpos, state.qvel, state.act, state.time, state.status


def unrolled(model: fphys.Model, state: fphys.State, given: Any) -> Any:
    """A rollout with the world axis first."""
    ctrls = jnp.stack([given["ctrl"] * factor for factor in (1.0, 0.5, -1.0)])
    states = fphys.rollout(model, state, ctrls)
    return jnp.moveaxis(states.qpos, 0, 1), jnp.moveaxis(states.qvel, 0, 1)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "forward": lambda m, s, given: fphys.forward(m, s, **given)[0],
    "step": lambda m, s, given: after(fphys.step(m, s, **given)),
    "rollout": unrolled,
    "kinematics": lambda m, s, _: fphys.kinematics(m, s),
    "places": lambda m, s, _: at_sites(m, s),
    "jacobian": lambda m, s, _: fphys.jacobian(m, s, "site", "tip"),
    "mass_matrix": lambda m, s, _: fphys.mass_matrix(m, s),
    "bias": lambda m, s, _: fphys.bias(m, s),
    "inverse": lambda m, s, given: fphys.inverse(m, s, given["force"]),
    "energy": lambda m, s, _: fphys.energy(m, s),
    "integrate": lambda m, s, _: integrate_positions(m, s.qpos, s.qvel, m.opt.timestep),
    "stage": lambda m, s, given: runge_kutta_stage(m, s.qpos, s.qvel, 0.5 * s.qvel, given["force"], m.opt.timestep),
}
REDUCED = {("inverse", "euler"), ("integrate", "euler"), ("stage", "euler")}
CASES = [
    pytest.param(name, integrator, marks=[] if (name, integrator) in REDUCED else pytest.mark.slow)
    for name in OPERATIONS
    for integrator in INTEGRATORS
    if integrator == "euler" or name in ("step", "rollout")
]


@pytest.mark.parametrize(("name", "integrator"), CASES)
def test_operation_means_the_same_under_every_transform(name: str, integrator: str, full: bool):
    """Masses and time steps differ between worlds, gravity and stiffness are shared by all."""
    model, m = case("small", integrator)
    x = random_inputs(m, WORLDS, seed=10)
    rng = np.random.default_rng(11)
    leaves = {
        "body.mass": np.asarray(model.body.mass) * rng.uniform(0.8, 1.2, (WORLDS, m.nbody)),
        "opt.timestep": np.asarray(model.opt.timestep) * rng.uniform(0.8, 1.2, WORLDS),
        "opt.gravity": np.asarray(model.opt.gravity),
        "joint.stiffness": np.asarray(model.joint.stiffness),
    }
    start = {"qpos": x.qpos, "qvel": x.qvel, "act": x.act}
    given = {"ctrl": 0.3 * x.ctrl, "wrench": x.wrench, "force": x.force}
    state = to_state(model, x)

    def operation(leaves: Any, start: Any, given: Any) -> Any:
        worlds = start["qpos"].shape[0]
        worlds = max(worlds, *(leaf.shape[0] for leaf in leaves.values()))
        base = fphys.init(model, worlds).replace(time=state.time[:worlds])
        return OPERATIONS[name](with_leaves(model, leaves), base.replace(**start), given)

    sizes = {"batches": (1, 3), "max_patterns": 5} if full else {"batches": (2,), "max_patterns": 1}
    check_transforms(operation, (leaves, start, given), rtol=1e-10, **sizes)


def test_a_step_under_vmap_of_grad():
    """What the full sizes check of every operation in every pattern, for one: mapped states, shared masses."""
    model, m = case("small", "euler")
    batch, x = 2, random_inputs(m, 2 * WORLDS, seed=12)
    states = jax.tree.map(lambda v: v.reshape(batch, WORLDS, *v.shape[1:]), to_state(model, x))
    ctrl = jnp.asarray(0.3 * x.ctrl).reshape(batch, WORLDS, m.nu)

    def loss(mass: Any, state: fphys.State, ctrl: Any) -> Any:
        after = fphys.step(with_leaves(model, {"body.mass": mass}), state, ctrl)
        return (after.qvel**2).sum() + after.qpos.sum()

    gradient = jax.grad(loss, (0, 1, 2), allow_int=True)
    mapped = jax.jit(jax.vmap(gradient, in_axes=(None, 0, 0)))(model.body.mass, states, ctrl)
    single = jax.jit(gradient)
    looped = [single(model.body.mass, jax.tree.map(lambda v, b=b: v[b], states), ctrl[b]) for b in range(batch)]
    for b, one in enumerate(looped):
        for ours, alone in zip(jax.tree.leaves(mapped), jax.tree.leaves(one), strict=True):
            if alone.dtype == float:
                np.testing.assert_allclose(ours[b], alone, rtol=1e-12, atol=1e-14)
