"""Variational autoencoder (Kingma and Welling 2014)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ...typing import Array, Float, shaped
from .mlp import MLP


class Coded(NamedTuple):
    """A VAE's output."""

    logits: jax.Array
    """Reconstruction before the sigmoid, shape (..., in_features)."""
    mean: jax.Array
    """Mean of the code, shape (..., latent)."""
    log_var: jax.Array
    """Logarithm of the code's variance, shape (..., latent)."""


class VAE(nnx.Module):
    """An MLP that encodes to a normal distribution of codes, and an MLP that decodes."""

    def __init__(self, in_features: int, hidden: int = 256, latent: int = 16, *, rngs: nnx.Rngs):
        """Args: the number of pixels, each from 0 to 1; the width of the hidden layers; the size of a code."""
        self.encoder = MLP(in_features, (hidden, hidden), 2 * latent, rngs=rngs)
        self.decoder = MLP(latent, (hidden, hidden), in_features, rngs=rngs)
        self.noise = rngs["noise"].fork()
        self.deterministic = False

    @shaped
    def __call__(self, x: Float[Array, "*batch pixels"]) -> Coded:
        """Encode, draw a code (its mean when not training), and decode. Gradients flow to ``x`` and the parameters.

        Training needs ``key``.
        """
        mean, log_var = self.encode(x)
        code = mean
        if not self.deterministic:
            code = mean + jnp.exp(log_var / 2) * jax.random.normal(self.noise(), mean.shape, mean.dtype)
        return Coded(self.decode(code), mean, log_var)

    def encode(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and log variance of the code of ``x``, (..., in_features); each has shape (..., latent)."""
        mean, log_var = jnp.split(self.encoder(x), 2, -1)
        return mean, log_var

    def decode(self, code: jax.Array) -> jax.Array:
        """Pixel logits, shape (..., in_features), of a code, (..., latent)."""
        return self.decoder(code)


def elbo_loss(coded: Coded, x: jax.Array) -> jax.Array:
    """The negative evidence lower bound: cross entropy of the pixels plus KL(N(mean, var) || N(0, 1)).

    Args:
        coded: the VAE's output.
        x: its input, from 0 to 1, shape (batch, in_features).

    Returns:
        A scalar, summed over pixels and codes and averaged over the batch. Gradients flow to both.
    """
    pixels = -(x * jax.nn.log_sigmoid(coded.logits) + (1 - x) * jax.nn.log_sigmoid(-coded.logits))
    divergence = -0.5 * (1 + coded.log_var - coded.mean**2 - jnp.exp(coded.log_var))
    return (pixels.sum(-1) + divergence.sum(-1)).mean()
