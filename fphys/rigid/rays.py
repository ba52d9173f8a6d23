"""Rays against primitive shapes: how far along a ray its first crossing with a surface is.

Distances are in units of the ray's direction. Gradients flow to origin, direction and size; at the rim of a
shape, where another surface becomes the first, they jump.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

Array = jax.Array

PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX = 0, 2, 3, 4, 5, 6  # mjtGeom
_TINY = 1e-15


def ray_distance(shape: int, size: Array, origin: Array, direction: Array) -> Array:
    """Distance to the first crossing with a shape's surface, from outside or inside; infinite where there is none.

    Args:
        shape: mujoco.mjtGeom.
        size: MuJoCo's size parameters [m], shape (..., 3).
        origin, direction: of the ray in the shape's frame, shape (..., 3); shapes broadcast.

    Returns:
        Shape (...).
    """
    return _RAYS[shape](size, origin, direction)


def inside(shape: int, size: Array, point: Array) -> Array:
    """Whether points in the shape's frame lie in it; bool, shape (...)."""
    radius, half = size[..., 0], size[..., 1]
    across = jnp.hypot(point[..., 0], point[..., 1])
    if shape == BOX:
        return (jnp.abs(point) <= size).all(-1)
    if shape == CYLINDER:
        return (across <= radius) & (jnp.abs(point[..., 2]) <= half)
    if shape == CAPSULE:
        beyond = jnp.maximum(jnp.abs(point[..., 2]) - half, 0.0)
        return jnp.hypot(across, beyond) <= radius
    scale = size if shape == ELLIPSOID else radius[..., None]
    return ((point / scale) ** 2).sum(-1) <= 1.0


def _first(candidates: list[tuple[Array, Array]]) -> Array:
    """The smallest distance that is valid and ahead."""
    found = [jnp.where(ok & (t >= 0), t, jnp.inf) for t, ok in candidates]
    out = found[0]
    for t in found[1:]:
        out = jnp.minimum(out, t)
    return out


def _roots(a: Array, b: Array, c: Array) -> list[tuple[Array, Array]]:
    """Both solutions of a t^2 + 2 b t + c = 0, and whether they exist."""
    square = b * b - a * c
    real = (square >= _TINY) & (a >= _TINY)
    root = jnp.sqrt(jnp.where(real, square, 1.0))
    a = jnp.where(real, a, 1.0)
    return [((-b - root) / a, real), ((-b + root) / a, real)]


def _dot(a: Array, b: Array) -> Array:
    return (a * b).sum(-1)


def _divide(x: Array, y: Array) -> tuple[Array, Array]:
    ok = jnp.abs(y) > _TINY
    return x / jnp.where(ok, y, 1.0), ok


def _sphere(size: Array, p: Array, d: Array) -> Array:
    return _first(_roots(_dot(d, d), _dot(p, d), _dot(p, p) - size[..., 0] ** 2))


def _ellipsoid(size: Array, p: Array, d: Array) -> Array:
    p, d = p / size, d / size
    return _first(_roots(_dot(d, d), _dot(p, d), _dot(p, p) - 1.0))


def _plane(size: Array, p: Array, d: Array) -> Array:
    """Seen from its front; a positive size bounds what is drawn and what is hit."""
    t, ok = _divide(-p[..., 2], d[..., 2])
    for i in range(2):
        ok &= (size[..., i] <= 0) | (jnp.abs(p[..., i] + t * d[..., i]) <= size[..., i])
    return _first([(t, ok & (d[..., 2] < 0))])


def _side(size: Array, p: Array, d: Array) -> list[tuple[Array, Array]]:
    """Crossings with the round side of a cylinder along z."""
    q, e = p[..., :2], d[..., :2]
    roots = _roots(_dot(e, e), _dot(q, e), _dot(q, q) - size[..., 0] ** 2)
    return [(t, ok & (jnp.abs(p[..., 2] + t * d[..., 2]) <= size[..., 1])) for t, ok in roots]


def _capsule(size: Array, p: Array, d: Array) -> Array:
    found = _side(size, p, d)
    for sign in (-1.0, 1.0):
        shift = jnp.stack([jnp.zeros_like(size[..., 1])] * 2 + [sign * size[..., 1]], -1)
        q = p - shift
        roots = _roots(_dot(d, d), _dot(q, d), _dot(q, q) - size[..., 0] ** 2)
        found += [(t, ok & (sign * (q[..., 2] + t * d[..., 2]) >= 0)) for t, ok in roots]
    return _first(found)


def _cylinder(size: Array, p: Array, d: Array) -> Array:
    found = _side(size, p, d)
    for sign in (-1.0, 1.0):
        t, ok = _divide(sign * size[..., 1] - p[..., 2], d[..., 2])
        at = p[..., :2] + t[..., None] * d[..., :2]
        found.append((t, ok & (_dot(at, at) <= size[..., 0] ** 2)))
    return _first(found)


def _box(size: Array, p: Array, d: Array) -> Array:
    found = []
    for i in range(3):
        others = [j for j in range(3) if j != i]
        for sign in (-1.0, 1.0):
            t, ok = _divide(sign * size[..., i] - p[..., i], d[..., i])
            for j in others:
                ok &= jnp.abs(p[..., j] + t * d[..., j]) <= size[..., j]
            found.append((t, ok))
    return _first(found)


_RAYS: dict[int, Callable[[Array, Array, Array], Array]] = {
    PLANE: _plane,
    SPHERE: _sphere,
    CAPSULE: _capsule,
    ELLIPSOID: _ellipsoid,
    CYLINDER: _cylinder,
    BOX: _box,
}
