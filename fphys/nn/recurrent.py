"""Recurrent layers as in torch: stacked and optionally bidirectional.

Flax has the one-step cells (``LSTMCell`` and others, re-exported). ``flax.nnx.RNN`` multiplies the input step by step.
Here one large product computes the input's contribution for all times, and only the recurrent product is in the loop.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from .layers import Dropout
from .linear import Linear
from .lstm import lstm, over_time

Array = jax.Array
Carry = Any
"""(h, c) of an LSTM, h of the others, each of shape (layer x direction, batch, hidden)."""


class _Recurrent(nnx.Module):
    """What RNN, GRU and LSTM share. A subclass sets the number of gates and defines a step."""

    gates: ClassVar[int]
    added: ClassVar[bool] = True
    """Whether U h + d is simply added to the input's contribution, so that d can be added before the loop."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        unroll: int = 1,
        rngs: nnx.Rngs,
    ):
        """Build the layers.

        Args:
            in_features: size of the input's last axis.
            hidden_features: size of the hidden state.
            num_layers: number of stacked layers.
            bidirectional: whether a second set of layers runs from the end to the start.
            dropout: rate between layers, when training.
            unroll: steps per iteration of the compiled loop; more is faster and makes larger code.
            rngs: for the parameters and the dropout.
        """
        self.hidden_features = hidden_features
        self.directions = 2 if bidirectional else 1
        self.unroll = unroll
        self.dropout = Dropout(dropout, rngs=rngs) if dropout else None
        wide, out = hidden_features * self.directions, self.gates * hidden_features
        self.layers = nnx.List(
            nnx.List(
                nnx.Dict(
                    input=Linear(wide if layer else in_features, out, rngs=rngs),
                    hidden=Linear(hidden_features, out, kernel_init=nnx.initializers.orthogonal(), rngs=rngs),
                )
                for _ in range(self.directions)
            )
            for layer in range(num_layers)
        )

    def __call__(self, x: Array, carry: Carry | None = None) -> tuple[Array, Carry]:
        """Run over time.

        Args:
            x: shape (batch, time, in_features).
            carry: initial state; zeros by default.

        Returns:
            The last layer's hidden states, shape (batch, time, hidden x directions), and every layer's last carry.
            Gradients flow to ``x``, the carry and the parameters.

        Raises:
            ValueError: ``x`` has another rank.
        """
        if x.ndim != 3:
            raise ValueError(f"x has shape {x.shape}, must be (batch, time, features): one sequence is x[None]")
        last = []
        for index, layer in enumerate(self.layers):
            if index and self.dropout is not None:
                x = self.dropout(x)
            outs = []
            for direction, cell in enumerate(layer):
                number = index * self.directions + direction
                start = None if carry is None else jax.tree.map(lambda leaf, n=number: leaf[n], carry)
                end, out = self._run(cell, x, start, reverse=direction == 1)
                last.append(end)
                outs.append(out)
            x = outs[0] if len(outs) == 1 else jnp.concatenate(outs, -1)
        return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *last)

    def _run(self, cell: Any, x: Array, carry: Carry | None, reverse: bool) -> tuple[Carry, Array]:
        given, hidden = cell["input"](x.swapaxes(0, 1)), cell["hidden"]
        if self.added:
            given = given + hidden.bias[...][None, None]
        if carry is None:
            carry = jnp.zeros((x.shape[0], self.hidden_features), given.dtype)
        product = (lambda h: h @ hidden.kernel[...]) if self.added else hidden

        def step(state: Array, row: Array) -> tuple[Array, Array]:
            state = self._step(state, row, product)
            return state, state

        end, out = over_time(step, carry, given, reverse, self.unroll)
        return end, out.swapaxes(0, 1)

    def _step(self, h: Array, given: Array, hidden: Callable[[Array], Array]) -> Array:
        raise NotImplementedError


class RNN(_Recurrent):
    """h' = tanh(W x + b + U h + d) (Elman 1990)."""

    gates = 1

    def _step(self, h: Array, given: Array, hidden: Callable[[Array], Array]) -> Array:
        return jnp.tanh(given + hidden(h))


class GRU(_Recurrent):
    """r, z = sigmoid(...), n = tanh(W x + b + r (U h + d)), h' = (1 - z) n + z h (Cho 2014, in cuDNN's form)."""

    gates = 3
    added = False

    def _step(self, h: Array, given: Array, hidden: Callable[[Array], Array]) -> Array:
        (xr, xz, xn), (hr, hz, hn) = (jnp.split(part, 3, -1) for part in (given, hidden(h)))
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        n = jnp.tanh(xn + r * hn)
        return n + z * (h - n)


class LSTM(_Recurrent):
    """i, f, o = sigmoid(...), g = tanh(...), c' = f c + i g, h' = o tanh(c') (Hochreiter 1997, Gers 2000).

    In float32 on a CPU, reverse mode runs native code if ``hidden_features`` is a multiple of 64 and a number from 8 to
    16 divides the batch. It compiles for a few seconds the first time on a machine.
    """

    gates = 4

    def _run(self, cell: Any, x: Array, carry: Carry | None, reverse: bool) -> tuple[Carry, Array]:
        given, kernel = cell["input"](x) + cell["hidden"].bias[...][None, None], cell["hidden"].kernel[...]
        if carry is None:
            carry = (jnp.zeros((x.shape[0], self.hidden_features), given.dtype),) * 2
        return lstm(reverse, self.unroll, given, kernel, *carry)
