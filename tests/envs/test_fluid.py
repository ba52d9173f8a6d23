"""FluidManipulation: the water stays where it is held, is poured where the cup is tilted, and pushes back."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import envs, live
from fphys.envs.fluid import BASIN, CUP, DRAIN, FluidManipulation
from fphys.envs.pictures import pictures
from fphys.particles import sph
from fphys.rl import program
from fphys.runs import Run

from ..compiled import as_users

Array = jax.Array
WORLDS = 3
DT = 0.04  # s, between actions


def made(worlds: int = WORLDS, **options: Any) -> FluidManipulation:
    env = envs.make("FluidManipulation", worlds, **options)
    assert isinstance(env, FluidManipulation)
    return env


@functools.cache
def pouring() -> tuple[FluidManipulation, Any, envs.EnvState]:
    """The task, its compiled step, and the beginning."""
    env = made()
    return env, jax.jit(env.step), jax.jit(env.reset)(jax.random.key(0))[0]


def toward(state: envs.EnvState, lip: Any, tilt: Array | float) -> Array:
    """The action that moves the inner edge of the lip to a point (world, 2) and turns the cup to an angle."""
    q = np.asarray(state.qpos[:, :3])
    now, bent = q.sum(1), q[:, 0] + q[:, 1]
    arm = np.stack([0.42 * np.cos(q[:, 0]) + 0.4 * np.cos(bent), 0.6 + 0.42 * np.sin(q[:, 0]) + 0.4 * np.sin(bent)], 1)
    edge = np.stack([np.cos(now), np.sin(now)], 1) * CUP[1, 0] + np.stack([-np.sin(now), np.cos(now)], 1) * CUP[1, 1]
    far = np.clip(np.asarray(lip) - arm - edge, -0.15, 0.15) * 3
    slope = np.stack([0.6 - arm[:, 1], -0.4 * np.sin(bent), arm[:, 0], 0.4 * np.cos(bent)], 1).reshape(-1, 2, 2)
    rate = np.linalg.solve(slope, far[..., None])[..., 0]
    rate = np.concatenate([rate, (5 * (tilt - now) - rate.sum(1))[:, None]], 1)
    return jnp.clip(jnp.asarray(rate / np.array(FluidManipulation.speeds)), -1, 1)


@functools.cache
def poured() -> list[tuple[envs.EnvState, Any]]:
    """A hand-made motion, at once so that water can settle; an episode but its last step: states and infos."""
    env, step, state = pouring()
    seen = []
    for t in range((env.max_episode_steps or 0) - 1):
        spot = np.asarray(state.qpos[:, 3:]) * [1, 0] + [-0.02, 0.62 - 0.25 * np.clip(t / 40, 0, 1)]
        state, _, _, terminated, _, info = step(state, toward(state, spot, -np.clip(t, 0, 50) * DT))
        assert not terminated.any() and (info.status == 0).all()
        seen.append((state, info))
    return seen


def fluid(state: envs.EnvState) -> tuple[sph.State, int]:
    return state.matter[0], int((np.asarray(state.matter[0].kind[0]) != sph.WALL).sum())


def test_water_rests_in_a_cup_that_is_held():
    env, step, state = pouring()
    start, count = fluid(state)
    for _ in range(10):
        state, *_, info = step(state, jnp.zeros((WORLDS, 3)))
    water = fluid(state)[0]
    assert (info.terms["spilled"] == 0).all() and (info.terms["poured"] == 0).all()
    assert (water.kind == start.kind).all()
    own = env._water(state)
    assert (own.in_cup > 0.8).all()
    assert (np.abs(own.flow) < 0.03).all() and (np.abs(own.rest) < 0.003).all()  # [m/s], [m]
    pressure, height = np.asarray(water.p[:, :count]), np.asarray(water.x[:, :count, 1])
    lowest = height < height.min(1, keepdims=True) + 0.01
    mean = (pressure * lowest).sum(1) / lowest.sum(1)  # of 0.14 m of water, 100 kg/m^2: the deepest row is 0.13 m deep
    np.testing.assert_allclose(mean, 100 * 9.81 * 0.13, rtol=0.08)


def test_its_weight_hangs_on_the_arm():
    """The law carries the weight of the full cup; without water that lifts the arm, by the load it expects."""
    env, step, state = pouring()
    full, empty = state, state.replace(matter=tuple(m.replace(kind=-abs(1 - m.kind) + m.kind) for m in state.matter))
    assert (np.asarray(empty.matter[0].kind) != sph.FLUID).all()
    for _ in range(5):
        full, empty = step(full, jnp.zeros((WORLDS, 3)))[0], step(empty, jnp.zeros((WORLDS, 3)))[0]
    assert (np.abs(np.asarray(full.qvel[:, :3])) < 0.1).all()
    # A constant torque against the gain of the law, which knows the arm's inertia: M (100 / s) qvel = torque.
    inertia = np.asarray(fphys.mass_matrix(env.model, empty.physics))[:, :3, :3]
    torque = np.einsum("wij,wj->wi", inertia, env.following * np.asarray(empty.qvel[:, :3]))
    tilt = np.asarray(empty.qpos[:, :3]).sum(1)
    lever = 0.17 * np.cos(tilt) - (CUP[0, 1] + env.depth / 2) * np.sin(tilt)
    np.testing.assert_allclose(torque[:, 2], 2.8 * 9.81 * lever, rtol=0.05)


def test_a_cup_that_is_tilted_above_the_basin_fills_it():
    seen = poured()
    state, info = seen[-1]
    assert (info.terms["poured"] > 0.9).all() and (info.terms["spilled"] < 0.05).all()
    env, step, _ = pouring()
    *_, terminated, truncated, info = step(state, jnp.zeros((WORLDS, 3)))
    assert truncated.all() and not terminated.any() and info.terms["success"].all()
    shares = np.array([np.asarray(i.terms["poured"]) for _, i in seen])
    rewards = np.array([np.asarray(i.terms["reward_poured"]) for _, i in seen])
    np.testing.assert_allclose(rewards, shares, atol=0.1)
    # Water is as high as its volume asks for. What has splashed is looser for a while: see sph.renew.
    water, count = fluid(state)
    x = np.asarray(water.x[:, :count]) - np.asarray(state.qpos[:, 3])[:, None, None] * [1, 0]
    inside = (np.abs(x[..., 0]) < BASIN[1, 0]) & (x[..., 1] < BASIN[1, 1])
    for k in range(WORLDS):
        level = inside[k].sum() * env.spacing**2 / (BASIN[1, 0] - BASIN[0, 0])
        assert 0 < 2 * x[k, inside[k], 1].mean() - level < 1.5 * env.spacing


def test_water_leaves_the_cup_but_not_the_world():
    """Each particle is in the cup, on its way, in the basin, or has been spilled; walls are where their bodies are."""
    env, _, start = pouring()
    cup = len(env._layout[1])
    for state, info in poured()[::20]:
        water, count = fluid(state)
        own = env._water(state)
        assert ((own.in_cup + own.in_basin) < 1 + 1e-9).all()
        there = np.asarray(own.there)
        np.testing.assert_allclose(info.terms["spilled"], 1 - there.mean(1), atol=1e-12)
        assert (np.asarray(water.x[:, :count, 1])[there > 0] > DRAIN).all()
        before, after = (np.asarray(s.matter[0].x[:, count:]) for s in (start, state))
        kept = [np.linalg.norm(x - x[:, :1], axis=-1) for x in (before[:, :cup], after[:, :cup])]
        np.testing.assert_allclose(*kept, atol=1e-5)  # the cup is rigid, but for a substep along its velocity


def test_what_misses_the_basin_is_gone():
    env, step, state = pouring()
    away = state.physics.qpos.at[:, 3].set(1.05)
    state = state.replace(physics=state.physics.replace(qpos=away))
    for t in range(70):
        state, *_, info = step(state, toward(state, np.full((WORLDS, 2), [0.5, 0.5]), -np.clip(t, 0, 50) * DT))
    assert (info.terms["spilled"] > 0.8).all() and (info.terms["poured"] == 0).all()
    points = np.asarray(env.points(state)["water"])
    np.testing.assert_allclose(np.isnan(points).all(2).mean(1), info.terms["spilled"], atol=1e-12)
    lost = fluid(state)[0].kind == sph.EMPTY
    after, *_ = step(state, jnp.zeros((WORLDS, 3)))
    assert (fluid(after)[0].kind[lost] == sph.EMPTY).all()
    assert (fluid(after)[0].x[lost] == fluid(state)[0].x[lost]).all()


def test_gradients_are_those_of_differences_while_water_flows():
    """By actions, through arm and water, where water runs over the lip and meets the basin; NaN is a world's own."""
    env = made(tolerance=1e-12)  # so that differences are those of the same function
    state = poured()[50][0]
    direction = jax.random.normal(jax.random.key(1), (2, WORLDS, 3))
    action = 0.3 * jax.random.normal(jax.random.key(2), (2, WORLDS, 3))

    def score(action: Array, mass: Array | float = 1.0) -> Array:
        heavy = env.replace(model=env.model.replace({"body.mass": mass * env.model.body.mass}))

        def act(state: envs.EnvState, a: Array) -> Any:
            state, observation, reward, *_ = heavy.step(state, a)
            return state, reward + observation @ jnp.linspace(-1, 1, observation.shape[1])

        return jax.lax.scan(act, state, action)[1].sum(0)

    gradient = jax.jit(jax.grad(lambda a, mass: score(a, mass).sum(), (0, 1)))
    slopes, by_mass = gradient(action, 1.0)
    values = jax.jit(score)
    h = 1e-5  # larger ones meet particles that come to the surface, where the pressure is not smooth
    differences = (values(action + h * direction) - values(action - h * direction)) / (2 * h)
    found = (slopes * direction).sum((0, 2))
    assert (np.abs(found) > 1e-3).all()
    np.testing.assert_allclose(found, differences, rtol=3e-5)
    bad, bad_by_mass = gradient(action.at[0, 1].set(jnp.nan), 1.0)
    np.testing.assert_allclose(bad[:, ::2], slopes[:, ::2], rtol=1e-9)
    assert (bad[0, 1] == 0).all() and jnp.isfinite(bad).all() and jnp.isfinite(jnp.stack([by_mass, bad_by_mass])).all()


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf, 1e30])
def test_an_action_that_is_no_number_or_huge_is_a_bad_control(value: float):
    """And that alone: of water in a cup that stands still nothing is reported."""
    _, step, _ = pouring()
    state, action = poured()[40][0], 0.2 * jnp.ones((WORLDS, 3))
    well = step(state, action)
    after, observation, reward, terminated, _, info = step(state, action.at[1, 2].set(value))
    np.testing.assert_array_equal(info.status, [0, int(fphys.Status.BADCTRL), 0])
    np.testing.assert_array_equal(terminated, [False, True, False])
    assert jnp.isfinite(reward).all() and jnp.isfinite(observation).all() and after.faults[1] == 1
    np.testing.assert_array_equal(observation[::2], well[1][::2])


