"""fphys's own tasks: their worlds differ, difficulty matters, success is reported, and the physics is as they say."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys import envs
from fphys.rl.program import full_name

Array = jax.Array
WORLDS = 3


@functools.cache
def task(name: str) -> tuple[envs.Env, Any, envs.EnvState, Array]:
    """A task with random parameters, its compiled step, and the beginning of its second episodes."""
    env = envs.make(name, WORLDS, randomize=True)
    key, step = jax.random.key(0), jax.jit(env.step)
    shapes, first = jax.eval_shape(env.reset, key)  # compiling a reset, too, would double the time
    assert first.shape == (WORLDS, *env.observation_spec.shape) and first.dtype == jnp.float64
    state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes.replace(key=(), physics=()))
    state = state.replace(key=jax.random.split(key, WORLDS), physics=fphys.init(env.model, WORLDS))
    state, observation, *_ = step(ending(env, nominal(env, state), 1.0), jnp.zeros((WORLDS, *env.action_spec.shape)))
    return env, step, state, observation


def ending(env: envs.Env, state: envs.EnvState, difficulty: float) -> envs.EnvState:
    """The state, one step before the time limit; the next episodes have this difficulty."""
    length = jnp.full(WORLDS, (env.max_episode_steps or 0) - 1, jnp.int32)
    return envs.set_difficulty(state, difficulty).replace(length=length)


def noise(key: int, actions: int) -> Array:
    return jax.random.uniform(jax.random.key(key), (WORLDS, actions), jnp.float64, -0.5, 0.5)


def nominal(env: envs.Env, state: envs.EnvState, **other: Any) -> envs.EnvState:
    """The state with the model's own parameters in every world, or others by name."""
    own = {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(env.model)}
    drawn = {k: jnp.broadcast_to(jnp.asarray(other.get(k, own.get(k, 0.0))), v.shape) for k, v in state.drawn.items()}
    return state.replace(drawn=drawn)


@pytest.mark.parametrize("name", envs.TASKS)
def test_every_task(name: str):
    env, step, state, observation = task(name)
    assert (env.action_spec.low == -1).all() and (env.action_spec.high == 1).all()
    assert len(np.unique(np.asarray(observation), axis=0)) == WORLDS
    for leaf in state.drawn.values():
        assert len(np.unique(np.asarray(leaf), axis=0)) == WORLDS or not leaf.any()

    action = noise(1, *env.action_spec.shape)
    after, observation, reward, terminated, truncated, info = step(state, action)
    assert reward.shape == terminated.shape == truncated.shape == (WORLDS,)
    assert jnp.isfinite(observation).all() and jnp.isfinite(reward).all() and (info.status == 0).all()
    assert info.terms["success"].dtype == bool and not info.terms["success"].any()
    parts = [x for name, x in info.terms.items() if name.startswith("reward_")]
    np.testing.assert_allclose(functools.reduce(jnp.add, parts), reward, rtol=1e-12)

    easy, *_, truncated, _ = step(ending(env, after, 0.0), action)
    full, *_ = step(ending(env, after, 1.0), action)
    assert truncated.all() and (easy.length == 0).all()
    for leaf in easy.drawn.values():
        np.testing.assert_allclose(leaf, jnp.broadcast_to(leaf[:1], leaf.shape), rtol=1e-12)
    if name != "AntLocomotion":  # whose difficulty is that of its parameters alone
        difference = [(a != b).any() for a, b in zip(*(jax.tree.leaves((s.qpos, s.goal)) for s in (easy, full)))]
        assert any(difference)


@pytest.mark.parametrize("name", ["FrankaReach", "QuadrotorHover"])
def test_gradients_of_the_reward_are_those_of_differences(name: str):
    env, step, state, _ = task(name)
    action, direction = noise(2, *env.action_spec.shape), noise(3, *env.action_spec.shape)

    def score(action: Array, mass: Array | float) -> Array:
        heavy = env.replace(model=env.model.replace({"body.mass": mass * env.model.body.mass}))
        return heavy.step(state, action)[2].sum()

    slopes = jax.jit(jax.grad(score, (0, 1)))
    gradient, _ = slopes(action, 1.0)
    h = 1e-5
    along = (step(state, action + h * direction)[2] - step(state, action - h * direction)[2]).sum() / (2 * h)
    np.testing.assert_allclose((gradient * direction).sum(), along, rtol=1e-6)
    assert jnp.abs(gradient).min() > 0
    bad, by_mass = slopes(action.at[1].set(jnp.nan), 1.0)  # which is that world's own
    np.testing.assert_allclose(bad, gradient.at[1].set(0), rtol=1e-9)
    assert jnp.isfinite(by_mass)


def test_an_action_that_is_infinite_or_huge_is_a_bad_control():
    """Though the law of the arm would cut it off."""
    _, step, state, _ = task("FrankaReach")
    *_, terminated, _, info = step(state, noise(2, 7).at[0, 3].set(jnp.inf).at[1, 6].set(-1e30))
    np.testing.assert_array_equal(terminated, [True, True, False])
    np.testing.assert_array_equal(info.status, [int(fphys.Status.BADCTRL)] * 2 + [0])
    assert all(jnp.isfinite(term).all() for term in info.terms.values())


