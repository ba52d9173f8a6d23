"""An SPH step in plain JAX, with cells: the reference for the kernels' speed and results."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array

CAPACITY = 20
"""Largest number of particles in a cell."""

_BLOCK = 1024  # how many particles gather their neighbours at once


@functools.partial(jax.jit, static_argnames=("counts", "h", "mass", "exponent"))
def step(
    x: Array, v: Array, rho: Array, timestep: float, c: float, rho0: float, gravity: Array, viscosity: float,
    artificial: float, diffusion: float, *, counts: tuple[int, int, int], h: float, mass: float, exponent: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """One step of free fluid in space, as :func:`fphys.particles.sph.step` defines it.

    Args:
        x, v: [m] and [m/s], shape (particle, 3). From its minimum on each axis, x spans ``counts`` cells of 2 h.
        rho: [kg/m^3], shape (particle,).
    """
    candidates = _candidates(x, counts, 2 * h)
    stiffness = rho0 * c**2 / exponent
    p = stiffness * ((rho / rho0) ** exponent - 1)

    def force(i: Array, j: Array, d: Array, slope: Array) -> Array:
        u, r2 = v[i, None] - v[j], jnp.sum(d * d, -1)
        along = artificial * h * c * rho0 * jnp.sum(u * d, -1) / (r2 + 0.01 * h**2)
        push = (along - p[i, None] - p[j])[..., None] * d + 2 * viscosity * u
        return jnp.sum((slope / (rho[i, None] * rho[j]))[..., None] * push, 1)

    v = v + timestep * (mass * _sum(force, x, candidates, h) + gravity)

    def rate(i: Array, j: Array, d: Array, slope: Array) -> Array:
        u = v[i, None] - v[j]
        spread = rho[j] - rho[i, None] + rho0 / c**2 * jnp.sum(d * gravity, -1)
        value = rho[i, None] * jnp.sum(u * d, -1) - 2 * diffusion * h * c * spread
        return jnp.sum(slope / rho[j] * value, 1)

    rho = rho + timestep * mass * _sum(rate, x, candidates, h)
    return x + timestep * v, v, rho


def _candidates(x: Array, counts: tuple[int, int, int], size: float) -> tuple[Array, Array]:
    """The particles of each cell, padded with n, and the cells around each particle. Edge cells are empty."""
    n = len(x)
    shape = jnp.array([c + 2 for c in counts])
    place = ((x - x.min(0, keepdims=True)) / size).astype(jnp.int32)
    place = jnp.clip(place, 0, jnp.array([counts]) - 1) + 1
    cell = (place[:, 2] * shape[1] + place[:, 1]) * shape[0] + place[:, 0]
    order = jnp.argsort(cell)
    cells = (counts[0] + 2) * (counts[1] + 2) * (counts[2] + 2)
    start = jnp.searchsorted(cell[order], jnp.arange(cells))
    rank = jnp.arange(n) - start[cell[order]]
    table = jnp.full((cells, CAPACITY), n).at[cell[order], rank].set(order, mode="drop")
    steps = jnp.arange(-1, 2)
    offsets = (steps[:, None, None] * shape[1] + steps[None, :, None]) * shape[0] + steps[None, None, :]
    return table, cell[:, None] + offsets.reshape(1, -1)


def _sum(pair: Any, x: Array, candidates: tuple[Array, Array], h: float) -> Array:
    """Sum over neighbours in blocks, so that memory stays bounded."""
    table, around = candidates
    n = len(x)
    blocks = -(-n // _BLOCK)
    scale = 21 / (16 * jnp.pi * h**3)

    def block(i: Array) -> Array:
        j = table[around[i]].reshape(_BLOCK, -1)
        known = jnp.minimum(j, n - 1)
        d = x[i, None] - x[known]
        q = jnp.sqrt(jnp.sum(d * d, -1) / h**2 + 1e-12)
        near = (q < 2) & (j < n)
        return pair(i, known, d, jnp.where(near, -5 * scale / h**2 * (1 - 0.5 * q) ** 3, 0))

    index = jnp.minimum(jnp.arange(blocks * _BLOCK), n - 1).reshape(blocks, _BLOCK)
    total = jax.lax.map(block, index)
    return total.reshape(blocks * _BLOCK, *total.shape[2:])[:n]
