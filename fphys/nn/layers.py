"""Convolution and pooling with torch's geometry, channels last.

Flax pads by name (``"SAME"``) and takes tuples. torch pads by number and takes one number for all axes. Pretrained
weights need torch's convention: with a stride, ``"SAME"`` pads other sides than torch does.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

Array = jax.Array
Size = int | Sequence[int]

_FEW = 16  # largest window whose cells are compared one by one


class _Conv(nnx.Conv):
    """A :class:`flax.nnx.Conv` with torch's arguments. The kernel has shape (*kernel_size, in / groups, out)."""

    rank: int

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        use_bias: bool = True,
        *,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        """Args: the same as torch's. ``padding`` may be "SAME" or "VALID". ``options`` go to :class:`flax.nnx.Conv`."""
        options = {"conv_general_dilated": convolve} | options
        super().__init__(
            in_features,
            out_features,
            _axes("kernel_size", kernel_size, self.rank),
            strides=_axes("stride", stride, self.rank),
            padding=padding if isinstance(padding, str) else [(p, p) for p in _axes("padding", padding, self.rank)],
            kernel_dilation=_axes("dilation", dilation, self.rank),
            feature_group_count=groups,
            use_bias=use_bias,
            rngs=rngs,
            **options,
        )


class Conv1d(_Conv):
    """Convolution of (batch, length, channel)."""

    rank = 1


class Conv2d(_Conv):
    """Convolution of (batch, height, width, channel)."""

    rank = 2


class Conv3d(_Conv):
    """Convolution of (batch, depth, height, width, channel)."""

    rank = 3


class Embedding(nnx.Embed):
    """:class:`flax.nnx.Embed` that computes in its table's current dtype, like all other layers.

    Flax's computes in the initial dtype.
    """

    def __init__(self, num_embeddings: int, features: int, *, rngs: nnx.Rngs, **options: Any):
        super().__init__(num_embeddings, features, rngs=rngs, **options)
        self.dtype = options.get("dtype")  # type: ignore[assignment]


class Dropout(nnx.Dropout):
    """:class:`flax.nnx.Dropout`.

    Raises:
        ValueError: ``rate`` is not from 0 to 1.
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs | None = None, **options: Any):
        if not 0 <= rate <= 1:
            raise ValueError(f"rate is {rate}, must be from 0 to 1: the share of numbers that become zero")
        super().__init__(rate, rngs=rngs, **options)


@dataclasses.dataclass(frozen=True)
class MaxPool2d:
    """The maximum of each window of (..., height, width, channel). ``stride`` defaults to the window's size.

    The gradient goes to the largest element of each window. Where windows do not overlap, ties go to the first
    element, as in torch.

    Raises (when called, like all pools):
        ValueError: the window is larger than the padded image, a size or stride is below one, or the padding is larger
            than half of the window.
    """

    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0

    def __call__(self, x: Array) -> Array:
        images = _images(x)
        window, stride, padding = _window(self, images)
        if stride == window and not any(padding):
            blocks = _blocks(images, window)
            y = _largest(blocks) if math.prod(window) <= _FEW else blocks.max((2, 4))
        else:
            y = nnx.pool(images, -jnp.inf, jax.lax.max, window, stride, [(p, p) for p in padding])
        return y.reshape(*x.shape[:-3], *y.shape[1:])


@dataclasses.dataclass(frozen=True)
class MaxPool1d:
    """The maximum of each window of (..., length, channel). ``stride`` defaults to the window's size."""

    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0

    def __call__(self, x: Array) -> Array:
        return _highest(self, x, 1)


@dataclasses.dataclass(frozen=True)
class MaxPool3d:
    """The maximum of each window of (..., depth, height, width, channel). ``stride`` defaults to the window's size."""

    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0

    def __call__(self, x: Array) -> Array:
        return _highest(self, x, 3)


@dataclasses.dataclass(frozen=True)
class AvgPool2d:
    """The mean of each window of (..., height, width, channel). Padding counts as zeros, as in torch.

    Means of integers are floating-point.
    """

    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0

    def __call__(self, x: Array) -> Array:
        x = _real(x)
        images = _images(x)
        window, stride, padding = _window(self, images)
        wide = images.astype(jnp.float32) if images.dtype.itemsize < 4 else images  # a sum overflows float16
        total = nnx.pool(wide, 0.0, jax.lax.add, window, stride, [(p, p) for p in padding])
        return (total / float(math.prod(window))).astype(x.dtype).reshape(*x.shape[:-3], *total.shape[1:])


