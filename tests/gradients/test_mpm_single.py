"""Gradients of the material point method in float32, where particles line up with the nodes.

Their far nodes then get a mass of 1e-14 of theirs or less, whose square float32 cannot hold.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import mpm

MATERIALS = {
    "corotated": mpm.Corotated(density=1000.0, young=2e4, poisson=0.3),
    "liquid": mpm.Liquid(density=1000.0, bulk=2e4),
    "von Mises": mpm.VonMises(density=1000.0, young=2e4, poisson=0.3, strength=50.0),
}
LINE = np.arange(0.3, 0.5, 0.025)
BLOCK = np.stack(np.meshgrid(LINE, LINE - 0.3, indexing="ij"), -1).reshape(1, -1, 2)


def gradient(material: mpm.Material, dtype: Any) -> Any:
    """By every parameter and position, of the height to which a block on the floor sags."""
    params = mpm.Params(material, timestep=2e-4, gravity=np.array([0.0, -9.81]), cell=0.05, shape=(20, 20))
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), params)

    def height(params: mpm.Params, positions: Any) -> Any:
        state = mpm.init(params, positions)
        return jax.lax.scan(lambda s, _: (mpm.step(params, s), None), state, None, length=60)[0].x[0, :, 1].mean()

    return jax.grad(height, (0, 1))(params, jnp.asarray(BLOCK, dtype))


@pytest.mark.parametrize("name", MATERIALS)
def test_float32_where_particles_line_up_with_the_nodes(name: str):
    single, double = (jax.tree.leaves(gradient(MATERIALS[name], dtype)) for dtype in (jnp.float32, jnp.float64))
    assert all(bool(jnp.isfinite(g).all()) for g in single)
    pairs = [(np.asarray(a, float), np.asarray(b)) for a, b in zip(single, double, strict=True) if np.any(b)]
    errors = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs]
    assert np.median(errors) <= 1e-4 and max(errors) <= 1e-3
