"""One step of every task equals Gymnasium's, along Gymnasium's own episodes under random actions, with any options.

All steps of the recorded episodes are one batch: each world starts where Gymnasium was before that step. MuJoCo's
solvers run to convergence here: its defaults stop at 1e-8, and humanoids use 50 sweeps of Gauss-Seidel.
"""

from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from fphys import envs
from fphys.rigid.last import unsolved

NAMES = sorted(envs.GYMNASIUM)
SEARCHED = {"Pusher-v5"}  # contacts found by an iterative search between convex shapes
OPTIONS: dict[str, dict[str, Any]] = {
    "Ant-v5": {
        "terminate_when_unhealthy": False,
        "forward_reward_weight": 2.0,
        "contact_cost_weight": 0.1,
        "healthy_z_range": (0.4, 0.6),
        "contact_force_range": (-0.5, 2.0),
        "exclude_current_positions_from_observation": False,
        "main_body": 2,
    },
    "HalfCheetah-v5": {"ctrl_cost_weight": 0.7, "exclude_current_positions_from_observation": False, "frame_skip": 2},
    "Hopper-v5": {"terminate_when_unhealthy": False, "healthy_state_range": (-1.0, 1.0), "healthy_reward": 3.0},
    "Humanoid-v5": {
        "include_cfrc_ext_in_observation": False,
        "contact_cost_weight": 1e-4,
        "healthy_z_range": (1.2, 2.0),
        "exclude_current_positions_from_observation": False,
    },
    "HumanoidStandup-v5": {"impact_cost_weight": 1e-4, "impact_cost_range": (0.0, 1.0), "uph_cost_weight": 2.0},
    "InvertedDoublePendulum-v5": {"healthy_reward": 3.0},
    "Pusher-v5": {"reward_near_weight": 2.0, "reward_control_weight": 0.5},
    "Reacher-v5": {"reward_dist_weight": 2.0, "reward_control_weight": 0.5},
    "Swimmer-v5": {"forward_reward_weight": 3.0, "exclude_current_positions_from_observation": False},
    "Walker2d-v5": {"healthy_angle_range": (-0.1, 0.1), "exclude_current_positions_from_observation": False},
}


class Record(NamedTuple):
    """Gymnasium's steps, in a row."""

    qpos: np.ndarray
    qvel: np.ndarray
    action: np.ndarray
    seen: dict[str, np.ndarray]  # what mjData held before the step
    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    info: dict[str, np.ndarray]


def record(name: str, episodes: int, longest: int, options: dict[str, Any]) -> Record:
    env = gymnasium.make(name, **options)
    task: Any = env.unwrapped
    task.model.opt.solver, task.model.opt.tolerance, task.model.opt.iterations = mujoco.mjtSolver.mjSOL_NEWTON, 0, 100
    task.model.opt.ls_tolerance = 1e-12
    rows, rng = [], np.random.default_rng(0)
    for episode in range(episodes):
        env.reset(seed=episode)
        for _ in range(longest):
            data, mass = task.data, task.model.body_mass[:, None]
            body = options.get("main_body", 1)
            seen = {"position": data.xpos[body, :2].copy(), "centre": (mass * data.xipos).sum(0)[:2] / mass.sum()}
            before = data.qpos.copy(), data.qvel.copy()
            action = rng.uniform(task.action_space.low, task.action_space.high)
            observation, reward, terminated, truncated, info = env.step(action)
            rows.append((*before, action, seen, observation, reward, terminated, info))
            if terminated or truncated:
                break
    return jax.tree.map(lambda *x: np.stack(x), *(Record(*row) for row in rows))


def stepped(env: envs.Env, found: Record) -> tuple[Any, ...]:
    """The same steps by fphys, all at once; restarts are off, for the state after the step is compared."""
    real = env.model.qpos0.dtype

    @jax.jit
    def step(qpos: Any, qvel: Any, action: Any, held: dict[str, Any]) -> tuple[Any, ...]:
        state, _ = env.reset(jax.random.key(0))
        physics = state.physics.replace(qpos=qpos, qvel=qvel)
        seen = env.look(unsolved(physics), jnp.zeros_like(action))
        seen |= {name: value for name, value in held.items() if name in seen}
        _, _, reward, terminated, _, info = env.step(state.replace(physics=physics, seen=seen), action)
        return info.final_obs, reward, terminated, info.terms

    given = jax.tree.map(lambda x: x.astype(real), (found.qpos, found.qvel, found.action, found.seen))
    return jax.tree.map(np.asarray, step(*given))


def compare(name: str, options: dict[str, Any], dtype: Any, tolerance: float, full: bool) -> None:
    found = record(name, *((20, 1000) if full else (3, 60)), options)
    env = envs.make(name, len(found.reward), dtype=dtype, **options)
    observation, reward, terminated, terms = stepped(env, found)
    scale = lambda x: np.maximum(1.0, np.abs(x))  # noqa: E731  (absolute for small values, relative for large ones)
    assert observation.shape == found.observation.shape
    sizes = scale(found.observation)
    if dtype == np.float32 and getattr(env, "include_cfrc_ext_in_observation", False):
        part = sizes[:, -6 * (env.model.structure.nbody - 1) :]  # a body's weight is shared among its contacts,
        part[:] = part.max(1, keepdims=True)  # and each force is as exact as the largest
    assert (np.abs(observation - found.observation) / sizes).max() < tolerance
    assert (np.abs(reward - found.reward) / scale(found.reward)).max() < tolerance
    assert set(found.info) == set(terms)
    for term, value in found.info.items():
        assert (np.abs(terms[term] - value) / scale(value)).max(initial=0.0) < tolerance, term
    if dtype is None:
        np.testing.assert_array_equal(terminated, found.terminated)


def some(names: list[str], *reduced: str) -> list[Any]:
    """All names, of which only some run in reduced size: the others share their code."""
    return [name if name in reduced else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", NAMES)
def test_steps_equal_gymnasiums(name: str, full: bool):
    compare(name, {}, None, 1e-6 if name in SEARCHED else 1e-9, full)


@pytest.mark.parametrize("name", some(sorted(OPTIONS), "Ant-v5", "Hopper-v5", "Humanoid-v5"))
def test_options_mean_what_gymnasiums_mean(name: str, full: bool):
    compare(name, OPTIONS[name], None, 1e-6 if name in SEARCHED else 1e-9, full)


@pytest.mark.parametrize("name", some(NAMES, "Ant-v5", "HumanoidStandup-v5"))
def test_float32_is_near(name: str, full: bool):
    compare(name, {}, np.float32, 1e-3, full)


@pytest.mark.parametrize("name", some(NAMES, "HalfCheetah-v5", "Hopper-v5", "Pusher-v5", "Reacher-v5"))
def test_starts_are_drawn_as_gymnasiums(name: str):
    """The same mean and spread of every observed number over many starts."""
    many = 400
    env = gymnasium.make(name)
    theirs = np.stack([env.reset(seed=i)[0] for i in range(many)])
    ours = np.asarray(jax.jit(envs.make(name, many).reset)(jax.random.key(1))[1])
    spread = theirs.std(0) / np.sqrt(many)
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 6 * spread + 1e-9).all()
    assert (np.abs(ours.std(0) - theirs.std(0)) < 0.3 * theirs.std(0) + 1e-9).all()