@dataclasses.dataclass(frozen=True)
class AdaptiveAvgPool2d:
    """Mean over (height, width) onto a grid of the given size. Cell i of n covers [⌊i H / n⌋, ⌈(i + 1) H / n⌉).

    Means of integers are floating-point.
    """

    output_size: Size

    def __call__(self, x: Array) -> Array:
        rows, columns = _axes("output_size", self.output_size, 2)
        x = _real(x)
        if (rows, columns) == (1, 1):
            return x.mean((-3, -2), keepdims=True)
        down, across = _means(x.shape[-3], rows, x.dtype), _means(x.shape[-2], columns, x.dtype)
        return jnp.einsum("...hwc,ih,jw->...ijc", x, down, across)


@dataclasses.dataclass(frozen=True)
class Flatten:
    """(batch, ...) to (batch, everything). In an image the channel varies fastest; in torch the width does."""

    def __call__(self, x: Array) -> Array:
        return x.reshape(x.shape[0], -1)


@dataclasses.dataclass(frozen=True)
class Identity:
    """Return x unchanged."""

    def __call__(self, x: Array) -> Array:
        return x


def convolve(x: Array, kernel: Array, strides: Sequence[int], padding: Any, **options: Any) -> Array:
    """``jax.lax.conv_general_dilated`` for layers. An image smaller than the kernel takes one matrix product.

    For such an image XLA swaps image and kernel, and on a CPU no library runs the result: 230 ms for a 2 x 2 image
    with 256 channels and a batch of 64 (docs/decisions, page 12).

    Args:
        x: shape (batch, *image, in).
        kernel: shape (*window, in / groups, out).
        strides, padding, options: as in ``jax.lax.conv_general_dilated``.

    Returns:
        Shape (batch, *image, out). Gradients flow to ``x`` and ``kernel``.
    """
    image, window, ones = x.shape[1:-1], kernel.shape[:-2], (1,) * (x.ndim - 2)
    dilation = options.get("rhs_dilation") or ones
    if isinstance(padding, str):
        wide = [d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True)]
        padding = jax.lax.padtype_to_pads(image, wide, strides, padding)
    reaches = [_reach(*axis) for axis in zip(image, window, strides, padding, dilation, strict=True)]
    out = tuple(reach.shape[2] for reach in reaches)
    small = max(math.prod(image), math.prod(out)) <= math.prod(window) > math.prod(image)
    plain = options.get("feature_group_count", 1) == 1 and tuple(options.get("lhs_dilation") or ones) == ones
    if not (small and plain) or options.get("preferred_element_type") or options.get("out_sharding"):
        return jax.lax.conv_general_dilated(_stored(x), kernel, strides, padding, **options)
    for reach in reaches:  # (window, ..., in, out) to (in, out, cell of the image, cell of the result, ...)
        cells = jnp.asarray(reach, kernel.dtype)
        kernel = jnp.tensordot(kernel, cells, ((0,), (0,)), precision=jax.lax.Precision.HIGHEST)
    kernel = kernel.transpose(*range(2, kernel.ndim, 2), 0, *range(3, kernel.ndim, 2), 1)
    inner, outer = math.prod(x.shape[1:]), math.prod(out) * kernel.shape[-1]
    y = jnp.dot(x.reshape(x.shape[0], inner), kernel.reshape(inner, outer), precision=options.get("precision"))
    return y.reshape(x.shape[0], *out, kernel.shape[-1])


@jax.custom_jvp
def _stored(x: Array) -> Array:
    """Return x, stored in memory when derivatives are taken.

    The kernel's derivative transposes x. If x were fused into it, it would be computed again in a slow order. XLA on a
    CPU respects this barrier under :func:`fphys.train.compiler_options` (docs/decisions, page 12).
    """
    return x


@_stored.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return jax.lax.optimization_barrier(primals[0]), tangents[0]


