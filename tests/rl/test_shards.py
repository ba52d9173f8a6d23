"""SAC's memory in parts: drawn from as one, nothing remembered twice, and it learns."""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import envs
from fphys.distributed.actors import Actors
from fphys.rl import sac, shards
from fphys.rl.off_policy import Transition
from fphys.train import Checkpoints

WORLDS = 4
CONFIG = sac.Config(steps=4000, horizon=5, warmup=30, batch_size=8, capacity=64, hidden=(8,), updates_per_step=0.5)


@pytest.fixture(scope="module")
def env() -> envs.Env:
    return envs.make("InvertedPendulum-v5", WORLDS, max_episode_steps=7)


@pytest.fixture(scope="module")
def begun(env: envs.Env):
    return jax.jit(functools.partial(shards.init, env, CONFIG))(jax.random.key(0))


def numbered(first: int, count: int) -> Transition:
    x = jnp.arange(first, first + count, dtype=jnp.float32)
    return Transition(x[:, None], x[:, None], x, x[:, None], x > 0)


def test_examples_come_from_each_part_by_its_size_and_one_after_the_other():
    drawn, counts = [numbered(0, 4000), numbered(10_000, 4000)], jnp.array([3000, 1000], jnp.int32)
    mixed = jax.jit(shards.mixed, static_argnums=(3, 4))
    found = np.asarray(mixed(jax.random.key(0), drawn, counts, 10, 400).reward)
    assert found.shape == (10, 400)
    own = found.ravel()[found.ravel() < 10_000]
    np.testing.assert_array_equal(own, np.arange(len(own)))
    assert abs(len(own) - 3000) < 4 * np.sqrt(4000 * 0.75 * 0.25)
    one = jax.jit(shards.mixed, static_argnums=(3, 4))(
        jax.random.key(0), [numbered(0, 3)], jnp.array([5], jnp.int32), 2, 4
    )
    np.testing.assert_array_equal(one.reward.ravel(), [0, 1, 2, 0, 1, 2, 0, 1])  # it begins again


def test_an_iteration_that_is_done_again_is_remembered_once(env: envs.Env, begun):
    module, state = begun
    work = jax.jit(functools.partial(shards.act, env, CONFIG, module, 1))
    part = state.env, state.observation, np.int32(0)
    shared = lambda i: (state.learner.params, state.moments, jax.random.key(i), jnp.int32(i), jnp.int32(100))  # noqa: E731
    kept, sizes = shards.begin(env, CONFIG, 1), []
    for i in range(5):  # the memory of 64 overflows
        found, kept = work(shared(i), part, kept)
        again, twice = work(shared(i), part, kept)
        for a, b in zip(jax.tree.leaves((found, kept)), jax.tree.leaves((again, twice)), strict=True):
            if not jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                np.testing.assert_array_equal(a, b)
        sizes.append(int(found.count))
    assert sizes == [20, 40, 60, 64, 64]


def test_it_learns_once_enough_is_remembered(env: envs.Env, begun):
    module, state = begun
    work, keep = (functools.partial(f, env, CONFIG) for f in (shards.act, shards.begin))
    with Actors(functools.partial(work, module, 0), 0, keep=functools.partial(keep, 0)) as actors:
        iteration = shards.update(env, CONFIG, module, actors)
        rows = []
        for _ in range(4):
            state, row = iteration(state)
            rows.append({name: float(value) for name, value in row.items()})
    assert [np.isfinite(row["q_loss"]) for row in rows] == [False, True, True, True]
    assert int(state.learner.step) == 3 * shards.updates(env, CONFIG) == 30
    assert int(state.moments.count) == WORLDS * (1 + 4 * CONFIG.horizon)  # and where it began
    assert sum(row["episodes"] for row in rows) >= 8 and rows[-1].keys() == rows[0].keys()


def test_a_training_that_was_stopped_first_fills_its_memory_again(env: envs.Env, tmp_path: Path):
    config = dataclasses.replace(CONFIG, steps=60)
    logs = []
    for _ in range(2):
        _, log = shards.train(env, config, jax.random.key(0), 0, checkpoints=Checkpoints(tmp_path))
        logs.append((log["steps"].tolist(), np.isfinite(log["q_loss"]).tolist()))
        config = dataclasses.replace(config, steps=120)
    assert logs == [([20, 40, 60], [False, True, True]), ([80, 100, 120], [False, True, True])]
