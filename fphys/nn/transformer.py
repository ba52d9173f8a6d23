"""The transformer block of vision transformers and GPT."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.attention import dot_product_attention_weights
from jax.core import Tracer

from .layers import Dropout
from .linear import Linear, dot_general
from .norms import LayerNorm

Array = jax.Array

__all__ = ["SPLIT", "MultiHeadAttention", "TransformerBlock", "attention"]

SPLIT: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    (r"(attention|attn)\.(query|key|value)\.kernel", (None, "model", None)),
    (r"(attention|attn)\.(query|key|value)\.bias", ("model", None)),
    (r"(attention|attn)\.out\.kernel", ("model", None, None)),
    (r"\b(up|linear1)\.kernel", (None, "model")),
    (r"\b(up|linear1)\.bias", ("model",)),
    (r"\b(down|linear2)\.kernel", ("model", None)),
)
"""How devices share a block's weights, for :func:`fphys.distributed.place`: each has some of the heads and some of the
MLP's neurons, so that two sums over devices are left, at the ends of attention and MLP (Shoeybi et al. 2019)."""


def attention(query: Array, key: Array, value: Array, **options: Any) -> Array:
    """softmax(Q Kᵀ / √d) V (Vaswani 2017) in the arrays' own precision.

    ``flax.nnx.dot_product_attention`` rounds the scores to float32, so it is used only for smaller types. Float64 keeps
    its precision, and in float32 two plain products are faster on a CPU.

    Args:
        query, key, value: shape (..., position, head, d).
        options: what :class:`flax.nnx.MultiHeadAttention` passes on, such as dropout, and ``mask``, which broadcasts to
            (..., head, query position, key position).

    Returns:
        Shape (..., position, head, d). Gradients flow to query, key and value.
    """
    if options.get("is_causal") and (mask := options.get("mask")) is not None:
        size = (*mask.shape[:-2], query.shape[-3], key.shape[-3])
        options["mask"] = jnp.broadcast_to(mask, size)  # flax gives the causal mask the other one's shape
    small = functools.partial(nnx.dot_product_attention, **options)
    if query.dtype == jnp.float16:  # XLA has no such products on a CPU
        return jax.lax.platform_dependent(query, key, value, cpu=functools.partial(_wide, **options), default=small)
    if query.dtype.itemsize < 4:
        return small(query, key, value)
    return jnp.einsum("...hqk,...khd->...qhd", dot_product_attention_weights(query, key, **options), value)


def _wide(query: Array, key: Array, value: Array, **options: Any) -> Array:
    """Attention in float32, rounded to the arrays' own precision."""
    return attention(*(a.astype(jnp.float32) for a in (query, key, value)), **options).astype(query.dtype)


def exact_gelu(x: Array) -> Array:
    """x Φ(x), shape (...), which torch calls "gelu"; ``nn.gelu`` approximates it by default."""
    return nnx.gelu(x, approximate=False)


class MultiHeadAttention(nnx.MultiHeadAttention):
    """:class:`flax.nnx.MultiHeadAttention` in its inputs' own precision, with :func:`attention` and one product each.

    Called with (batch, position, features). ``decode`` is off unless it is asked for, and each dropout is separate.

    With ``decode=True``, after ``init_cache((batch, length, features))``, it takes one position at a time and is
    causal: the keys and values before it are in the cache, which is part of ``aux``.
    """

    def __init__(self, num_heads: int, in_features: int, *, rngs: nnx.Rngs, **options: Any):
        own = {"attention_fn": attention, "qkv_dot_general": dot_general, "out_dot_general": dot_general}
        own |= {"broadcast_dropout": False, "decode": False}
        super().__init__(num_heads, in_features, rngs=rngs, **(own | options))

    def __call__(self, inputs_q: Array, *args: Any, **options: Any) -> Array:
        """Attend; arguments are :class:`flax.nnx.MultiHeadAttention`'s. Gradients flow to inputs and parameters.

        ``inputs_q`` has shape (batch, position, features), and by default so has the result.

        Raises:
            ValueError: there is no room in the cache. Under ``jit`` this cannot be seen; the result is NaN then.
        """
        own = options.get("decode")
        if not (self.decode if own is None else own):
            return super().__call__(inputs_q, *args, **options)
        options["is_causal"] = False  # the cache's mask is; one of (1, length) would leave the first key alone
        if self.cached_key is None or self.cache_index is None:
            return super().__call__(inputs_q, *args, **options)  # flax says what is missing
        index, length = self.cache_index[...], self.cached_key.shape[-3]
        if not isinstance(index, Tracer) and index >= length:
            raise ValueError(
                f"the cache has room for {length} positions, and all are taken: init_cache for more, or begin with a "
                "new aux"
            )
        y = super().__call__(inputs_q, *args, **options)
        return jnp.where(index < length, y, jnp.full_like(y, jnp.nan))


class TransformerBlock(nnx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): pre-normalised (Xiong 2020)."""

    def __init__(
        self,
        features: int,
        num_heads: int,
        hidden_features: int | None = None,
        *,
        causal: bool = False,
        activation: Callable[[Array], Array] = nnx.gelu,
        dropout: float = 0.0,
        epsilon: float = 1e-5,
        rngs: nnx.Rngs,
    ):
        """Build the block.

        Args:
            features: size of the last axis of input and output.
            num_heads: attention heads; must divide ``features``.
            hidden_features: width of the MLP; four times ``features`` by default.
            causal: whether a position sees only itself and earlier ones.
            activation: of the MLP.
            dropout: rate on the attention weights and on both branches, when training.
            epsilon: added to the variance in both norms.
            rngs: for the parameters and the dropout.

        Raises:
            ValueError: ``num_heads`` does not divide ``features``.
        """
        if features % num_heads:
            raise ValueError(f"features is {features}, must be a multiple of num_heads, {num_heads}")
        wide = hidden_features or 4 * features
        self.causal, self.activation = causal, activation
        self.norm1 = LayerNorm(features, epsilon=epsilon, rngs=rngs)
        self.attention = MultiHeadAttention(num_heads, features, dropout_rate=dropout, rngs=rngs)
        self.norm2 = LayerNorm(features, epsilon=epsilon, rngs=rngs)
        self.up = Linear(features, wide, rngs=rngs)
        self.down = Linear(wide, features, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        """Run the block.

        Args:
            x: shape (batch, position, features).
            mask: which positions attend to which, bool, shape (batch, 1 or head, 1 or position, position); True
                attends.

        Returns:
            The shape of ``x``. Gradients flow to ``x`` and the parameters.
        """
        x = x + self.dropout(self.attention(self.norm1(x), mask=mask, is_causal=self.causal))
        return x + self.dropout(self.down(self.activation(self.up(self.norm2(x)))))
