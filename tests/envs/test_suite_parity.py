"""One step of every task equals dm_control's, along dm_control's own episodes under random actions.

All steps of the recorded episodes are one batch: each world starts where dm_control was before that step. Episodes
after the first one are kicked now and then, so that rare rewards and contacts are met, too. MuJoCo's solver runs to
convergence here: its default stops at 1e-8.
"""

import functools
import sys
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from dm_control import suite
from dm_control.mujoco.wrapper.mjbindings import sizes
from dm_control.suite.utils import randomizers
from dm_control.utils import rewards

from fphys import envs
from fphys.envs.suite import tolerance
from fphys.errors import MissingDependencyError

for struct in sizes.array_sizes.values():  # dm_control 1.0.50 lists arrays of flexes that MuJoCo 4 does not have
    for flex in [field for field in struct if field.startswith("flex")]:
        del struct[flex]

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # compiles three times faster
MAIN = {"cartpole-swingup", "cheetah-run", "finger-spin", "hopper-hop", "reacher-easy", "walker-walk"}
NAMES = [name.rpartition("/")[2] for name in envs.SUITE]
MARKED = [pytest.param(name, marks=() if name in MAIN else pytest.mark.slow) for name in NAMES]


class Record(NamedTuple):
    """dm_control's steps, in a row."""

    qpos: np.ndarray
    qvel: np.ndarray
    goal: np.ndarray  # where the target is, shape (step, 2)
    action: np.ndarray
    observation: np.ndarray
    reward: np.ndarray


def theirs(name: str, seed: int = 0, exact: bool = True) -> Any:
    """dm_control's environment, with a solver that runs to convergence."""
    domain, _, task = name.partition("-")
    env: Any = suite.load(domain, task, task_kwargs={"random": seed}, environment_kwargs={"flat_observation": True})
    if exact:
        option = env.physics.model.opt
        option.tolerance, option.iterations, option.ls_tolerance = 0, 100, 1e-12
    return env


def target(env: Any, name: str) -> np.ndarray:
    """Where dm_control put the target, (2,): it moves a geom or a site of the model."""
    model = env.physics.named.model
    if "reacher" in name:
        return model.geom_pos["target", ["x", "y"]].copy()
    return model.site_pos["target", ["x", "z"]].copy() if "turn" in name else np.zeros(2)


def kick(physics: Any, name: str, rng: np.random.Generator) -> None:
    """Change velocities; put a finger where it touches, in a spin."""
    data = physics.data
    data.qvel[:] += rng.normal(0, 5, data.qvel.shape)
    if "finger" in name:
        data.ncon, data.qvel[2] = 0, rng.uniform(-30, 0)
        while not data.ncon:
            randomizers.randomize_limited_and_rotational_joints(physics, np.random.RandomState(rng.integers(2**31)))
            physics.forward()
    physics.forward()


def record(name: str, episodes: int, longest: int) -> Record:
    env, rows, rng = theirs(name), [], np.random.default_rng(0)
    spec, data = env.action_spec(), env.physics.data
    for episode in range(episodes):
        env.reset()
        for i in range(longest):
            if episode and i % 20 == 0:
                kick(env.physics, name, rng)
            before = data.qpos.copy(), data.qvel.copy(), target(env, name)
            action = rng.uniform(spec.minimum, spec.maximum)
            found = env.step(action)
            rows.append((*before, action, found.observation["observations"], np.float64(found.reward)))
            if found.last():
                break
    return jax.tree.map(lambda *x: np.stack(x), *(Record(*row) for row in rows))


@functools.cache
def begun(name: str, worlds: int, dtype: Any = None, **options: Any) -> tuple[envs.Env, Any, envs.EnvState]:
    """Our environment, its compiled reset, and the state after it."""
    env = envs.make(f"dm_control/{name}", worlds, dtype=dtype, max_episode_steps=None, **options)
    reset = jax.jit(env.reset, compiler_options=QUICK)
    return env, reset, reset(jax.random.key(0))[0]


