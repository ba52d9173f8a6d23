"""Distances along rays to what is not rigid: particles, as balls, and triangles of what deforms.

What a ray hits first is a choice without a derivative. Its distance has one: by the place of what it hits, and the ray.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class Balls(NamedTuple):
    """Particles."""

    x: Array  # [m], shape (world, particle, 3)
    radius: float  # [m]
    there: Array | None = None  # which there are, bool, shape (world, particle); None: all


class Triangles(NamedTuple):
    """A surface, seen from both sides."""

    x: Array  # of vertices [m], shape (world, vertex, 3)
    corners: np.ndarray  # numbers of its vertices, shape (triangle, 3)


def nearest(things: Sequence[Balls | Triangles], origin: Array, direction: Array) -> Array:
    """Distance along each ray to the first of all things [m], shape (world, ray), infinite where there is none.

    Args:
        origin, direction: of the rays [m], directions of length one, shape (world, ray, 3).

    Every ray is tried with every particle and triangle. Gradients flow to ``x`` of things, origin and direction.
    """
    found = jnp.full(origin.shape[:2], jnp.inf, origin.dtype)
    for thing in things:
        lengths = functools.partial(_first, _to_balls if isinstance(thing, Balls) else _to_triangles)
        found = jnp.minimum(found, jax.vmap(lengths)(_each(thing), origin, direction))
    return found


def _each(thing: Balls | Triangles) -> Array:
    """What is tried with each ray, its world axis first: the numbers of one row are of one particle or triangle.

    A ray that hits nothing has the first row as its choice, so numbers that are not finite must not reach its gradient.
    """
    finite = jnp.isfinite(thing.x).all(-1)
    if isinstance(thing, Triangles):
        whole = finite[:, thing.corners].all(-1)
        return jnp.where(whole[..., None, None], thing.x[:, thing.corners], 0)
    there = finite if thing.there is None else thing.there & finite
    radius = jnp.where(there, thing.radius, -1).astype(thing.x.dtype)
    return jnp.concatenate([jnp.where(there[..., None], thing.x, 0), radius[..., None]], -1)[:, :, None]


def _first(lengths: Any, rows: Array, origin: Array, direction: Array) -> Array:
    """Least of the lengths of each ray, (ray,), of one world: those to all rows only to find which is least."""
    fixed = jax.lax.stop_gradient(rows)

    def choose(ray: tuple[Array, Array]) -> Array:
        return jnp.argmin(lengths(fixed, *ray))

    which = jax.lax.map(choose, jax.lax.stop_gradient((origin, direction)))
    return jax.vmap(lambda row, o, d: lengths(row[None], o, d)[0])(rows[which], origin, direction)


def _to_balls(rows: Array, origin: Array, direction: Array) -> Array:
    """To the surface of each ball, from outside or inside; infinite where there is none, (ball,)."""
    p, radius = origin[None] - rows[:, 0, :3], rows[:, 0, 3]
    b = jnp.sum(p * direction[None], -1)
    square = radius**2 - jnp.sum((p - b[:, None] * direction[None]) ** 2, -1)
    hit = (square > 0) & (radius > 0)
    root = jnp.sqrt(jnp.where(hit, square, 1))
    t = jnp.where(root < -b, -b - root, root - b)
    return jnp.where(hit & (t >= 0), t, jnp.inf)


def _to_triangles(rows: Array, origin: Array, direction: Array) -> Array:
    """To each triangle, (triangle,), by Möller and Trumbore (1997); infinite where a ray misses."""
    a, b, c = rows[:, 0], rows[:, 1], rows[:, 2]
    across = jnp.cross(direction[None], c - a)
    det = jnp.sum((b - a) * across, -1)
    hit = det != 0
    safe = jnp.where(hit, det, 1)
    arm = origin[None] - a
    u = jnp.sum(arm * across, -1) / safe
    turned = jnp.cross(arm, b - a)
    v, t = jnp.sum(direction[None] * turned, -1) / safe, jnp.sum((c - a) * turned, -1) / safe
    return jnp.where(hit & (u >= 0) & (v >= 0) & (u + v <= 1) & (t >= 0), t, jnp.inf)
