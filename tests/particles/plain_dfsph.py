"""One step of incompressible SPH (DFSPH) by dense matrices in jax.numpy, whose gradient is that of dense solves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def kernel(d: Any, h: float) -> tuple[Any, Any]:
    """Wendland's W of vectors, and W' / r."""
    dim = d.shape[-1]
    q = jnp.minimum(jnp.sqrt(jnp.sum(d**2, -1) / h**2 + 1e-12), 2.0)
    scale = 7 / (4 * np.pi * h**2) if dim == 2 else 21 / (16 * np.pi * h**3)
    return scale * (1 - q / 2) ** 4 * (2 * q + 1), -5 * scale / h**2 * (1 - q / 2) ** 3


def at_rest(spacing: float, h: float, dim: int) -> Any:
    """Sum of W over a lattice."""
    axis = spacing * np.arange(-4, 5)
    return kernel(jnp.asarray(np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), -1)), h)[0].sum()


def lacking(spacing: float, h: float, dim: int) -> Any:
    """The share of that sum which a particle at the edge of half a lattice does not have."""
    axis = spacing * np.arange(-4, 5)
    half = jnp.asarray(np.stack(np.meshgrid(axis[:4], *[axis] * (dim - 1), indexing="ij"), -1))
    return kernel(half, h)[0].sum() / at_rest(spacing, h, dim)


def pushed(matrix: np.ndarray, b: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Which unknowns are not zero, by trying sets in turn.

    B w = b where particles are held; elsewhere the problem is complementary, w >= 0 and b - B w <= 0.
    """
    active = held | (b > 0)
    for _ in range(200):
        w = np.zeros_like(b)
        w[active] = np.linalg.solve(matrix[np.ix_(active, active)], b[active])
        lack = b - matrix @ w
        wanted = held | np.where(active, w > 0, lack > 1e-14)
        if (wanted == active).all():
            return active
        active = wanted
    raise AssertionError("the sets do not settle")


def project(
    slope: Any, taken: Any, fluid: Any, held: Any, allowed: Any, turn: Any, v: Any, given: Any
) -> tuple[Any, Any, Any]:
    """The velocity with the allowed rate of density, the pressures without dimension, and which of them are not zero.

    Args:
        slope: V h grad W of all pairs but those of walls, shape (n, n, dim).
        taken: what each particle has of the pressures of the fluid, shape (n, n).
        held: where pressure may pull, too.
        given: which pressures are not zero, if that is known.
    """
    eye = jnp.eye(len(v))
    squeeze = (slope.sum(1)[:, :, None] * eye[:, None] + jnp.swapaxes(slope, 1, 2)) @ taken  # (n, dim, n)
    moving = squeeze * fluid[:, None, None]
    matrix = jnp.einsum("kdi,kdj->ij", moving, moving)
    b = jnp.where(fluid, allowed + turn * jnp.einsum("kdi,kd->i", squeeze, v), 0)
    active = pushed(np.asarray(matrix), np.asarray(b), np.asarray(held)) if given is None else given
    both = active[:, None] & active[None]
    w = jnp.linalg.solve(jnp.where(both, matrix, eye), jnp.where(active, b, 0))
    return v - jnp.einsum("kdi,i->kd", moving, w) / turn, w, active


def step(*args: Any) -> tuple[Any, ...]:
    """:func:`_step`, with NumPy's promotions."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return _step(*args)


def _step(given: dict[str, Any], x: Any, v: Any, kind: np.ndarray, known: Any = None) -> tuple[Any, ...]:
    """The next positions, velocities and pressures, density before the step, and whose pressures are not zero.

    Args:
        given: spacing, h, timestep, density, gravity (dim,), viscosity, of the world.
        x, v: of one world, shape (n, dim).
        known: whose are not zero, if that is known; then the step may be differentiated.
    """
    dim, fluid, h, dt = x.shape[1], jnp.asarray(kind == 0), given["h"], given["timestep"]
    volume, rho = given["spacing"] ** dim, given["density"]
    d = x[:, None] - x[None]
    w, f = kernel(d, h)
    f = jnp.where(jnp.sum(d**2, -1) < 4 * h**2, f, 0)
    full = at_rest(given["spacing"], h, dim) * volume
    acting = fluid[:, None] | fluid[None]
    slope = volume * h * (acting * f)[..., None] * d
    share = jnp.where(fluid[None] & ~fluid[:, None], w, 0)
    wet = share.sum(1) > 0
    share = share / jnp.where(wet, share.sum(1), 1)[:, None]
    filled = volume * w.sum(1) / full
    taken = jnp.clip(1 + (filled - 1) / 0.3, 0, 1)[:, None] * share + jnp.diag(fluid.astype(float))
    excess, turn = jnp.where(fluid, filled - 1, 0), dt / (full * h)
    edge = 1.1 * lacking(given["spacing"], h, dim)
    held = fluid & (excess > -edge)
    inside = excess * 0.04 * jnp.clip(1 + 10 * excess, 0, 1) ** 2
    allowed = jnp.where(held, jnp.where(excess > 0, 0.12 * excess, inside), excess + edge)

    seen = jnp.where((fluid | ~wet)[:, None], v, 2 * v - share @ v)
    rough = acting & (kind < 2)[:, None] & (kind < 2)[None]
    drag = 2 * given["viscosity"] * volume / rho * jnp.where(rough, f, 0)
    by_weight = jnp.einsum("ij,ijd,d->i", share, d, rho * given["gravity"])
    head = jnp.where(fluid, 0, jnp.maximum(by_weight, 0))
    push = jnp.einsum("ij,ijd->id", drag, seen[:, None] - seen[None]) + given["gravity"]
    push = push - volume / rho * jnp.einsum("ij,ijd->id", (head[:, None] + head[None]) * acting * f, d)
    v = v + dt * jnp.where(fluid[:, None], push, 0)
    pulled = held & (volume / full * (w * ~fluid[None]).sum(1) < 0.01)
    v, pressure, known = project(slope, taken, fluid, pulled, allowed, turn, v, known)
    p = rho * full * (h / dt) ** 2 * pressure
    p = jnp.where(fluid, p, jnp.maximum(share @ p + wet * by_weight, 0))
    return x + dt * v, v, w @ p / w.sum(1), rho * (1 + excess), known