def test_water_has_the_time_step_and_the_gravity_of_its_world():
    """Drawn or replaced; so the arm holds it, and its pressure is that of its weight."""
    env = made(2, randomize={"opt.gravity": (0.5, 0.5), "opt.timestep": (0.8, 1.0)})
    state, _ = jax.jit(env.reset)(jax.random.key(1))
    start, count = fluid(state)
    np.testing.assert_allclose(start.p[:, :count].max(1), 0.5 * 100 * 9.81 * 0.13, rtol=1e-9)
    step, pressure = jax.jit(env.step), []
    for _ in range(10):
        state, *_, info = step(state, jnp.zeros((2, 3)))
        pressure.append(fluid(state)[0].p[:, :count].mean(1))
    water = fluid(state)[0]
    assert (info.status == 0).all() and abs(np.diff(np.asarray(water.time))[0]) > 0.01
    np.testing.assert_allclose(water.time, state.physics.time, rtol=1e-12)
    np.testing.assert_allclose(np.mean(pressure, 0), 0.5 * 100 * 9.81 * 0.07, rtol=0.1)
    assert (np.abs(np.asarray(state.qvel[:, :3])) < 0.01).all()
    slow = env.replace(randomize=(), model=env.model.replace({"opt.timestep": env.model.opt.timestep / 4}))
    jax.eval_shape(slow.step, state.replace(drawn={}), jnp.zeros((2, 3)))


