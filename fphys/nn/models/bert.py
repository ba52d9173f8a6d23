"""BERT (Devlin 2019)."""

import os
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ...typing import Array, Bool, Float, Int, shaped
from ..encoder import TransformerEncoder, TransformerEncoderLayer
from ..layers import Dropout, Embedding
from ..linear import Linear
from ..norms import LayerNorm
from ..transformer import exact_gelu
from ..weights import Rule, Weights, translate, without_copies
from ..weights import pretrained as _with


class Encoded(NamedTuple):
    """What :class:`BERT` gives."""

    states: jax.Array
    """Of each position, shape (batch, position, features)."""
    pooled: jax.Array | None
    """Of the whole sequence, tanh(W x + b) of the first position, shape (batch, features). None without a pooler."""


class BERT(nnx.Module):
    """Embeddings of tokens, positions and segments, an encoder, a pooler and a head that predicts hidden tokens.

    The head's logits are by the token embedding's transpose.
    """

    HEAD = "head"  # the name of the output layer

    def __init__(
        self,
        vocabulary: int = 30522,
        max_positions: int = 512,
        *,
        num_segments: int = 2,
        features: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        hidden_features: int | None = None,
        dropout: float = 0.1,
        epsilon: float = 1e-12,
        pooler: bool = True,
        head: bool = True,
        rngs: nnx.Rngs,
    ):
        """Build the network.

        Args:
            vocabulary: number of tokens.
            max_positions: the longest sequence.
            num_segments: how many texts a sequence may consist of.
            features, depth, num_heads: width, number and heads of the layers.
            hidden_features: width of their MLPs; four times ``features`` by default.
            dropout: rate after the embedding, on attention weights and after each branch, when training.
            epsilon: of the norms.
            pooler, head: whether there is one. Files of Hugging Face's BertModel have no head, those of its
                BertForMaskedLM no pooler.
            rngs: for the parameters and the dropout.

        Raises:
            ValueError: ``num_heads`` does not divide ``features``.
        """
        embed = partial(Embedding, embedding_init=nnx.initializers.normal(0.02), rngs=rngs)
        self.tokens = embed(vocabulary, features)
        self.positions = embed(max_positions, features)
        self.segments = embed(num_segments, features)
        self.norm = LayerNorm(features, epsilon=epsilon, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        layer = partial(
            TransformerEncoderLayer,
            features,
            num_heads,
            hidden_features or 4 * features,
            dropout=dropout,
            hidden_dropout=0.0,
            activation=exact_gelu,
            epsilon=epsilon,
        )
        self.encoder = TransformerEncoder(layer, depth, rngs=rngs)
        self.pooler = Linear(features, features, rngs=rngs) if pooler else None
        self.head = _Head(vocabulary, features, epsilon, rngs=rngs) if head else None

    @shaped
    def __call__(
        self,
        tokens: Int[Array, "batch position"],
        *,
        segments: Int[Array, "batch position"] | None = None,
        valid: Bool[Array, "batch position"] | None = None,
    ) -> Encoded:
        """Encode sequences of tokens. Gradients flow to the parameters.

        Args:
            tokens: integers, shape (batch, position).
            segments: to which text each token belongs, shape (batch, position); all to the first by default.
            valid: False where ``tokens`` are padding, shape (batch, position); True where a tokenizer's mask is 1.

        Raises:
            ValueError: the sequence is too long. TypeError: ``valid`` is not boolean.
        """
        longest, length = self.positions.num_embeddings, tokens.shape[1]
        if length > longest:
            raise ValueError(f"tokens have {length} positions, must have at most {longest} (max_positions)")
        segments = jnp.zeros_like(tokens) if segments is None else segments
        x = self.tokens(tokens) + self.segments(segments) + self.positions(jnp.arange(length))[None]
        x = self.encoder(self.dropout(self.norm(x)), valid=valid)
        return Encoded(x, None if self.pooler is None else jnp.tanh(self.pooler(x[:, 0])))

    @shaped
    def logits(
        self,
        tokens: Int[Array, "batch position"],
        *,
        segments: Int[Array, "batch position"] | None = None,
        valid: Bool[Array, "batch position"] | None = None,
    ) -> Float[Array, "batch position vocabulary"]:
        """The logits of the token at each position, ``nn.apply(..., tokens, method="logits")``.

        Arguments, errors and gradients are those of calling the model.

        Raises:
            ValueError: the model was built without its head.
        """
        if self.head is None:
            raise ValueError("this BERT was built with head=False: without a head there are no logits")
        return self.head(self(tokens, segments=segments, valid=valid).states, self.tokens)

    @staticmethod
    def convert(weights: Weights) -> Weights:
        """Convert Hugging Face's names. The head for the next sentence is left out.

        Raises:
            WeightsError: the output layer has another table than the embedding, or two biases; here they are shared.
        """
        named = {name.removeprefix("bert."): value for name, value in weights.items()}
        named = without_copies(named, "embeddings.word_embeddings.weight", ["cls.predictions.decoder.weight"])
        named = without_copies(named, "cls.predictions.bias", ["cls.predictions.decoder.bias"])
        dropped = "embeddings.position_ids", "cls.seq_relationship.weight", "cls.seq_relationship.bias"
        return translate({name: value for name, value in named.items() if name not in dropped}, _RULES)


class _Head(nnx.Module):
    """From a position's features to its token's logits."""

    def __init__(self, vocabulary: int, features: int, epsilon: float, *, rngs: nnx.Rngs):
        self.dense = Linear(features, features, rngs=rngs)
        self.norm = LayerNorm(features, epsilon=epsilon, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(vocabulary, jnp.float32))

    def __call__(self, x: jax.Array, tokens: Embedding) -> jax.Array:
        x = tokens.attend(self.norm(exact_gelu(self.dense(x))))
        return x + self.bias[...].astype(x.dtype)[None, None]


_RULES: list[Rule] = [
    (r"\.gamma$", ".weight"),  # the names of the first files
    (r"\.beta$", ".bias"),
    (r"^embeddings\.word_embeddings\.weight$", "tokens.embedding"),
    (r"^embeddings\.position_embeddings\.weight$", "positions.embedding"),
    (r"^embeddings\.token_type_embeddings\.weight$", "segments.embedding"),
    (r"^embeddings\.LayerNorm", "norm"),
    (r"^encoder\.layer\.", "encoder.layers."),
    (r"\.attention\.self\.", ".self_attn."),
    (r"\.attention\.output\.dense", ".self_attn.out"),
    (r"\.attention\.output\.LayerNorm", ".norm1"),
    (r"\.intermediate\.dense", ".linear1"),
    (r"\.output\.dense", ".linear2"),
    (r"\.output\.LayerNorm", ".norm2"),
    (r"^pooler\.dense", "pooler"),
    (r"^cls\.predictions\.transform\.dense", "head.dense"),
    (r"^cls\.predictions\.transform\.LayerNorm", "head.norm"),
    (r"^cls\.predictions\.bias", "head.bias"),
]


def bert_base(
    vocabulary: int = 30522,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> BERT:
    """BERT with 110 million parameters. For ``pretrained`` see :func:`fphys.nn.weights.pretrained`; True: "uncased".

    ``new_head`` is for files of encoders, which have no head.
    """
    return _with(BERT(vocabulary, rngs=rngs), "bert_base", pretrained, "uncased", new_head=new_head)
