"""Quaternions (w, x, y, z) and rotations [-] on arrays of any leading shape; products of matrices in full precision.

Gradients flow to every argument.
"""

import jax
import jax.numpy as jnp

Array = jax.Array

EXACT = jax.lax.Precision.HIGHEST
"""By default, XLA on a GPU rounds the float32 factors of a matrix product to ten bits (TF32)."""


def matmul(a: Array, b: Array) -> Array:
    """``jnp.matmul`` [a's unit times b's] in the arrays' own precision on every device, shape (..., i, k).

    a has shape (..., i, j), b (..., j, k). Gradients flow to both.
    """
    return jnp.matmul(a, b, precision=EXACT)


def einsum(subscripts: str, *operands: Array) -> Array:
    """``jnp.einsum`` [product of the units] in the arrays' own precision on every device.

    The shape is what ``subscripts`` say. Gradients flow to all operands.
    """
    return jnp.einsum(subscripts, *operands, precision=EXACT)


def quat_mul(a: Array, b: Array) -> Array:
    """Hamilton product [-], shape (..., 4). Gradients flow to both arguments."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - jnp.sum(av * bv, -1, keepdims=True)
    return jnp.concatenate([w, aw * bv + bw * av + jnp.cross(av, bv)], -1)


def quat_unit(q: Array) -> Array:
    """q / |q| [-], shape (..., 4). The gradient is tangent to the sphere, and NaN at zero."""
    return q / jnp.linalg.norm(q, axis=-1, keepdims=True)


def quat_turned(q: Array, angle: Array) -> Array:
    """Orientations [-], shape (..., 4), turned about world axes by angles [rad], (..., 3). Gradients flow to both."""
    size = jnp.sqrt(jnp.maximum((angle**2).sum(-1, keepdims=True), 1e-24))
    turn = jnp.concatenate([jnp.cos(size / 2), jnp.sin(size / 2) / size * angle], -1)
    return quat_mul(turn, q)


def rotate(q: Array, v: Array) -> Array:
    """Rotate vectors [any unit], shape (..., 3), by unit quaternions, shape (..., 4). Gradients flow to both."""
    u = q[..., 1:]
    t = 2.0 * jnp.cross(u, v)
    return v + q[..., :1] * t + jnp.cross(u, t)


def rotation(q: Array) -> Array:
    """Rotation matrices [-], shape (..., 3, 3), of unit quaternions, shape (..., 4). Gradients flow to ``q``."""
    columns = [rotate(q, jnp.broadcast_to(jnp.eye(3, dtype=q.dtype)[i], (*q.shape[:-1], 3))) for i in range(3)]
    return jnp.stack(columns, -1)
