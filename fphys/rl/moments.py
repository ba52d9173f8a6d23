"""Running mean and variance, for observations and returns."""

from typing import Self

import jax
import jax.numpy as jnp

from ..tree import Tree, pytree

Array = jax.Array

MOST = 2.0**22
"""The largest count; what is older fades. From 2^24 on, float32 does not grow by one, and the variance would drift."""


@pytree
class Moments(Tree):
    """Mean and variance of what was seen; batches are merged without cancellation (Chan et al. 1983)."""

    count: Array  # at most MOST, ()
    mean: Array  # (n,)
    var: Array  # (n,)

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> Self:
        """Nothing seen yet: mean 0 and variance 1 of this shape, without weight."""
        return cls(jnp.float32(0), jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32))

    @classmethod
    def around(cls, x: Array) -> Self:
        """Nothing seen yet, as :meth:`zero`, with the mean of a batch, (batch, n), for the first sums to be about."""
        none = cls.zero(x.shape[1:])
        return none.replace(mean=none.update(x).mean)

    def sums(self, x: Array) -> Array:
        """Of a batch, (..., batch, n): its count, and the sums of x - mean and of its squares, (..., 1 + 2 n).

        It is one sum over the batch, hence one message if that is spread over devices. Rows that are not finite,
        or whose squares are not, are left out.
        """
        away = x.astype(jnp.float32) - self.mean.reshape(*[1] * (x.ndim - self.mean.ndim), *self.mean.shape)
        away = away.reshape(*x.shape[: x.ndim - self.mean.ndim], -1)
        square = away**2
        fine = jnp.isfinite(square).all(-1, keepdims=True)
        both = jnp.where(fine, jnp.concatenate([away, square], -1), 0)
        return jnp.concatenate([fine.astype(both.dtype), both], -1).sum(-2)

    def add(self, sums: Array) -> Self:
        """Merge a batch, given by :meth:`sums` of these moments, (1 + 2 n,).

        M' = M + s2 - s1^2 / N' with M the sum of squares about the mean so far, and N' the count with the batch. Once
        something was seen nothing large cancels there, because s1^2 <= n s2 for a batch of n: this is as exact as
        :meth:`update`. Before, it is so if the mean is near, as :meth:`around` has it.
        """
        first, second = sums[1:].reshape(2, *self.mean.shape)
        total = self.count + sums[0]
        known = jnp.maximum(total, 1e-8)
        spread = jnp.maximum(self.var * self.count + (second - first**2 / known), 0)
        var = jnp.where(total > 0, spread / known, self.var)
        return type(self)(jnp.minimum(total, MOST), self.mean + first / known, var)

    def update(self, x: Array) -> Self:
        """Merge a batch, shape (batch, n), also one far from the mean so far: two sums over it, one after the other.

        Values that are not finite are left out with their row.
        """
        x = x.astype(jnp.float32)
        fine = jnp.isfinite(x).reshape(len(x), -1).all(1)
        weight = fine.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype)
        count = jnp.maximum(weight.sum(), 1e-8)  # a batch of nothing but faults weighs next to nothing
        x = jnp.where(weight > 0, x, 0)
        mean = x.sum(0) / count
        var = (weight * (x - mean[None]) ** 2).sum(0) / count
        return self.merge(type(self)(count, mean, var))

    def merge(self, other: Self) -> Self:
        """Moments of what either has seen; of the other, something."""
        count, total, step = other.count, self.count + other.count, other.mean - self.mean
        spread = self.var * self.count + other.var * count + step**2 * (self.count * count / total)
        return type(self)(jnp.minimum(total, MOST), self.mean + step * (count / total), spread / total)

    def normalize(self, x: Array, limit: float = 10.0) -> Array:
        """(x - mean) / deviation, clipped to +-``limit``; float32, of the shape of x, (..., n)."""
        x = x.astype(jnp.float32)
        scaled = (x - self.mean.reshape(*[1] * (x.ndim - self.mean.ndim), *self.mean.shape)) / self.deviation(x.ndim)
        return jnp.clip(scaled, -limit, limit)

    def deviation(self, ndim: int) -> Array:
        """The standard deviation, shape (1, ..., n): of ``ndim`` axes, to broadcast over the leading ones."""
        return jnp.sqrt(self.var + 1e-8).reshape(*[1] * (ndim - self.var.ndim), *self.var.shape)
