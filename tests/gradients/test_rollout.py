"""Gradients through a hundred steps against centred differences."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.testing import check_grads

from ..rigid.mechanisms import INTEGRATORS, case, in_own_units, random_inputs, to_state, with_leaves

STEPS = 100
LEAVES = (
    "body.mass", "body.inertia", "dof.damping", "dof.armature", "joint.stiffness", "tendon.stiffness", "tendon.damping",
    "tendon.armature", "actuator.gainprm", "actuator.biasprm", "opt.gravity", "opt.timestep",
)  # fmt: skip


class Problem:
    """A rollout under controls, wrenches and forces, as a function of everything that it depends on."""

    def __init__(self, name: str, integrator: str, *, steps: int = STEPS, worlds: int = 2, seed: int = 5):
        self.model, m = case(name, integrator)
        x = random_inputs(m, worlds, seed=seed, size=0.15)
        rng = np.random.default_rng(seed)
        size = (steps, *[1] * 2)
        self.leaves = {path: np.asarray(operator.attrgetter(path)(self.model)) for path in LEAVES}
        self.leaves = {path: leaf for path, leaf in self.leaves.items() if leaf.size}
        self.state = to_state(self.model, x)
        self.start = {"qpos": x.qpos, "qvel": x.qvel} | ({"act": x.act} if m.na else {})
        self.loads = {
            "ctrl": 0.2 * x.ctrl * rng.uniform(0.5, 1.5, size),
            "wrench": 0.1 * x.wrench * rng.uniform(0.5, 1.5, (*size, 1)),
            "force": 0.1 * x.force * rng.uniform(0.5, 1.5, size),
        }
        self.args = (self.leaves, self.start, {k: v for k, v in self.loads.items() if v.size})

    def __call__(self, leaves: Any, start: Any, loads: Any, adjoint: Any = fphys.Full()) -> tuple[Any, Any, Any]:
        model = with_leaves(self.model, leaves)

        def step(state: fphys.State, given: Any) -> tuple[fphys.State, None]:
            return fphys.step(model, state, given.get("ctrl"), given["wrench"], given["force"]), None

        final, _ = fphys.scan(step, self.state.replace(**start), loads, adjoint)
        return final.qpos, final.qvel, final.act

    def gradient(self, adjoint: Any) -> Any:
        """The gradient by everything of a fixed combination of the final state."""

        def loss(args: Any) -> Any:
            return sum(jnp.sum(jnp.sin(1.0 + jnp.arange(float(y.size))) * y.ravel()) for y in self(*args, adjoint))

        return jax.jit(jax.grad(loss))(self.args)


@pytest.mark.parametrize("adjoint", [fphys.Full(), fphys.Checkpoint(2), fphys.Truncated(3)])
def test_scan_without_inputs_takes_a_length(adjoint: Any):
    def logistic(x: Any, given: Any) -> tuple[Any, Any]:
        assert given is None
        return 3.7 * x * (1.0 - x), x

    run = jax.value_and_grad(lambda x: fphys.scan(logistic, x, None, adjoint, length=5)[0])
    want = jax.value_and_grad(lambda x: fphys.scan(lambda x, _: logistic(x, None), x, jnp.arange(5), adjoint)[0])
    np.testing.assert_array_equal(run(0.3), want(0.3))


CASES = [
    ("small", "euler", 16), ("everything", "euler", 2), ("double-pendulum", "rk4", 4),
    ("franka", "euler", 3),
]  # fmt: skip
MORE = [
    ("everything", "implicitfast"),
    ("small", "implicitfast"),
    ("small", "rk4"),
    ("everything", "rk4"),
    ("franka", "rk4"),
    ("ant", "euler"),
    ("cartpole", "euler"),
    ("gymnasium-swimmer", "rk4"),
]
MORE += [("gymnasium-humanoid", "euler"), ("arm-urdf", "euler")]


@pytest.mark.parametrize(
    ("name", "integrator", "directions"),
    [*CASES, *(pytest.param(*more, 16, marks=pytest.mark.slow) for more in MORE)],
)
def test_gradients_of_a_hundred_steps(name: str, integrator: str, directions: int, full: bool):
    problem = Problem(name, integrator)
    check_grads(*in_own_units(problem, problem.args), tol=1e-6, directions=16 if full else directions)


@pytest.mark.parametrize(
    "integrator", [i if i == "euler" else pytest.param(i, marks=pytest.mark.slow) for i in INTEGRATORS]
)
def test_every_element_of_a_small_mechanism(integrator: str, full: bool):
    """One number alone moves the end by little, so the differences start at a longer step, clear of rounding."""
    problem = Problem("small", integrator, steps=STEPS if full else 4, worlds=1)
    check_grads(*in_own_units(problem, problem.args), tol=1e-6, elementwise=True, steps=(1e-4, 1e-5, 1e-6))


@pytest.mark.parametrize("every", [7, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 16, 100, 1000))])
def test_checkpoint_equals_full(every: int, full: bool):
    problem = Problem("small", "euler", steps=STEPS if full else 16)
    plain, saved = problem.gradient(fphys.Full()), problem.gradient(fphys.Checkpoint(every))
    for reference, gradient in zip(jax.tree.leaves(plain), jax.tree.leaves(saved), strict=True):
        assert np.abs(gradient - reference).max() <= 1e-12 * np.abs(reference).max()


@pytest.mark.parametrize("window", [3, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 6))])
def test_truncated_equals_cutting_by_hand(window: int):
    problem = Problem("small", "euler", steps=6)

    def by_hand(step: Any, state: fphys.State, loads: Any) -> tuple[fphys.State, None]:
        for t in range(6):
            state = jax.lax.stop_gradient(state) if t and t % window == 0 else state
            state, _ = step(state, jax.tree.map(lambda x, t=t: x[t], loads))
        return state, None

    class ByHand:
        scan = staticmethod(by_hand)

    found, reference = problem.gradient(fphys.Truncated(window)), problem.gradient(ByHand())
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(reference), strict=True):
        assert np.abs(a - b).max() <= 1e-12 * np.abs(b).max()
    assert any(np.any(g) for g in jax.tree.leaves(found[1])) == (window == 6), "the initial state is before the cut"
    assert all(not np.any(load[: 6 - window]) and np.any(load) for load in jax.tree.leaves(found[2]))
