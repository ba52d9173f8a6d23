"""What torch has and ``jax.numpy`` lacks, with torch's names and NumPy's ``axis``."""

import jax
import jax.numpy as jnp
import numpy as np

from ..typing import Array, Bool, Float, Int, Num, Shaped, shaped


@shaped
def lerp(start: Float[Array, "*shape"], end: Float[Array, "*shape"], weight: jax.typing.ArrayLike) -> jax.Array:
    """start + weight (end - start).

    Args:
        start, end: of one shape.
        weight: a number, or an array of the same shape.

    Returns:
        The same shape. Gradients flow to all three.
    """
    return start + weight * (end - start)


@shaped
def frac(x: Float[Array, "*shape"]) -> jax.Array:
    """x - trunc(x), the part behind the point with the sign of x. The gradient is one."""
    return x - jnp.trunc(x)


@shaped
def flatten(x: Shaped[Array, "*shape"], start_axis: int = 0, end_axis: int = -1) -> jax.Array:
    """Join the axes from ``start_axis`` to ``end_axis``, both included."""
    start, end = start_axis % x.ndim, end_axis % x.ndim
    return jnp.reshape(x, (*x.shape[:start], -1, *x.shape[end + 1 :]))


@shaped
def chunk(x: Shaped[Array, "*shape"], chunks: int, axis: int = 0) -> list[jax.Array]:
    """Split into pieces of ceil(size / chunks), the last one smaller; ``split`` wants equal ones.

    Raises:
        ValueError: ``chunks`` is not positive.
    """
    if chunks < 1:
        raise ValueError(f"chunks is {chunks}, must be at least 1")
    size = x.shape[axis]
    return jnp.split(jnp.asarray(x), list(range(0, size, max(1, -(-size // chunks))))[1:], axis)


@shaped
def unfold(x: Shaped[Array, "*shape"], axis: int, size: int, step: int) -> jax.Array:
    """Windows of ``size`` along an axis, one every ``step``.

    Returns:
        The axis counts the windows, and a new last axis of length ``size`` runs inside each. The gradient adds up where
        windows overlap.

    Raises:
        ValueError: the window is longer than the axis.
    """
    if size > x.shape[axis]:
        raise ValueError(f"size is {size}, but axis {axis} of shape {x.shape} has only {x.shape[axis]}: a smaller size")
    starts = np.arange(0, x.shape[axis] - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size), axis)
    return jnp.moveaxis(windows, axis % x.ndim + 1, -1)


@shaped
def topk(x: Num[Array, "*shape"], k: int, axis: int = -1, largest: bool = True) -> tuple[jax.Array, jax.Array]:
    """The k largest (or smallest) along an axis, in order, and where they stood.

    Returns:
        Values and int32 indices, both with ``k`` along the axis. The gradient goes to the chosen elements.

    Raises:
        ValueError: ``k`` is larger than the axis.
    """
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"k is {k}, but axis {axis} of shape {x.shape} has {x.shape[axis]} elements")
    order = jnp.argsort(x, axis, descending=largest)
    chosen = jax.lax.slice_in_dim(order, 0, k, axis=axis)
    return jnp.take_along_axis(jnp.asarray(x), chosen, axis), chosen.astype(jnp.int32)


@shaped
def kthvalue(x: Num[Array, "*shape"], k: int, axis: int = -1) -> tuple[jax.Array, jax.Array]:
    """The k-th smallest along an axis, counted from one, and where it stands; the axis is gone.

    Raises:
        ValueError: ``k`` is not between 1 and the size of the axis.
    """
    if not 1 <= k <= x.shape[axis]:
        raise ValueError(f"k is {k}, must be from 1 to {x.shape[axis]}, the size of axis {axis} of shape {x.shape}")
    values, indices = topk(x, k, axis, largest=False)
    return jnp.take(values, k - 1, axis), jnp.take(indices, k - 1, axis)


@shaped
def masked_fill(x: Shaped[Array, "*shape"], mask: Bool[Array, "*#shape"], value: jax.typing.ArrayLike) -> jax.Array:
    """``value`` where the mask is true, else x. Gradients flow to x where it is kept, and to the value."""
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


@shaped
def scatter_add(x: Num[Array, "..."], axis: int, index: Int[Array, "*rows"], src: Num[Array, "*rows"]) -> jax.Array:
    """Add ``src`` into ``x`` at ``index`` along one axis: x[i, index[i, j]] += src[i, j] for axis 1.

    Args:
        x: what to add to.
        axis: which axis the index counts along.
        index: the rank of ``x``; along the other axes at most its size. What lies outside ``x`` is dropped.
        src: what to add, of the shape of ``index``. The same place may come several times.

    Returns:
        The shape of ``x``. Gradients flow to ``x`` and ``src``.
    """
    grid = list(jnp.meshgrid(*map(jnp.arange, index.shape), indexing="ij", sparse=True))
    grid[axis] = jnp.asarray(index)
    return jnp.asarray(x).at[tuple(grid)].add(src, mode="drop")


@shaped
def index_add(x: Num[Array, "..."], axis: int, index: Int[Array, " rows"], src: Num[Array, "..."]) -> jax.Array:
    """Add the slices of ``src`` to those slices of ``x`` that ``index`` names: x[:, index[j]] += src[:, j] for axis 1.

    Gradients flow to ``x`` and ``src``; what lies outside ``x`` is dropped.
    """
    return jnp.asarray(x).at[(slice(None),) * (axis % x.ndim) + (index,)].add(src, mode="drop")


@shaped
def index_copy(x: Shaped[Array, "..."], axis: int, index: Int[Array, " rows"], src: Shaped[Array, "..."]) -> jax.Array:
    """As :func:`index_add`, but put in place of what was there."""
    return jnp.asarray(x).at[(slice(None),) * (axis % x.ndim) + (index,)].set(src, mode="drop")


@shaped
def diag_embed(x: Shaped[Array, "*batch size"]) -> Shaped[Array, "*batch size size"]:
    """Matrices that have the last axis as their diagonal."""
    return jnp.where(jnp.eye(x.shape[-1], dtype=bool), x[..., None], jnp.zeros((), x.dtype))


@shaped
def addmm(
    x: Num[Array, "rows columns"], a: Num[Array, "rows inner"], b: Num[Array, "inner columns"], beta=1, alpha=1
) -> Num[Array, "rows columns"]:
    """beta x + alpha a b. Gradients flow to x, a and b."""
    return beta * x + alpha * (a @ b)


@shaped
def normalize(x: Float[Array, "*shape"], axis: int = -1, eps: float = 1e-12) -> jax.Array:
    """x / max(|x|, eps) along an axis. At x = 0 the gradient is that of x / eps."""
    return x / jnp.maximum(_length(x, axis, keepdims=True), eps)


@shaped
def cosine_similarity(
    a: Float[Array, "*shape"], b: Float[Array, "*shape"], axis: int = -1, eps: float = 1e-8
) -> jax.Array:
    """a·b / (max(|a|, eps) max(|b|, eps)) along an axis, which is gone. The gradient is finite at zero."""
    lengths = jnp.maximum(_length(a, axis), eps) * jnp.maximum(_length(b, axis), eps)
    return jnp.sum(a * b, axis) / lengths


@shaped
def cdist(a: Float[Array, "*batch n dim"], b: Float[Array, "*batch m dim"]) -> Float[Array, "*batch n m"]:
    """Euclidean distances between all pairs, from the differences and not from squares, so that near ones are exact.

    The gradient of the distance of a point to itself is zero.
    """
    return _length(a[..., :, None, :] - b[..., None, :, :], -1)


def _length(x, axis, keepdims=False):
    """|x|; at zero the gradient is zero, not NaN: the root is guarded at its argument."""
    square = jnp.sum(jnp.square(x), axis, keepdims=keepdims)
    nonzero = square > 0
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, square, jnp.ones((), x.dtype))), jnp.zeros((), x.dtype))
