"""Encoder and decoder together: torch's ``Transformer``."""

from collections.abc import Callable
from functools import partial

import jax
from flax import nnx

from .decoder import TransformerDecoder, TransformerDecoderLayer
from .encoder import TransformerEncoder, TransformerEncoderLayer
from .norms import LayerNorm

Array = jax.Array


class Transformer(nnx.Module):
    """An encoder, a decoder that attends to its output, and a norm after each, as torch's (Vaswani 2017).

    Embeddings and output layer are not part of it: :class:`fphys.nn.models.BART` is a model of tokens. Its parameters
    have torch's names, so :func:`fphys.nn.load_weights` accepts a state dict of torch's.
    """

    def __init__(
        self,
        features: int = 512,
        num_heads: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        hidden_features: int = 2048,
        *,
        dropout: float = 0.1,
        activation: Callable[[Array], Array] = nnx.relu,
        epsilon: float = 1e-5,
        norm_first: bool = False,
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        """Build the network.

        Args:
            features, num_heads, hidden_features, dropout, activation, epsilon, norm_first, use_bias: of the layers; see
                :class:`fphys.nn.TransformerEncoderLayer`, also for the errors.
            num_encoder_layers, num_decoder_layers: how many.
            rngs: for the parameters and the dropout.
        """
        options = {"dropout": dropout, "activation": activation, "epsilon": epsilon, "norm_first": norm_first}
        size = (features, num_heads, hidden_features)

        def norm() -> LayerNorm:
            return LayerNorm(features, epsilon=epsilon, use_bias=use_bias, rngs=rngs)

        encoder_layer = partial(TransformerEncoderLayer, *size, **options, use_bias=use_bias)
        decoder_layer = partial(TransformerDecoderLayer, *size, **options, use_bias=use_bias)
        self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm(), rngs=rngs)
        self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm(), rngs=rngs)

    def __call__(
        self,
        src: Array,
        tgt: Array,
        *,
        src_mask: Array | None = None,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        src_valid: Array | None = None,
        tgt_valid: Array | None = None,
        memory_valid: Array | None = None,
        causal: bool = False,
    ) -> Array:
        """Run encoder and decoder.

        Args:
            src: what is read, shape (batch, source, features).
            tgt: what is written so far, shape (batch, target, features).
            src_mask, tgt_mask, memory_mask: which positions attend to which, bool, True attends; shapes (source,
                source), (target, target) and (target, source), or with axes of batch and head before them.
            src_valid, tgt_valid, memory_valid: False where there is padding, the inverse of torch's
                ``..._key_padding_mask``; bool, shapes (batch, source), (batch, target) and (batch, source). As in
                torch, the decoder is told by ``memory_valid``, not by ``src_valid``.
            causal: whether a position of ``tgt`` sees only itself and earlier ones. It needs no mask.

        Returns:
            The shape of ``tgt``. Gradients flow to ``src``, ``tgt`` and the parameters.

        Raises:
            ValueError: a shape does not fit. TypeError: a mask is not boolean.
        """
        memory = self.encoder(src, mask=src_mask, valid=src_valid)
        masks = {"mask": tgt_mask, "memory_mask": memory_mask, "valid": tgt_valid, "memory_valid": memory_valid}
        return self.decoder(tgt, memory, **masks, causal=causal)
