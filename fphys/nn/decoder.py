"""The transformer's decoder, as torch's (Vaswani 2017), and the same one position at a time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from .encoder import check, mlp, residual, stack
from .layers import Dropout
from .linear import Linear
from .masks import fits, visible
from .norms import LayerNorm
from .transformer import MultiHeadAttention, attention

Array = jax.Array


class DecoderCache(NamedTuple):
    """What a decoder layer keeps between positions, so that none is computed twice."""

    keys: Array
    """Of the positions so far, shape (batch, length, head, size)."""
    values: Array
    """Of the positions so far, shape (batch, length, head, size)."""
    memory_keys: Array
    """Of the encoder's output, shape (batch, memory, head, size)."""
    memory_values: Array
    """Of the encoder's output, shape (batch, memory, head, size)."""


class TransformerDecoderLayer(nnx.Module):
    """norm(x + attention(x)), norm(x + attention(x, memory)), norm(x + mlp(x)), as torch's (Vaswani 2017).

    ``norm_first`` moves the norms. Its parameters have torch's names, so :func:`fphys.nn.load_weights` accepts a state
    dict of torch's layer.
    """

    def __init__(
        self,
        features: int,
        num_heads: int,
        hidden_features: int = 2048,
        *,
        dropout: float = 0.1,
        hidden_dropout: float | None = None,
        activation: Callable[[Array], Array] = nnx.relu,
        epsilon: float = 1e-5,
        norm_first: bool = False,
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        """Build the layer. Arguments and errors are those of :class:`fphys.nn.TransformerEncoderLayer`."""
        check(features, num_heads, activation)
        self.features, self.activation, self.norm_first = features, activation, norm_first
        self.self_attn = MultiHeadAttention(num_heads, features, dropout_rate=dropout, use_bias=use_bias, rngs=rngs)
        self.multihead_attn = MultiHeadAttention(
            num_heads, features, dropout_rate=dropout, use_bias=use_bias, rngs=rngs
        )
        self.linear1 = Linear(features, hidden_features, use_bias=use_bias, rngs=rngs)
        self.linear2 = Linear(hidden_features, features, use_bias=use_bias, rngs=rngs)
        self.norm1 = LayerNorm(features, epsilon=epsilon, use_bias=use_bias, rngs=rngs)
        self.norm2 = LayerNorm(features, epsilon=epsilon, use_bias=use_bias, rngs=rngs)
        self.norm3 = LayerNorm(features, epsilon=epsilon, use_bias=use_bias, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.hidden_dropout = Dropout(dropout if hidden_dropout is None else hidden_dropout, rngs=rngs)

    def __call__(
        self,
        x: Array,
        memory: Array,
        *,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        valid: Array | None = None,
        memory_valid: Array | None = None,
        causal: bool = False,
    ) -> Array:
        """Run the layer.

        Args:
            x: shape (batch, position, features).
            memory: the encoder's output, shape (batch, memory, features).
            mask: which positions attend to which, bool, True attends; shape (position, position), (batch, position,
                position) or (batch, head, position, position). torch's boolean masks are the inverse.
            memory_mask: the same of ``memory``, shape (position, memory), with axes before it as for ``mask``.
            valid, memory_valid: False where ``x`` or ``memory`` is padding, to which nothing attends; bool, shapes
                (batch, position) and (batch, memory). The inverse of torch's ``tgt_key_padding_mask`` and
                ``memory_key_padding_mask``. What a position gives that may attend to nothing has no meaning.
            causal: whether a position of ``x`` sees only itself and earlier ones. It needs no mask.

        Returns:
            The shape of ``x``. Gradients flow to ``x``, ``memory`` and the parameters.

        Raises:
            ValueError: a shape does not fit. TypeError: a mask is not boolean.
        """
        fits("x", x, self.features)
        fits("memory", memory, self.features, x.shape[0])
        heads = self.self_attn.num_heads
        own, other = visible(x, x, heads, mask, valid), visible(x, memory, heads, memory_mask, memory_valid)
        x = residual(self, self.norm1, lambda x: self.self_attn(x, mask=own, is_causal=causal), x)
        x = residual(self, self.norm2, lambda x: self.multihead_attn(x, memory, mask=other), x)
        return residual(self, self.norm3, lambda x: mlp(self, x), x)

    def start(self, memory: Array, length: int) -> DecoderCache:
        """The cache before the first position.

        Args:
            memory: the encoder's output, shape (batch, memory, features).
            length: for how many positions there is room.

        Raises:
            ValueError: the shape does not fit.
        """
        fits("memory", memory, self.features)
        key, value = self.multihead_attn.key(memory), self.multihead_attn.value(memory)
        empty = jnp.zeros((memory.shape[0], length, *key.shape[2:]), key.dtype)
        return DecoderCache(empty, empty, key, value)

    def step(
        self, x: Array, cache: DecoderCache, at: Array | int, memory_valid: Array | None = None
    ) -> tuple[Array, DecoderCache]:
        """Run the layer for one position, causally and without dropout.

        Args:
            x: that position, shape (batch, 1, features).
            cache: of the positions before it, from :meth:`start` or this method.
            at: its number, a scalar. Beyond the cache's length the result is NaN.
            memory_valid: False where the memory is padding; bool, shape (batch, memory).

        Returns:
            Shape (batch, 1, features), what the layer itself gives there with ``causal=True``, and the next cache.
            Gradients flow to ``x``, the cache and the parameters.

        Raises:
            ValueError: a shape does not fit. TypeError: the mask is not boolean.
        """
        fits("x", x, self.features, cache.keys.shape[0])
        length = cache.keys.shape[1]
        past = (jnp.arange(length) <= at)[None, None, None]
        other = visible(x, cache.memory_keys, self.self_attn.num_heads, None, memory_valid)

        now = self.norm1(x) if self.norm_first else x
        keys = jax.lax.dynamic_update_slice_in_dim(cache.keys, self.self_attn.key(now), at, 1)
        values = jax.lax.dynamic_update_slice_in_dim(cache.values, self.self_attn.value(now), at, 1)

        def own(x: Array) -> Array:
            return self.self_attn.out(attention(self.self_attn.query(x), keys, values, mask=past))

        def cross(x: Array) -> Array:
            query = self.multihead_attn.query(x)
            return self.multihead_attn.out(attention(query, cache.memory_keys, cache.memory_values, mask=other))

        still = {"deterministic": True}
        x = residual(self, self.norm1, own, x, **still)
        x = residual(self, self.norm2, cross, x, **still)
        x = residual(self, self.norm3, lambda x: mlp(self, x, **still), x, **still)
        x = jnp.where(jnp.less(at, length), x, jnp.full_like(x, jnp.nan))
        return x, cache._replace(keys=keys, values=values)


class TransformerDecoder(nnx.Module):
    """Layers one after the other, and perhaps a norm, as torch's (Vaswani 2017)."""

    def __init__(
        self,
        layer: Callable[..., nnx.Module],
        num_layers: int,
        norm: nnx.Module | None = None,
        *,
        rngs: nnx.Rngs,
    ):
        """Build the decoder, of ``partial(nn.TransformerDecoderLayer, 512, 8)``.

        Arguments and errors are those of :class:`fphys.nn.TransformerEncoder`.
        """
        self.layers = stack(layer, num_layers, rngs)
        self.norm = norm

    def __call__(
        self,
        x: Array,
        memory: Array,
        *,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        valid: Array | None = None,
        memory_valid: Array | None = None,
        causal: bool = False,
    ) -> Array:
        """Run the layers; arguments, errors and gradients are those of :class:`TransformerDecoderLayer`.

        Args:
            x: shape (batch, position, features).
            memory: the encoder's output, shape (batch, memory, features).
            mask, memory_mask, valid, memory_valid, causal: as there.

        Returns:
            The shape of ``x``.
        """
        masks = {"mask": mask, "memory_mask": memory_mask, "valid": valid, "memory_valid": memory_valid}
        for layer in self.layers:
            x = layer(x, memory, **masks, causal=causal)
        return x if self.norm is None else self.norm(x)

    def start(self, memory: Array, length: int) -> list[DecoderCache]:
        """The caches of all layers before the first position. Errors are those of one layer.

        Args:
            memory: the encoder's output, shape (batch, memory, features).
            length: for how many positions there is room.
        """
        return [layer.start(memory, length) for layer in self.layers]

    def step(
        self, x: Array, caches: Sequence[DecoderCache], at: Array | int, memory_valid: Array | None = None
    ) -> tuple[Array, list[DecoderCache]]:
        """Run the layers for one position; see :meth:`TransformerDecoderLayer.step`.

        Args:
            x: that position, shape (batch, 1, features).
            caches: one of each layer, of the positions before it.
            at: its number, a scalar.
            memory_valid: False where the memory is padding; bool, shape (batch, memory).

        Returns:
            Shape (batch, 1, features), and the next caches.
        """
        after = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer.step(x, cache, at, memory_valid)
            after.append(cache)
        return x if self.norm is None else self.norm(x), after
