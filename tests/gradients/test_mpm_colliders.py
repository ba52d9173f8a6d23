"""Colliders whose effect fades: the exact ones as the width goes, and gradients that see their place and size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import UnsupportedError
from fphys.particles import boundary, mpm
from fphys.testing import check_grads

from ..particles.mpm_scenes import scene

TILTED = (0.9, 0.1, -0.2, 0.3)
AXES = [0.05 * np.arange(n) - 0.1 for n in (12, 11, 10)]
SAMPLES = np.linalg.norm(np.meshgrid(*AXES, indexing="ij"), axis=0) - 0.12
"""Distance from a ball in the corner of the domain, as far as an effect of a width of 0.25 m reaches."""


def collider(shape: str, width: Any, contact: str = "slip") -> boundary.Collider:
    """One in space that moves, beside the cloud of ``mpm_scenes``."""
    motion = {"contact": contact, "friction": 0.3, "width": width}
    if shape == "plane":
        velocity = (0.1, 0.2, 0.07)  # along no wall: where nothing presses on one, its friction has a kink
        return boundary.plane((0.0, 0.03, 0.0), (0.2, 1.0, 0.1), velocity=velocity, **motion)
    motion |= {"velocity": (0.1, 0.2, 0.0), "spin": (0.5, 0.3, 1.0)}
    if shape == "field":
        return boundary.field(SAMPLES, 0.05, (-0.1, -0.1, -0.1), (0.999, 0.01, 0.02, 0.03), **motion)
    if shape == "sphere":
        return boundary.sphere((0.13, 0.05, 0.1), 0.06, **motion)
    if shape == "capsule":
        return boundary.capsule((0.13, 0.05, 0.1), 0.05, 0.06, TILTED, **motion)
    return boundary.box((0.13, 0.05, 0.1), (0.07, 0.05, 0.06), TILTED, **motion)


def rolled(given: Any, state: mpm.State, params: mpm.Params, steps: int = 20) -> mpm.State:
    return jax.lax.scan(lambda s, _: (mpm.step(params, s, colliders=given), None), state, None, length=steps)[0]


@pytest.mark.parametrize("shape", boundary.SHAPES)
def test_as_the_width_goes_the_collider_is_exact(shape: str):
    params, state = scene("corotated", 3)
    made = collider(shape, None)
    if shape == "field":  # a curved one has other normals: linear between samples, where those of the exact one jump
        flat = 0.3 * AXES[0][:, None, None] + AXES[1][:, None] - 0.05 + 0 * AXES[2]
        made = made.replace(samples=jnp.asarray(flat).reshape(1, -1))
    after = jax.jit(lambda width: rolled(made.replace(width=width), state, params).x)
    exact = jax.jit(lambda: rolled(made, state, params).x)()
    np.testing.assert_array_equal(after(0.0), exact)
    np.testing.assert_allclose(after(1e-9), exact, rtol=0, atol=1e-12)
    assert np.abs(after(0.25) - exact).max() > 1e-4


@pytest.mark.parametrize("contact", ["sticky", "slip"])
@pytest.mark.parametrize("shape", boundary.SHAPES)
def test_twenty_steps_by_every_number(shape: str, contact: str):
    params, state = scene("corotated", 3)
    made = boundary.prepared(collider(shape, 0.25, contact), 0, float, 3, 1, fades=True)
    few = ("pos", *("quat",) * (shape in ("box", "capsule", "field")), "size", "velocity", "spin", "friction", "width")

    def fn(numbers: dict[str, Any], samples: Any) -> Any:
        after = rolled(made.replace(samples=samples, **numbers), state, params)
        return after.x, after.v

    args = {name: getattr(made, name) for name in few}, made.samples
    check_grads(fn, args, argnums=0, elementwise=True)
    check_grads(fn, args, argnums=1, directions=3)


# --- an obstacle to be optimised

CELL = 1 / 16
PHASES = 13
"""Worlds whose obstacle is an eighth of a cell from that of the one before; and as many, as much larger."""


def falling() -> tuple[mpm.Params, mpm.State]:
    """A block above an obstacle, in a plane."""
    walls, soft = mpm.Walls("separate"), mpm.Corotated(1e3, 2e4, 0.3)
    params = mpm.Params(soft, 1e-3, (0.0, -9.81), walls, cell=CELL, shape=(16, 16))
    line = (np.arange(8) + 0.5) * CELL / 2
    x = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2) + [0.43, 0.48]
    return params, mpm.init(params, np.repeat(x[None], 2 * PHASES, 0))


def obstacle(shape: str, pos: Any, size: Any, width: Any) -> boundary.Collider:
    """One of each world."""
    if shape == "sphere":
        return boundary.sphere(pos, size, width=width)
    if shape == "capsule":
        return boundary.capsule(pos, size, 0.1, (0.5**0.5, 0.0, 0.5**0.5, 0.0), width=width)  # it lies along x
    if shape == "box":
        return boundary.box(pos, jnp.stack([size, size], -1), (0.99, 0.0, 0.0, 0.15), width=width)
    x, y = np.meshgrid(*2 * [np.arange(49) / 48 - 0.5], indexing="ij")
    made = boundary.field(np.zeros((49, 49)), 1 / 48, pos - 0.5, width=width)
    return made.replace(samples=(np.hypot(x, 1.2 * y)[None] - size[:, None, None]).reshape(len(size), -1))


def test_a_capsule_whose_axis_ends_at_nodes():
    """Where a smooth maximum is taken of equal numbers."""
    params, state = scene("corotated", 3)

    def fn(pos: Any, half: Any) -> Any:
        rod = boundary.capsule(pos, 0.05, half, contact="slip", friction=0.3, velocity=(0.3, 0.2, 0.5), width=0.25)
        return mpm.step(params, state, colliders=rod).v

    check_grads(fn, (jnp.array([0.125, 0.0625, 0.125]), jnp.array(0.125)), elementwise=True)


def test_a_field_ends_with_its_samples():
    """However wide it fades, and however large cells are: here are 15 m, of samples 0.5 m."""
    soft = mpm.Corotated(1e3, 2e4, 0.3)
    params = mpm.Params(soft, 1e-3, (0.0, -9.81), mpm.Walls("slip"), cell=5.0, shape=(8, 8))
    state = mpm.init(params, np.random.default_rng(0).uniform(12.0, 20.0, (1, 30, 2)))
    made = boundary.field(np.full((2, 2), -1.0), 0.5, (15.0, 10.0), contact="sticky", width=15.0)
    np.testing.assert_array_equal(mpm.step(params, state, colliders=made).v, mpm.step(params, state).v)


@pytest.mark.parametrize("shape", ["sphere", "box", "capsule", "field"])
def test_the_slope_over_half_a_cell(shape: str):
    """How far aside a block is that falls on the obstacle, 400 steps later, by its place; how high, by its size."""
    params, state = falling()
    steps = CELL * (np.arange(PHASES) - PHASES // 2) / 8
    by_place, by_size = jnp.asarray([[*steps, *0 * steps], [*0 * steps, *steps]])

    def reached(by_place: Any, by_size: Any) -> Any:
        pos = jnp.stack([0.47 + by_place, jnp.full(len(by_place), 0.25)], -1)
        x = rolled(obstacle(shape, pos, 0.14 + by_size, 4 * CELL), state, params, 400).x.mean(1)
        return jnp.concatenate([x[:PHASES, 0], x[PHASES:, 1]])

    at = np.asarray(jax.jit(reached)(by_place, by_size)).reshape(2, -1)
    slopes = jax.jit(jax.grad(lambda *args: reached(*args).sum(), (0, 1)))(by_place, by_size)
    over = (at[:, 4:] - at[:, :-4]) / (CELL / 2)
    for found, wanted in zip((slopes[0][:PHASES], slopes[1][PHASES:]), over, strict=True):
        np.testing.assert_allclose(found[2:-2], wanted, rtol=0.1)
    assert np.abs(over).min() > 0.5


# --- bodies, worlds, refusals


def carried(width: Any, mobility: Any, contact: str = "sticky") -> tuple[mpm.State, Any]:
    """A step in which a body carries a ball; and what it took."""
    params, state = scene("corotated", 3)
    params = params.replace(walls=mpm.Walls("open"))  # which would take what the body gives
    body = mpm.Response(jnp.array([[[0.1, 0.1, 0.1]]]), 0.2 * jnp.arange(6.0).reshape(1, 1, 6), mobility, (0,))
    return mpm.exchange(params, state, (collider("sphere", width, contact),), body)


def test_a_body_that_carries_it_moves_as_it_is_pushed():
    """Its velocity is found at once with the matter's: the same as a ball that is given the velocity it ends with."""
    params, state = scene("corotated", 3)
    params = params.replace(walls=mpm.Walls("open"))
    mobility = jnp.diag(jnp.array([2.0, 2.0, 2.0, 50.0, 50.0, 50.0]))[None]
    after, took = carried(0.25, mobility)
    twist = 0.2 * np.arange(6.0) + np.asarray(mobility[0] @ took[0, 0])
    ball = collider("sphere", 0.25, "sticky")
    arm = np.asarray(ball.pos) - 0.1
    ball = ball.replace(velocity=twist[:3] + np.cross(twist[3:], arm), spin=twist[3:])
    np.testing.assert_allclose(after.v, mpm.step(params, state, colliders=ball).v, rtol=0, atol=1e-12)
    free = mpm.step(params, state)
    mass = 1000.0 * np.asarray(state.volume)[..., None]
    lost = (mass * np.asarray(free.v - after.v)).sum(1)
    assert np.linalg.norm(lost) > 0.05
    np.testing.assert_allclose(lost, took[:, 0, :3], rtol=0, atol=1e-13)


