"""Periodic axes of the material point method: no place along them is special."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.errors import UnsupportedError
from fphys.particles import boundary, mpm
from fphys.testing import check_grads

CELL = 1 / 8
PARAMS = mpm.Params(
    mpm.Corotated(1e3, 1e4, 0.3),
    2e-3,
    (1.0, -2.0),
    mpm.Walls(("periodic", "periodic", "slip", "slip"), 0.2),
    cell=CELL,
    shape=(8, 6),
    lower=(0.5, -0.25),
)
EVERYWHERE = PARAMS.replace(walls=mpm.Walls("periodic"))


def cloud(params: mpm.Params, shift: float = 0.0) -> mpm.State:
    """Moving matter in the corner of the domain, or moved along x and, if it is across a face, back into it."""
    rng = np.random.default_rng(0)
    x = rng.uniform((0.52, -0.24), (0.9, 0.1), (1, 30, 2)) + [shift, 0.0]
    x[..., 0] = 0.5 + (x[..., 0] - 0.5) % 1.0
    state = mpm.init(params, x, 0.5 * rng.normal(size=x.shape))
    return state.replace(C=state.C.at[..., :2, :2].set(rng.normal(size=(1, 30, 2, 2))))


def rolled(params: mpm.Params, state: mpm.State, colliders: Any = None, steps: int = 60) -> mpm.State:
    step = jax.jit(lambda s: mpm.step(params, s, colliders=colliders))
    for _ in range(steps):
        state = step(state)
    return state


def balls(shift: float) -> tuple[boundary.Collider, ...]:
    """A ball under the cloud, and its images."""
    motion = {"contact": "slip", "friction": 0.3, "velocity": (0.1, 0.2)}
    return tuple(boundary.sphere((0.6 + shift + turn, -0.1), 0.12, **motion) for turn in (-1.0, 0.0, 1.0))


@pytest.mark.parametrize("transfer", [mpm.Apic(), mpm.AffineFlip(0.9)])
@pytest.mark.parametrize("shift", [0.625, 0.875])
def test_matter_across_a_face_moves_as_elsewhere(shift: float, transfer: Any):
    """By whole cells: the same motion, among walls and colliders, to rounding."""
    params = PARAMS.replace(transfer=transfer)
    here = rolled(params, cloud(params), balls(0.0))
    there = rolled(params, cloud(params, shift), balls(shift))
    assert not here.status.any() and not there.status.any()
    np.testing.assert_allclose(there.v, here.v, rtol=0, atol=1e-10)
    gap = np.asarray(there.x - here.x) - [shift, 0.0]
    np.testing.assert_allclose(gap - np.round(gap), 0, atol=1e-11)
    assert (np.asarray(there.x[..., 0]) >= 0.5).all() and (np.asarray(there.x[..., 0]) < 1.5).all()


def test_momentum_is_kept_where_all_axes_are_periodic():
    params = EVERYWHERE.replace(gravity=0.0)
    start = cloud(params, 0.8)
    end = rolled(params, start)
    np.testing.assert_allclose(end.v.sum(1), start.v.sum(1), rtol=0, atol=1e-12)
    assert np.abs(end.v - start.v).max() > 0.1


def test_a_body_gives_what_matter_across_a_face_takes():
    params = EVERYWHERE.replace(gravity=0.0)
    start = cloud(params, 0.875)
    body = mpm.Response(jnp.zeros((1, 1, 3)), jnp.zeros((1, 1, 6)), 1e-2 * jnp.eye(6)[None], (0,) * 3)
    after, took = mpm.exchange(params, start, balls(0.875), body)
    change = (1e3 * start.volume[..., None] * (after.v - start.v)).sum(1)
    np.testing.assert_allclose(took[:, 0, :2], -change, rtol=0, atol=1e-14)
    assert np.abs(change).max() > 1e-2


def test_a_body_that_turns_is_pushed_across_a_face_as_elsewhere():
    """What it takes, about its own origin; its images turn as it does, each about its own."""
    params = EVERYWHERE.replace(gravity=0.0)
    twist = jnp.array([[[0.1, 0.2, 0.0, 0.0, 0.0, 3.0]]])

    def took(shift: float) -> Any:
        origin = jnp.array([[[0.65 + shift, -0.15, 0.0]]])
        body = mpm.Response(origin, twist, jnp.diag(jnp.array([1.0, 1.0, 1.0, 9.0, 9.0, 9.0]))[None], (0,) * 3)
        return mpm.exchange(params, cloud(params, shift), balls(shift), body)[1]

    assert np.abs(took(0.0)[..., 5]).min() > 1e-3
    np.testing.assert_allclose(took(0.875), took(0.0), rtol=0, atol=1e-12)


def test_coupling_has_no_images():
    model = fphys.load('<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/></worldbody></mujoco>')
    medium = coupling.MPM(EVERYWHERE, ("floor",))
    with pytest.raises(UnsupportedError, match="bodies have no images, so no axis may be periodic"):
        coupling.step(model, fphys.init(model, 1), (medium,), (cloud(EVERYWHERE),), substeps=1)


def test_what_left_by_an_error_stays():
    """Half a cell beyond a periodic face, in a world that skips its step."""
    start = cloud(EVERYWHERE)
    start = start.replace(x=start.x.at[0, 0, 0].set(0.45))
    after = jax.jit(lambda gravity: mpm.step(EVERYWHERE.replace(gravity=gravity), start))(jnp.array([jnp.nan, 0.0]))
    np.testing.assert_array_equal(after.x, start.x)


def test_gradients_across_a_face():
    start = cloud(EVERYWHERE, 0.875)

    def fn(x: Any, v: Any, gravity: Any) -> Any:
        state = start.replace(x=x, v=v)
        for _ in range(3):
            state = mpm.step(EVERYWHERE.replace(gravity=gravity), state, colliders=balls(0.875))
        return state.x, state.v, state.F

    check_grads(fn, (start.x, start.v, jnp.array([[1.0, -2.0]])), directions=3)


def test_faces_that_do_not_fit():
    with pytest.raises(ValueError, match="both faces of an axis are periodic, or none"):
        cloud(PARAMS.replace(walls=mpm.Walls(("periodic", "slip", "slip", "slip"))))
    narrow = PARAMS.replace(shape=(8, 3), walls=mpm.Walls("periodic"))
    with pytest.raises(ValueError, match="a periodic axis needs four cells, axis 1 has fewer"):
        mpm.step(narrow, cloud(EVERYWHERE))
