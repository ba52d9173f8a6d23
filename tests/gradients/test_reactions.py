"""Gradients of the forces on colliders, against central differences in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.verification.test_reactions import SOLVERS, shapes


@pytest.mark.parametrize("name", SOLVERS)
def test_they_agree_with_differences(name: str):
    """By the state, the time step, the gravity, and the ball's pose, motion and friction."""
    solver, make = SOLVERS[name]
    params, state, _ = make(3)
    ball, wall = shapes(state.x, "separate")
    inputs = {
        "x": state.x,
        "v": state.v + 0.01 * np.random.default_rng(0).normal(size=state.v.shape),
        "timestep": jnp.full(len(state.x), params.timestep),
        "gravity": jnp.asarray(params.gravity),
        "pos": jnp.asarray(ball.pos),
        "velocity": jnp.asarray(ball.velocity),
        "spin": jnp.asarray(ball.spin),
        "friction": jnp.asarray(ball.friction),
    }
    weights = np.random.default_rng(1).normal(size=(len(state.x), 2, 6))
    flat, unpack = ravel_pytree(inputs)

    @jax.jit
    def loss(flat: jax.Array) -> jax.Array:
        now = unpack(flat)
        moving = ball.replace(**{key: now[key] for key in ("pos", "velocity", "spin", "friction")})
        given = params.replace(timestep=now["timestep"], gravity=now["gravity"])
        wrench = solver.reactions(given, state.replace(x=now["x"], v=now["v"]), colliders=(moving, wall))
        return (weights * wrench).sum()

    slope = unpack(jax.jit(jax.grad(loss))(flat))
    for key, value in inputs.items():
        assert np.abs(np.asarray(slope[key])).max() > 0, key
        way = unpack(jnp.zeros_like(flat))
        way[key] = jnp.asarray(np.random.default_rng(2).normal(size=value.shape))
        step = 1e-7 * float(jnp.maximum(jnp.abs(value).max(), 1e-2))
        along = ravel_pytree(way)[0]
        wanted = (loss(flat + step * along) - loss(flat - step * along)) / (2 * step)
        np.testing.assert_allclose((slope[key] * way[key]).sum(), wanted, rtol=1e-5, atol=1e-7, err_msg=key)
