"""Mutations of the backward pass: without any one of its terms the gradient check must fail.

The terms are not listed by hand. Every adjoint launch of every operation that a step differentiates is left
out in turn, and the gradient of every array in it is dropped in turn; what is checked is a step of the small
mechanism, in which each of them matters, by the gradient error of :mod:`fphys.testing`.
"""

import contextlib
import dataclasses
import gc
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.bridge import WarpOp, ffi
from fphys.bridge import op as bridge_op
from fphys.bridge.plan import Plan
from fphys.bridge.plans import Held, PlanNumber

from ..rigid.mechanisms import INTEGRATORS, case, in_own_units, loads, random_inputs, to_state, with_leaves

GATE = 1e-6
Change = Callable[[Plan], Plan]
IDLE = {
    "implicitfast": r"actuator_lengths$|row_products$|actuator_forces$|limited_forces$|tendon_lengths$",
    "rk4": r"power: .*opt\.timestep ",
    "": r"actuator\.(acc0|actrange|lengthrange) |(next activation|power): .*dynprm |activation rate: .*ctrlrange ",
}
"""Terms without effect here: stages that the implicit damping matrix runs but does not depend on (force limits read
them, with derivative zero); inputs that muscles, exact filters and limited activations have, which the small mechanism
lacks (tests/gradients/test_transmission_gradients.py has them)."""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Plan]]:
    """The plans of all adjoints made from now on, by the number that compiled calls know them by."""
    found, honest = {}, bridge_op._finish
    operations = [op for op in gc.get_objects() if type(op) is WarpOp]

    def finish(plan: Plan, platform: str) -> PlanNumber:
        number = honest(plan, platform)
        if plan.adjoints:
            found[int(number)] = plan
        return number

    monkeypatch.setattr(bridge_op, "_finish", finish)
    forget(operations)
    yield found
    monkeypatch.undo()
    forget(operations)


def forget(operations: list[WarpOp]) -> None:
    """Let operations plan their adjoints anew."""
    for op in operations:
        for cached in (op.operation, op.adjoint, op.backward_plan):
            cached.cache_clear()
    jax.clear_caches()  # what a recomputed step looks like


@contextlib.contextmanager
def mutated(plans: dict[int, Plan], change: Change) -> Iterator[None]:
    """Compiled calls run changed plans: nothing is traced or compiled again."""
    changed = {number: mutant for number, plan in plans.items() if (mutant := change(plan)) is not plan}
    assert changed
    registry, kept = ffi.plans(), {}
    try:
        for number, plan in changed.items():
            entry, mutant = registry.held[number].entry, Held(plan)
            mutant.pack(registry.team)
            kept[number] = mutant, entry.queue
            entry.queue = mutant.entry.queue
        yield
    finally:
        for number, (_, queue) in kept.items():
            registry.held[number].entry.queue = queue


class Check:
    """The gradient error of a step by every leaf, with the differences taken once."""

    def __init__(self, integrator: str):
        model, m = case("small", integrator)
        model = with_leaves(model, {"opt.timestep": jnp.full(1, 0.02)})  # long, so that second-order terms show
        x = random_inputs(m, 1, seed=8)
        x = x._replace(ctrl=np.where(m.actuator_ctrllimited, 1.0, 3.0 * x.ctrl))  # at the limits, where there are any
        self.fn, self.args = in_own_units(self.loss, (model, to_state(model, x), *loads(model, x)))
        self.leaves, self.tree = jax.tree.flatten(self.args)
        self.floats = [i for i, leaf in enumerate(self.leaves) if leaf.dtype == float and leaf.size]
        rng = np.random.default_rng(9)
        self.directions = {i: rng.standard_normal(self.leaves[i].shape) for i in self.floats}
        evaluate = jax.jit(self.fn)
        self.differences = {i: self.difference(evaluate, i) for i in self.floats}

    @staticmethod
    def loss(model: Any, state: Any, *given: Any) -> Any:
        axis = model.joint.axis / jnp.linalg.norm(model.joint.axis, axis=-1, keepdims=True)
        after = fphys.step(with_leaves(model, {"joint.axis": axis}), state, *given)
        flat = jnp.concatenate([after.qpos, after.qvel, after.act], 1)
        return jnp.sum(jnp.cos(jnp.arange(float(flat.shape[1])))[None] * flat)

    def moved(self, leaf: int, step: float) -> Any:
        leaves = [x + step * self.directions[leaf] if i == leaf else x for i, x in enumerate(self.leaves)]
        return self.tree.unflatten(leaves)

    def difference(self, evaluate: Any, leaf: int) -> list[float]:
        return [
            float(evaluate(*self.moved(leaf, h)) - evaluate(*self.moved(leaf, -h))) / (2 * h)
            for h in (1e-5, 1e-6, 1e-7)
        ]

    def gradients(self) -> Callable[[list[Any]], list[Any]]:
        """By all leaves, a compiled function of them."""

        def of_floats(floats: list[Any]) -> Any:
            moved = dict(zip(self.floats, floats, strict=True))
            return self.fn(*self.tree.unflatten([moved.get(i, leaf) for i, leaf in enumerate(self.leaves)]))

        return jax.jit(jax.grad(of_floats))

    def error(self, grads: list[Any]) -> float:
        """The gradient error of the worst leaf."""
        worst = 0.0
        for i, grad in zip(self.floats, grads, strict=True):
            d = self.directions[i]
            slope, scale = float(np.sum(grad * d)), 1e-3 * float(np.linalg.norm(grad)) * float(np.linalg.norm(d))
            gaps = [abs(slope - fd) / max(abs(fd), scale) if fd or scale else 0.0 for fd in self.differences[i]]
            worst = max(worst, min(gaps))
        return worst


