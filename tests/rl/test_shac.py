"""SHAC and SAPO: the gradient is that of the short motion, limits hold in each world, and the policy learns."""

import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import envs
from fphys.rl import sapo, shac
from fphys.tree import pytree

CONFIG = shac.Config(steps=12_288, horizon=16, critic_epochs=8, limit=1e9)


@functools.cache
def poles() -> envs.Env:
    return envs.make("InvertedDoublePendulum-v5", 32, dtype=jnp.float32)


@pytree
class SwingUp(envs.Env):
    """A double pendulum is to stand up."""

    def start(self, key: jax.Array) -> envs.Start:
        return self.noisy_start(key, 0.5)

    def reward(self, before: envs.EnvState, after: envs.EnvState, action: jax.Array) -> tuple[jax.Array, dict]:
        return -jnp.cos(after.qpos[:, 0]) - jnp.cos(after.qpos.sum(1)), {}


def test_the_cotangent_of_each_world_is_limited():
    tree = {"x": jnp.ones((4, 3)), "count": jnp.arange(4), "y": jnp.ones((4, 1, 2))}
    seeds = jnp.array([1e-3, 1.0, jnp.inf, 100.0])

    def pull(tree: Any) -> jax.Array:
        out: Any = shac.limited(2.0, tree)
        return (seeds * (out["x"].sum(1) + out["y"].sum((1, 2)))).sum()

    found = jax.grad(pull, allow_int=True)(tree)
    norm = jnp.sqrt((found["x"] ** 2).sum(1) + (found["y"] ** 2).sum((1, 2)))
    np.testing.assert_allclose(norm, [1e-3 * 5**0.5, 2.0, 0.0, 2.0], rtol=1e-6)
    for before, after in zip(jax.tree.leaves(tree), jax.tree.leaves(shac.limited(2.0, tree)), strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_gradient_is_that_of_differences():
    """Of a motion without contacts and limits, in which float32 resolves differences, and without ends of episodes.

    With entropy and two values, as SAPO has them.
    """
    env = SwingUp(fphys.load(fphys.asset("double-pendulum"), dtype=jnp.float32), num_envs=8, frame_skip=4)
    config = sapo.Config(**{**vars(sapo.Config()), **vars(CONFIG), "critics": 2, "temperature": 0.5})
    module, state = jax.jit(functools.partial(shac.init, env, config))(jax.random.key(0))

    start = shac._start(env, config, state, jax.random.key(1))

    def objective(actor: Any) -> Any:
        return shac._objective(env, config, module, state, actor, *start)

    gradient, (*_, seen) = jax.jit(jax.grad(objective, has_aux=True))(state.actor)
    np.testing.assert_allclose(seen.soft - seen.reward, 0.5 * seen.entropy, atol=1e-6)
    value = jax.jit(lambda actor: objective(actor)[0])
    size = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
    h = 1e-4
    along = lambda sign: jax.tree.map(lambda p, g: p + sign * h * g / size, state.actor, gradient)  # noqa: E731
    slope = (value(along(1)) - value(along(-1))) / (2 * h)
    np.testing.assert_allclose(slope, size, rtol=2e-3)  # float32: the objective is known to 1e-5, and changes by 0.2


@pytree
class Resting(SwingUp):
    """Episodes begin at rest."""

    def start(self, key: jax.Array) -> envs.Start:
        start = super().start(key)
        return start._replace(qvel=0 * start.qvel)


def short(**options: Any) -> tuple[Any, Any]:
    """The state of SHAC before and after an iteration of two episodes, which ends where new ones begin, and scalars."""
    kind = options.pop("kind", Resting)
    env = kind(fphys.load(fphys.asset("double-pendulum"), dtype=jnp.float32), num_envs=8, max_episode_steps=4)
    config = shac.Config(steps=640, horizon=8, critic_epochs=1, hidden=(4,), **options)
    module, state = jax.jit(functools.partial(shac.init, env, config))(jax.random.key(0))
    return state, jax.jit(functools.partial(shac.update, env, config, module))(state)


def test_observations_of_all_steps_are_counted():
    """Velocities are zero where an episode begins: scaled by these alone, they would be cut off."""
    before, (after, _) = short()
    assert before.moments.count == 0 and after.moments.count == 8 * 8
    np.testing.assert_array_equal(after.observation[:, 2:], 0)
    assert after.moments.var[2:].min() > 1e-3


def test_observations_are_not_scaled_without_normalize():
    before, (after, _) = short(normalize=False)
    x = jnp.full((1, 4), 0.5)
    np.testing.assert_allclose(before.moments.normalize(x), x, rtol=1e-6)
    np.testing.assert_allclose(after.moments.normalize(x), x, rtol=1e-6)


@pytree
class Lost(SwingUp):
    """One reward of the first world is a negative number's root, and the second's second episode begins with NaN."""

    def reward(self, before: envs.EnvState, after: envs.EnvState, action: jax.Array) -> tuple[jax.Array, dict]:
        reward, terms = super().reward(before, after, action)
        lost = (jnp.arange(self.num_envs) == 0) & (before.length == 2) & (before.episode == 0)
        return reward + jnp.sqrt(jnp.where(lost, -1, 1) * (1 + after.qpos[:, 0] ** 2)), terms

    def observation(self, state: envs.EnvState) -> jax.Array:
        lost = (jnp.arange(self.num_envs) == 1) & (state.length == 0) & (state.episode == 1)
        return jnp.where(lost[:, None], jnp.nan, super().observation(state))


def test_a_reward_or_observation_that_is_not_finite_leaves_the_others_learning():
    before, (after, scalars) = short(kind=Lost)
    assert scalars["faults"] == 2 and scalars["skipped"] == 0
    for name in ("value_loss", "grad_norm", "episode_return", "reward", "temperature", "entropy"):
        assert jnp.isfinite(scalars[name]), name
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(before.actor), jax.tree.leaves(after.actor)))


