"""PPO learns, is pure, and resumes to the same bits."""

import functools
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import envs, rl
from fphys.rl import ppo
from fphys.train.checkpoint import Checkpoints
from fphys.tree import pytree

CONFIG = ppo.Config(steps=12_288, horizon=64, epochs=4, minibatches=8, learning_rate=1e-3, curriculum=True)


@pytree
class Balance(envs.InvertedPendulum):
    """An episode that lasts is a success; starts are closer to upright where it is easy."""

    def starts(self, keys: jax.Array, model: fphys.Model, difficulty: jax.Array) -> envs.Start:
        start = jax.vmap(self.start)(keys)
        return envs.Start(start.qpos * difficulty[:, None], start.qvel * difficulty[:, None])

    def reward(self, before: envs.EnvState, after: envs.EnvState, action: jax.Array) -> tuple[jax.Array, dict]:
        reward, terms = super().reward(before, after, action)
        return reward, terms | {"success": after.length == self.max_episode_steps}


@functools.cache
def pendulum() -> envs.Env:
    plain = envs.make("InvertedPendulum-v5", dtype=jnp.float32)
    return Balance(plain.model, num_envs=16, frame_skip=plain.frame_skip, max_episode_steps=200)


@functools.cache
def trained() -> tuple[rl.Policy, rl.Log]:
    return ppo.train(pendulum(), CONFIG, jax.random.key(0))


def test_a_pole_is_balanced():
    policy, log = trained()
    assert log["steps"][-1] == 12_288 and log["faults"][-1] == 0
    returns, lengths = jax.jit(functools.partial(rl.evaluate, pendulum(), policy))(jax.random.key(1))
    assert returns.mean() > 150  # 6 to 10 for an untrained policy
    np.testing.assert_array_equal(returns, lengths)  # one for each step


