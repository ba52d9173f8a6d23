"""Episodes: restarts, time limits, counts, randomness of each world, faults, transforms."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import envs, rl
from fphys.envs import randomize
from fphys.envs.env import FEW
from fphys.tree import pytree

WORLDS = 5


@functools.cache
def pendulum(**options: Any) -> tuple[envs.Env, Any, Any]:
    """A pole on a cart, with its compiled reset and step."""
    env = envs.make("InvertedPendulum-v5", WORLDS, **options)
    return env, jax.jit(env.reset), jax.jit(env.step)


def noise(key: int, worlds: int = WORLDS) -> jax.Array:
    return jax.random.uniform(jax.random.key(key), (worlds, 1), jnp.float64, -1, 1)


def equal(a: Any, b: Any) -> bool:
    return all((np.asarray(x) == np.asarray(y)).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


def test_a_time_limit_truncates_and_the_next_episode_begins_in_the_same_step():
    _env, reset, step = pendulum(max_episode_steps=3)
    state, first = reset(jax.random.key(0))
    rewards = []
    for k in range(3):
        state, observation, reward, terminated, truncated, info = step(state, 0 * noise(k))
        rewards.append(reward)
    assert truncated.all() and not terminated.any()
    assert (info.episode.length == 3).all() and (state.length == 0).all() and (state.episode == 1).all()
    np.testing.assert_allclose(info.episode.total, sum(rewards), rtol=1e-12)
    assert (state.total == 0).all()
    assert not (observation == info.final_obs).all(1).any()  # the last observation is kept beside the new one
    assert not (observation == first).all(1).any()  # and the new start is another draw


def test_only_finished_worlds_restart():
    _env, reset, step = pendulum(max_episode_steps=1000)
    state, _ = reset(jax.random.key(0))
    fallen = state.physics.qpos.at[1, 1].set(0.3)  # the pole's angle
    state = state.replace(physics=state.physics.replace(qpos=fallen))
    after, _, _, terminated, _, info = step(state, noise(0))
    np.testing.assert_array_equal(terminated, [False, True, False, False, False])
    np.testing.assert_array_equal(after.episode, [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(after.length, [1, 0, 1, 1, 1])
    assert abs(after.qpos[1, 1]) < 0.02 and info.final_obs[1, 1] > 0.2


def test_a_world_draws_from_its_own_key():
    """Neither from its place in the batch nor from what others do."""
    env, reset, _step = pendulum(max_episode_steps=1000)
    state, _ = reset(jax.random.key(3))
    mask = jnp.arange(WORLDS) == 2
    alone, _ = jax.jit(env.restart)(state, mask)
    every, _ = jax.jit(env.restart)(state, jnp.ones(WORLDS, bool))
    np.testing.assert_array_equal(alone.qpos[2], every.qpos[2])
    np.testing.assert_array_equal(alone.qpos[:2], state.qpos[:2])
    swapped = state.replace(key=state.key[::-1])
    other, _ = jax.jit(env.restart)(swapped, jnp.ones(WORLDS, bool))
    np.testing.assert_array_equal(other.qpos, every.qpos[::-1])


@pytree
class Shifted(envs.InvertedPendulum):
    """Every world sees its cart somewhere else."""

    shift: Any = 0.0  # (world, 1)

    def observation(self, state: envs.EnvState) -> jax.Array:
        return super().observation(state) + self.shift


def test_few_restarts_are_those_of_many():
    """Few finished worlds get starts of their own, many those that are computed for all."""
    worlds = 4 * FEW
    each = jnp.linspace(1.0, 2.0, worlds)[:, None]  # every world has its own mechanism, and its own task
    model = envs.make("InvertedPendulum-v5").model
    model = model.replace({"body.mass": model.body.mass * each})
    env = Shifted(model, num_envs=worlds, randomize=randomize.ranges({"dof.armature": (0.5, 1.5)}), shift=each)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    restart = jax.jit(env.restart)
    every, fresh = restart(state, jnp.ones(worlds, bool))
    for ids in ([3, 17, 63], [0, 1, 2, 40], [63]):
        mask = jnp.zeros(worlds, bool).at[jnp.array(ids)].set(True)
        after, observation = restart(state, mask)
        for x, new, old in zip(*map(jax.tree.leaves, (after, every, state)), strict=True):
            picked = mask.reshape(-1, *[1] * (x.ndim - 1))
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                assert (x == old).all()
            else:
                np.testing.assert_allclose(x, jnp.where(picked, new, old), rtol=1e-14, atol=1e-16)
        np.testing.assert_allclose(observation[mask], fresh[mask], rtol=1e-14)


def test_a_world_that_becomes_nan_restarts_alone_and_is_counted():
    _env, reset, step = pendulum(max_episode_steps=1000)
    state, _ = reset(jax.random.key(0))
    action = noise(0)
    well = step(state, action)
    bad = state.physics.qvel.at[3, 0].set(jnp.nan)
    after, observation, reward, terminated, _, info = step(
        state.replace(physics=state.physics.replace(qvel=bad)), action
    )
    np.testing.assert_array_equal(after.faults, [0, 0, 0, 1, 0])
    assert terminated[3] and fphys.Status(int(info.status[3])) & fphys.Status.NONFINITE
    assert (after.physics.status == 0).all() and jnp.isfinite(observation).all()
    others = np.array([0, 1, 2, 4])
    np.testing.assert_array_equal(after.qpos[others], well[0].qpos[others])
    np.testing.assert_array_equal(reward[others], well[2][others])


@pytest.mark.parametrize("value", [jnp.nan, -jnp.inf, 1e30])
def test_an_action_that_is_no_number_or_huge_ends_an_episode(value: float):
    """The physics skips such a step: without an end, an agent that gives NaN would stand upright for ever."""
    _env, reset, step = pendulum(max_episode_steps=1000)
    state, _ = reset(jax.random.key(0))
    after, _, reward, terminated, _, info = step(state, noise(0).at[2].set(value))
    assert jnp.isfinite(reward).all()
    np.testing.assert_array_equal(after.faults, [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(terminated, [False, False, True, False, False])
    assert fphys.Status(int(info.status[2])) == fphys.Status.BADCTRL and (after.physics.status == 0).all()


def test_gradients_are_those_of_differences_and_end_where_an_episode_ends():
    env = envs.make("InvertedDoublePendulum-v5", WORLDS)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    fallen = state.physics.qpos.at[1, 1].set(2.0)  # the lower pole's angle
    state = state.replace(physics=state.physics.replace(qpos=fallen))
    weights = noise(5) * jnp.ones((1, 9))

    @jax.jit
    def value(action: jax.Array) -> jax.Array:
        _, observation, reward, _, _, _ = env.step(state, action)
        return reward.sum() + (weights * observation).sum()

    action, direction = noise(1), noise(2)
    gradient = jax.jit(jax.grad(value))(action)
    h = 1e-6
    along = (value(action + h * direction) - value(action - h * direction)) / (2 * h)
    np.testing.assert_allclose((gradient * direction).sum(), along, rtol=1e-6)
    reward_only = jax.jit(jax.grad(lambda a: env.step(state, a)[2][1]))(action)
    np.testing.assert_allclose(gradient[1], reward_only[1], rtol=1e-9)  # no path through the new episode
    assert jnp.abs(gradient).min() > 0


def test_step_composes_with_scan_vmap_and_shard_map():
    env, reset, step = pendulum(max_episode_steps=3)
    state, _ = reset(jax.random.key(0))
    actions = jnp.stack([noise(k) for k in range(6)])
    one = state
    for action in actions:
        one, *_ = step(one, action)
    many, _ = jax.jit(lambda s: jax.lax.scan(lambda s, a: (env.step(s, a)[0], None), s, actions))(state)
    np.testing.assert_allclose(many.qpos, one.qpos, rtol=1e-12)
    np.testing.assert_array_equal(many.episode, one.episode)
    both = jax.tree.map(lambda x: jnp.stack([x, x[::-1]]), state)
    pair = jax.jit(jax.vmap(env.step))(both, jnp.stack([actions[0], actions[0][::-1]]))
    np.testing.assert_allclose(pair[2][0], pair[2][1][::-1], rtol=1e-12)
    np.testing.assert_allclose(pair[2][0], step(state, actions[0])[2], rtol=1e-12)


def test_sharded_worlds_have_the_same_bits():
    env = envs.make("InvertedPendulum-v5", 4, max_episode_steps=2)
    mesh = jax.make_mesh((2,), ("worlds",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("worlds")
    split = jax.shard_map(env.step, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    action = noise(0, 4)
    step, split = jax.jit(env.step), jax.jit(split)
    for _ in range(3):
        whole, parts = step(state, action), split(state, action)
        assert equal(whole[1:5], parts[1:5])
        state = whole[0]


RANDOM = {"body.mass": (0.5, 2.0), "dof.armature": (0.5, 1.5)}


def test_every_world_and_episode_has_its_own_parameters():
    env, reset, step = pendulum(randomize=tuple((k, *v) for k, v in RANDOM.items()), max_episode_steps=2)
    state, _ = reset(jax.random.key(0))
    mass, nominal = env.of(state).model.body.mass, env.model.body.mass
    assert mass.shape == (WORLDS, 3) and len(np.unique(mass[:, 1])) == WORLDS
    factor = (mass / nominal)[:, 1:]
    assert ((factor >= 0.5) & (factor <= 2.0)).all()
    assert (env.of(state).model.body.invweight0[0] != env.model.body.invweight0[0]).any()  # what follows from masses
    for k in range(2):
        state, *_ = step(state, noise(k))
    again = env.of(state).model.body.mass
    assert (again != mass)[:, 1:].all()


def test_a_world_steps_with_its_parameters():
    env, reset, step = pendulum(randomize=tuple((k, *v) for k, v in RANDOM.items()), max_episode_steps=2)
    state, _ = reset(jax.random.key(0))
    action = noise(0)
    after = step(state, action)[0]
    model = env.of(state).model
    physics = state.physics
    for _ in range(env.frame_skip):
        physics = jax.jit(fphys.step)(model, physics, action)
    np.testing.assert_allclose(after.qpos, physics.qpos, rtol=1e-12)


def test_difficulty_zero_varies_nothing():
    env, reset, _ = pendulum(randomize=tuple((k, *v) for k, v in RANDOM.items()), max_episode_steps=2)
    state, _ = reset(jax.random.key(0))
    state = envs.set_difficulty(state, 0.0)
    state, _ = jax.jit(env.restart)(state, jnp.ones(WORLDS, bool))
    np.testing.assert_allclose(env.of(state).model.body.mass, np.tile(env.model.body.mass, (WORLDS, 1)), rtol=1e-12)


def test_late_actions_and_noise():
    given = ((randomize.DELAY, 2, 2), (randomize.NOISE, 0.1, 0.1))
    _env, reset, step = pendulum(randomize=given, max_episode_steps=1000)
    _plain, _, plain_step = pendulum(max_episode_steps=1000)
    state, observation = reset(jax.random.key(0))
    bare = state.replace(drawn={}, history=jnp.zeros((WORLDS, 0, 1)))
    actions = [noise(k) for k in range(3)]
    for action, acts in zip(actions, [0 * actions[0], 0 * actions[0], actions[0]]):  # two steps late
        state, observation, *_ = step(state, action)
        bare, exact, *_ = plain_step(bare, acts)
        np.testing.assert_allclose(state.qpos, bare.qpos, rtol=1e-12)
        assert 0.02 < jnp.std(observation - exact) < 0.2


def test_a_delay_between_two_steps_is_that_of_the_nearest():
    _env, reset, step = pendulum(randomize=((randomize.DELAY, 1.6, 1.6),), max_episode_steps=1000)
    state, _ = reset(jax.random.key(0))
    first, _ = reset(jax.random.key(0))
    for k in range(2):
        state, *_ = step(state, noise(k))
        first, *_ = step(first, 0 * noise(k))
    np.testing.assert_array_equal(state.qpos, first.qpos)  # nothing has acted yet
    after, other = step(state, 0 * noise(2))[0], step(first, 0 * noise(2))[0]
    assert jnp.isfinite(after.qpos).all() and (after.qpos != other.qpos).all()


SLIDE = """<mujoco><option gravity="0 0 0"/><worldbody><body><joint name="j" type="slide" axis="1 0 0"/>
<geom size=".1" mass="1"/></body></worldbody><actuator><motor joint="j"/></actuator></mujoco>"""


@pytree
class Slide(envs.Env):
    def start(self, key: jax.Array) -> envs.Start:
        return envs.Start(jnp.ones(1), jnp.zeros(1))

    def reward(self, before: envs.EnvState, after: envs.EnvState, action: jax.Array) -> tuple[jax.Array, dict]:
        return -(after.qpos[:, 0] ** 2), {}


@pytree
class Mixed(Slide):
    """Three numbers of an action drive one motor."""

    @property
    def action_spec(self) -> envs.Spec:
        return envs.Spec.unit(3, jnp.float64)

    def control(self, physics: fphys.State, action: jax.Array) -> jax.Array:
        return action.sum(1, keepdims=True)


def test_late_actions_may_have_another_size_than_controls():
    env = Mixed(fphys.load(SLIDE), num_envs=2, randomize=envs.ranges({randomize.DELAY: (1, 1)}))
    state, _ = env.reset(jax.random.key(0))
    state, *_ = env.step(state, jnp.ones((2, 3)))
    np.testing.assert_array_equal(state.qvel, 0)
    state, *_ = env.step(state, jnp.zeros((2, 3)))
    assert (state.qvel > 0).all()


def test_a_target_is_late_from_where_the_joint_is():
    late = envs.ranges({randomize.DELAY: (2, 2)})
    env = Slide(fphys.load(SLIDE), num_envs=2, randomize=late, action_mode="position", kp=10.0)
    state, _ = env.reset(jax.random.key(0))
    for _ in range(3):
        state, *_ = env.step(state, jnp.ones((2, 1)))
    np.testing.assert_array_equal(state.qpos, 1)


@pytree
class Floating(Slide):
    def start(self, key: jax.Array) -> envs.Start:
        return self.noisy_start(key, 0.1)


def test_random_numbers_of_one_kind_say_nothing_about_another():
    given = envs.ranges({randomize.PUSH: (1, 1), randomize.NOISE: (0.1, 0.1), "body.mass": (0.5, 2.0)})
    ball = '<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
    env = Floating(fphys.load(ball), num_envs=400, randomize=given)
    state, observation = env.reset(jax.random.key(0))
    exact = jnp.concatenate([state.qpos, state.qvel], 1)
    second = state.replace(length=jnp.full(400, round(1 / float(env.dt[0])), jnp.int32))
    kick = env._pushed(second).qvel - second.qvel
    angle = jnp.arctan2(kick[:, 1], kick[:, 0]) % (2 * jnp.pi)
    numbers = [state.qpos[:, 0], state.qvel[:, 0], (observation - exact)[:, 0], (env._observe(second) - exact)[:, 0]]
    one = env._observe(state.replace(length=jnp.ones(400, jnp.int32))) - exact
    numbers += [angle, one[:, 0], env.of(state).model.body.mass[:, 1]]
    related = np.corrcoef(np.stack(numbers)) - np.eye(len(numbers))
    assert np.abs(related).max() < 0.2  # four deviations of what is independent


def test_free_bodies_are_pushed_once_a_second():
    env = envs.make("Ant-v5", 2, randomize={"push": (1.0, 1.0)}, include_cfrc_ext_in_observation=False)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    pushed, every = jax.jit(env._pushed), round(1 / float(env.dt[0]))
    for length, kicked in ((every, True), (every + 1, False), (0, False)):
        now = state.replace(length=np.full(2, length, np.int32))
        kick = np.asarray(pushed(now).qvel) - np.asarray(state.qvel)
        np.testing.assert_allclose(np.linalg.norm(kick[:, :2], axis=1), float(kicked), atol=1e-12)
        assert (kick[:, 2:] == 0).all()
    with pytest.raises(ValueError, match="free"):
        pendulum(randomize=(("push", 1, 1),), max_episode_steps=1000)[1](jax.random.key(0))


@pytest.mark.parametrize("mode", ["position", "velocity"])
def test_targets_are_followed(mode: envs.Mode):
    env = envs.make(
        "Reacher-v5", 1, action_mode=mode, kp=2.0, kd=0.2 if mode == "position" else 50.0, max_episode_steps=None
    )
    target = jnp.array([[0.4, -0.3]])
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    state, _ = jax.lax.scan(lambda s, _: (env.step(s, target)[0], None), state, None, 200)
    reached = state.qpos[:, :2] if mode == "position" else state.qvel[:, :2]
    np.testing.assert_allclose(reached, target, atol=0.05)
    assert env.action_spec.low[1] == (-3.0 if mode == "position" else -np.inf)


def test_refusals():
    with pytest.raises(ValueError, match="there is no environment 'Ant-v4'"):
        envs.make("Ant-v4")
    with pytest.raises(ValueError, match="must not be larger"):
        envs.make("Hopper-v5", randomize={"body.mass": (2.0, 1.0)})
    with pytest.raises(ValueError, match=r"'body.mass' is 1.0, must be two numbers"):
        envs.ranges({"body.mass": 1.0})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"\(1.0, inf\), both must be finite"):
        envs.ranges({"body.mass": (1.0, np.inf)})
    with pytest.raises(ValueError, match="the level is nan, must be numbers from 0 to 1"):
        envs.set_difficulty(pendulum()[1](jax.random.key(0))[0], float("nan"))
    with pytest.raises(fphys.errors.ModelError, match=r"body\.weight"):
        envs.make("Hopper-v5", randomize={"body.weight": (1.0, 2.0)})
    with pytest.raises(ValueError, match="frame_skip is 0"):
        envs.make("Hopper-v5", frame_skip=0)
    with pytest.raises(ValueError, match="positive gain kp"):
        envs.make("Reacher-v5", action_mode="position", kd=1.0)
    with pytest.raises(ValueError, match="FrankaReach has actions of its own"):
        envs.make("FrankaReach", action_mode="position", kp=50.0)
    with pytest.raises(ValueError, match="no air"):
        envs.make("Hopper-v5", randomize={"wind": (0.0, 3.0)})
    with pytest.raises(TypeError, match="speed"):
        envs.make("Hopper-v5", speed=3)
    with pytest.raises(ValueError, match="action_mode"):
        envs.make("Hopper-v5", action_mode="torque").action_spec  # noqa: B018


def test_numbers_of_worlds_are_no_mask():
    """They would restart every world, as they broadcast, or skip an episode's random numbers."""
    env, reset, _ = pendulum()
    state, _ = reset(jax.random.key(0))
    for mask in (jnp.array([2]), jnp.array([True]), jnp.array([0, 0, 2, 0, 0])):
        with pytest.raises(TypeError, match=r"InvertedPendulum.restart: mask has shape .* must have shape \(5,\)"):
            env.restart(state, mask)


