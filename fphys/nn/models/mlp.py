"""Linear layers with activations between them."""

from collections.abc import Callable, Sequence

import jax
from flax import nnx

from ...typing import Array, Float, shaped
from ..layers import Dropout
from ..linear import Linear

_INIT = nnx.initializers.lecun_normal()


class MLP(nnx.Module):
    """Linear layers of the given widths. Activation and dropout follow all but the last."""

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        out_features: int,
        *,
        activation: Callable[[jax.Array], jax.Array] = nnx.relu,
        dropout: float = 0.0,
        kernel_init: nnx.Initializer = _INIT,
        last_init: nnx.Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        """Args: sizes from input to output. ``last_init`` initialises the last kernel, by default ``kernel_init``."""
        sizes = [in_features, *hidden, out_features]
        inits = [kernel_init] * len(hidden) + [last_init or kernel_init]
        self.layers = nnx.List(
            Linear(a, b, kernel_init=init, rngs=rngs) for a, b, init in zip(sizes, sizes[1:], inits, strict=False)
        )
        self.activation = activation
        self.dropout = Dropout(dropout, rngs=rngs)

    @shaped
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch out"]:
        """Map shape (..., in_features) to (..., out_features). Gradients flow to ``x`` and the parameters."""
        *hidden, last = self.layers
        for layer in hidden:
            x = self.dropout(self.activation(layer(x)))
        return last(x)
