"""torch functions that ``jax.numpy`` lacks, with torch's names and NumPy's ``axis``."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from ..typing import Array, Float, Int, Num, Shaped, shaped


@shaped
def cumlogsumexp(x: Float[Array, "*shape"], axis: int = -1) -> jax.Array:
    """log of the cumulative sum of exp x along an axis. Gradients flow to x.

    Raises:
        ValueError: ``axis`` is out of range.
    """
    return _along(jax.lax.cumlogsumexp, x, axis)


@shaped
def cummax(x: Num[Array, "*shape"], axis: int = -1) -> jax.Array:
    """The largest element so far along an axis. Gradients flow to that element. Raises like :func:`cumlogsumexp`."""
    return _along(jax.lax.cummax, x, axis)


@shaped
def cummin(x: Num[Array, "*shape"], axis: int = -1) -> jax.Array:
    """The smallest element so far along an axis. Gradients flow to that element. Raises like :func:`cumlogsumexp`."""
    return _along(jax.lax.cummin, x, axis)


@shaped
def chunk(x: Shaped[Array, "*shape"], chunks: int, axis: int = 0) -> list[jax.Array]:
    """Split into pieces of size ceil(size / chunks); the last may be smaller. ``split`` needs equal pieces.

    An empty axis gives ``chunks`` empty pieces. Gradients flow to x.

    Raises:
        ValueError: ``chunks`` is not positive, or ``axis`` is out of range.
    """
    axis = _axis("axis", axis, x.shape)
    if chunks < 1:
        raise ValueError(f"chunks is {chunks}, must be at least 1")
    size = x.shape[axis]
    starts = range(0, size, -(-size // chunks)) if size else [0] * chunks
    return jnp.split(jnp.asarray(x), list(starts)[1:], axis)


@shaped
def unfold(x: Shaped[Array, "*shape"], axis: int, size: int, step: int) -> jax.Array:
    """Windows of ``size`` along an axis, one every ``step``.

    Returns:
        The axis counts the windows, and a new last axis of length ``size`` runs within each. Gradients add up where
        windows overlap.

    Raises:
        ValueError: ``size`` is negative or larger than the axis, ``step`` is below one, or ``axis`` is out of range.
    """
    axis = _axis("axis", axis, x.shape)
    length = x.shape[axis]
    if not 0 <= size <= length:
        raise ValueError(
            f"size is {size}, must be at most {length}, the size of axis {axis} of shape {x.shape}, and at least 0"
        )
    if step < 1:
        raise ValueError(f"step is {step}, must be at least 1: from the start of a window to the next one's")
    starts = np.arange(0, length - size + 1, step, dtype=np.int32)
    windows = jnp.take(x, starts[:, None] + np.arange(size, dtype=np.int32), axis)
    return jnp.moveaxis(windows, axis + 1, -1)


@shaped
def topk(x: Num[Array, "*shape"], k: int, axis: int = -1, largest: bool = True) -> tuple[jax.Array, jax.Array]:
    """The k largest (or smallest) elements along an axis, in order, and their indices.

    Returns:
        Values and int32 indices, both with ``k`` elements along the axis. Gradients flow to the chosen elements.

    Raises:
        ValueError: ``k`` is negative or larger than the axis, or ``axis`` is out of range.
    """
    _axis("axis", axis, x.shape)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"k is {k}, but axis {axis} of shape {x.shape} has {x.shape[axis]} elements")
    order = jnp.argsort(x, axis, descending=largest)
    chosen = jax.lax.slice_in_dim(order, 0, k, axis=axis)
    return jnp.take_along_axis(jnp.asarray(x), chosen, axis), chosen.astype(jnp.int32)


@shaped
def scatter_add(x: Num[Array, "..."], axis: int, index: Int[Array, "*rows"], src: Num[Array, "*rows"]) -> jax.Array:
    """Add ``src`` into ``x`` at ``index`` along one axis: x[i, index[i, j]] += src[i, j] for axis 1.

    Args:
        x: the array to add to.
        axis: the axis that ``index`` refers to.
        index: same rank as ``x``, and at most its size along the other axes. Indices outside ``x``, negative ones
            among them, are dropped.
        src: the values to add, with the shape of ``index``. Values at the same index add up.

    Returns:
        The shape of ``x``. Gradients flow to ``x`` and ``src``.
    """
    grid = list(jnp.meshgrid(*map(jnp.arange, index.shape), indexing="ij", sparse=True))
    grid[axis] = jnp.asarray(index)
    return jnp.asarray(x).at[tuple(grid)].add(src, mode="drop", wrap_negative_indices=False)


@shaped
def diag_embed(x: Shaped[Array, "*batch size"], offset: int = 0, axis1: int = -2, axis2: int = -1) -> jax.Array:
    """Matrices with the last axis of x on a diagonal, ``offset`` above the main one, and zeros elsewhere.

    Args:
        x: shape (..., n).
        offset: which diagonal; below the main one if negative.
        axis1, axis2: where the rows and columns go in the result.

    Returns:
        One axis more; rows and columns have n + abs(offset) elements. Gradients flow to x.

    Raises:
        ValueError: the two axes are the same, or one is out of range.
    """
    size = x.shape[-1] + abs(offset)
    row, column = _axis("axis1", axis1, (*x.shape, size)), _axis("axis2", axis2, (*x.shape, size))
    if row == column:
        raise ValueError(f"axis1 and axis2 are both axis {row}, must be two axes")
    wide = jnp.pad(jnp.asarray(x), [(0, 0)] * (x.ndim - 1) + [(max(offset, 0), max(-offset, 0))])
    matrices = jnp.where(jnp.eye(size, k=offset, dtype=bool), wide[..., None, :], jnp.zeros((), x.dtype))
    return jnp.moveaxis(matrices, (-2, -1), (row, column))


@shaped
def normalize(x: Float[Array, "*shape"], axis: int = -1, eps: float = 1e-12) -> jax.Array:
    """x / max(|x|, eps) along an axis. Gradients flow to x; at x = 0 the gradient is that of x / eps."""
    wide = _wide(x)
    return (wide / jnp.maximum(_length(wide, axis, keepdims=True), eps)).astype(x.dtype)


@shaped
def cosine_similarity(
    a: Float[Array, "*shape"], b: Float[Array, "*shape"], axis: int = -1, eps: float = 1e-8
) -> jax.Array:
    """a·b / (max(|a|, eps) max(|b|, eps)) along an axis, which is removed. Gradients flow to both; finite at zero."""
    one, other = _wide(a), _wide(b)
    lengths = jnp.maximum(_length(one, axis), eps) * jnp.maximum(_length(other, axis), eps)
    return (jnp.sum(one * other, axis) / lengths).astype(jnp.result_type(a, b))


@shaped
def cdist(
    a: Float[Array, "*batch n dim"], b: Float[Array, "*batch m dim"], p: float = 2.0
) -> Float[Array, "*batch n m"]:
    """Distances between all pairs in the p-norm; p may be 0 (how many coordinates differ) or infinite.

    They use differences, not squared norms, so small distances are accurate. Gradients flow to both; where two points
    coincide the gradient is zero.

    Raises:
        ValueError: p is negative.
    """
    if not p >= 0:
        raise ValueError(f"p is {p}, must be 0 or more")
    return _distance(_wide(a)[..., :, None, :] - _wide(b)[..., None, :, :], p).astype(jnp.result_type(a, b))


def _axis(name, axis, shape):
    """The axis, counted from the first one. A single number has one axis, as in torch."""
    count = max(len(shape), 1)
    if not -count <= axis < count:
        raise ValueError(f"{name} is {axis}, must be from {-count} to {count - 1} for shape {shape}")
    return axis % count


def _along(function, x, axis):
    return function(jnp.atleast_1d(x), _axis("axis", axis, x.shape)).reshape(x.shape)


def _distance(apart, p):
    """The p-norm over the last axis."""
    if p == 2:
        return _length(apart, -1)
    if p == 0:
        return jnp.sum(apart != 0, -1).astype(apart.dtype)
    size = jnp.sign(apart) * apart  # |d| with a gradient of zero at zero
    if p == math.inf:
        return jnp.max(size, -1, initial=0)
    if p == 1:
        return jnp.sum(size, -1)
    total = jnp.sum(jnp.where(size != 0, jnp.where(size != 0, size, jnp.ones((), size.dtype)) ** p, 0 * size), -1)
    return jnp.where(total != 0, jnp.where(total != 0, total, jnp.ones((), size.dtype)) ** (1 / p), 0 * total)


def _wide(x):
    """At least float32: squares in float16 overflow from 256 on and vanish below 1e-4."""
    return jnp.asarray(x) if x.dtype.itemsize >= 4 else jnp.asarray(x).astype(jnp.float32)


def _length(x, axis, keepdims=False):
    """|x|. At zero the gradient is zero, not NaN, because the root's argument is guarded."""
    square = jnp.sum(jnp.square(x), axis, keepdims=keepdims)
    nonzero = square != 0  # NaN stays NaN
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, square, jnp.ones((), x.dtype))), jnp.zeros((), x.dtype))