def stepped(name: str, found: Record, dtype: Any = None, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Observation and reward of the same steps by fphys, all at once."""
    env, _, state = begun(name, len(found.reward), dtype, **options)
    real = env.model.qpos0.dtype
    physics = state.physics.replace(qpos=jnp.asarray(found.qpos, real), qvel=jnp.asarray(found.qvel, real))
    goal = () if isinstance(state.goal, tuple) else jnp.asarray(found.goal, real)
    _, _, reward, terminated, _, info = jax.jit(env.step, compiler_options=QUICK)(
        state.replace(physics=physics, goal=goal), jnp.asarray(found.action, real)
    )
    assert not terminated.any() and not np.asarray(info.status).any()
    return np.asarray(info.final_obs), np.asarray(reward)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference: absolute for small values, relative for large ones."""
    assert found.shape == wanted.shape
    return (np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))).max()


@pytest.mark.parametrize("name", MARKED)
def test_steps_equal_dm_controls(name: str, full: bool):
    found = record(name, *((20, 1000) if full else (3, 60)))
    observation, reward = stepped(name, found)
    assert error(observation, found.observation) < 1e-9
    assert error(reward, found.reward) < 1e-9
    if name in MAIN:  # the comparison says something: rewards are not all the same, and something touches
        assert found.reward.std() > 1e-3
    if "touch" in begun(name, len(found.reward))[2].seen:
        assert (found.observation[:, 7:9] if "finger" in name else found.observation[:, -2:]).max(0).all()


@pytest.mark.parametrize("name", [pytest.param(p.values[0], marks=pytest.mark.slow) for p in MARKED])
def test_float32_is_near(name: str, full: bool):
    """In at least 99 of 100 steps: a grazing contact may begin one step earlier or later."""
    found = record(name, *((5, 1000) if full else (3, 60)))
    observation, reward = stepped(name, found, np.float32)
    sizes = np.maximum(1.0, np.abs(found.observation))
    assert np.quantile((np.abs(observation - found.observation) / sizes).max(1), 0.99) < 1e-3
    assert np.quantile(np.abs(reward - found.reward), 0.99) < 1e-3


@pytest.mark.slow
def test_the_reward_notices_a_wrong_target():
    """The comparison can fail: a walker's speed that is off by a thousandth is seen."""
    found = record("walker-walk", 3, 60)
    observation, reward = stepped("walker-walk", found, speed=1.001)
    assert error(observation, found.observation) < 1e-9 < 1e-5 < error(reward, found.reward)


@pytest.mark.parametrize("name", MARKED)
def test_starts_are_drawn_as_dm_controls(name: str):
    """The same mean and spread of every observed number over many starts."""
    many, env = 180, theirs(name, exact=False)
    wanted = np.stack([env.reset().observation["observations"] for _ in range(2 * many)])
    _, reset, _ = begun(name, many)
    found = np.concatenate([np.asarray(reset(jax.random.key(seed))[1]) for seed in (1, 2)])
    spread = wanted.std(0) / np.sqrt(many)
    assert (np.abs(found.mean(0) - wanted.mean(0)) < 5 * spread + 1e-9).all()
    assert (np.abs(found.std(0) - wanted.std(0)) < 0.3 * wanted.std(0) + 1e-9).all()


def test_a_cheetah_settles_as_dm_controls():
    """From the same random joints, 200 steps later."""
    env, wanted, drawn = theirs("cheetah-run", 3), [], []
    limited = env.physics.model.jnt_limited == 1
    draws = np.random.RandomState(3)
    for _ in range(20):
        env.reset()
        wanted.append(np.concatenate([env.physics.data.qpos, env.physics.data.qvel]))
        drawn.append(np.where(limited, 0.0, env.physics.model.qpos0))
        drawn[-1][limited] = draws.uniform(*env.physics.model.jnt_range[limited].T)
    ours: Any = begun("cheetah-run", 180)[0]
    found = jax.jit(ours.settled, compiler_options=QUICK)(jnp.asarray(np.stack(drawn)), ours.model)
    assert error(np.concatenate([found.qpos, found.qvel], 1), np.stack(wanted)) < 1e-6


