"""Variational autoencoder (Kingma and Welling 2014)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ...typing import Array, Float, shaped
from .mlp import MLP


class Coded(NamedTuple):
    """What a VAE makes of its input."""

    logits: jax.Array
    """Reconstruction before the sigmoid, shape (..., in_features)."""
    mean: jax.Array
    """Of the code, shape (..., latent)."""
    log_var: jax.Array
    """Logarithm of the code's variance, shape (..., latent)."""


class VAE(nnx.Module):
    """An MLP to a normal distribution of codes, and one back."""

    def __init__(self, in_features: int, hidden: int = 256, latent: int = 16, *, rngs: nnx.Rngs):
        """Args: the number of pixels, each from 0 to 1; the width of the hidden layers; the size of a code."""
        self.encoder = MLP(in_features, (hidden, hidden), 2 * latent, rngs=rngs)
        self.decoder = MLP(latent, (hidden, hidden), in_features, rngs=rngs)
        self.noise = rngs["noise"].fork()
        self.deterministic = False

    @shaped
    def __call__(self, x: Float[Array, "*batch pixels"]) -> Coded:
        """Encode, draw a code (when training, with ``key``; else its mean), decode. Gradients flow to everything."""
        mean, log_var = self.encode(x)
        code = mean
        if not self.deterministic:
            code = mean + jnp.exp(log_var / 2) * jax.random.normal(self.noise(), mean.shape, mean.dtype)
        return Coded(self.decode(code), mean, log_var)

    def encode(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and logarithm of the variance of the code, each (..., latent)."""
        mean, log_var = jnp.split(self.encoder(x), 2, -1)
        return mean, log_var

    def decode(self, code: jax.Array) -> jax.Array:
        """Pixels before the sigmoid, (..., in_features)."""
        return self.decoder(code)


def elbo_loss(coded: Coded, x: jax.Array) -> jax.Array:
    """The negative evidence lower bound: cross entropy of the pixels, and KL(N(mean, var) || N(0, 1)).

    Args:
        coded: what the VAE gave.
        x: its input, from 0 to 1, shape (batch, in_features).

    Returns:
        A number, the mean over the batch of the sums over pixels and codes. Gradients flow to both.
    """
    pixels = -(x * jax.nn.log_sigmoid(coded.logits) + (1 - x) * jax.nn.log_sigmoid(-coded.logits))
    divergence = -0.5 * (1 + coded.log_var - coded.mean**2 - jnp.exp(coded.log_var))
    return (pixels.sum(-1) + divergence.sum(-1)).mean()
