"""Eight corotated particles at once against the general code, which a muscle without stress asks for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import mpm

from ..particles.mpm_scenes import scene, with_worlds

Array = jax.Array


@pytest.mark.parametrize("name", ["corotated", "all"])
@pytest.mark.parametrize("dim", [2, 3])
def test_eight_at_once_are_as_the_general_code(name: str, dim: int):
    """State and all gradients of one step, to rounding; one particle is inside out, one outside the domain."""
    params, state = scene(name, dim, n=21)
    params = with_worlds(params, dim)
    state = state.replace(F=state.F.at[0, 12, 0].multiply(-1.0), x=state.x.at[0, 6, 0].set(-1.0))
    rng = np.random.default_rng(1)
    force = jnp.asarray(0.1 * rng.normal(size=state.x.shape))
    weights = [rng.normal(size=a.shape) for a in moving(state)]

    def loss(actuation: Array | None, params: mpm.Params, arrays: tuple[Array, ...], force: Array) -> tuple[Any, Any]:
        x, v, rate, gradient, history, volume = arrays
        given = state.replace(x=x, v=v, C=rate, F=gradient, history=history, volume=volume)
        after = moving(mpm.step(params, given, force=force, actuation=actuation))
        return sum(jnp.sum(a * w) for a, w in zip(after, weights, strict=True)), after

    found = [
        jax.grad(lambda *given, act=act: loss(act, *given), argnums=(0, 1, 2), has_aux=True)(
            params, moving(state), force
        )
        for act in (None, jnp.zeros((1, 1, 3, 3)))
    ]
    for together, alone in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12 * (1e-9 + np.abs(alone).max()))


def moving(state: mpm.State) -> tuple[Array, ...]:
    return state.x, state.v, state.C, state.F, state.history, state.volume
