"""Small scenes of SPH: a pool between walls, and a block of a periodic fluid."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.particles import sph


def lattice(lower: list[float], upper: list[float], spacing: float) -> np.ndarray:
    """Centres of cells of a lattice that fills a box, (n, dim)."""
    axes = [np.arange(round((u - l) / spacing)) * spacing + l + spacing / 2 for l, u in zip(lower, upper)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(lower))


def tank(size: list[float], spacing: float, layers: int = 3) -> np.ndarray:
    """Dummy particles around a box with its corner at the origin, open above (the last axis), (n, dim)."""
    thick = layers * spacing
    points = lattice([-thick] * len(size), [s + thick for s in size[:-1]] + [size[-1]], spacing)
    inside = ((points > 0) & (points < np.array(size))).all(-1)
    return points[~inside]


def pool(dtype: Any = "float64", dim: int = 2, worlds: int = 2, noise: float = 0.1, **changes: Any) -> Any:
    """Params and state of a jostled pool in a tank, each world its own; params as arrays."""
    spacing, rng = 0.1, np.random.default_rng(dim)
    size = [0.6] * dim if dim == 2 else [0.3] * dim
    fluid, walls = (
        lattice([0.0] * dim, size, spacing),
        tank([*size[:-1], size[-1] + 0.1], spacing, 3 if dim == 2 else 2),
    )
    x = np.concatenate([np.repeat(p[None], worlds, 0) for p in (fluid, walls)], 1)
    x[:, : len(fluid)] += noise * spacing * rng.standard_normal((worlds, *fluid.shape))
    v = np.zeros_like(x)
    v[:, : len(fluid)] = 0.3 * rng.standard_normal((worlds, *fluid.shape))
    kind = np.repeat([sph.FLUID, sph.WALL], [len(fluid), len(walls)])
    kind[-len(walls) // 3 :] = sph.SLIP_WALL
    gravity = np.zeros(dim)
    gravity[-1] = -9.81
    given = {"viscosity": 1.0, "artificial": 0.05, "diffusion": 0.1, "gravity": gravity, "repulsion": 1.0}
    given |= {"smoothing": 1.5 if dim == 2 else 1.0}
    given |= {"timestep": 1e-3}
    params = sph.Params(spacing=spacing, sound_speed=20.0, **given | changes)
    params = jax.tree.map(lambda leaf: jnp.atleast_1d(jnp.asarray(leaf, dtype)), params)
    params = params.replace(gravity=params.gravity.reshape(1, dim))
    pressure = np.maximum(9.81 * 1000 * (size[-1] - x[..., -1]), 0)
    state = sph.init(params, x.astype(dtype), v.astype(dtype), kind, pressure.astype(dtype))
    return params, state


def run(params: sph.Params, state: sph.State, steps: int) -> sph.State:
    """The state after some steps."""
    return jax.jit(lambda p, s: jax.lax.fori_loop(0, steps, lambda _, s: sph.step(p, s), s))(params, state)
