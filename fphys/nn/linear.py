"""Linear layers that compute their products and gradients as matrix products."""

import math
from typing import Any

import jax
from flax import nnx
from jax import lax

Array = jax.Array


def dot_general(x: Array, kernel: Array, dimension_numbers: Any, precision: Any = None, **options: Any) -> Array:
    """``jax.lax.dot_general`` for layers. It flattens the leading axes of ``x`` into one.

    A kernel's gradient sums over all leading axes. If there are two or more, as in (batch, time, features), XLA writes
    a transposed copy of the incoming gradient and multiplies it at half the speed on a CPU (docs/decisions, page 12).

    Args:
        x: shape (..., in...).
        kernel: shape (in..., out...).
        dimension_numbers, precision, options: as in ``jax.lax.dot_general``. If there are batch axes, or the summed
            axes are not the last of ``x`` and the first of ``kernel``, ``jax.lax.dot_general`` is called unchanged.

    Returns:
        Shape (..., out...). Gradients flow to ``x`` and ``kernel``.
    """
    (summed, of_kernel), batch = dimension_numbers
    rows = x.ndim - len(summed)
    plain = tuple(summed) == tuple(range(rows, x.ndim)) and tuple(of_kernel) == tuple(range(len(of_kernel)))
    if not plain or any(batch) or options.get("out_sharding") is not None:
        return lax.dot_general(x, kernel, dimension_numbers, precision=precision, **options)
    inner, out = math.prod(x.shape[rows:]), kernel.shape[len(of_kernel) :]
    x2 = x.reshape(math.prod(x.shape[:rows]), inner)
    numbers = (((1,), (0,)), ((), ()))
    y = lax.dot_general(x2, kernel.reshape(inner, math.prod(out)), numbers, precision=precision, **options)
    return y.reshape(*x.shape[:rows], *out)


class Linear(nnx.Linear):
    """:class:`flax.nnx.Linear` as one matrix product: x W + b, ``kernel`` of shape (in, out), ``bias`` (out,)."""

    def __init__(self, in_features: int, out_features: int, *, rngs: nnx.Rngs, **options: Any):
        options = {"dot_general": dot_general} | options
        super().__init__(in_features, out_features, rngs=rngs, **options)

    def __call__(self, inputs: jax.Array, **options: Any) -> jax.Array:
        """Map shape (..., in) to (..., out). Gradients flow to the input, the kernel and the bias.

        Raises:
            ValueError: the input's last axis has another size.
        """
        if inputs.ndim < 1 or inputs.shape[-1] != self.in_features:
            raise ValueError(f"Linear takes {self.in_features} features on the last axis, the input is {inputs.shape}")
        return super().__call__(inputs, **options)
