"""Normalisation that keeps its digits when the mean is large compared with the deviation.

Flax computes a variance as E[x²] - E[x]², which cancels: in float32 a mean of 1000 deviations leaves no digit. Here the
mean is subtracted first. No gradient flows through that mean, and none is missing: normalisation does not depend on a
constant that is added to its input, so flax's formula of the shifted input has the exact derivatives of every order.
The rounding error of the mean that is subtracted cancels as well (the corrected two-pass algorithm of Chan, Golub and
LeVeque 1983).
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Array = jax.Array


class LayerNorm(nnx.LayerNorm):
    """:class:`flax.nnx.LayerNorm` with torch's epsilon, accurate for any mean."""

    def __init__(self, num_features: int, *, epsilon: float = 1e-5, rngs: nnx.Rngs, **options: Any):
        super().__init__(num_features, epsilon=epsilon, rngs=rngs, **options)

    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalise over the last axis, or ``reduction_axes``. The result has the shape of ``x``.

        Numbers where ``mask``, bool, is False do not count for mean and variance. Gradients flow to ``x`` and the
        parameters.
        """
        wide = _wide(x)
        y = super().__call__(wide - _middle(self, wide, self.reduction_axes, mask), mask=mask)
        return y.astype(_kind(self, x))


class GroupNorm(nnx.GroupNorm):
    """:class:`flax.nnx.GroupNorm` with torch's epsilon, accurate for any mean."""

    def __init__(
        self, num_features: int, num_groups: int | None = 32, *, epsilon: float = 1e-5, rngs: nnx.Rngs, **options: Any
    ):
        super().__init__(num_features, num_groups, epsilon=epsilon, rngs=rngs, **options)

    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalise (batch, ..., channel) in groups of channels. The result has the shape of ``x``.

        Numbers where ``mask``, bool, is False do not count for mean and variance. Gradients flow to ``x`` and the
        parameters.
        """
        axes = range(1, x.ndim - 1) if self.reduction_axes is None else _positive(x, self.reduction_axes)[:-1]
        groups = (self.num_groups, self.group_size)
        grouped = _wide(x).reshape(*x.shape[:-1], *groups)
        mask = None if mask is None else jnp.broadcast_to(mask, x.shape)
        hidden = None if mask is None else mask.reshape(grouped.shape)
        shifted = grouped - _middle(self, grouped, (*axes, -1), hidden)
        return super().__call__(shifted.reshape(x.shape), mask=mask).astype(_kind(self, x))


class InstanceNorm(nnx.InstanceNorm):
    """:class:`flax.nnx.InstanceNorm` with torch's epsilon, accurate for any mean."""

    def __init__(self, num_features: int, *, epsilon: float = 1e-5, rngs: nnx.Rngs, **options: Any):
        super().__init__(num_features, epsilon=epsilon, rngs=rngs, **options)

    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalise each channel of each example of (batch, ..., channel). The result has the shape of ``x``.

        Numbers where ``mask``, bool, is False do not count for mean and variance. Gradients flow to ``x`` and the
        parameters.
        """
        axes = [axis for axis in range(1, x.ndim) if axis not in _positive(x, self.feature_axes)]
        wide = _wide(x)
        return super().__call__(wide - _middle(self, wide, axes, mask), mask=mask).astype(_kind(self, x))


class BatchNorm(nnx.BatchNorm):
    """:class:`flax.nnx.BatchNorm`, accurate for any mean. ``momentum`` 0.9 is torch's 0.1."""

    def __init__(self, num_features: int, *, momentum: float = 0.9, rngs: nnx.Rngs, **options: Any):
        super().__init__(num_features, momentum=momentum, rngs=rngs, **options)

    def __call__(self, x: Array, use_running_average: bool | None = None, *, mask: Array | None = None) -> Array:
        """Normalise (batch, ..., channel) over all axes but the channel's. The result has the shape of ``x``.

        ``use_running_average`` says whether by the running statistics; if it is None, the module does.
        Numbers where ``mask``, bool, is False do not count for mean and variance. Gradients flow to ``x`` and the
        parameters; in evaluation to the statistics, in training not.
        """
        running = self.use_running_average if use_running_average is None else use_running_average
        if running:
            return super().__call__(x, True, mask=mask)
        axes = [axis for axis in range(x.ndim) if axis not in _positive(x, self.axis)]
        wide = _wide(x)
        middle = _middle(self, wide, axes, mask)
        y = super().__call__(wide - middle, False, mask=mask)
        self.mean[...] += (1 - self.momentum) * middle.reshape(self.mean.shape).astype(self.mean.dtype)
        return y.astype(_kind(self, x))


def _middle(norm: Any, x: Array, axes: int | Sequence[int], mask: Array | None) -> Array:
    """The mean over ``axes``, which are kept with size 1; without a gradient.

    Zero for bfloat16: flax computes it in float32, which has digits enough for the eight bits that it holds.
    """
    axes = _positive(x, axes)
    kind = jnp.dtype(jnp.promote_types(norm.dtype or x.dtype, x.dtype))
    if kind.itemsize < 4:
        return jnp.zeros([1 if axis in axes else size for axis, size in enumerate(x.shape)], x.dtype)
    mean = x.mean(axes, keepdims=True, where=mask)
    if norm.axis_name is not None:
        mean = jax.lax.pmean(mean, norm.axis_name, axis_index_groups=norm.axis_index_groups)
    return jax.lax.stop_gradient(mean)


def _wide(x: Array) -> Array:
    """Float16 in float32: it holds eleven bits, of which the square of a large mean leaves none in float32."""
    return jnp.asarray(x, jnp.float32 if x.dtype == jnp.float16 else None)


def _kind(norm: Any, x: Array) -> Any:
    """The type of the output: that of input, parameters and statistics together, unless the norm has its own."""
    own = [getattr(norm, name, None) for name in ("scale", "bias", "mean", "var")]
    return norm.dtype or functools.reduce(jnp.promote_types, [v[...].dtype for v in own if v is not None], x.dtype)


def _positive(x: Array, axes: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(axis % x.ndim for axis in ([axes] if isinstance(axes, int) else axes))
