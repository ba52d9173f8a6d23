"""Environments of a user's own: what their functions return is checked, and what is theirs stays whole."""

import functools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import rl
from fphys.envs import Env, Start
from fphys.rigid.last import unsolved
from fphys.tree import Tree, pytree

WORLDS = 32


@functools.cache
def model() -> Any:
    return fphys.load(fphys.asset("double-pendulum"))


@pytree
class Swing(Env):
    def start(self, key: Any) -> Start:
        return self.noisy_start(key, 0.1)

    def reward(self, before: Any, after: Any, action: Any) -> Any:
        return -(after.qpos[:, 0] ** 2), {}


@pytree
class Waypoints(Swing):
    table: Any = None  # as long as there are worlds, but not of the worlds

    def start(self, key: Any) -> Start:
        return self.noisy_start(key, 0.1)._replace(goal=self.table[jax.random.randint(key, (), 0, WORLDS)])


def test_an_array_of_the_class_is_no_array_of_worlds():
    env = Waypoints(model(), WORLDS, table=jnp.arange(1.0 * WORLDS))
    restart = jax.jit(env.restart)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    some, _ = restart(state, jnp.arange(WORLDS) == 5)
    every, _ = restart(state, jnp.ones(WORLDS, bool))
    assert some.goal[5] == every.goal[5] != state.goal[5]
    np.testing.assert_array_equal(jnp.delete(some.goal, 5), jnp.delete(state.goal, 5))


def test_gymnasium_has_an_interface_to_it():
    vector = fphys.envs.FphysVectorEnv(Swing(model(), 3, max_episode_steps=1))
    observation, _ = vector.reset(seed=0)
    assert isinstance(vector, gymnasium.vector.VectorEnv) and vector.observation_space.contains(observation)
    *_, truncated, info = vector.step(vector.action_space.sample())
    assert truncated.all() and info["_final_obs"].all()


def changed(**functions: Any) -> Env:
    return pytree(type("Changed", (Swing,), functions))(model(), 3)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"reward": lambda e, b, a, u: ((a.qpos**2).mean(), {})}, r"Changed.reward: the reward has shape \(\)"),
        ({"reward": lambda e, b, a, u: (a.qpos[:, :1], {})}, r"it must have shape \(3,\), one for each world"),
        ({"reward": lambda e, b, a, u: a.qpos[:, 0]}, "must return the reward and a dictionary"),
        ({"reward": lambda e, b, a, u: (1.0, {})}, r"has shape \(\)"),
        ({"reward": lambda e, b, a, u: (a.qpos[:, 0], None)}, "must return the reward and a dictionary"),
        ({"reward": lambda e, b, a, u: (a.qpos[:, 0] > 0, {})}, "is bool; it must .* be of floating point"),
        ({"reward": lambda e, b, a, u: (a.qpos[:, 0], {"up": 1.0})}, "the term 'up' has shape"),
        ({"observation": lambda e, s: s.qpos[:, 0]}, r"the observation has shape \(3,\)"),
        ({"observation": lambda e, s: {"q": s.qpos, "v": s.qvel}}, r"is a dict, must be one array, \(3, n\).* join"),
        (
            {"observation": lambda e, s: (s.qpos, s.qvel)},
            "Changed.observation: .* must be one array",
        ),
        ({"terminated": lambda e, s: s.qpos[:, 0]}, "Changed.terminated: its result .* be bool"),
        ({"terminated": lambda e, s: s.qpos > 0}, r"shape \(3, 2\)"),
        ({"start": lambda e, key: (e.model.qpos0[0], e.model.qpos0[0])}, "returned a tuple, must return an fphys.envs"),
    ],
)
def test_results_are_checked(functions: dict[str, Any], message: str):
    env = changed(**functions)
    with pytest.raises(TypeError, match=message):
        jax.eval_shape(lambda: env.step(env.reset(jax.random.key(0))[0], jnp.zeros((3, 2))))


@pytree
class Sand(Tree):
    """The least that a state of a medium has."""

    x: Any
    status: Any


def sand(worlds: int = 3) -> Sand:
    return Sand(jnp.zeros((worlds, 4, 3)), jnp.zeros(worlds, jnp.uint32))


def still(env: Env, physics: Any, matter: Any, ctrl: Any) -> Any:
    return physics, matter, unsolved(physics)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"matter": lambda e, p: [sand()]}, "Changed.matter returned a list, must return a tuple of states"),
        ({"matter": lambda e, p: sand()}, "Changed.matter returned a Sand, must return a tuple"),
        ({"matter": lambda e, p: None}, "Changed.matter returned None, must return a tuple"),
        ({"matter": lambda e, p: (p.qpos,)}, "Changed.matter: the state of medium 0 .* without the fault bits"),
        ({"matter": lambda e, p: (sand(), sand(2))}, r"medium 1 begin with \[\(2,\)\], must begin with \(3,\)"),
        ({"advance": lambda e, p, m, c: (p, m)}, r"Changed.advance returned \(a State, \(a Sand\)\), must return"),
        ({"advance": lambda e, p, m, c: None}, "Changed.advance returned None, must return the bodies' state"),
        ({"advance": lambda e, p, m, c: (p, m, None)}, r"None\), must return .*fphys.rigid.last.unsolved\(physics\)"),
        ({"advance": lambda e, p, m, c: (p, list(m), unsolved(p))}, r"Changed.advance: the matter .* a list"),
        (
            {"advance": lambda e, p, m, c: (p, (m[0].replace(x=m[0].x[:, :3]),), unsolved(p))},
            r"\[0\].*shape \(3, 3, 3\)",
        ),
        ({"advance": lambda e, p, m, c: (p.qpos, m, unsolved(p))}, "the bodies' state must keep its classes"),
        ({"points": lambda e, s: s.matter[0].x}, "Changed.points returned a .* must return a dictionary by name"),
        ({"points": lambda e, s: {"sand": s.matter[0].x[..., :2]}}, r"Changed.points: 'sand' has shape \(3, 4, 2\)"),
        ({"advance": Env.advance}, r"Changed has matter, but no advance.* calls fphys\.coupling\.step"),
    ],
)
def test_what_matter_is_and_how_it_moves_is_checked(functions: dict[str, Any], message: str):
    env = changed(**{"matter": lambda e, p: (sand(),), "advance": still} | functions)
    with pytest.raises(TypeError, match=message):
        jax.eval_shape(lambda: env.step(env.reset(jax.random.key(0))[0], jnp.zeros((3, 2))))


