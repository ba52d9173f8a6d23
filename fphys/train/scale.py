"""A loss scale that backs off where gradients overflow, and grows again."""

import jax
import jax.numpy as jnp

from ..tree import Tree, pytree, static

Array = jax.Array


@pytree
class LossScale(Tree):
    """The factor between the loss and what is differentiated (Micikevicius et al. 2018; torch's ``GradScaler``).

    After ``interval`` finite gradients in a row the factor doubles; a gradient that is not finite halves it, down to
    one. Powers of two, so that scaling costs no accuracy.
    """

    value: Array
    """The factor, float32, shape ()."""
    finite_in_a_row: Array
    """Finite gradients since it last changed, int32, shape ()."""
    interval: int = static(default=2000)

    def update(self, finite: Array) -> "LossScale":
        """The scale after a gradient that was ``finite``, bool, shape (), or was not."""
        grown = self.finite_in_a_row + 1 >= self.interval
        up = jnp.where(grown, 2 * self.value, self.value)
        down = jnp.maximum(self.value / 2, 1.0)
        return self.replace(
            value=jnp.where(finite, up, down),
            finite_in_a_row=jnp.where(finite & ~grown, self.finite_in_a_row + 1, 0),
        )


def init(value: float = 2.0**15, interval: int = 2000) -> LossScale:
    """A scale to start from.

    Raises:
        ValueError: ``value`` or ``interval`` is below one.
    """
    if value < 1 or interval < 1:
        raise ValueError(f"loss scale {value} with interval {interval}: both must be at least 1")
    return LossScale(jnp.float32(value), jnp.int32(0), interval)
