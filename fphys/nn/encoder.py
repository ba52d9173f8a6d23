"""The transformer's encoder, as torch's (Vaswani 2017; Devlin 2019 for BERT's use of it)."""

from collections.abc import Callable

import jax
from flax import nnx

from .layers import Dropout
from .linear import Linear
from .masks import fits, visible
from .norms import LayerNorm
from .transformer import MultiHeadAttention

Array = jax.Array


class TransformerEncoderLayer(nnx.Module):
    """norm(x + attention(x)), then norm(x + mlp(x)), as torch's (Vaswani 2017). ``norm_first`` moves the norms.

    Its parameters have torch's names, so :func:`fphys.nn.load_weights` accepts a state dict of torch's layer.
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
        """Build the layer.

        Args:
            features: size of the last axis of input and output; torch's ``d_model``.
            num_heads: attention heads, torch's ``nhead``; must divide ``features``.
            hidden_features: width of the MLP; torch's ``dim_feedforward``.
            dropout: rate on the attention weights and on both branches, when training.
            hidden_dropout: rate inside the MLP, after the activation; ``dropout`` by default, as in torch.
            activation: of the MLP. torch's "gelu" is ``partial(nn.gelu, approximate=False)``.
            epsilon: added to the variance in the norms.
            norm_first: x + attention(norm(x)), then x + mlp(norm(x)) instead (Xiong 2020).
            use_bias: whether linear layers and norms have a bias.
            rngs: for the parameters and the dropout.

        Raises:
            ValueError: ``num_heads`` does not divide ``features``. TypeError: ``activation`` is not a function.
        """
        check(features, num_heads, activation)
        self.features, self.activation, self.norm_first = features, activation, norm_first
        self.self_attn = MultiHeadAttention(num_heads, features, dropout_rate=dropout, use_bias=use_bias, rngs=rngs)
        self.linear1 = Linear(features, hidden_features, use_bias=use_bias, rngs=rngs)
        self.linear2 = Linear(hidden_features, features, use_bias=use_bias, rngs=rngs)
        self.norm1 = LayerNorm(features, epsilon=epsilon, use_bias=use_bias, rngs=rngs)
        self.norm2 = LayerNorm(features, epsilon=epsilon, use_bias=use_bias, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.hidden_dropout = Dropout(dropout if hidden_dropout is None else hidden_dropout, rngs=rngs)

    def __call__(
        self, x: Array, *, mask: Array | None = None, valid: Array | None = None, causal: bool = False
    ) -> Array:
        """Run the layer.

        Args:
            x: shape (batch, position, features).
            mask: which positions attend to which, bool, True attends; shape (position, position), (batch, position,
                position) or (batch, head, position, position). torch's boolean masks are the inverse.
            valid: False where ``x`` is padding, to which nothing attends; bool, shape (batch, position). The inverse of
                torch's ``src_key_padding_mask``. What a position gives that may attend to nothing has no meaning.
            causal: whether a position sees only itself and earlier ones. It needs no mask; torch's ``is_causal`` does.

        Returns:
            The shape of ``x``. Gradients flow to ``x`` and the parameters.

        Raises:
            ValueError: a shape does not fit. TypeError: a mask is not boolean.
        """
        fits("x", x, self.features)
        mask = visible(x, x, self.self_attn.num_heads, mask, valid)
        x = residual(self, self.norm1, lambda x: self.self_attn(x, mask=mask, is_causal=causal), x)
        return residual(self, self.norm2, lambda x: mlp(self, x), x)


class TransformerEncoder(nnx.Module):
    """Layers one after the other, and perhaps a norm, as torch's (Vaswani 2017)."""

    def __init__(
        self,
        layer: Callable[..., nnx.Module],
        num_layers: int,
        norm: nnx.Module | None = None,
        *,
        rngs: nnx.Rngs,
    ):
        """Build the encoder.

        Args:
            layer: called as ``layer(rngs=rngs)`` for each layer: ``partial(nn.TransformerEncoderLayer, 512, 8)``.
                torch copies one layer instead, so that all of them begin with the same weights.
            num_layers: how many.
            norm: what is applied in the end, such as ``nn.LayerNorm(512, rngs=rngs)``, which layers with ``norm_first``
                need.
            rngs: for the parameters and the dropout.

        Raises:
            TypeError: ``layer`` is a layer, not its constructor.
        """
        self.layers = stack(layer, num_layers, rngs)
        self.norm = norm

    def __call__(
        self, x: Array, *, mask: Array | None = None, valid: Array | None = None, causal: bool = False
    ) -> Array:
        """Run the layers; arguments, errors and gradients are those of :class:`TransformerEncoderLayer`.

        Args:
            x: shape (batch, position, features).
            mask, valid, causal: as there.

        Returns:
            The shape of ``x``.
        """
        for layer in self.layers:
            x = layer(x, mask=mask, valid=valid, causal=causal)
        return x if self.norm is None else self.norm(x)


def check(features: int, num_heads: int, activation: Callable[[Array], Array]) -> None:
    """Refuse what no layer can be built of.

    Raises:
        ValueError: ``num_heads`` does not divide ``features``. TypeError: ``activation`` is not a function.
    """
    if features % num_heads:
        raise ValueError(f"features is {features}, must be a multiple of num_heads, {num_heads}")
    if not callable(activation):
        raise TypeError(f"activation is {activation!r}, must be a function, such as nn.gelu")


def stack(layer: Callable[..., nnx.Module], num_layers: int, rngs: nnx.Rngs) -> nnx.List:
    """Layers with weights of their own.

    Raises:
        TypeError: ``layer`` is a layer, not its constructor.
    """
    if isinstance(layer, nnx.Module):
        name = type(layer).__name__
        raise TypeError(
            f"layer is a {name}, must be its constructor, partial(nn.{name}, features, num_heads): each layer begins "
            "with weights of its own"
        )
    return nnx.List([layer(rngs=rngs) for _ in range(num_layers)])


def residual(layer, norm: Callable[[Array], Array], branch: Callable[[Array], Array], x: Array, **mode: bool) -> Array:
    """A branch of a layer beside the identity, with its norm after the sum, or before the branch."""
    if layer.norm_first:
        return x + layer.dropout(branch(norm(x)), **mode)
    return norm(x + layer.dropout(branch(x), **mode))


def mlp(layer, x: Array, **mode: bool) -> Array:
    """The MLP of a layer: linear2(activation(linear1(x)))."""
    return layer.linear2(layer.hidden_dropout(layer.activation(layer.linear1(x)), **mode))