def test_an_action_of_another_size_is_refused_where_actions_are_late():
    env, reset, _ = pendulum(randomize=((randomize.DELAY, 2, 2),), max_episode_steps=1000)
    says = r"InvertedPendulum.step: action has shape \(5, 2\) and is float64, must be \(5, 1\), float64"
    with pytest.raises(ValueError, match=says):
        env.step(reset(jax.random.key(0))[0], jnp.zeros((WORLDS, 2)))


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (jnp.zeros((WORLDS, 2)), ValueError),
        (jnp.zeros(WORLDS), ValueError),
        (jnp.zeros((1, 1)), ValueError),
        (jnp.zeros((WORLDS, 1), jnp.float32), TypeError),
        (jnp.ones((WORLDS, 1), jnp.int32), TypeError),
        (np.ones((WORLDS, 1), bool), TypeError),
        ([[1]] * WORLDS, TypeError),
    ],
)
def test_an_action_of_another_shape_or_type_is_refused(action: Any, error: type[Exception]):
    """Whole numbers would make speeds whole, and one row would act in every world."""
    env, reset, _ = pendulum(max_episode_steps=1000)
    with pytest.raises(error, match=r"InvertedPendulum.step: action has shape .* must be \(5, 1\), float64"):
        env.step(reset(jax.random.key(0))[0], action)


