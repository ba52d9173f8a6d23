"""Small networks, shared by the tests of export."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

F32 = {"param_dtype": jnp.float32}


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(6, 16, rngs=rngs, **F32), nnx.Linear(16, 4, rngs=rngs, **F32)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))


class CNN(nnx.Module):
    """Convolution, batch normalisation, both kinds of pooling, a residual, a strided convolution."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), rngs=rngs, **F32)
        self.norm = nnx.BatchNorm(8, rngs=rngs, **F32)
        self.down = nnx.Conv(8, 8, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)), rngs=rngs, **F32)
        self.out = nnx.Linear(32, 10, rngs=rngs, **F32)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        x = x + nnx.max_pool(x, (3, 3), (1, 1), ((1, 1), (1, 1)))
        x = self.down(nnx.avg_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1))))
        return self.out(x.reshape(x.shape[0], -1))


class Block(nnx.Module):
    """A block of GPT-2 with its embedding: causal attention, layer normalisation, gelu."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(20, 16, rngs=rngs, **F32)
        self.first, self.second = nnx.LayerNorm(16, rngs=rngs, **F32), nnx.LayerNorm(16, rngs=rngs, **F32)
        self.attend = nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs, **F32)
        self.wide, self.narrow = nnx.Linear(16, 32, rngs=rngs, **F32), nnx.Linear(32, 16, rngs=rngs, **F32)

    def __call__(self, tokens):
        x = self.embed(tokens)
        x = x + self.attend(self.first(x), mask=nnx.make_causal_mask(tokens))
        x = x + self.narrow(nnx.gelu(self.wide(self.second(x))))
        return x @ self.embed.embedding[...].T


INPUTS = {
    MLP: lambda n: np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32),
    CNN: lambda n: np.random.default_rng(n).standard_normal((n, 8, 8, 1)).astype(np.float32),
    Block: lambda n: np.random.default_rng(n).integers(0, 20, (n, 5)).astype(np.int32),
}


def function(kind):
    """The network in evaluation mode as a function, with its weights."""
    net = kind(nnx.Rngs(0))
    if kind is CNN:  # running statistics other than the initial ones
        net.norm.mean[...] = jnp.linspace(-0.5, 0.5, 8, dtype=jnp.float32)
        net.norm.var[...] = jnp.linspace(0.5, 2.0, 8, dtype=jnp.float32)
    net.eval()
    graph, params, aux = nnx.split(net, nnx.Param, ...)

    def fn(x):
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # flax needs them
            return nnx.merge(graph, params, aux)(x)

    return fn, params, aux