def test_targets_of_the_arm_can_be_reached():
    """Damped least squares in MuJoCo finds a pose within the joints' ranges for each."""
    _, _, state, _ = task("FrankaReach")
    model = mujoco.MjModel.from_xml_path(fphys.asset("franka"))
    data, site = mujoco.MjData(model), model.site("end_effector").id
    low, high = model.jnt_range.T
    for target in np.asarray(state.goal):
        data.qpos = model.key("home").qpos
        for _ in range(100):
            mujoco.mj_forward(model, data)
            miss, jacobian = target - data.site_xpos[site], np.zeros((3, 7))
            mujoco.mj_jacSite(model, data, jacobian, None, site)
            change = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 1e-4 * np.eye(3), miss)
            data.qpos = np.clip(data.qpos + np.clip(change, -0.2, 0.2), low, high)
        assert np.linalg.norm(miss) < 1e-3
    farthest = np.abs(model.key("home").qpos - np.mean([low, high], 0)) + np.array(envs.FrankaReach.spread)
    assert (farthest < (high - low) / 2).all()


def test_the_arm_follows_speeds_and_keeps_still_without_action():
    env, step, state, _ = task("FrankaReach")
    state = nominal(env, state)
    still, *_ = step(state, jnp.zeros((WORLDS, 7)))
    np.testing.assert_allclose(still.qvel, 0, atol=1e-9)
    action = 0.2 * jnp.eye(7)[jnp.array([0, 1, 3])]
    for _ in range(10):  # 0.4 s, ten times the law's time constant
        state, *_ = step(state, action)
    speeds = np.asarray(action) * np.array(envs.FrankaReach.speeds)
    np.testing.assert_allclose(state.qvel, speeds, atol=0.03)  # the law does not know the friction


def hovering(state: envs.EnvState) -> envs.EnvState:
    level = jnp.tile(jnp.array([[0.0, 0, 1, 1, 0, 0, 0]]), (WORLDS, 1))
    return state.replace(physics=state.physics.replace(qpos=level, qvel=0 * state.qvel))


def test_no_action_carries_the_quadrotor_and_its_rotors_turn_it_the_right_way():
    env, step, state, _ = task("QuadrotorHover")
    state = hovering(nominal(env, state))
    after, *_ = step(state, jnp.zeros((WORLDS, 4)))
    np.testing.assert_allclose(after.qvel, 0, atol=1e-12)
    right, back, up = jnp.array([[-1.0, 1, -1, 1], [1, 1, -1, -1], [1, -1, -1, 1]]) * 0.01  # front left, right; back
    after, *_ = step(state, jnp.stack([right, back, up]))
    signs = np.sign(np.asarray(after.qvel[:, 3:]).round(6))
    np.testing.assert_array_equal(signs, [[-1, 0, 0], [0, -1, 0], [0, 0, 1]])


def test_every_inertia_that_is_drawn_is_one_that_a_body_can_have():
    """The largest of the three is at most the sum of the others, whatever each is multiplied by."""
    model = fphys.load(fphys.asset("quadrotor"))
    low, high = next(bounds for name, *bounds in envs.QuadrotorHover.varied if name == "body.inertia")
    for a, b, c in (np.sort(row) for row in np.asarray(model.body.inertia[0]) if row.any()):
        assert low * (a + b) > high * c


def test_wind_carries_the_quadrotor_along_as_a_box_of_its_inertia_is_dragged():
    env, step, state, _ = task("QuadrotorHover")
    wind = np.asarray(env.of(state).model.opt.wind)
    speed = np.linalg.norm(wind, axis=1)
    assert ((speed > 0) & (speed <= 3)).all() and (wind[:, 2] == 0).all()
    after, *_ = step(hovering(nominal(env, state, **{".opt.wind": np.array([[2.0, 0, 0]])})), jnp.zeros((WORLDS, 4)))
    mass, (xx, yy, zz) = 0.027, np.array([16.571710e-6, 16.655602e-6, 29.261652e-6])
    x, y, z = np.sqrt(6 / mass * np.array([yy + zz - xx, xx + zz - yy, xx + yy - zz]))
    force = 0.5 * 1.2 * y * z * 2.0**2 + 3 * np.pi * 1.8e-5 * (x + y + z) / 3 * 2.0
    np.testing.assert_allclose(after.qvel[:, 0], force / mass * float(env.dt[0]), rtol=0.02)  # it slows as it drifts
    np.testing.assert_allclose(after.qvel[:, 1:], 0, atol=1e-12)


def test_the_cube_rests_in_the_palm():
    env, step, state, _ = task("ShadowHandManipulate")
    state = nominal(env, state)
    for _ in range(round(1 / float(env.dt[0]))):
        before, (state, *_) = state, step(state, jnp.zeros((WORLDS, 20)))
    assert (state.length == 25).all()
    np.testing.assert_allclose(state.qpos[:, 24:27], jnp.tile(jnp.array([[0.317, 0, 0.348]]), (WORLDS, 1)), atol=0.01)
    palm = jnp.broadcast_to(env.model.key.qpos[env.model.id("key", "palm")], state.qpos.shape)
    np.testing.assert_allclose(state.qpos[:, :24], palm[:, :24], atol=0.05)  # the servos hold the pose
    assert jnp.abs(state.qpos[:, 24:27] - before.qpos[:, 24:27]).max() < 2e-4  # 5 mm/s


def test_short_names_prefer_our_own_tasks():
    assert full_name("franka-reach") == "FrankaReach"
    assert full_name("humanoid-standup") == full_name("HumanoidStandup") == "HumanoidStandup"
    assert full_name("humanoid-standup-v5") == full_name("HumanoidStandup-v5") == "HumanoidStandup-v5"
    assert full_name("half-cheetah") == "HalfCheetah-v5" and full_name("walker-walk") == "dm_control/walker-walk"
