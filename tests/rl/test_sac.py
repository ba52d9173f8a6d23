"""Soft actor-critic: density and gradients against distrax, memory against the physics; it learns and resumes."""

import functools
import math
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import envs, nn, rl
from fphys.experiments.dqn import PUSH, Carts, move
from fphys.rl import sac
from fphys.train.checkpoint import Checkpoints
from fphys.tree import pytree

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what JAX deprecates
    import distrax

CONFIG = sac.Config(
    steps=6144,
    horizon=64,
    updates_per_step=1.0,
    warmup=512,
    capacity=8192,
    batch_size=64,
    hidden=(64, 64),
    learning_rate=1e-3,
)
CARTS = sac.Config(horizon=16, updates_per_step=1 / 3, warmup=24, capacity=256, batch_size=16, hidden=(8, 8), tau=1.0)


@functools.cache
def pendulum() -> envs.Env:
    return envs.make("InvertedPendulum-v5", 8, dtype=jnp.float32, max_episode_steps=200)


@functools.cache
def iteration() -> Any:
    """Of the pendulum, and the state before it. One object, so that it is compiled once."""
    module, state = jax.jit(functools.partial(sac.init, pendulum(), CONFIG))(jax.random.key(0))
    return functools.partial(sac.update, pendulum(), CONFIG, module), module, state


@functools.cache
def trained() -> tuple[sac.TrainingState, rl.Log]:
    update, _, state = iteration()
    return rl.loop(update, state, 512, CONFIG.steps)


def squashed_gaussian(mean: jax.Array, log_std: jax.Array) -> Any:
    return distrax.Transformed(distrax.MultivariateNormalDiag(mean, jnp.exp(log_std)), distrax.Block(distrax.Tanh(), 1))


def test_the_density_is_distraxs():
    rng = np.random.default_rng(0)
    x, mean, log_std = (jnp.asarray(rng.normal(size=(9, 3))) for _ in range(3))
    wanted = squashed_gaussian(mean, log_std).log_prob(jnp.tanh(x))
    np.testing.assert_allclose(sac.log_prob(x, mean, log_std), wanted, rtol=1e-8)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, 0.7), (-0.3, -2.0)])
def test_the_density_integrates_to_one(mean: float, log_std: float):
    x = np.linspace(-12, 12, 20_001)  # closer and closer towards the ends
    density = np.exp(sac.log_prob(x[:, None], np.full((1, 1), mean), np.full((1, 1), log_std)))
    np.testing.assert_allclose(np.trapezoid(density, np.tanh(x)), 1, atol=1e-4)


def test_the_density_is_finite_where_tanh_is_one():
    x = jnp.array([[20.0], [-20.0]], jnp.float32)
    value, slope = jax.value_and_grad(lambda x: sac.log_prob(x, x * 0, x * 0).sum())(x)
    # log N(20) - log(1 - tanh(20)^2), and 1 - tanh(x)^2 = 4 exp(-2 x) far out
    np.testing.assert_allclose(value, 2 * (-200 - 0.5 * math.log(2 * math.pi) + 40 - math.log(4)), rtol=1e-6)
    np.testing.assert_allclose(slope[:, 0], [-20 + 2, 20 - 2], rtol=1e-6)


def test_each_loss_reaches_its_own_parameters():
    """Three losses by themselves, with distrax's density; no gradient of one passes into the parameters of another."""
    module, shapes, _ = jax.eval_shape(
        lambda key: nn.init(lambda rngs: nn.models.SoftActorCritic(3, 2, hidden=(6,), rngs=rngs), key),
        jax.random.key(0),
    )
    rng = np.random.default_rng(1)
    params, other = (jax.tree.map(lambda s: jnp.asarray(0.5 * rng.normal(size=s.shape)), shapes) for _ in range(2))
    target = {"critics": other["critics"]}
    x, later, action = (jnp.asarray(rng.normal(size=(10, n))) for n in (3, 3, 2))
    reward, ended = jnp.asarray(rng.normal(size=10)), jnp.asarray(rng.random(10) < 0.4)
    batch = sac.Transition(x, jnp.tanh(action), reward, later, ended)
    key = jax.random.key(2)
    noise = [jax.random.normal(k, (10, 2)) for k in jax.random.split(key)]

    def draw(params: Any, x: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        (mean, log_std), _ = nn.apply(module, params, {}, x)[0]
        action = jnp.tanh(mean + jnp.exp(log_std) * noise)
        return action, squashed_gaussian(mean, log_std).log_prob(action)

    def q(params: Any, x: jax.Array, action: jax.Array) -> jax.Array:
        return nn.apply(module, params, {}, x, method="values", action=action)[0]

    alpha = jnp.exp(params["log_temperature"])

    def values(critics: Any) -> jax.Array:
        action, log = draw(params, later, noise[0])
        follows = jnp.minimum(*q(params | target, later, action).T) - alpha * log
        wanted = reward + CONFIG.discount * (1.0 - ended) * follows
        first, second = q(params | {"critics": critics}, x, batch.action).T
        return (((first - wanted) ** 2 + (second - wanted) ** 2) / 2).mean()

    def chosen(actor: Any) -> jax.Array:
        action, log = draw(params | {"actor": actor}, x, noise[1])
        return (alpha * log - jnp.minimum(*q(params, x, action).T)).mean()

    def temperature(log_temperature: jax.Array) -> jax.Array:
        target_entropy = -2.0
        return (-jnp.exp(log_temperature) * (draw(params, x, noise[1])[1] + target_entropy)).mean()

    @jax.jit
    def apart(p: Any) -> Any:
        names = {"critics": values, "actor": chosen, "log_temperature": temperature}
        return {name: jax.value_and_grad(f)(p[name]) for name, f in names.items()}

    @jax.jit
    def together(p: Any) -> Any:
        return jax.grad(lambda p: sac.loss(CONFIG, module, p, target, batch, key)[::2], has_aux=True)(p)

    with jax.numpy_dtype_promotion("standard"):  # distrax's choice
        found = apart(params)
    wanted = {name: gradient for name, (_, gradient) in found.items()}
    metrics = {"q_loss": found["critics"][0], "policy_loss": found["actor"][0]}
    found, reported = together(params)
    for name, tree in wanted.items():
        for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(tree), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9, err_msg=name)
    for name, value in metrics.items():
        np.testing.assert_allclose(reported[name], value, rtol=1e-8, err_msg=name)