def test_worlds_are_apart():
    """One world's NaN ends its episode; its water begins anew, and the others' bits are those without it."""
    _, step, _ = pouring()
    state, action = poured()[40][0], 0.2 * jnp.ones((WORLDS, 3))
    well = step(state, action)[0]
    water = state.matter[0]
    bad = state.replace(matter=(water.replace(x=water.x.at[1, 3, 0].set(jnp.nan)),))
    after, observation, _, terminated, _, info = step(bad, action)
    np.testing.assert_array_equal(terminated, [False, True, False])
    np.testing.assert_array_equal(after.faults, [0, 1, 0])
    assert fphys.Status(int(info.status[1])) & fphys.Status.NONFINITE and (info.status[::2] == 0).all()
    assert jnp.isfinite(observation).all() and (after.matter[0].status == 0).all() and after.length[1] == 0
    for x, y in zip(jax.tree.leaves((after.physics, after.matter)), jax.tree.leaves((well.physics, well.matter))):
        np.testing.assert_array_equal(x[::2], y[::2])


def test_water_that_stands_still_ends_an_episode():
    """A fault that leaves observations finite: fluid in place of a wall, for which coupling holds the world."""
    _, step, _ = pouring()
    state = poured()[40][0]
    water = state.matter[0]
    wrong = state.replace(matter=(water.replace(kind=water.kind.at[2, -1].set(sph.FLUID)),))
    after, observation, _, terminated, _, info = step(wrong, jnp.zeros((WORLDS, 3)))
    np.testing.assert_array_equal(terminated, [False, False, True])
    assert fphys.Status(int(info.status[2])) & fphys.Status.BADPARAM and jnp.isfinite(observation).all()
    assert (after.matter[0].kind[2, -1] == sph.WALL) and (after.matter[0].status == 0).all()


