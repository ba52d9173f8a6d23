"""Faults 1 and 2: a bad world is named and held, and spoils neither other worlds nor a gradient."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import Status

BAD = [float("nan"), float("inf"), -float("inf"), 1e11]
WORLD = 3


def scene(name: str = "ant") -> tuple[Any, Any, Any]:
    disable = ("contact", "limit") if name == "ant" else ()
    model = fphys.load(fphys.asset(name), disable=disable)
    rng = np.random.default_rng(0)
    state = fphys.init(model, 8, qvel=0.3 * rng.normal(size=(8, model.structure.nv)))
    return model, state, jnp.asarray(rng.uniform(-1, 1, (8, model.structure.nu)))


def others(tree: Any) -> list[np.ndarray]:
    return [np.delete(np.asarray(leaf), WORLD, 0) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", ["ant", "ball"])
@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("field", ["qpos", "qvel"])
def test_a_bad_state_freezes_its_world_only(field: str, value: float, name: str):
    model, state, ctrl = scene(name)
    step = jitted()
    good = step(model, step(model, state, ctrl), ctrl)
    poisoned = state.replace(**{field: getattr(state, field).at[WORLD, 2].set(value)})
    after = step(model, step(model, poisoned, ctrl), ctrl)
    assert after.status.tolist() == [0] * WORLD + [int(Status.NONFINITE)] + [0] * (7 - WORLD)
    for ours, alone in zip(others(after), others(good), strict=True):
        np.testing.assert_array_equal(ours, alone)
    np.testing.assert_array_equal(after.qpos[WORLD], poisoned.qpos[WORLD])
    with pytest.raises(fphys.errors.StateError, match=f"world {WORLD}: NONFINITE"):
        fphys.check(after)
    again = fphys.reset(model, after, jnp.arange(8) == WORLD)
    assert fphys.check(again) is None
    assert fphys.check(step(model, again, ctrl)) is None


FAR = """
<mujoco>
  <worldbody>
    <body><joint type="slide"/><geom size="0.1"/></body>
    <body pos="0 0 9"><freejoint/><geom size="0.1"/></body>
    <body pos="0 0 5"><joint axis="1 0 0"/><geom type="box" size="0.1 0.2 0.3"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_unresolved_position_is_reported_but_not_an_angle(dtype: str):
    """float32 resolves 100 km only to 8 mm. A wheel's angle may be larger, and float64 resolves everything."""
    model = fphys.load(FAR, dtype=dtype)
    start = np.tile(np.asarray(model.qpos0), (5, 1))
    for world, (i, value) in enumerate([(0, 8e4), (0, 9e4), (3, -9e4), (4, 1.0), (8, 9e7)]):
        start[world, i] = value
    after = fphys.step(model, fphys.init(model, 5, qpos=start))
    lost = dtype == "float32"
    assert [bool(s & Status.NONFINITE) for s in after.status] == [False, lost, lost, False, False]


@pytest.fixture(scope="module")
def ant() -> Any:
    return scene()


@functools.cache
def jitted() -> Any:
    return jax.jit(fphys.step)


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("load", ["ctrl", "wrench", "force"])
def test_a_bad_load_holds_its_world_for_that_step(load: str, value: float, ant: Any):
    (model, state, ctrl), step = ant, jitted()
    s = model.structure
    loads = {"ctrl": ctrl, "wrench": jnp.zeros((8, s.nbody, 6)), "force": jnp.zeros((8, s.nv))}
    good = step(model, state, **loads)
    bad = dict(loads)
    bad[load] = bad[load].at[(WORLD, 1) if load != "wrench" else (WORLD, 1, 2)].set(value)
    after = step(model, state, **bad)
    assert after.status.tolist() == [0] * WORLD + [int(Status.BADCTRL)] + [0] * (7 - WORLD)
    for ours, alone in zip(others(after), others(good), strict=True):
        np.testing.assert_array_equal(ours, alone)
    np.testing.assert_array_equal(after.qpos[WORLD], state.qpos[WORLD])
    on = step(model, after, **loads)  # the world moves on; its status stays until a reset
    assert (on.qpos[WORLD] != state.qpos[WORLD]).any()
    assert int(on.status[WORLD]) == int(Status.BADCTRL)


def test_a_bad_world_passes_no_gradient():
    model, state, ctrl = scene()

    def loss(mass: Any, qpos: Any, ctrl: Any, start: Any) -> Any:
        heavier = model.replace({"body.mass": mass}, derived="frozen")
        return fphys.rollout(heavier, start.replace(qpos=qpos), jnp.stack([ctrl] * 3)).qpos[-1].sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    clean = gradient(model.body.mass, state.qpos, ctrl, state)
    for value in BAD:
        poisoned = state.replace(qvel=state.qvel.at[WORLD, 2].set(value))
        grads = gradient(model.body.mass, state.qpos, ctrl, poisoned)
        assert all(bool(jnp.isfinite(g).all()) for g in grads)
        assert not grads[1][WORLD].any() and not grads[2][WORLD].any()
        for g, c in zip(grads[1:], clean[1:], strict=True):
            np.testing.assert_array_equal(np.delete(g, WORLD, 0), np.delete(c, WORLD, 0))


def test_a_world_that_blows_up_keeps_its_last_finite_state():
    model, state, ctrl = scene()
    wild = state.replace(qvel=state.qvel.at[WORLD].set(9e9))
    after = jitted()(model, wild, ctrl)
    assert int(after.status[WORLD]) == int(Status.NONFINITE)
    assert bool(jnp.isfinite(after.qpos).all()) and bool(jnp.isfinite(after.qvel).all())
