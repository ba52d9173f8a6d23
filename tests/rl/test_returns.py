"""Returns, losses and statistics against rlax, optax and NumPy."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fphys.rl import Moments, gae, ppo, td_lambda
from fphys.rl.loop import episode_scalars
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


BY = {"two sums": Moments.update, "one sum": lambda moments, x: moments.add(moments.sums(x))}


@pytest.mark.parametrize("way", BY)
def test_moments_of_batches_are_those_of_all(way: str):
    rng = np.random.default_rng(3)
    data = (1e3 + rng.normal(size=(400, 5))).astype(np.float32)  # a large mean: no cancellation
    batches = [jnp.asarray(batch) for batch in np.split(data, 8)]
    moments = Moments.zero((5,)) if way == "two sums" else Moments.around(batches[0])
    for batch in batches:
        moments = BY[way](moments, batch)
    np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(moments.var), data.std(0), rtol=1e-3)
    assert moments.count == 400


def test_one_sum_is_as_exact_as_two():
    """In float32, after each batch, for means that are 1 to 1e4 deviations away, and for one that drifts."""
    rng = np.random.default_rng(5)
    data = np.array([1, 1e2, 1e4, 0]) + rng.normal(size=(50, 16, 4))
    data[..., 3] += 0.5 * np.arange(50)[:, None]
    data = data.astype(np.float32)
    found = {"two sums": Moments.zero((4,)), "one sum": Moments.around(jnp.asarray(data[0]))}
    for i in range(50):
        seen = data[: i + 1].reshape(-1, 4).astype(np.float64)
        found = {way: BY[way](moments, jnp.asarray(data[i])) for way, moments in found.items()}
        one, two = (np.abs(np.asarray(found[way].var) / seen.var(0) - 1) for way in ("one sum", "two sums"))
        rounding = 4 * np.finfo(np.float32).eps * (1 + np.abs(seen.mean(0)) / seen.std(0))  # of a mean, in deviations
        assert (one <= two + rounding).all()
        np.testing.assert_allclose(found["one sum"].mean, seen.mean(0), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("way", BY)
def test_moments_leave_out_what_is_not_finite(way: str):
    x = jnp.asarray(np.random.default_rng(4).normal(size=(10, 2)), jnp.float32)
    bad = x.at[3, 1].set(jnp.nan)
    rest = jnp.delete(x, 3, axis=0)
    for before in (Moments.zero((2,)), Moments.zero((2,)).update(rest)):
        after = BY[way](before, bad)
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(BY[way](before, rest))):
            np.testing.assert_allclose(a, b, rtol=1e-5)
        for a, b in zip(jax.tree.leaves(BY[way](after, jnp.inf * x)), jax.tree.leaves(after)):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_moments_of_one_sum_leave_out_what_overflows():
    x = jnp.asarray(np.random.default_rng(4).normal(size=(10, 2)), jnp.float32)
    before = Moments.around(x).update(x)
    after = before.add(before.sums(x.at[3, 1].set(1e20)))
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(before.add(before.sums(jnp.delete(x, 3, axis=0))))):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_the_variance_of_one_world_does_not_drift_after_many_steps():
    x = jnp.tile(jnp.array([0, 2, 0, 0, 0, -2, 0, 0], jnp.float32), 2**15)[:, None, None]  # of variance 1
    moments = Moments(jnp.float32(2**24), jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32))
    for way in BY.values():
        after, _ = jax.jit(lambda m, way=way: jax.lax.scan(lambda m, x: (way(m, x), None), m, x))(moments)
        np.testing.assert_allclose(after.var, 1, rtol=2e-3)


def test_returns_that_are_not_finite_are_left_out_of_their_mean():
    done = jnp.array([[True, False, True]])
    total, length = jnp.array([[jnp.nan, jnp.nan, 3.0]]), jnp.array([[1, 2, 5]])
    found = episode_scalars(jnp.ones((1, 3)), done, total, length, jnp.array([1, 0, 0]))
    assert found["episode_return"] == 3 and found["episode_length"] == 3 and found["episodes"] == 2


def test_rewards_are_scaled_by_what_was_seen_up_to_their_step():
    """As one merge after the other does it, from the discounted sums of each world."""
    rng = np.random.default_rng(6)
    reward, done = rng.normal(2, 1, (T, N)).astype(np.float32), rng.random((T, N)) < 0.2
    gains, scale = jnp.asarray(rng.normal(size=N), jnp.float32), Moments.zero(()).update(jnp.asarray(reward[0]))
    state = ppo.TrainingState(None, None, None, None, gains, scale, None)
    seen = ppo.Seen(*6 * [None], None, jnp.asarray(done), None, None)._replace(reward=jnp.asarray(reward))
    state, seen = ppo._scaled(ppo.Config(), state, seen)
    for t in range(T):
        gains = ppo.Config().discount * gains + reward[t]
        scale = scale.update(gains)
        np.testing.assert_allclose(seen.reward[t], np.clip(reward[t] / scale.deviation(1), -10, 10), rtol=1e-5)
        gains = jnp.where(done[t], 0, gains)
    np.testing.assert_allclose(state.gains, gains, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(state.gain_moments), jax.tree.leaves(scale)):
        np.testing.assert_allclose(a, b, rtol=1e-5)
