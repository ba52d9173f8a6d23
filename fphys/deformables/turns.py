"""Turns of frames: rotation vectors, and the shortest way from one direction to another."""

import jax
import jax.numpy as jnp

from ..math import quat_mul, quat_unit

Array = jax.Array


def axis_of(q: Array) -> Array:
    """The third axis of frames, in the world's axes."""
    w, x, y, z = (q[..., k] for k in range(4))
    return jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], -1)


def inverse(q: Array) -> Array:
    """Of a unit quaternion."""
    return jnp.concatenate([q[..., :1], -q[..., 1:]], -1)


def exp(turn: Array) -> Array:
    """The unit quaternion of a rotation [rad]: the inverse of :func:`log`."""
    square = (turn**2).sum(-1, keepdims=True) / 16
    return jnp.concatenate([1 - square, turn / 2], -1) / (1 + square)


def log(q: Array) -> Array:
    """The rotation [rad] of a unit quaternion, by the shortest way: axis times 4 tan(angle / 4).

    It is the angle but for the 48th part of its cube (Rodrigues' modified parameters), smooth and rational.
    """
    q = jnp.where(q[..., :1] < 0, -q, q)
    return 4 * q[..., 1:] / (1 + q[..., :1])


def turned_by(q: Array, angle: Array) -> Array:
    """Orientations after a small turn in the world's axes [rad]."""
    return quat_mul(exp(angle), q)


def roll(axis: Array, angle: Array) -> Array:
    """The unit quaternion of a turn about a unit vector by an angle [rad], shape (..., 1)."""
    return jnp.concatenate([jnp.cos(angle / 2), jnp.sin(angle / 2) * axis], -1)


def shortest(a: Array, b: Array) -> Array:
    """The turn from one unit vector to another; between opposite ones half a turn about some axis across."""
    w = 1 + (a * b).sum(-1, keepdims=True)
    opposite = w < 1e-6
    first, second = (jnp.broadcast_to(jnp.eye(3, dtype=a.dtype)[k], a.shape) for k in range(2))
    other = jnp.where(jnp.abs(a[..., :1]) < 0.9, first, second)
    across = jnp.concatenate([jnp.zeros_like(w), jnp.cross(a, other)], -1)
    return quat_unit(jnp.where(opposite, across, jnp.concatenate([w, jnp.cross(a, b)], -1)))


def frames_of(t: Array) -> Array:
    """A frame for every direction at rest: a fixed one, turned there by the shortest way.

    Which one is of no account, for joints measure changes, and bend alike about all axes; but it must not jump as the
    shape at rest changes. It does so opposite to where the fixed one points, which is along no axis.
    """
    axis, ahead = (jnp.broadcast_to(jnp.asarray(v, t.dtype), t.shape) for v in ((0.0, 0.0, 1.0), (0.48, 0.64, 0.6)))
    return quat_mul(shortest(ahead, t), shortest(axis, ahead))
