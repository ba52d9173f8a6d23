"""Where a body presses matter against a wall of the domain, the wall holds last."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import boundary, mpm
from fphys.testing import check_grads

CELL = 1 / 16


def pressed(contact: str, hold: str = "nodes") -> tuple[mpm.Params, mpm.State, boundary.Collider]:
    """A block at the left wall, which moves up beside it, and a box that comes from the right."""
    walls = mpm.Walls(contact, friction=0.3, hold=hold)
    params = mpm.Params(mpm.Corotated(1e3, 2e4, 0.3), 1e-3, (0.0, -9.81), walls, cell=CELL, shape=(16, 16))
    line = (np.arange(6) + 0.5) * CELL / 2
    x = np.stack(np.meshgrid(line, line + 0.4, indexing="ij"), -1).reshape(1, -1, 2)
    state = mpm.init(params, x, [-0.3, 0.5] + 0.1 * np.sin(np.arange(x.size)).reshape(x.shape))
    return params, state, boundary.box((0.2, 0.5), (0.15, 0.3), velocity=(-1.0, 0.0))


KINDS = [("slip", "nodes"), ("separate", "nodes"), ("slip", "face"), ("separate", "face"), ("sticky", "nodes")]


@pytest.mark.parametrize(("contact", "hold"), KINDS)
def test_nothing_is_pushed_through_a_wall(contact: str, hold: str):
    params, state, box = pressed(contact, hold)

    def advance(state: mpm.State, _: None) -> tuple[mpm.State, None]:
        at = jnp.stack([0.2 - state.time, jnp.full(1, 0.5)], 1)
        return mpm.step(params, state, colliders=box.replace(pos=at)), None

    after = jax.jit(lambda s: jax.lax.scan(advance, s, None, length=90)[0])(state)
    mpm.check(params, after)
    assert float(after.x[..., 0].min()) >= 0.0


@pytest.mark.parametrize(("contact", "hold"), [KINDS[i] for i in (1, 3, 4)])
def test_gradients_where_both_hold(contact: str, hold: str):
    params, state, box = pressed(contact, hold)
    box = box.replace(pos=jnp.asarray([[0.1, 0.5]]))  # past the wall, beyond the nodes on both sides of it

    def fn(v: jax.Array, friction: jax.Array, velocity: jax.Array) -> jax.Array:
        given = params.replace(walls=params.walls.replace(friction=friction))
        return mpm.step(given, state.replace(v=v), colliders=box.replace(velocity=velocity)).v

    args = state.v, jnp.asarray(params.walls.friction, float), jnp.asarray(box.velocity, float)
    check_grads(fn, args, directions=3)
