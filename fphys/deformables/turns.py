"""Turns of frames: rotation vectors, and the shortest way from one direction to another."""

import jax
import jax.numpy as jnp

from ..math import quat_mul, quat_unit

Array = jax.Array


def axis_of(q: Array) -> Array:
    """The frame's own axis along its edge, as many as there are frames."""
    return jnp.broadcast_to(jnp.asarray([0.0, 0.0, 1.0], q.dtype), (*q.shape[:-1], 3))


def inverse(q: Array) -> Array:
    """Of a unit quaternion."""
    return q * jnp.asarray([1.0, -1.0, -1.0, -1.0], q.dtype)


def exp(turn: Array) -> Array:
    """The unit quaternion of a rotation vector [rad]."""
    square = (turn**2).sum(-1, keepdims=True)
    small = square < 1e-8
    angle = jnp.sqrt(jnp.where(small, 1, square))
    half = jnp.where(small, 0.5 - square / 48, jnp.sin(angle / 2) / angle)
    return jnp.concatenate([jnp.where(small, 1 - square / 8, jnp.cos(angle / 2)), half * turn], -1)


def log(q: Array) -> Array:
    """The rotation vector [rad] of a unit quaternion, by the shortest way."""
    q = jnp.where(q[..., :1] < 0, -q, q)
    square = (q[..., 1:] ** 2).sum(-1, keepdims=True)
    small = square < 1e-10
    sine = jnp.sqrt(jnp.where(small, 1, square))
    w = jnp.where(small, 1, q[..., :1])
    near = 2 / jnp.where(small, q[..., :1], 1) * (1 - square / 3 / jnp.where(small, q[..., :1], 1) ** 2)
    return jnp.where(small, near, 2 * jnp.arctan2(sine, w) / sine) * q[..., 1:]


def turned_by(q: Array, angle: Array) -> Array:
    """Orientations after a small turn in the world's axes [rad]."""
    return quat_mul(exp(angle), q)


def shortest(a: Array, b: Array) -> Array:
    """The turn from one unit vector to another; between opposite ones half a turn about some axis across."""
    w = 1 + (a * b).sum(-1, keepdims=True)
    opposite = w < 1e-6
    other = jnp.where(jnp.abs(a[..., :1]) < 0.9, jnp.eye(3, dtype=a.dtype)[0], jnp.eye(3, dtype=a.dtype)[1])
    across = jnp.concatenate([jnp.zeros_like(w), jnp.cross(a, other)], -1)
    return quat_unit(jnp.where(opposite, across, jnp.concatenate([w, jnp.cross(a, b)], -1)))


def frames_of(t: Array) -> Array:
    """A frame for every direction at rest. Which one is of no account: joints measure changes, and bend alike about all
    axes."""
    down = t[..., 2:] < 0
    axis = jnp.asarray([0.0, 0.0, 1.0], t.dtype)
    near = jnp.broadcast_to(axis, t.shape)
    flip = jnp.asarray([0.0, 1.0, 0.0, 0.0], t.dtype)
    turned = quat_mul(shortest(-near, jnp.where(down, t, -near)), jnp.broadcast_to(flip, (*t.shape[:-1], 4)))
    return jnp.where(down, turned, shortest(near, jnp.where(down, near, t)))