def test_a_new_episode_begins_with_still_water_in_the_cup():
    env, _, _ = pouring()
    mask = jnp.array([True, False, True])
    state = poured()[60][0]
    after, observation = jax.jit(env.restart)(state, mask)
    water = env._water(after)
    assert (water.in_cup.mean(1)[mask] > 0.9).all() and (water.in_basin[mask] < 1e-3).all()
    assert (after.matter[0].x[1] == state.matter[0].x[1]).all() and (after.episode == mask.astype(jnp.int32)).all()
    assert jnp.isfinite(observation).all()
    tilt = after.qpos[:, :3].sum(1)
    np.testing.assert_allclose(tilt[mask], 0, atol=1e-12)


def test_steps_compose_with_vmap():
    env, step, state = pouring()
    actions = 0.3 * jax.random.normal(jax.random.key(3), (2, WORLDS, 3))
    both = jax.jit(jax.vmap(lambda a: env.step(state, a)[1]))(actions)
    for k in range(2):
        np.testing.assert_allclose(both[k], step(state, actions[k])[1], rtol=1e-9, atol=1e-12)


def test_water_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In films, in Gymnasium's pictures, in what is saved to be viewed, and in the browser."""
    measured = program.measured  # of one episode instead of ten
    monkeypatch.setattr(program, "measured", lambda env, policy, seed, _: measured(env, policy, seed, 1))
    env, _, _ = pouring()
    blue = lambda picture: (picture[..., 2] > picture[..., 0].astype(int) + 60).mean()  # noqa: E731
    vector = envs.FphysVectorEnv(env)
    vector.reset(seed=0)
    assert vector._state is not None
    picture = vector.render()[0]
    with_water = blue(picture)
    without = pictures(env, jax.tree.map(lambda x: x[None], vector._state.physics), {})[0]
    assert with_water > blue(without) + 0.003 and picture.shape == (480, 640, 3)
    (water,) = vector._state.matter
    spilled = (water.replace(kind=jnp.where(water.kind == sph.FLUID, sph.EMPTY, water.kind)),)
    vector._state = vector._state.replace(matter=spilled)
    np.testing.assert_array_equal(vector.render()[0], without)
    none = {"water": jnp.zeros((1, WORLDS, 0, 3))}
    np.testing.assert_array_equal(
        pictures(env, jax.tree.map(lambda x: x[None], vector._state.physics), none)[0], without
    )

    with Run("play", root=tmp_path) as run:
        program.play("pour", run, steps=4, video=False)
    saved = np.load(run.path / "result.npz")
    count = fluid(pouring()[2])[1]
    assert saved["x"].shape == (4, 1, count, 3) and np.isfinite(saved["x"]).all()
    assert saved["radius"] == pytest.approx(0.01)

    policy, env, _ = program.prepared("pour")
    agent = live.Agent(env, policy)
    assert agent.points(agent.init(None))["water"].shape == (1, count, 3) and agent.sizes["water"] == 0.02


