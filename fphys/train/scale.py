"""A loss scale that shrinks when gradients overflow and grows again."""

import jax
import jax.numpy as jnp

from ..tree import Tree, pytree, static

Array = jax.Array


@pytree
class LossScale(Tree):
    """The factor on the loss before it is differentiated (Micikevicius et al. 2018; torch's ``GradScaler``).

    After ``interval`` finite gradients in a row the factor doubles. A gradient that is not finite halves it, down to
    one. If it begins as a power of two it stays one, so scaling loses no accuracy.
    """

    value: Array
    """The factor, float32, shape ()."""
    finite_in_a_row: Array
    """Finite gradients since the last change, int32, shape ()."""
    interval: int = static(default=2000)

    def update(self, finite: Array) -> "LossScale":
        """The next scale. ``finite``, bool of shape (), says whether the gradient was finite."""
        grown = self.finite_in_a_row + 1 >= self.interval
        up = jnp.where(grown, 2 * self.value, self.value)
        down = jnp.maximum(self.value / 2, 1.0)
        return self.replace(
            value=jnp.where(finite, up, down),
            finite_in_a_row=jnp.where(finite & ~grown, self.finite_in_a_row + 1, 0),
        )


def init(value: float = 2.0**15, interval: int = 2000) -> LossScale:
    """The initial scale.

    Raises:
        ValueError: ``value`` or ``interval`` is below one.
    """
    if value < 1 or interval < 1:
        raise ValueError(f"loss scale {value} with interval {interval}: both must be at least 1")
    return LossScale(jnp.float32(value), jnp.int32(0), interval)
