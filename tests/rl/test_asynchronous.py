"""PPO from what older policies did: that of one policy if it is not older, each step once, and no bias if it is."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import envs
from fphys.distributed.actors import Actors
from fphys.rl import actors, asynchronous, ppo
from fphys.train import CheckpointError, Checkpoints

WORLDS = 4
CONFIG = ppo.Config(steps=800, horizon=8, epochs=1, minibatches=2, hidden=(4,))


@pytest.fixture(scope="module")
def env() -> envs.Env:
    return envs.make("InvertedPendulum-v5", WORLDS, max_episode_steps=5)


@pytest.fixture(scope="module")
def learned(env: envs.Env):
    """Module, states and scalars of four iterations in this process."""
    module, state = jax.jit(functools.partial(asynchronous.init, env, CONFIG, 0))(jax.random.key(0))
    iteration = asynchronous.Iteration(
        env, CONFIG, module, Actors(functools.partial(actors.act, env, CONFIG, module), 0)
    )
    states, rows = [state], []
    for _ in range(4):
        state, row = iteration(state)
        states.append(state)
        rows.append(row)
    return module, states, rows


def test_every_step_is_learned_from_once_an_update_later(learned):
    _, states, rows = learned
    assert [int(row["lag"]) for row in rows] == [0, 2, 2, 2]  # the second rollout was asked for before the first update
    assert [int(s.rounds[0]) for s in states] == [0, 1, 2, 3, 4]
    assert [int(s.ppo.moments.count) for s in states] == [i * WORLDS * CONFIG.horizon for i in range(5)]
    assert int(states[-1].ppo.gain_moments.count) == 4 * WORLDS * CONFIG.horizon


def test_what_the_policy_itself_did_is_learned_from_as_in_ppo(env: envs.Env, learned):
    module, states, _ = learned
    state = states[2].ppo
    noise = jax.random.normal(jax.random.key(1), (8, WORLDS, 1), jnp.float32)

    @jax.jit
    def both(params):
        def step(carry, noise):
            x = state.moments.normalize(carry[1])
            now, observation, seen = ppo.play(env, module, params, carry[0], x, noise)
            return (now, observation), seen._replace(final=state.moments.normalize(seen.final))

        _, seen = jax.lax.scan(step, (state.env, state.observation), noise)
        older = jax.tree.map(lambda x: x + 0.3, params)
        given = CONFIG, module, params, seen
        return ppo.fresh(*given), asynchronous.stale(*given), asynchronous.stale(CONFIG, module, older, seen), seen.done

    fresh, stale, other, done = both(state.learner.params)
    assert bool(done.any())
    for a, b in zip(fresh, stale, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    assert not np.allclose(other.advantage, fresh.advantage, atol=0.1)


def test_a_value_is_that_of_the_policy_that_learns():
    """A chain of three steps of a fair coin; a policy of 3 : 1 pays 0.75 a step. Uncorrected, 0.5 would be found."""
    rng = np.random.default_rng(0)
    wins = rng.random((3, 100_000)) < 0.5
    log_ratio = np.log(np.where(wins, 1.5, 0.5))
    nothing, ends = np.zeros(wins.shape), np.arange(3)[:, None] == np.full(wins.shape, 2)
    given = jnp.asarray(wins.astype(float)), nothing, nothing, ends, ends, jnp.asarray(log_ratio)
    _, target = asynchronous.vtrace(*given, discount=1.0, lam=1.0, most=10.0)
    unclipped = target[2].mean(), target[1].mean()
    assert unclipped[0] == pytest.approx(0.75, abs=0.01)  # five standard errors
    # c is at most 1: one step later counts min(1, ratio) on average, 0.75, of 0.75.
    assert unclipped[1] == pytest.approx(0.75 + 0.75 * 0.75, abs=0.02)


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(env: envs.Env, learned, tmp_path: Path):
    """What had been asked for is asked for again; what was learned from, is not."""
    _, states, rows = learned
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, states[1].replace(rounds=jnp.zeros(2, jnp.int32)), {"iteration": 1})
    with pytest.raises(CheckpointError, match="another number of actors, not 0"):
        asynchronous.train(env, CONFIG, jax.random.key(0), 0, checkpoints=checkpoints)
    checkpoints.save(2, states[2], {"iteration": 2})
    _, log = asynchronous.train(env, CONFIG, jax.random.key(0), 0, checkpoints=checkpoints)
    assert log["steps"].tolist() == list(range(96, 801, 32))
    for name in rows[0]:
        np.testing.assert_array_equal(log[name][:2], [row[name] for row in rows[2:]], err_msg=name)


def test_actors_draw_from_keys_of_their_own(learned):
    """Not from those of PPO's updates, to act and to learn."""
    _, states, _ = learned
    data = lambda keys: {tuple(key) for key in np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()}  # noqa: E731
    own = data(jnp.stack([asynchronous._request(CONFIG, WORLDS, state, 0)[0][2] for state in states]))
    assert len(own) == len(states) and not own & data(jnp.stack([ppo.keys(state.ppo) for state in states]))


@pytest.mark.parametrize(("name", "wrong"), [("number", 2.5), ("number", "2"), ("number", -1), ("restarts", 0.5)])
def test_numbers_of_actors_that_cannot_be(name: str, wrong: Any):
    with pytest.raises((TypeError, ValueError), match=f"{name} is {wrong!r}, must be"):
        Actors(lambda shared, part: part, **({"number": 1} | {name: wrong}))


def test_what_cannot_be_shared_out_is_refused(env: envs.Env):
    with pytest.raises(ValueError, match="4 worlds do not divide evenly among 3 actors"):
        asynchronous.share(env, CONFIG, 3)
    with pytest.raises(ValueError, match="an iteration sees 1 worlds x 8 steps = 8"):
        asynchronous.share(env, ppo.Config(steps=800, horizon=8, minibatches=16), 4)
