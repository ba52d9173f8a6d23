"""Friction at exactly zero: its slope is that to the right, for walls, colliders and bodies that carry them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.particles import boundary, mpm

PARAMS = mpm.Params(mpm.Corotated(1e3, 1e4, 0.3), 1e-3, (0.0, -9.81), mpm.Walls("open"), cell=1 / 8, shape=(8, 8))


def sliding(params: mpm.Params, worlds: int = 1) -> mpm.State:
    x = np.random.default_rng(0).uniform((0.3, 0.02), (0.6, 0.2), (1, 40, 2))
    return mpm.init(params, np.repeat(x, worlds, 0), np.broadcast_to([1.0, -0.5], (worlds, 40, 2)))


def way(friction: Any, what: str, contact: str) -> Any:
    """How far matter that falls on a floor slides along it in ten steps."""
    if what == "wall":
        params, floor = PARAMS.replace(walls=mpm.Walls(contact, friction)), None
    else:
        params, floor = PARAMS, boundary.plane((0.0, 0.05), (0.0, 1.0), contact, friction)

    def advance(state: mpm.State, _: None) -> tuple[mpm.State, None]:
        if what != "body":
            return mpm.step(params, state, colliders=floor), None
        body = mpm.Response(jnp.zeros((1, 1, 3)), jnp.zeros((1, 1, 6)), 1e-3 * jnp.eye(6)[None], (0,))
        assert floor is not None
        return mpm.exchange(params, state, (floor,), body)[0], None

    return jax.lax.scan(advance, sliding(PARAMS), None, length=10)[0].x[..., 0].mean()


@pytest.mark.parametrize("contact", ["slip", "separate"])
@pytest.mark.parametrize("what", ["wall", "collider", "body"])
def test_the_slope_at_no_friction(what: str, contact: str):
    value = jax.jit(lambda friction: way(friction, what, contact))
    slope, h = jax.jit(jax.grad(value))(0.0), 1e-5
    found = (4 * value(h) - value(2 * h) - 3 * value(0.0)) / (2 * h)  # one-sided, second order
    assert abs(found) > 1e-4
    assert float(slope) == pytest.approx(float(found), rel=1e-6)


def test_a_negative_friction_of_a_collider():
    """Refused if it is known. If it is traced, its world is held."""
    state = sliding(PARAMS, worlds=2)

    def step(friction: Any) -> mpm.State:
        return mpm.step(PARAMS, state, colliders=boundary.plane((0.0, 0.05), (0.0, 1.0), friction=friction))

    with pytest.raises(ValueError, match=r"colliders\[0\]\.friction is -0\.1: it must not be negative"):
        step(jnp.array([0.1, -0.1]))
    after = jax.jit(step)(jnp.array([0.1, -0.1]))
    assert after.status.tolist() == [0, int(fphys.Status.BADPARAM)]
    np.testing.assert_array_equal(after.x[1], state.x[1])
