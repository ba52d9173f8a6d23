"""A wall particle whose only fluid is a smoothing radius away, but for rounding, takes nothing over from it."""

import jax
import jax.numpy as jnp
import numpy as np

from fphys.particles import sph

SPACING = 0.05


def grid(x0, x1, y0, y1):
    x, y = np.arange(x0 + SPACING / 2, x1, SPACING), np.arange(y0 + SPACING / 2, y1, SPACING)
    return np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)


def test_gradients_at_rest_on_a_regular_wall_are_finite():
    """In float32 the third layer of a wall has weights of 1e-30, whose reciprocals overflow in the adjoint."""
    params = sph.Params(
        spacing=SPACING, timestep=1.4e-3, sound_speed=20.0, gravity=jnp.array([0.0, -9.81], jnp.float32), viscosity=2.0
    )
    water, wall = grid(0.0, 1.0, 0.0, 0.3), grid(-0.15, 1.15, -0.15, 0.0)
    x = np.concatenate([water, wall]).astype(np.float32)[None]
    kind = np.repeat([sph.FLUID, sph.WALL], [len(water), len(wall)])
    pressure = 9810 * np.maximum(0.3 - x[..., 1], 0).astype(np.float32)
    state = sph.init(params, x, material=kind, pressure=pressure)

    def speed(force):
        final, _ = jax.lax.scan(lambda s, _: (sph.step(params, s, force), None), state, length=2)
        return (final.v**2).sum()

    gradient = jax.jit(jax.grad(speed))(jnp.zeros(x.shape, jnp.float32))
    assert jnp.isfinite(gradient).all() and (gradient != 0).any()
