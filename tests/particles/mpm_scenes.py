"""Small clouds of particles against the lower corner of their domain, and their parameters as arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.particles import mpm

MATERIALS: dict[str, mpm.Material] = {
    "corotated": mpm.Corotated(1000.0, 1e4, 0.3),
    "neo-hookean": mpm.NeoHookean(1000.0, 1e4, 0.3),
    "liquid": mpm.Liquid(1000.0, 1e4, 7.0, 10.0),
    "snow": mpm.Snow(young=1e4, compression=1e-3, stretch=1e-3),
    "sand": mpm.Sand(young=1e4),
    "mohr-coulomb": mpm.MohrCoulomb(young=1e4),
    "von-mises": mpm.VonMises(1000.0, 1e4, 0.3, 20.0, 100.0),
}
"""Soft, and quick to yield."""


def scene(
    name: str, dim: int, n: int = 20, worlds: int = 1, contact: str = "slip", seed: int = 0, hold: str = "nodes"
) -> Any:
    """Parameters with leaves of shape (1, ...), and a state that moves, deforms and touches three walls."""
    rng = np.random.default_rng(seed)
    material: Any = tuple(MATERIALS.values()) if name == "all" else MATERIALS[name]
    params = mpm.Params(
        material=material,
        timestep=2e-3,
        gravity=np.array([1.0, *[-2.0] * (dim - 2), -9.8]),
        walls=mpm.Walls(contact, friction=0.2, hold=hold),
        cell=1 / 8,
        shape=(8, 7, 6)[:dim],
    )
    x = rng.uniform(0.02, 0.2, (worlds, n, dim))
    state = mpm.init(params, x, 0.3 * rng.normal(size=x.shape))
    number = np.arange(n, dtype=np.int32) % len(params.materials)
    state = mpm.init(params, x, state.v, number)
    flat = np.diag([1.0] * dim + [0.0] * (3 - dim))
    rate = flat @ rng.normal(size=state.C.shape) @ flat
    strain = np.eye(3) + 0.01 * flat @ rng.normal(size=state.F.shape) @ flat
    return params, state.replace(C=jnp.asarray(rate), F=jnp.asarray(strain))


def with_worlds(params: mpm.Params, dim: int) -> mpm.Params:
    """The same, every leaf an array with the world axis first."""
    material = jax.tree.map(lambda x: jnp.full((1,), x), params.material)
    walls = params.walls.replace(
        friction=jnp.full((1, 2 * dim), params.walls.friction), velocity=jnp.zeros((1, 2 * dim, dim))
    )
    gravity = jnp.asarray(params.gravity)[None]
    return params.replace(material=material, timestep=jnp.full((1,), params.timestep), gravity=gravity, walls=walls)
