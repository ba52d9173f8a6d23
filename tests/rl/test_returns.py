"""Returns, losses and statistics against rlax, optax and NumPy."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fphys.rl import Moments, gae, ppo, td_lambda
from fphys.rl.returns import vtrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what JAX deprecates
    import rlax

T, N, GAMMA, LAM = 12, 3, 0.97, 0.9


@pytest.fixture(scope="module")
def trajectory() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    reward, value, ahead = (rng.normal(size=(T, N)) for _ in range(3))
    terminated = rng.random((T, N)) < 0.15
    done = terminated | (rng.random((T, N)) < 0.15)
    ahead[:-1] = np.where(done[:-1], ahead[:-1], value[1:])  # within an episode, the next step's value
    return {"reward": reward, "value": value, "next_value": ahead, "terminated": terminated, "done": done}


def test_advantages_equal_rlaxs_in_every_episode(trajectory):
    advantage, target = gae(**{k: jnp.asarray(v) for k, v in trajectory.items()}, discount=GAMMA, lam=LAM)
    np.testing.assert_allclose(target, advantage + trajectory["value"], rtol=1e-12)
    for n in range(N):
        for piece in episodes(trajectory["done"][:, n]):
            t = {k: v[piece, n] for k, v in trajectory.items()}
            last = 0.0 if t["terminated"][-1] else t["next_value"][-1]
            values = jnp.asarray(np.append(t["value"], last))
            discounts = jnp.full(len(t["reward"]), GAMMA)
            wanted = rlax.truncated_generalized_advantage_estimation(jnp.asarray(t["reward"]), discounts, LAM, values)
            np.testing.assert_allclose(advantage[piece, n], wanted, rtol=1e-10)


def test_vtrace_equals_rlaxs_in_every_episode(trajectory):
    log_ratio = np.random.default_rng(1).normal(size=(T, N))
    arrays = {k: jnp.asarray(v) for k, v in trajectory.items()}
    found = vtrace(**arrays, log_ratio=jnp.asarray(log_ratio), discount=GAMMA, lam=LAM, most=1.5)
    for n in range(N):
        for piece in episodes(trajectory["done"][:, n]):
            t = {k: v[piece, n] for k, v in trajectory.items()}
            last = 0.0 if t["terminated"][-1] else t["next_value"][-1]
            values = jnp.asarray(np.append(t["value"], last))
            given = jnp.asarray(t["reward"]), jnp.full(len(t["reward"]), GAMMA), jnp.exp(log_ratio[piece, n])
            most = {"clip_rho_threshold": 1.5, "clip_pg_rho_threshold": 1.5}
            with jax.numpy_dtype_promotion("standard"):
                wanted = rlax.vtrace_td_error_and_advantage(values[:-1], values[1:], *given, LAM, **most)
            np.testing.assert_allclose(found[0][piece, n], wanted.pg_advantage, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(found[1][piece, n] - t["value"], wanted.errors, rtol=1e-10, atol=1e-12)


def test_vtrace_of_one_policy_is_generalised_advantage_estimation(trajectory):
    given = {k: jnp.asarray(v) for k, v in trajectory.items()} | {"discount": GAMMA, "lam": LAM}
    for a, b in zip(vtrace(**given, log_ratio=jnp.zeros((T, N))), gae(**given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_td_lambda_equals_rlaxs_in_every_episode(trajectory):
    given = {k: jnp.asarray(v) for k, v in trajectory.items() if k != "value"}
    targets = td_lambda(**given, discount=GAMMA, lam=LAM)
    for n in range(N):
        for piece in episodes(trajectory["done"][:, n]):
            t = {k: v[piece, n] for k, v in trajectory.items()}
            ahead = np.where(t["terminated"], 0.0, t["next_value"])
            wanted = rlax.lambda_returns(
                jnp.asarray(t["reward"]), jnp.full(len(ahead), GAMMA), jnp.asarray(ahead), lambda_=LAM
            )
            np.testing.assert_allclose(targets[piece, n], wanted, rtol=1e-10)


def episodes(done: np.ndarray) -> list[slice]:
    ends = [*np.flatnonzero(done) + 1, len(done)]
    return [slice(a, b) for a, b in zip([0, *ends], ends) if b > a]


def test_the_clipped_surrogate_equals_rlaxs():
    rng = np.random.default_rng(1)
    ratio, advantage = jnp.asarray(np.exp(rng.normal(size=50))), jnp.asarray(rng.normal(size=50))
    wanted = rlax.clipped_surrogate_pg_loss(ratio, advantage, 0.2)
    np.testing.assert_allclose(ppo.clipped_surrogate(ratio, advantage, 0.2), wanted, rtol=1e-12)


def test_log_prob_equals_scipys():
    rng = np.random.default_rng(2)
    action, mean, log_std = (jnp.asarray(rng.normal(size=(7, 4))) for _ in range(3))
    wanted = scipy.stats.norm.logpdf(action, mean, np.exp(log_std)).sum(-1)
    np.testing.assert_allclose(ppo.log_prob(action, mean, log_std), wanted, rtol=1e-10)


def test_moments_of_batches_are_those_of_all():
    rng = np.random.default_rng(3)
    data = (1e3 + rng.normal(size=(400, 5))).astype(np.float32)  # a large mean: no cancellation
    moments = Moments.zero((5,))
    for batch in np.split(data, 8):
        moments = moments.update(jnp.asarray(batch))
    np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(moments.var), data.std(0), rtol=1e-3)


def test_moments_leave_out_what_is_not_finite():
    x = jnp.asarray(np.random.default_rng(4).normal(size=(10, 2)), jnp.float32)
    bad = x.at[3, 1].set(jnp.nan)
    rest = jnp.delete(x, 3, axis=0)
    for a, b in zip(jax.tree.leaves(Moments.zero((2,)).update(bad)), jax.tree.leaves(Moments.zero((2,)).update(rest))):
        np.testing.assert_allclose(a, b, rtol=1e-5)