def test_training_is_resumed_to_the_same_bits(tmp_path: Path):
    policy, log = trained()
    checkpoints = Checkpoints(tmp_path, every=5)
    module, state = jax.jit(functools.partial(ppo.init, pendulum(), CONFIG))(jax.random.key(0))
    iteration = functools.partial(ppo.update, pendulum(), CONFIG, module)
    rl.loop(iteration, state, 1024, 7 * 1024, checkpoints=checkpoints)  # seven of twelve
    assert checkpoints.steps == [5, 7]
    again, rest = ppo.train(pendulum(), CONFIG, jax.random.key(0), checkpoints=checkpoints)
    assert len(rest["steps"]) == 5
    for name in log:
        np.testing.assert_array_equal(log[name][7:], rest[name], err_msg=name)
    for a, b in zip(jax.tree.leaves(policy.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_difficulty_follows_success():
    module, state = jax.jit(functools.partial(ppo.init, pendulum(), CONFIG))(jax.random.key(0))
    np.testing.assert_array_equal(state.env.qpos, 0)  # the first episodes are at level 0
    good = envs.Curriculum(jnp.float32(0.3), jnp.float32(1), jnp.float32(1e6))
    after, scalars = jax.jit(functools.partial(ppo.update, pendulum(), CONFIG, module))(state.replace(curriculum=good))
    np.testing.assert_allclose(scalars["difficulty"], 0.4)
    np.testing.assert_allclose(after.env.difficulty, 0.4)
    assert scalars["success"] == 0  # 64 steps are too few for a success


def test_seeds_are_trained_side_by_side_by_vmap():
    env = envs.make("InvertedPendulum-v5", 4, dtype=jnp.float32)
    config = ppo.Config(steps=256, horizon=16, epochs=1, minibatches=2, hidden=(8,))
    keys = jax.random.split(jax.random.key(0), 2)
    module, _ = jax.jit(functools.partial(ppo.init, env, config))(keys[0])
    init = lambda key: ppo.init(env, config, key)[1]  # noqa: E731
    update = functools.partial(ppo.update, env, config, module)
    _, both = jax.jit(jax.vmap(lambda key: update(init(key))))(keys)
    _, one = jax.jit(lambda key: update(init(key)))(keys[1])
    for name, value in one.items():
        np.testing.assert_allclose(both[name][1], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": float("nan")}, "learning_rate is nan, must be finite and not negative"),
        ({"learning_rate": -1e-3}, "learning_rate is -0.001, must be finite and not negative"),
        ({"discount": 1.01}, "discount is 1.01, must be from 0 to 1"),
        ({"lam": -0.1}, "lam is -0.1, must be from 0 to 1"),
        ({"clip": 0.0}, "clip is 0.0, must be positive"),
        ({"max_grad_norm": -1.0}, "max_grad_norm is -1.0, must be positive"),
        ({"log_std": float("inf")}, "log_std is inf, must be finite"),
        ({"epochs": 0}, "epochs is 0, must be at least 1"),
        ({"steps": 0}, "steps is 0, must be at least 1"),
        ({"hidden": 64}, r"hidden is 64, must be a tuple of widths"),
        ({"hidden": (0,)}, r"hidden is \(0,\), must be a tuple of widths of at least 1"),
    ],
)
def test_numbers_that_cannot_be(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        ppo.train(pendulum(), ppo.Config(**changes), jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "name"), [({"steps": 1e4}, "steps is 10000.0"), ({"horizon": 4.0}, "horizon is 4.0")]
)
def test_counts_are_whole(changes: dict, name: str):
    for agent in (rl.ppo, rl.shac, rl.sac, rl.dqn):
        with pytest.raises(TypeError, match=f"{name}, must be a whole number"):
            agent.expect(pendulum(), agent.Config(**changes))


def test_a_rate_may_be_a_schedule_and_one_that_is_nan_is_noticed():
    """Gradients are finite then, updates are not."""

    def rate(count: jax.Array) -> jax.Array:
        return jnp.where(count < 0, 1.0, jnp.nan)

    config: Any = ppo.Config(
        steps=12 * 64, horizon=4, epochs=1, minibatches=2, hidden=(4,), anneal=False, learning_rate=cast(Any, rate)
    )
    with pytest.raises(fphys.train.TrainingError, match=r"last 10 iterations were skipped.* learning rate"):
        ppo.train(pendulum(), config, jax.random.key(0))


def test_refusals():
    with pytest.raises(ValueError, match="does not split into 32"):
        ppo.train(envs.make("InvertedPendulum-v5", 5), ppo.Config(horizon=3), jax.random.key(0))
    few = envs.make("InvertedPendulum-v5", 1)
    with pytest.raises(ValueError, match=r"minibatches of 1: .* at least 2: take minibatches = 16, or more worlds"):
        ppo.expect(few, ppo.Config(horizon=32))
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((4,), ("world",))):
        spread = r"minibatches of 2: .* evenly among 4 devices: take minibatches = 16, or .* a multiple of 4 worlds"
        with pytest.raises(ValueError, match=spread):
            ppo.expect(few, ppo.Config(horizon=64))
        with pytest.raises(ValueError, match=r"minibatches of 2: .* take critic_minibatches = 8, or"):
            rl.shac.expect(few, rl.shac.Config(horizon=32, critic_minibatches=16))
        ppo.expect(few, ppo.Config(horizon=64, minibatches=16))
    with pytest.raises(ValueError, match="one iteration takes"):
        ppo.train(pendulum(), ppo.Config(steps=100), jax.random.key(0))
    with pytest.raises(ValueError, match='has no "success"'):
        ppo.train(envs.make("InvertedPendulum-v5", 32), ppo.Config(curriculum=True), jax.random.key(0))
    endless = envs.make("InvertedPendulum-v5", 1, max_episode_steps=None)
    with pytest.raises(ValueError, match="no time limit"):
        rl.evaluate(endless, lambda observation: observation[:, :1], jax.random.key(0))
    for steps_of in (rl.evaluate, rl.motion):
        with pytest.raises(ValueError, match="steps is 0, must be at least 1"):
            steps_of(pendulum(), lambda observation: observation[:, :1], jax.random.key(0), steps=0)