def test_missing_functions_are_named():
    env = pytree(type("Bare", (Env,), {}))(model(), 3)
    with pytest.raises(NotImplementedError, match="Bare needs start"):
        env.reset(jax.random.key(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": -1}, "num_envs is -1, must be at least 1"),
        ({"frame_skip": 0}, "frame_skip is 0"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0"),
        ({"action_mode": "pos"}, "action_mode is 'pos', must be"),
        ({"action_mode": "velocity"}, "needs a positive gain kd"),
        ({"randomize": {"body.mass": (0.5, 2.0)}}, r"randomize=fphys.envs.ranges\("),
        ({"randomize": (("body.mass", -1.0, 2.0),)}, "'body.mass' is from -1.0 on, must be positive"),
        ({"randomize": (("body.quat", 0.5, 2.0),)}, "are quaternions"),
        ({"randomize": (("body.mass", 1.0),)}, r"'body.mass' is \[1.0\], must be two numbers"),
        ({"randomize": (("body.masss", 1.0, 2.0),)}, "did you mean 'body.mass'"),
        ({"randomize": (("opt.timestep", -1.0, 1.5),)}, "'opt.timestep' is from -1.0 on, must be positive"),
    ],
)
def test_options_of_a_class_are_checked(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(Swing(model(), **options).reset, jax.random.key(0))


def test_reward_end_and_observation_count_the_same_steps():
    """The return too, but that a reward cannot see itself."""
    env = changed(
        reward=lambda e, b, a, u: (2 * (a.length - b.length).astype(u.dtype), {"length": a.length, "total": a.total}),
        terminated=lambda e, s: (s.length >= 3) & (s.total >= 6),
        observation=lambda e, s: jnp.stack([s.length.astype(s.total.dtype), s.total], 1),
    )
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    for k in range(1, 4):
        state, _, reward, terminated, _, info = step(state, jnp.zeros((3, 2)))
        assert (reward == 2).all() and (info.terms["length"] == k).all() and (info.terms["total"] == 2 * k - 2).all()
        np.testing.assert_array_equal(info.final_obs, [[k, 2 * k]] * 3)
        assert (terminated == (k == 3)).all() and (info.episode.length == k).all()


def test_a_reward_that_is_not_finite_ends_the_episode_and_is_counted():
    env = changed(reward=lambda e, b, a, u: (jnp.where(jnp.arange(3) == 1, jnp.nan, a.qpos[:, 0]), {}))
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    state, _, _, terminated, _, _ = jax.jit(env.step)(state, jnp.zeros((3, 2)))
    np.testing.assert_array_equal(terminated, [False, True, False])
    np.testing.assert_array_equal(state.faults, [0, 1, 0])


def test_a_first_observation_that_is_not_finite_reaches_nobody():
    lost = lambda s: ((jnp.arange(3) == 1) & (s.length == 0) & (s.episode == 1))[:, None]  # noqa: E731
    env = changed(observation=lambda e, s: jnp.where(lost(s), jnp.nan, s.qpos)).replace(max_episode_steps=2)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    terminated, seen = [], []
    for _ in range(4):
        state, observation, _, ended, _, info = jax.jit(env.step)(state, jnp.zeros((3, 2)))
        terminated.append(ended[1])
        seen += [observation, info.final_obs]
    assert np.isfinite(seen).all() and terminated == [False, False, True, False]
    np.testing.assert_array_equal(state.faults, [0, 1, 0])


def test_a_reward_that_is_not_finite_leaves_the_others_learning():
    lost = lambda b: (jnp.arange(3) == 1) & (b.length == 2)  # noqa: E731
    env = changed(reward=lambda e, b, a, u: (jnp.where(lost(b), jnp.nan, a.qpos[:, 0]), {}))
    config = rl.ppo.Config(steps=48, horizon=16, epochs=2, minibatches=2, hidden=(4,))
    _, log = rl.ppo.train(env.replace(max_episode_steps=8), config, jax.random.key(0))
    assert log["faults"][-1] == 5 and log["skipped"][-1] == 0  # an episode in three steps
    for name in ("episode_return", "reward", "value_loss"):
        assert np.isfinite(log[name]).all(), name


def test_training_in_vain_is_given_up():
    env = changed(reward=lambda e, b, a, u: (jnp.nan * a.qpos[:, 0], {}))
    config = rl.ppo.Config(steps=1000, horizon=4, epochs=1, minibatches=1, hidden=(4,))
    with pytest.raises(fphys.train.TrainingError, match="look for NaN in the task's rewards"):
        rl.ppo.train(env, config, jax.random.key(0))