@pytest.mark.parametrize("spacing", [0.02, 0.01])
def test_any_spacing_fills_the_same_volume(spacing: float):
    env = made(1, spacing=spacing, substeps=round(0.04 / spacing))
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    water, count = fluid(state)
    assert count * spacing**2 == pytest.approx(0.2 * env.depth, rel=1e-9)
    assert float(env._water(state).in_cup.mean()) > 0.9
    assert (water.kind[0, count:] == sph.WALL).all()


@pytest.mark.parametrize("spacing", [0.02, 0.0125, 0.01])
def test_walls_begin_where_the_vessels_end(spacing: float):
    env = made(1, spacing=spacing, depth=11 * spacing if spacing < 0.02 else 0.14)
    water, *walls = env._layout
    assert len(water) * spacing**2 == pytest.approx(0.2 * env.depth, rel=1e-9)
    for (low, high), x in zip((CUP, BASIN), walls):
        beyond = np.maximum(low - x, x - high)[:, [0, 0, 1]]
        beyond[:, 2] = low[1] - x[:, 1]
        side, floor = beyond[:, 0], beyond[:, 2]
        assert side[side > 0].min() == pytest.approx(spacing / 2) == floor[floor > 0].min()
        assert 3 * spacing - 1e-9 <= side.max() + spacing / 2 <= 0.06 + 1e-9
        assert x[:, 1].max() == pytest.approx(high[1] - spacing / 2)


@pytest.mark.parametrize("options", [{"spacing": 0.03}, {"spacing": 0.0}, {"depth": 0.25}, {"depth": 0.01}])
def test_what_cannot_be_filled_is_refused(options: dict[str, float]):
    with pytest.raises(ValueError, match=r"FluidManipulation: spacing is .* depth .* spacing is at most 0\.02 m"):
        made(1, **options).reset(jax.random.key(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spacing": 0.018}, "spacing is 0.018: whole rows .* the nearest spacings are 0.0166667 and 0.02 m"),
        ({"depth": 0.15}, "depth is 0.15, and spacing 0.02: .* the nearest depths are 0.14 and 0.16 m"),
        ({"depth": "deep"}, "FluidManipulation: depth is 'deep', must be a finite number"),
        ({"substeps": 0}, "FluidManipulation: substeps is 0, must be at least 1"),
        ({"thickness": -0.1}, "FluidManipulation: thickness is -0.1, must be a finite number, and positive"),
        ({"following": float("nan")}, "FluidManipulation: following is nan"),
        ({"following": -1}, "FluidManipulation: following is -1, must be a finite number, and positive"),
        ({"tolerance": 0.0}, "FluidManipulation: tolerance is 0.0, must be"),
        ({"near_weight": float("nan")}, "FluidManipulation: near_weight is nan"),
        ({"ctrl_cost_weight": -0.1}, "FluidManipulation: ctrl_cost_weight is -0.1, must be .* of at least 0"),
        ({"reset_noise_scale": True}, "FluidManipulation: reset_noise_scale is True, must be a finite number"),
        ({"enough": 2}, "FluidManipulation: enough is 2, must be .* at most 1"),
        ({"reset_distance": 5}, r"FluidManipulation: reset_distance is 5, must be .* at most 0\.35"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        made(1, **options)
    with pytest.raises(TypeError, match=r"FluidManipulation: substeps is 1\.5, must be a whole number"):
        made(1, substeps=1.5)


def test_what_is_spilled_is_not_negative_in_float32():
    env = made(1, dtype=jnp.float32)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    terms = as_users(env.reward)(state, state, jnp.zeros((1, 3), jnp.float32))[1]
    assert terms["spilled"] == 0
