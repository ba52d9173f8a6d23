"""A recurrent language model."""

from typing import Any

import jax
from flax import nnx

from ...typing import Array, Int, shaped
from ..layers import Dropout, Embedding
from ..linear import Linear
from ..recurrent import LSTM


class LSTMLanguageModel(nnx.Module):
    """Embedding, LSTM, and the next token's logits (Zaremba 2014)."""

    def __init__(
        self,
        vocabulary: int,
        *,
        features: int = 128,
        hidden: int = 256,
        num_layers: int = 2,
        dropout: float = 0.0,
        unroll: int = 1,
        rngs: nnx.Rngs,
    ):
        """Build the network.

        Args:
            vocabulary: number of tokens.
            features: size of a token's embedding.
            hidden, num_layers, unroll: of the LSTM.
            dropout: rate before, between and after the LSTM's layers, when training.
            rngs: for the parameters and the dropout.
        """
        self.tokens = Embedding(vocabulary, features, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.lstm = LSTM(features, hidden, num_layers, dropout=dropout, unroll=unroll, rngs=rngs)
        self.head = Linear(hidden, vocabulary, rngs=rngs)

    @shaped
    def __call__(self, tokens: Int[Array, "batch time"], carry: Any = None) -> tuple[jax.Array, Any]:
        """Run over time.

        Args:
            tokens: shape (batch, time).
            carry: initial state, the carry of the preceding text; zeros by default.

        Returns:
            The logits of each next token, shape (batch, time, vocabulary), and the carry. Gradients flow to the
            parameters and the carry.
        """
        x, carry = self.lstm(self.dropout(self.tokens(tokens)), carry)
        return self.head(self.dropout(x)), carry