def without_launch(name: str, number: int) -> Change:
    def change(plan: Plan) -> Plan:
        if plan.name != name:
            return plan
        adjoints = [i for i, (_, adjoint) in enumerate(plan.launches) if adjoint]
        return dataclasses.replace(plan, launches=[x for i, x in enumerate(plan.launches) if i != adjoints[number]])

    return change


def without_array(name: str, number: int) -> Change:
    def change(plan: Plan) -> Plan:
        if plan.name != name:
            return plan
        dropped = list(plan.adjoints)[number]
        return dataclasses.replace(plan, adjoints={b: p for b, p in plan.adjoints.items() if b is not dropped})

    return change


def terms(plans: Iterable[Plan]) -> Iterator[tuple[str, Change]]:
    """What can be left out of the adjoints: each launch, each array's gradient."""
    for plan in {plan.name: plan for plan in plans}.values():
        for number, launch in enumerate([launch for launch, adjoint in plan.launches if adjoint]):
            yield f"{plan.name}: launch {number} of {launch.kernel.key}", without_launch(plan.name, number)
        for number, buffer in enumerate(plan.adjoints):
            if all(buffer.shape):
                yield f"{plan.name}: gradient {number} of {buffer.writer or buffer}", without_array(plan.name, number)


@pytest.mark.parametrize(
    "integrator", [i if i == "euler" else pytest.param(i, marks=pytest.mark.slow) for i in INTEGRATORS]
)
def test_no_term_of_the_backward_pass_can_be_left_out(integrator: str, plans: dict[int, Plan]):
    check = Check(integrator)
    gradients = check.gradients()
    of = [check.leaves[i] for i in check.floats]
    honest = [np.array(grad) for grad in gradients(of)]
    assert check.error(honest) <= GATE
    survivors, every = [], list(terms(plans.values()))
    assert len(every) > 50
    for label, change in every:
        with mutated(plans, change):
            grads = [np.array(grad) for grad in gradients(of)]
        same = all(np.array_equal(a, b) for a, b in zip(grads, honest, strict=True))
        idle = same and any(re.search(IDLE[kind], label) for kind in (integrator, "") if kind in IDLE)
        if not (idle or check.error(grads) > 10 * GATE):
            survivors.append(label)
    assert not survivors, "\n".join(survivors)


@pytest.mark.parametrize("dropped", [False, True])
def test_gradients_of_what_worlds_share_must_be_summed(
    dropped: bool, plans: dict[int, Plan], monkeypatch: pytest.MonkeyPatch
):
    """Each block of worlds has a sum of its own; the mutation forgets to add them up."""
    worlds = 128
    monkeypatch.setenv("FPHYS_THREADS", "2")
    model, m = case("small")
    x = random_inputs(m, worlds)
    state, given = to_state(model, x), loads(model, x)

    def gradient(mass: Any) -> Any:
        def loss(mass: Any) -> Any:
            return fphys.step(with_leaves(model, {"body.mass": mass}), state, *given).qvel.sum()

        return jax.jit(jax.grad(loss))(mass)

    each = gradient(jnp.broadcast_to(model.body.mass, (worlds, m.nbody))).sum(0, keepdims=True)
    if dropped:
        call = bridge_op._call

        def first_block_only(*args: Any) -> Any:
            return tuple(y if y.shape[0] in (1, worlds) else y.at[1:].set(0) for y in call(*args))

        monkeypatch.setattr(bridge_op, "_call", first_block_only)
    forget([op for op in gc.get_objects() if type(op) is WarpOp])
    assert plans
    error = float(jnp.abs(gradient(model.body.mass) - each).max() / jnp.abs(each).max())
    assert error > 1e-3 if dropped else error < 1e-12