def test_skipped_updates_of_the_value_are_reported():
    env = SwingUp(fphys.load(fphys.asset("double-pendulum"), dtype=jnp.float32), num_envs=2, max_episode_steps=4)
    config = shac.Config(steps=40, horizon=2, critic_epochs=1, critic_minibatches=2, hidden=(4,))
    module, state = jax.jit(functools.partial(shac.init, env, config))(jax.random.key(0))
    bad = state.replace(target=jax.tree.map(lambda x: x * jnp.nan, state.target))
    _, scalars = jax.jit(functools.partial(shac.update, env, config, module))(bad)
    assert scalars["skipped"] == 1 + 2  # of the policy, and of the value


def test_a_value_of_endless_rewards_is_refused():
    with pytest.raises(ValueError, match="below 1 if values are bootstrapped"):
        shac.train(poles(), shac.Config(discount=1.0), jax.random.key(0))


@pytest.mark.parametrize(
    ("name", "wrong", "wanted"),
    [
        ("discount", -0.1, "from 0 to 1"),
        ("critic_rate", np.nan, "finite and not negative"),
        ("limit", 0.0, "positive"),
        ("critics", 0, "at least 1"),
    ],
)
def test_numbers_that_cannot_be(name: str, wrong: float, wanted: str):
    with pytest.raises(ValueError, match=f"{name} is {wrong}, must be {wanted}"):
        shac.train(poles(), shac.Config(**{name: wrong}), jax.random.key(0))


@pytest.mark.parametrize("bound", [2.0, np.inf])
def test_the_density_behind_the_entropy_integrates_to_one(bound: float):
    raw, n = jnp.linspace(-12, 12, 4001)[:, None], 1
    low, high = jnp.array([-bound]), jnp.array([bound])
    mean, log_std = jnp.full_like(raw, 0.3), jnp.full_like(raw, -0.2)
    entropy = shac.normalised_entropy(raw, mean, log_std, low, high)
    density = jnp.exp(-(2 * n * entropy - n))
    action = jnp.tanh(raw[:, 0]) if np.isfinite(bound) else raw[:, 0]
    np.testing.assert_allclose(jnp.trapezoid(density, action), 1, rtol=1e-4)  # of the trapezoids


@pytest.mark.parametrize(("entropy", "sign"), [(0.5, -1), (0.0, 1), (np.nan, 0)])
def test_the_temperature_falls_where_there_is_more_entropy_than_wanted(entropy: float, sign: int):
    start = jnp.float32(0.0)
    env, config = poles(), sapo.Config()
    state = types.SimpleNamespace(temperature=start, cooling=shac._temperature_optimizer(env, config).init(start))
    after, _ = shac._cool(env, config, state, jnp.float32(entropy))  # type: ignore[arg-type]
    np.testing.assert_allclose(after - start, sign * config.temperature_rate, rtol=1e-3)  # Adam's first step


def test_all_rates_of_sapo_fall_to_a_twentieth_in_a_training():
    """Under the same gradient, Adam's steps are its rate."""
    env = poles()
    config = sapo.Config(steps=5 * env.num_envs * sapo.Config.horizon, critic_epochs=3, critic_minibatches=2)
    for optimizer, rate, updates in (
        (shac._actor_optimizer, config.learning_rate, 5),
        (shac._critic_optimizer, config.critic_rate, 5 * 3 * 2),
        (shac._temperature_optimizer, config.temperature_rate, 5),
    ):
        one = optimizer(env, config)

        def step(carry: Any, _: None, one: Any = one) -> Any:
            change, state = one.update(jnp.float64(1.0), carry)
            return state, change

        with jax.numpy_dtype_promotion("standard"):  # optax's schedules
            changes = jax.lax.scan(step, one.init(jnp.float64(0.0)), None, updates + 1)[1]
        np.testing.assert_allclose(changes[0], -rate, rtol=1e-6)
        np.testing.assert_allclose(changes[-1], -0.05 * rate, rtol=1e-6)


@pytest.mark.slow
def test_two_poles_are_held_longer():
    _, log = shac.train(poles(), shac.Config(**{**vars(CONFIG), "limit": 100.0}), jax.random.key(0))
    assert log["skipped"][-1] == 0 and log["faults"][-1] == 0
    assert log["episode_length"][-3:].mean() > 1.5 * log["episode_length"][:3].mean()
