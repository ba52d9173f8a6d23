"""Deep Q-learning: its targets are rlax's, and what it remembers is what happened. That it learns: the experiment."""

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import envs
from fphys.experiments.dqn import Carts
from fphys.rl import dqn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what JAX deprecates
    import rlax

CONFIG = dqn.Config(steps=1024, levels=3, horizon=4, updates_per_step=0.5, warmup=8, capacity=64, batch_size=16)


def test_the_loss_is_rlaxs():
    env: Any = Carts(5)
    module, state = jax.jit(functools.partial(dqn.init, env, CONFIG))(jax.random.key(0))
    rng = np.random.default_rng(0)
    move = lambda p: p + jnp.asarray(0.3 * rng.normal(size=p.shape), p.dtype)  # noqa: E731
    params, target = (jax.tree.map(move, state.learner.params) for _ in range(2))
    x, later = (jnp.asarray(3 * rng.normal(size=(20, 4)), jnp.float32) for _ in range(2))
    reward, action = jnp.asarray(3 * rng.normal(size=20), jnp.float32), jnp.asarray(rng.integers(0, 3, 20))
    ended = jnp.asarray(rng.random(20) < 0.3)
    batch = dqn.Transition(x, action, reward, later, ended)

    def wanted(params: Any) -> jax.Array:
        q = lambda p, x: dqn.nn.apply(module, p, {}, x)[0]  # noqa: E731
        discount = jnp.where(ended, 0.0, jnp.float32(CONFIG.discount))
        learn = jax.vmap(rlax.double_q_learning)
        error = learn(q(params, x), action, reward, discount, q(target, later), q(params, later))
        return rlax.huber_loss(error).mean()

    loss = lambda params: dqn._loss(CONFIG, module, params, target, batch, jax.random.key(0))[0]  # noqa: E731
    found, other = jax.jit(jax.value_and_grad(loss))(params), jax.jit(jax.value_and_grad(wanted))(params)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # float32


def test_the_grid_has_every_combination_once():
    spec = envs.Spec((2,), jnp.float32, np.array([-1.0, 0.0]), np.array([3.0, 2.0]))
    grid = dqn.grid(spec, 3)
    assert {tuple(row) for row in grid} == {(a, b) for a in (-1, 1, 3) for b in (0, 1, 2)} and len(grid) == 9


def test_seeds_are_trained_side_by_side_and_explore_first():
    env: Any = Carts(4)
    keys = jax.random.split(jax.random.key(0), 2)
    module, _ = dqn.init(env, CONFIG, keys[0])
    update = functools.partial(dqn.update, env, CONFIG, module)
    run = lambda key: update(dqn.init(env, CONFIG, key)[1])  # noqa: E731
    both, scalars = jax.jit(jax.vmap(run))(keys)
    one, alone = jax.jit(run)(keys[1])
    for name, value in alone.items():
        np.testing.assert_allclose(scalars[name][1], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert one.learner.step == 4 and both.learner.step.tolist() == [4, 4]  # two of four rounds learn, twice each


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": 1}, "1 levels of 1 controls"),
        ({"updates_per_step": 0.1}, r"5 worlds x updates_per_step = 0.1 are 0.5 updates .* = 1 / 5, for example"),
        ({"steps": 10}, "one iteration takes 640"),
        ({"capacity": 4}, "must hold a step of all 5 worlds"),
        ({"warmup": 500_000}, "nothing would be learned"),
        ({"warmup": -5}, "warmup is -5, must be finite and not negative"),
        ({"hidden": ()}, "hidden is empty"),
        ({"learning_rate": float("inf")}, "learning_rate is inf, must be finite and not negative"),
        ({"tau": 1.5}, "tau is 1.5, must be from 0 to 1"),
        ({"batch_size": 0}, "batch_size is 0, must be at least 1"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str):
    env: Any = Carts(5)
    with pytest.raises(ValueError, match=message):
        dqn.expect(env, dqn.Config(**({"updates_per_step": 0.2} | changes)))


def test_what_a_refusal_recommends_is_accepted():
    env: Any = Carts(49)  # 49 x (1 / 49) is a little less than 1
    dqn.expect(env, dqn.Config(updates_per_step=1 / 49))


def test_too_many_actions_are_refused():
    with pytest.raises(ValueError, match="5 levels of 8 controls are 390625 actions"):
        dqn.expect(envs.make("Ant-v5", 8), dqn.Config(levels=5))