def _reach(size: int, window: int, stride: int, padding: tuple[int, int], dilation: int) -> np.ndarray:
    """1 where a window cell reads an image cell for a result cell, else 0; shape (window, image, result)."""
    cells = max(0, (size + sum(padding) - dilation * (window - 1) - 1) // stride + 1)
    k, i, o = np.ogrid[:window, :size, :cells]
    return i == o * stride - padding[0] + k * dilation


def _axes(name: str, size: Size, rank: int) -> tuple[int, ...]:
    sizes = (size,) * rank if isinstance(size, int) else tuple(size)
    if len(sizes) != rank:
        raise ValueError(f"{name} is {sizes}, must be one number or {rank}, one for each axis")
    return sizes


def _window(pool: Any, images: Array) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Window, stride and padding of a pool, for each axis of images (image, ..., channel)."""
    sizes = images.shape[1:-1]
    window = _axes("kernel_size", pool.kernel_size, len(sizes))
    stride = _axes("stride", window if pool.stride is None else pool.stride, len(sizes))
    padding = _axes("padding", pool.padding, len(sizes))
    if min(*window, *stride) < 1 or min(padding) < 0:
        raise ValueError(f"{pool}: kernel_size and stride must be at least 1, padding at least 0")
    if any(2 * p > w for p, w in zip(padding, window, strict=True)):
        raise ValueError(f"{pool}: padding must be at most half of the kernel_size, or windows would hold nothing else")
    known = [axis for axis in zip(sizes, padding, window, strict=True) if isinstance(axis[0], int)]  # not left open
    if any(n + 2 * p < w for n, p, w in known):
        raise ValueError(f"{pool}: the window must fit into the image of {sizes}: use a smaller one, or padding")
    return window, stride, padding


def _highest(pool: MaxPool1d | MaxPool3d, x: Array, rank: int) -> Array:
    if x.ndim <= rank:
        raise ValueError(f"a pool over {rank} axes takes them and the channel last, got {x.shape}")
    lead = x.shape[: -rank - 1]
    flat = x.reshape(math.prod(lead), *x.shape[-rank - 1 :])
    window, stride, padding = _window(pool, flat)
    y = nnx.pool(flat, -jnp.inf, jax.lax.max, window, stride, [(p, p) for p in padding])
    return y.reshape(*lead, *y.shape[1:])


def _real(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def _images(x: Array) -> Array:
    """Flatten the leading axes: (image, height, width, channel)."""
    if x.ndim < 3:
        raise ValueError(f"a pool takes arrays of shape (..., height, width, channel), got {x.shape}")
    return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])


def _blocks(x: Array, window: tuple[int, ...]) -> Array:
    """(batch, H / h, h, W / w, w, channel). The remainder at the end of an axis is dropped."""
    (h, w), (rows, columns) = window, (x.shape[-3] // window[0], x.shape[-2] // window[1])
    return x[:, : rows * h, : columns * w].reshape(x.shape[0], rows, h, columns, w, x.shape[-1])


@jax.custom_jvp
def _largest(blocks: Array) -> Array:
    """The maximum over axes 2 and 4, not as a reduction: its gradient would keep a convolution on one thread.

    See docs/decisions, page 12.
    """
    return functools.reduce(jnp.maximum, _cells(blocks))


@_largest.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (blocks,), (tangent,) = primals, tangents
    blocks = jax.lax.optimization_barrier(blocks)  # otherwise the producer is computed again for every cell
    largest, cells = _largest(blocks), _cells(blocks)
    first = jnp.full(largest.shape, len(cells) - 1, jnp.int8)
    for number in reversed(range(len(cells) - 1)):
        first = jnp.where(cells[number] == largest, jnp.int8(number), first)
    first = jax.lax.optimization_barrier(first)
    h, w = blocks.shape[2], blocks.shape[4]
    numbers = jnp.arange(h * w, dtype=jnp.int8).reshape(1, 1, h, 1, w, 1)
    return largest, jnp.where(first[:, :, None, :, None] == numbers, tangent, 0).sum((2, 4))


def _cells(blocks: Array) -> list[Array]:
    rows = [jax.lax.index_in_dim(blocks, i, 2, keepdims=False) for i in range(blocks.shape[2])]
    return [jax.lax.index_in_dim(row, j, 3, keepdims=False) for row in rows for j in range(blocks.shape[4])]


def _means(size: int, cells: int, dtype: Any) -> Array:
    """Row i averages the inputs that cell i covers, shape (cells, size)."""
    weights = np.zeros((cells, size))
    for i in range(cells):
        start, end = i * size // cells, -(-(i + 1) * size // cells)
        weights[i, start:end] = 1 / (end - start)
    return jnp.asarray(weights, dtype)
