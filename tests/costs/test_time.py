"""Time, as bars wide enough for a noisy machine; ratios are taken within one run."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys.bench import crowds

from ..compiled import as_users

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("usual_garbage")]


@wp.kernel
def double(x: wp.array2d(dtype=wp.float32), y: wp.array2d(dtype=wp.float32)):
    world, i = wp.tid()
    y[world, i] = x[world, i] + x[world, i]


doubled = fphys.bridge.warp_op(
    lambda launch, x, y: launch(double, dim=x.shape, inputs=[x], outputs=[y]), outputs=lambda x: x, name="double"
)


def fastest(*calls: Callable[[], Any], rounds: int = 7) -> list[float]:
    """Best time of each call [s], the calls taking turns so that all see the same machine."""
    for call in calls:
        jax.block_until_ready(call())
    best = [np.inf] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            jax.block_until_ready(call())
            best[i] = min(best[i], time.perf_counter() - start)
    return best


@pytest.fixture(scope="module")
def ant() -> tuple[Any, Any, Any]:
    model = fphys.load(fphys.asset("ant"), disable=("contact", "limit"), dtype="float32")
    rng = np.random.default_rng(0)
    state = fphys.init(model, 1024, qvel=rng.normal(size=(1024, model.structure.nv)) * 0.1)
    return model, state, jnp.asarray(rng.uniform(-1, 1, (20, 1024, model.structure.nu)), jnp.float32)


def test_a_call_of_the_bridge(ant: tuple[Any, Any, Any]):
    """At most 50 us a call, and one hundredth of an ant's step at 1,024 worlds (which makes two calls)."""
    calls = 2000
    many = as_users(lambda x: jax.lax.scan(lambda c, _: (doubled(c), None), x, None, length=calls)[0])
    none = as_users(lambda x: jax.lax.scan(lambda c, _: (c + c, None), x, None, length=calls)[0])
    x = jnp.ones((1, 1), jnp.float32)
    model, state, ctrls = ant
    rollout = as_users(lambda s, u: fphys.rollout(model, s, u).qpos)
    with_op, without, steps = fastest(lambda: many(x), lambda: none(x), lambda: rollout(state, ctrls))
    call, step = (with_op - without) / calls, steps / ctrls.shape[0]
    assert call <= 50e-6
    assert 2 * call <= 0.01 * step


@pytest.mark.slow
def test_forward_and_backward_cost_at_most_three_forwards(ant: tuple[Any, Any, Any]):
    """By controls, over a rollout of 20 steps at 1,024 worlds."""
    model, state, ctrls = ant

    def loss(u: Any) -> Any:
        return fphys.rollout(model, state, u).qpos.sum()

    forward, both = as_users(loss), as_users(jax.value_and_grad(loss))
    alone, together = fastest(lambda: forward(ctrls), lambda: both(ctrls), rounds=15)
    assert together <= 3.0 * alone


@pytest.mark.parametrize("name", ["ant", pytest.param("humanoid", marks=pytest.mark.slow)])
def test_forward_and_backward_cost_at_most_three_forwards_in_contact(name: str):
    """By controls, over a rollout at 1,024 worlds, most of which touch the ground, with the same solver settings."""
    model = fphys.load(fphys.asset(name), dtype="float32")
    rng = np.random.default_rng(0)
    state = fphys.init(model, 1024, qvel=0.1 * rng.normal(size=(1024, model.structure.nv)))
    ctrls = jnp.asarray(rng.uniform(-1, 1, (100, 1024, model.structure.nu)), jnp.float32)
    state = as_users(lambda s, u: fphys.scan(lambda s, u: (fphys.step(model, s, u), None), s, u)[0])(state, ctrls)
    touched = (fphys.forward(model, state, ctrls[0])[1].force[:, :, 0] > 0).any(1)
    assert float(touched.mean()) > 0.5

    def loss(u: Any) -> Any:
        return fphys.rollout(model, state, u).qpos.sum()

    forward, both = as_users(loss), as_users(jax.value_and_grad(loss))
    alone, together = fastest(lambda: forward(ctrls[:5]), lambda: both(ctrls[:5]), rounds=15)
    print(f"{name}: {together / alone:.2f} forward passes")
    assert together <= 3.0 * alone


def test_compiling_a_rollout(ant: tuple[Any, Any, Any], compiled_anew: None):
    """With kernels compiled, at most 10 s for a rollout and its gradient."""
    model, state, ctrls = ant
    start = time.perf_counter()
    as_users(jax.grad(lambda u: fphys.rollout(model, state, u).qpos.sum())).lower(ctrls).compile()
    assert time.perf_counter() - start <= 10


@pytest.mark.parametrize("name", ["chain", "pile"])
def test_time_of_many_bodies_is_linear(name: str, full: bool):
    """From a hundred bodies on, an exponent of at most 1.2; the sizes take turns, so that both see one machine."""
    sizes = (100, 1000 if full else 300)
    starts = [getattr(crowds, name)(n) for n in sizes]
    step = as_users(fphys.step)
    small, large = fastest(*(functools.partial(step, *start) for start in starts), rounds=15)
    assert large / small <= (sizes[1] / sizes[0]) ** crowds.EXPONENT
