"""BART (Lewis 2020): from one sequence of tokens to another.

Of the well-known models of this kind it is the one that is Vaswani's transformer (2017), in torch's layers. So it is
also what to train from the start on data of one's own, and its published weights load. T5 has other norms, no biases,
and attention by distance.
"""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ...typing import Array, Bool, Float, Int, shaped
from ..decoder import TransformerDecoder, TransformerDecoderLayer
from ..encoder import TransformerEncoder, TransformerEncoderLayer
from ..layers import Dropout, Embedding
from ..norms import LayerNorm
from ..transformer import exact_gelu
from ..weights import Rule, Weights, WeightsError, translate, without_copies
from ..weights import pretrained as _with


class BART(nnx.Module):
    """An encoder that sees a whole sequence, and a decoder that writes another one, token by token.

    Both embed tokens with one table, by whose transpose the decoder gives its logits, and have positions of their own.
    """

    def __init__(
        self,
        vocabulary: int = 50265,
        max_positions: int = 1024,
        *,
        features: int = 768,
        depth: int = 6,
        num_heads: int = 12,
        hidden_features: int | None = None,
        dropout: float = 0.1,
        rngs: nnx.Rngs,
    ):
        """Build the network.

        Args:
            vocabulary: number of tokens.
            max_positions: the longest sequence.
            features, num_heads: width and heads of the layers.
            depth: number of the encoder's layers, and of the decoder's.
            hidden_features: width of their MLPs; four times ``features`` by default.
            dropout: rate after the embeddings and in the layers, when training.
            rngs: for the parameters and the dropout.

        Raises:
            ValueError: ``num_heads`` does not divide ``features``.
        """
        embed = partial(Embedding, embedding_init=nnx.initializers.normal(0.02), rngs=rngs)
        size = (features, num_heads, hidden_features or 4 * features)
        options = {"dropout": dropout, "activation": exact_gelu}
        self.tokens = embed(vocabulary, features)
        self.encoder_positions = embed(max_positions, features)
        self.decoder_positions = embed(max_positions, features)
        self.encoder_norm = LayerNorm(features, rngs=rngs)
        self.decoder_norm = LayerNorm(features, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.encoder = TransformerEncoder(partial(TransformerEncoderLayer, *size, **options), depth, rngs=rngs)
        self.decoder = TransformerDecoder(partial(TransformerDecoderLayer, *size, **options), depth, rngs=rngs)

    @shaped
    def __call__(
        self,
        source: Int[Array, "batch source"],
        target: Int[Array, "batch target"],
        *,
        valid: Bool[Array, "batch source"] | None = None,
    ) -> Float[Array, "batch target vocabulary"]:
        """The logits of each next token of the target, when all before it are given.

        To train, ``target`` begins with a token that means "begin" and lacks the last one; the labels are the tokens
        that follow. Padding at the target's end is seen by no token before it; leave it out of the loss.

        Args:
            source: what is read, integers, shape (batch, source).
            target: what is written so far, integers, shape (batch, target).
            valid: False where ``source`` is padding, shape (batch, source); True where a tokenizer's mask is 1.

        Returns:
            Shape (batch, target, vocabulary). Gradients flow to the parameters.

        Raises:
            ValueError: a sequence is too long. TypeError: ``valid`` is not boolean.
        """
        return self.decode(target, self.encode(source, valid=valid), valid=valid)

    @shaped
    def encode(
        self, source: Int[Array, "batch source"], *, valid: Bool[Array, "batch source"] | None = None
    ) -> Float[Array, "batch source features"]:
        """What the encoder makes of the source. Arguments and errors are those of calling the model."""
        x = self.tokens(source) + self.encoder_positions(_positions("source", source, self.encoder_positions))[None]
        return self.encoder(self.dropout(self.encoder_norm(x)), valid=valid)

    @shaped
    def decode(
        self,
        target: Int[Array, "batch target"],
        memory: Float[Array, "batch source features"],
        *,
        valid: Bool[Array, "batch source"] | None = None,
    ) -> Float[Array, "batch target vocabulary"]:
        """The logits of each next token, from what :meth:`encode` gave; other arguments as of calling the model."""
        x = self.tokens(target) + self.decoder_positions(_positions("target", target, self.decoder_positions))[None]
        x = self.decoder(self.dropout(self.decoder_norm(x)), memory, memory_valid=valid, causal=True)
        return self.tokens.attend(x)

    @shaped
    def generate(
        self,
        source: Int[Array, "batch source"],
        *,
        prompt: Int[Array, "batch prompt"],
        length: int,
        end: int | None = None,
        valid: Bool[Array, "batch source"] | None = None,
    ) -> Int[Array, "batch length"]:
        """Write the likeliest token after token: ``nn.apply(..., source, method="generate", prompt=..., length=...)``.

        Keys and values of earlier positions are kept, so that a token costs one position. Call it without ``train``.

        Args:
            source: what is read, integers, shape (batch, source).
            prompt: what the target begins with, integers, shape (batch, prompt): at least the token for "begin".
            length: how many tokens are written; static under ``jit``.
            end: the token for "end", which is repeated after it was written; by default nothing ends.
            valid: False where ``source`` is padding, shape (batch, source).

        Returns:
            The tokens after the prompt, of its type, shape (batch, length). No gradient flows.

        Raises:
            ValueError: a sequence is too long, or the prompt is empty.
        """
        longest, begun = self.decoder_positions.num_embeddings, prompt.shape[1]
        if not 0 < begun <= begun + length - 1 <= longest:
            raise ValueError(
                f"prompt has {begun} tokens and length is {length}, must be at least 1 each, and at most {longest + 1} "
                "together (max_positions, and the last token)"
            )
        memory = self.encode(source, valid=valid)
        given = jnp.pad(prompt, ((0, 0), (0, length)))

        def write(carry, at):
            token, ended, caches = carry
            x = self.tokens(token[:, None]) + self.decoder_positions(at[None])[None]
            x, caches = self.decoder.step(self.decoder_norm(x), caches, at, valid)
            likeliest = jnp.argmax(self.tokens.attend(x)[:, 0], -1).astype(prompt.dtype)
            following = jnp.where(at + 1 < begun, given[:, at + 1], likeliest)
            if end is not None:
                following = jnp.where(ended, jnp.asarray(end, prompt.dtype), following)
                ended = jnp.logical_or(ended, jnp.logical_and(at + 1 >= begun, following == end))
            return (following, ended, caches), following

        start = prompt[:, 0], jnp.zeros(prompt.shape[0], bool), self.decoder.start(memory, begun + length - 1)
        _, written = jax.lax.scan(write, start, jnp.arange(begun + length - 1))
        return written[begun - 1 :].T

    @staticmethod
    def convert(weights: Weights) -> Weights:
        """Convert Hugging Face's names. Its positions begin at two, and its logits' constant is not trained.

        Raises:
            WeightsError: that constant is not zero, or embeddings differ that share one table here.
        """
        named = {name.removeprefix("model."): value for name, value in weights.items()}
        tied = [f"{part}.weight" for part in ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")]
        first = next((name for name in tied if name in named), tied[0])
        named = without_copies(named, first, [name for name in tied if name != first])
        if np.any(named.pop("final_logits_bias", 0)):
            raise WeightsError("final_logits_bias is not zero: BART has no such bias")
        return translate({name: value[2:] if _OFFSET in name else value for name, value in named.items()}, _RULES)


_OFFSET = ".embed_positions."
_RULES: list[Rule] = [
    (r"^(shared|encoder\.embed_tokens|decoder\.embed_tokens|lm_head)\.weight$", "tokens.embedding"),
    (r"^(encoder|decoder)\.embed_positions\.weight$", r"\1_positions.embedding"),
    (r"^(encoder|decoder)\.layernorm_embedding", r"\1_norm"),
    (r"\.encoder_attn\.", ".multihead_attn."),
    (r"\.encoder_attn_layer_norm", ".norm2"),
    (r"\.self_attn_layer_norm", ".norm1"),
    (r"^(encoder.*)\.final_layer_norm", r"\1.norm2"),
    (r"\.final_layer_norm", ".norm3"),
    (r"\.q_proj", ".query"),
    (r"\.k_proj", ".key"),
    (r"\.v_proj", ".value"),
    (r"\.out_proj", ".out"),
    (r"\.fc([12])\.", r".linear\1."),
]


def _positions(name: str, tokens: jax.Array, table: Embedding) -> jax.Array:
    longest, length = table.num_embeddings, tokens.shape[1]
    if length > longest:
        raise ValueError(f"{name} has {length} positions, must have at most {longest} (max_positions)")
    return jnp.arange(length)


def bart_base(
    vocabulary: int = 50265, pretrained: str | os.PathLike[str] | bool | None = None, *, rngs: nnx.Rngs
) -> BART:
    """BART with 139 million parameters.

    For ``pretrained`` see :func:`fphys.nn.weights.pretrained`; True: "facebook".
    """
    return _with(BART(vocabulary, rngs=rngs), "bart_base", pretrained, "facebook")
