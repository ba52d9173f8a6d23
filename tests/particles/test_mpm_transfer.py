"""The affine FLIP transfer, and walls held at their faces: against NumPy, in parts, with faults, refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.particles import boundary, mpm
from fphys.testing import check_transforms

from . import plain_mpm
from .mpm_scenes import scene
from .test_mpm import STEPS, run


def stepped_by_numpy(params: mpm.Params, state: mpm.State) -> mpm.State:
    for _ in range(STEPS):
        x, v, c, f, history = plain_mpm.step(params, state)
        state = state.replace(x=x, v=v, C=c, F=f, history=history)
    return state


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("contact", ["slip", "separate"])
def test_steps_are_those_of_numpy(contact: str, dim: int):
    """Both at once; a world alone, and a world of its own parameters."""
    params, state = scene("all", dim, worlds=2, contact=contact, hold="face")
    params = params.replace(transfer=mpm.AffineFlip(0.9))
    ours, plain = run(params, state, STEPS), stepped_by_numpy(params, state)
    for field in ("x", "v", "C", "F", "history"):
        wanted = getattr(plain, field)
        np.testing.assert_allclose(getattr(ours, field), wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
    assert not ours.status.any()


def test_nothing_kept_is_apic_and_the_grid_is_the_same_in_parts():
    params, state = scene("all", 2, n=24)
    apic, none = (run(params.replace(transfer=t), state, STEPS) for t in (mpm.Apic(), mpm.AffineFlip(0.0)))
    np.testing.assert_array_equal(apic.v, none.v)
    params = params.replace(transfer=mpm.AffineFlip(0.9))
    whole, parts = (run(params.replace(parts=k), state, STEPS) for k in (1, 3))
    np.testing.assert_allclose(whole.v, parts.v, rtol=0, atol=1e-12)
    assert np.abs(whole.v - apic.v).max() > 1e-3


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1])
def test_a_share_that_cannot_be(bad: float):
    """Refused if it is known. If it is traced, its world is held."""
    params, state = scene("corotated", 2, worlds=2)

    def step(keep: Any) -> mpm.State:
        return mpm.step(params.replace(transfer=mpm.AffineFlip(keep)), state)

    with pytest.raises(ValueError, match=rf"keep is \[ *0\.9 .*{bad}\]: it must lie between 0 \(APIC\) and 1 \(FLIP\)"):
        step(jnp.array([0.9, bad]))
    after = jax.jit(step)(jnp.array([0.9, bad]))
    assert after.status.tolist() == [0, int(fphys.Status.BADPARAM)]
    np.testing.assert_array_equal(after.x[1], state.x[1])
    np.testing.assert_array_equal(after.v[0], step(0.9).v[0])


def test_other_transfers_and_holds_are_refused():
    params, state = scene("corotated", 2)
    with pytest.raises(TypeError, match=r"params\.transfer is a str: give mpm\.Apic\(\) or mpm\.AffineFlip\(\)"):
        mpm.step(params.replace(transfer="flip"), state)
    with pytest.raises(ValueError, match=r"walls\.hold is 'faces': it is 'nodes', half a cell inside, or 'face'"):
        mpm.step(params.replace(walls=mpm.Walls("slip", hold="faces")), state)
    with pytest.raises(ValueError, match=r"params\.transfer\.keep has the shape \(3,\), there are 1 worlds"):
        mpm.step(params.replace(transfer=mpm.AffineFlip(jnp.full(3, 0.9))), state)


def test_a_particle_with_a_fault_touches_no_other():
    params, state = scene("corotated", 2)
    params = params.replace(transfer=mpm.AffineFlip(0.9))
    for name, value in (("v", jnp.nan), ("x", -9.0)):
        wrong = state.replace(**{name: getattr(state, name).at[0, 7].set(value)})
        after = mpm.step(params, wrong)
        np.testing.assert_array_equal(after.v[0, 7], wrong.v[0, 7])
        without = mpm.step(params, jax.tree.map(lambda a: jnp.delete(a, 7, 1) if a.ndim > 1 else a, state))
        np.testing.assert_allclose(jnp.delete(after.v, 7, 1), without.v, rtol=0, atol=1e-13)
        slope = jax.grad(lambda v, w=wrong: jnp.nansum(mpm.step(params, w.replace(v=v)).v ** 2))(state.v)
        assert bool(jnp.isfinite(slope).all())


def test_a_body_that_answers_takes_what_matter_loses():
    """Linear momentum closes to rounding."""
    params, state = scene("corotated", 2)
    params = params.replace(transfer=mpm.AffineFlip(0.9), gravity=0.0, walls=mpm.Walls("open"))
    ball = boundary.sphere((0.1, 0.1), 0.05, friction=0.3)
    body = mpm.Response(jnp.full((1, 1, 3), 0.1), jnp.zeros((1, 1, 6)), 0.1 * jnp.eye(6)[None], (0,))
    after, took = mpm.exchange(params, state, (ball,), body)
    change = ((after.v - state.v) * state.volume[..., None] * 1e3).sum(1)
    np.testing.assert_allclose(took[0, 0, :2], -change[0], rtol=0, atol=1e-14)
    assert np.abs(change).max() > 1e-3


@pytest.mark.parametrize("parts", [1, 2])
def test_a_gradient_that_asks_nothing_of_the_momentum(parts: int):
    """By the share, or a collider's velocity, alone."""
    params, state = scene("corotated", 2)
    params = params.replace(parts=parts)

    def loss(keep: Any, speed: Any) -> Any:
        ball = boundary.sphere((0.1, 0.1), 0.05, "sticky", velocity=jnp.stack([speed, 0.0 * speed]))
        transfer = mpm.AffineFlip(keep) if keep is not None else mpm.Apic()
        return (mpm.step(params.replace(transfer=transfer), state, colliders=ball).v ** 2).sum()

    h = 1e-5
    by_keep, by_speed = jax.grad(loss)(0.9, 0.0), jax.grad(lambda s: loss(None, s))(0.0)
    assert float(by_keep) == pytest.approx(float(loss(0.9 + h, 0.0) - loss(0.9 - h, 0.0)) / (2 * h), rel=1e-6)
    assert float(by_speed) == pytest.approx(float(loss(None, h) - loss(None, -h)) / (2 * h), rel=1e-6)


def test_transforms():
    params, state = scene("all", 2, worlds=2, contact="separate", hold="face")

    def step(keep: Any, x: Any, v: Any) -> Any:
        begun = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], (x.shape[0], *a.shape[1:])), state).replace(x=x, v=v)
        after = mpm.step(params.replace(transfer=mpm.AffineFlip(keep), gravity=np.array([[1.0, -9.8]])), begun)
        return after.x, after.v, after.C, after.F, after.history

    check_transforms(step, (jnp.array([0.9, 0.8]), state.x, state.v), max_patterns=3, batches=(2,), rtol=1e-9)