def test_a_finger_starts_untouched():
    """Starts in which something touches are drawn again; MuJoCo's collision detection is the judge."""
    env, reset, _ = begun("finger-spin", 180)
    model = env.model.structure.source
    data = mujoco.MjData(model)

    def touching(places: Any) -> int:
        count = 0
        for place in np.asarray(places):
            data.qpos[:] = place
            mujoco.mj_forward(model, data)
            count += data.ncon > 0
        return count

    assert touching(reset(jax.random.key(1))[0].qpos) == 0
    assert touching(jax.vmap(env.random_joints)(jax.random.split(jax.random.key(1), 180))) > 3  # pyright: ignore


@pytest.mark.parametrize("name", NAMES)
def test_episodes_have_dm_controls_times(name: str):
    env, other = envs.make(f"dm_control/{name}"), theirs(name)
    assert env.max_episode_steps == np.ceil(other._step_limit) and env.frame_skip == other._n_sub_steps
    assert float(env.dt[0]) == pytest.approx(other.control_timestep(), rel=1e-12)
    spec = other.action_spec()
    np.testing.assert_array_equal(env.action_spec.low, spec.minimum)
    np.testing.assert_array_equal(env.action_spec.high, spec.maximum)


@pytest.mark.parametrize("name", ["finger-spin", "cheetah-run"])
def test_gradients_pass_steps_and_restarts(name: str, full: bool):
    """Gradients flow to actions and to the model, also where the next episode is drawn by a loop or by simulation."""
    env = begun(name, 180)[0].replace(num_envs=2, max_episode_steps=1)
    state = jax.tree.map(lambda x: x[:2], begun(name, 180)[2])

    def total(action: jax.Array, damping: jax.Array) -> jax.Array:
        own = env.replace(model=env.model.replace(dof=env.model.dof.replace(damping=damping)))
        _, observation, *_, info = own.step(state, action)
        return observation.sum() + info.final_obs.sum()

    action = jnp.full((2, env.model.structure.nu), 0.1)
    if not full:  # what JAX cannot differentiate fails before anything is compiled
        jax.eval_shape(jax.grad(total, (0, 1)), action, env.model.dof.damping)
        return
    found = jax.jit(jax.grad(total, (0, 1)), compiler_options=QUICK)(action, env.model.dof.damping)
    for part in found:
        assert np.isfinite(part).all() and np.abs(part).max() > 0


SIGMOIDS = ("gaussian", "hyperbolic", "long_tail", "reciprocal", "cosine", "linear", "quadratic", "tanh_squared")


@pytest.mark.parametrize("sigmoid", SIGMOIDS)
@pytest.mark.parametrize(
    ("bounds", "margin"), [((0.0, 0.0), 1.0), ((-1.0, np.inf), 2.0), ((-np.inf, 0.5), 0.3), ((0, 1), 0)]
)
def test_tolerance_is_dm_controls(sigmoid: str, bounds: tuple[float, float], margin: float):
    x = np.linspace(-4, 4, 81)
    for value in (0.1, 0.5, 0.9):
        ours = functools.partial(tolerance, bounds=bounds, margin=margin, sigmoid=sigmoid, value_at_margin=value)
        wanted = rewards.tolerance(x, bounds, margin, sigmoid, value)
        np.testing.assert_allclose(ours(jnp.asarray(x)), wanted, rtol=0, atol=1e-14)
        assert np.isfinite(jax.vmap(jax.grad(ours))(jnp.asarray(x))).all()


def test_a_missing_dm_control_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install dm_control"):
        envs.make("dm_control/walker-walk")


def test_dm_control_is_not_imported(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "dm_control"]:
        monkeypatch.delitem(sys.modules, name)
    envs.make("dm_control/walker-walk")
    assert "dm_control" not in sys.modules


def test_names_and_options():
    with pytest.raises(ValueError, match="dm_control/walker-walk"):
        envs.make("dm_control/walker-fly")
    with pytest.raises(ValueError, match="lower bound"):
        tolerance(jnp.zeros(1), (1.0, 0.0))
    spec: Any = gymnasium.spec("fphys/walker-walk")
    assert spec.kwargs == {"name": "dm_control/walker-walk"}