def test_an_action_that_is_not_finite_is_a_fault_and_remembered_as_zero():
    env: Any = Carts(2)
    module, state = jax.jit(functools.partial(sac.init, env, CARTS))(jax.random.key(0))
    choose = jax.jit(functools.partial(sac.choose, env, CARTS, module, state.learner.params))
    x = jnp.array([[0.1, 0, 0, 0], [jnp.nan, 0, 0, 0]], jnp.float32)
    action, control = choose(x, jax.random.key(1), jnp.int32(CARTS.warmup))
    assert action[0] != 0 and action[1] == 0
    np.testing.assert_allclose(control, [PUSH * action[0], [np.nan]], rtol=1e-6)


@pytree
class Faulty(Carts):
    """The simulation of the first cart is lost in every step."""

    def step(self, state: Any, action: jax.Array) -> Any:
        state, observation, reward, ended, truncated, info = super().step(state, action)
        first = jnp.arange(self.num_envs) == 0
        info = info.replace(final_obs=jnp.where(first[:, None], jnp.nan, info.final_obs))
        return state, observation, jnp.where(first, jnp.nan, reward), ended | first, truncated, info


def test_what_is_remembered_happened_at_time_limits_and_in_lost_worlds_too():
    """Every remembered next state follows from its state and action, only falls terminate, and nothing is NaN."""
    env: Any = Faulty(6, max_episode_steps=9)
    module, state = jax.jit(functools.partial(sac.init, env, CARTS))(jax.random.key(0))
    state, scalars = jax.jit(functools.partial(sac.update, env, CARTS, module))(state)
    assert state.memory.count == 16 * 6
    seen = jax.tree.map(lambda x: np.asarray(x[:96]).reshape(16, 6, *x.shape[1:]), state.memory.items)
    assert seen.terminated[:, 0].all() and not seen.next_observation[:, 0].any() and not seen.reward[:, 0].any()
    fine = jax.tree.map(lambda x: x[:, 1:], seen)
    after, fallen = jax.jit(move)(fine.observation, PUSH * fine.action[..., 0])
    np.testing.assert_allclose(fine.next_observation, after, atol=1e-6)
    np.testing.assert_array_equal(fine.terminated, fallen)
    new = (fine.observation[1:] != fine.next_observation[:-1]).any(-1)
    assert (new & ~fine.terminated[:-1]).sum() == 5  # each was cut by the limit once
    np.testing.assert_array_less(np.abs(seen.action), 1)
    assert np.abs(seen.action[:4]).max() > 0.9  # uniform during the warm-up of four rounds
    assert state.learner.step == 12 * 2 and scalars["skipped"] == 0 and np.isfinite(scalars["q_loss"])
    for a, b in zip(jax.tree.leaves(state.learner.aux["critics"]), jax.tree.leaves(state.learner.params["critics"])):
        np.testing.assert_array_equal(a, b)  # tau is 1


@pytest.mark.slow
def test_a_pole_stands_longer():
    state, log = trained()
    policy = sac.policy(pendulum(), iteration()[1], state)
    assert log["steps"][-1] == CONFIG.steps and log["skipped"][-1] == 0
    assert np.isnan(log["q_loss"][0]) and np.isfinite(log["q_loss"][1:]).all()  # a warm-up of one iteration
    assert log["episode_length"][-4:].mean() > 8 * log["episode_length"][0]  # 6 for random actions
    returns, _ = jax.jit(functools.partial(rl.evaluate, pendulum(), policy))(jax.random.key(1))
    assert returns.mean() > 30


def test_training_is_resumed_to_the_same_bits(tmp_path: Path):
    update, _, state = iteration()
    whole, log = rl.loop(update, state, 512, 4 * 512)  # the first is the warm-up
    checkpoints = Checkpoints(tmp_path, every=3)
    rl.loop(update, state, 512, 2 * 512, checkpoints=checkpoints)  # two, of which the last is saved
    again, rest = rl.loop(update, state, 512, 4 * 512, checkpoints=checkpoints)
    for name in log:
        np.testing.assert_array_equal(log[name][2:], rest[name], err_msg=name)
    for a, b in zip(jax.tree.leaves(whole.learner.params), jax.tree.leaves(again.learner.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_unbounded_actions_are_refused():
    env: Any = Carts(5)
    spec = env.action_spec
    unbounded = type("Unbounded", (Carts,), {"action_spec": spec._replace(high=np.array([np.inf]))})(5)
    with pytest.raises(ValueError, match="an action has no bounds"):
        sac.expect(unbounded, sac.Config())