def test_gradients_of_a_body_that_carries_it():
    def fn(width: Any, mobility: Any) -> Any:
        after, took = carried(width, mobility, "slip")
        return after.v, took

    check_grads(fn, (jnp.array([0.25]), 2.0 * jnp.eye(6)[None]), directions=3)


def test_each_world_has_its_width():
    """Worlds together, alone, and mapped; one of them has none."""
    params, state = scene("corotated", 2)
    pos, radius, width = (
        jnp.array([[0.1, 0.05], [0.15, 0.1], [0.12, 0.0]]),
        jnp.array([0.06, 0.07, 0.05]),
        [0.1, 0.0, 0.3],
    )

    def step(pos: Any, radius: Any, width: Any) -> Any:
        now = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], (len(pos), *a.shape[1:])), state)
        ball = boundary.sphere(pos, radius, "slip", 0.3, width=width)
        return mpm.step(params, now, colliders=ball).v

    def slope(*args: Any) -> Any:
        return jax.grad(lambda *args: (step(*args) ** 2).sum(), (0, 1, 2))(*args)

    args = pos, radius, jnp.array(width)
    for fn in (jax.jit(step), jax.jit(slope)):
        alone = jax.jit(jax.vmap(fn))(*(a[:, None] for a in args))
        for a, b in zip(jax.tree.leaves(fn(*args)), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a, b[:, 0], rtol=1e-12)


def test_a_width_that_cannot_be():
    """Refused if it is known. If it is traced, its world is held. Other solvers have none."""
    params, state = scene("corotated", 3, worlds=2)

    def step(width: Any) -> mpm.State:
        return mpm.step(params, state, colliders=boundary.sphere((0.1, 0.1, 0.1), 0.1, width=width))

    with pytest.raises(ValueError, match=r"colliders\[0\]\.width is -0\.1: it must not be negative"):
        step(jnp.array([0.1, -0.1]))
    assert jax.jit(step)(jnp.array([jnp.inf, 0.1])).status.tolist() == [int(fphys.Status.BADPARAM), 0]
    with pytest.raises(ValueError, match="two or more along x and y"):
        boundary.field(np.ones((1, 5)), 0.1, (0.0, 0.0, 0.0))
    after = jax.jit(step)(jnp.array([0.1, -0.1]))
    assert after.status.tolist() == [0, int(fphys.Status.BADPARAM)]
    np.testing.assert_array_equal(after.x[1], state.x[1])
    with pytest.raises(UnsupportedError, match=r"colliders\[0\]\.width is given: only colliders of MPM fade"):
        boundary.prepared(collider("sphere", 0.1), 0, float, 3, 1)