def test_lists_and_arrays_of_numpy_act_in_the_precision_of_the_environment():
    env, reset, step = pendulum(max_episode_steps=1000)
    state, _ = reset(jax.random.key(0))
    wanted = step(state, noise(0))[1]
    given: Any = np.asarray(noise(0))
    for action in (given, given.tolist()):
        np.testing.assert_array_equal(env.step(state, action)[1], wanted)
    single = given.astype(np.float32)
    np.testing.assert_array_equal(env.step(state, single)[1], step(state, single.astype(float))[1])


def test_a_recording_ends_with_the_episode_and_not_with_the_next_one():
    env, _, _ = pendulum(max_episode_steps=3)
    act = lambda seen: seen[:, :1]  # noqa: E731
    seen = jax.jit(lambda key: rl.motion(env, act, key, 4))(jax.random.key(0))
    one = env.replace(num_envs=1)
    state, observation = one.reset(jax.random.key(0))
    for k in range(4):
        state, observation, *_, info = one.step(state, act(observation))
        np.testing.assert_allclose(jnp.concatenate([seen.qpos[k], seen.qvel[k]], 1), info.final_obs, rtol=1e-12)


def test_a_curriculum_follows_success():
    curriculum = envs.Curriculum.begin(0.5)
    done = jnp.ones(10, bool)
    adapt = functools.partial(envs.auto_adapt, episodes=20)
    for _ in range(2):
        curriculum = adapt(curriculum, done, done)
    assert curriculum.level == pytest.approx(0.6) and curriculum.seen == 0
    for _ in range(2):
        curriculum = adapt(curriculum, ~done, done)
    assert curriculum.level == pytest.approx(0.5)
    assert adapt(curriculum, done, ~done).seen == 0  # episodes that go on do not count
    half = jnp.arange(10) < 6
    for _ in range(2):
        curriculum = adapt(curriculum, half, done)
    assert curriculum.level == pytest.approx(0.5)
