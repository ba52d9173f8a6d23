"""Recurrent layers as torch has them: stacked, in both directions, the input's share computed for all times at once.

Flax has the cells, one step each (``LSTMCell`` and others, re-exported); run by ``flax.nnx.RNN`` they multiply the
input step by step. Here one large product comes before the loop, and only the recurrent one stays in it.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from .linear import Linear

Array = jax.Array
Carry = Any
"""(h, c) of an LSTM, h of the others, each of shape (layer x direction, batch, hidden)."""


class _Recurrent(nnx.Module):
    """What the three have in common; a subclass says how many gates there are and how a step goes."""

    gates: ClassVar[int]
    added: ClassVar[bool] = True
    """Whether U h + d is only added to the input's share, and so d before the loop."""

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
            num_layers: layers on top of one another.
            bidirectional: whether a second set runs from the end to the start.
            dropout: between layers, when training.
            unroll: steps per iteration of the compiled loop: time against code size.
            rngs: for the parameters and the dropout.
        """
        self.hidden_features = hidden_features
        self.directions = 2 if bidirectional else 1
        self.unroll = unroll
        self.dropout = nnx.Dropout(dropout, rngs=rngs) if dropout else None
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
            carry: where to start; zeros by default.

        Returns:
            The last layer's hidden states, shape (batch, time, hidden x directions), and every layer's last carry.
            Gradients flow to all of them.

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
            carry = self._zeros(jnp.zeros((x.shape[0], self.hidden_features), given.dtype))
        end, out = self._over_time(given, hidden, carry, reverse)
        return end, out.swapaxes(0, 1)

    def _over_time(self, given: Array, hidden: Linear, carry: Carry, reverse: bool) -> tuple[Carry, Array]:
        """The last carry, and all hidden states, shape (time, batch, hidden)."""
        product = (lambda h: h @ hidden.kernel[...]) if self.added else hidden

        def step(state: Carry, row: Array) -> tuple[Carry, Array]:
            state = self._step(state, row, product)
            return state, jax.tree.leaves(state)[0]

        return jax.lax.scan(step, carry, given, reverse=reverse, unroll=self.unroll)

    def _zeros(self, h: Array) -> Carry:
        return h

    def _step(self, carry: Carry, given: Array, hidden: Callable[[Array], Array]) -> Carry:
        raise NotImplementedError


class RNN(_Recurrent):
    """h' = tanh(W x + b + U h + d) (Elman 1990)."""

    gates = 1

    def _step(self, carry: Carry, given: Array, hidden: Callable[[Array], Array]) -> Carry:
        return jnp.tanh(given + hidden(carry))


class GRU(_Recurrent):
    """r, z = sigmoid(...), n = tanh(W x + b + r (U h + d)), h' = (1 - z) n + z h (Cho 2014, in cuDNN's form)."""

    gates = 3
    added = False

    def _step(self, carry: Carry, given: Array, hidden: Callable[[Array], Array]) -> Carry:
        (xr, xz, xn), (hr, hz, hn) = (jnp.split(part, 3, -1) for part in (given, hidden(carry)))
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        n = jnp.tanh(xn + r * hn)
        return n + z * (carry - n)


class LSTM(_Recurrent):
    """i, f, o = sigmoid(...), g = tanh(...), c' = f c + i g, h' = o tanh(c') (Hochreiter 1997, Gers 2000)."""

    gates = 4

    def _zeros(self, h: Array) -> Carry:
        return h, h

    def _over_time(self, given: Array, hidden: Linear, carry: Carry, reverse: bool) -> tuple[Carry, Array]:
        return _lstm(reverse, self.unroll, given, hidden.kernel[...], *carry)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _lstm(reverse: bool, unroll: int, given: Array, kernel: Array, h: Array, c: Array) -> tuple[Carry, Array]:
    """An LSTM over time, from what is given, shape (time, batch, 4 x hidden): the last (h, c), and h at all times.

    By a rule of its own, for both modes: the gates' slopes are noted on the way, and dh' = h' dU, or in reverse mode
    the kernel's gradient, is one product outside the loop (docs/decisions, page 12).
    """

    def step(carry: Carry, row: Array) -> tuple[Carry, Array]:
        h, c, _ = _lstm_step(carry, row, kernel)
        return (h, c), h

    return jax.lax.scan(step, (h, c), given, reverse=reverse, unroll=unroll)


@_lstm.defjvp
def _(reverse: bool, unroll: int, primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
    (given, kernel, h, c), (dgiven, dkernel, dh, dc) = primals, tangents

    def step(carry: Carry, row: Array) -> tuple[Carry, tuple[Array, tuple[Array, ...]]]:
        h, c, slopes = _lstm_step(carry, row, kernel)
        return (h, c), (h, slopes)

    end, (out, slopes) = jax.lax.scan(step, (h, c), given, reverse=reverse, unroll=unroll)
    before = jnp.concatenate([out[1:], h[None]] if reverse else [h[None], out[:-1]])
    shares = dgiven + (before.reshape(-1, h.shape[-1]) @ dkernel).reshape(given.shape)

    def tangent(carry: Carry, row: Any) -> tuple[Carry, Array]:
        (dh, dc), (share, (to_i, to_f, to_g, to_o, kept, shown)) = carry, row
        di, df, dg, do = jnp.split(share + dh @ kernel, 4, -1)
        dc = kept * dc + to_i * di + to_f * df + to_g * dg
        dh = to_o * do + shown * dc
        return (dh, dc), dh

    return (end, out), jax.lax.scan(tangent, (dh, dc), (shares, slopes), reverse=reverse, unroll=unroll)


def _lstm_step(carry: Carry, given: Array, kernel: Array) -> tuple[Array, Array, tuple[Array, ...]]:
    """The next h and c, and slopes: of c' by i, f and g before their activation, of h' by o, of c' by c, h' by c'."""
    h, c = carry
    i, f, g, o = jnp.split(given + h @ kernel, 4, -1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    after = f * c + i * g
    t = jnp.tanh(after)
    slopes = (g * i * (1 - i), c * f * (1 - f), i * (1 - g * g), t * o * (1 - o), f, o * (1 - t * t))
    return o * t, after, slopes
