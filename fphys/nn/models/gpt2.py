"""GPT-2 (Radford 2019)."""

import os

import jax.numpy as jnp
import numpy as np
from flax import nnx

from ...typing import Array, Float, Int, shaped
from ..layers import Dropout, Embedding
from ..norms import LayerNorm
from ..transformer import TransformerBlock
from ..weights import Rule, Weights, translate, without_copies
from ..weights import pretrained as _with


class GPT2(nnx.Module):
    """Token and position embeddings, causal transformer blocks, and logits by the token embedding's transpose."""

    def __init__(
        self,
        vocabulary: int = 50257,
        max_positions: int = 1024,
        *,
        features: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        dropout: float = 0.1,
        rngs: nnx.Rngs,
    ):
        """Build the network.

        Args:
            vocabulary: number of tokens.
            max_positions: the longest sequence.
            features, depth, num_heads: width, number and heads of the blocks.
            dropout: rate after the embedding and in the blocks, when training.
            rngs: for the parameters and the dropout.
        """
        normal = nnx.initializers.normal(0.02)
        self.tokens = Embedding(vocabulary, features, embedding_init=normal, rngs=rngs)
        self.positions = Embedding(max_positions, features, embedding_init=normal, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.blocks = nnx.List(
            TransformerBlock(features, num_heads, causal=True, dropout=dropout, rngs=rngs) for _ in range(depth)
        )
        self.norm = LayerNorm(features, epsilon=1e-5, rngs=rngs)

    @shaped
    def __call__(self, tokens: Int[Array, "batch position"]) -> Float[Array, "batch position vocabulary"]:
        """Map tokens to the logits of each next token. Gradients flow to the parameters.

        Raises:
            ValueError: the sequence is too long.
        """
        longest, length = self.positions.num_embeddings, tokens.shape[1]
        if length > longest:
            raise ValueError(f"tokens have {length} positions, must have at most {longest} (max_positions)")
        x = self.dropout(self.tokens(tokens) + self.positions(jnp.arange(length))[None])
        for block in self.blocks:
            x = block(x)
        return self.tokens.attend(self.norm(x))

    @staticmethod
    def convert(weights: Weights) -> Weights:
        """Convert Hugging Face's names. Its linear layers are already (in, out) and pack query, key and value.

        Raises:
            WeightsError: the output layer has another table than the embedding; here they share one.
        """
        found: Weights = {}
        named = {name.removeprefix("transformer."): value for name, value in weights.items()}
        for name, value in without_copies(named, "wte.weight", ["lm_head.weight"]).items():
            if name.endswith((".attn.bias", ".attn.masked_bias")):
                continue  # constants
            stem, packed, leaf = name.partition("c_attn.")
            if packed:
                parts = zip(("query", "key", "value"), np.split(value, 3, -1), strict=True)
                found |= {f"{stem}{part}.{leaf}": columns for part, columns in parts}
            else:
                found[name] = value
        return translate(found, _RULES)


_RULES: list[Rule] = [
    (r"^wte\.weight$", "tokens.embedding"),
    (r"^wpe\.weight$", "positions.embedding"),
    (r"\.(query|key|value|c_proj|c_fc)\.weight$", r".\1.kernel"),
    (r"^h\.(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.attn\.c_proj", ".attention.out"),
    (r"\.attn\.", ".attention."),
    (r"\.mlp\.c_fc", ".up"),
    (r"\.mlp\.c_proj", ".down"),
    (r"^ln_f", "norm"),
]


def gpt2(vocabulary: int = 50257, pretrained: str | os.PathLike[str] | bool | None = None, *, rngs: nnx.Rngs) -> GPT2:
    """GPT-2 with 124 million parameters. For ``pretrained`` see :func:`fphys.nn.weights.pretrained`; True: "openai"."""
    return _with(GPT2(vocabulary, rngs=rngs), "gpt2", pretrained, "openai")
