"""An LSTM over time with its own derivative rule, and native code for training on a CPU.

One rule serves forward and reverse mode. The forward pass records the gates' slopes. The derivative is a linear
recurrence with these slopes. The product dh' = h' dU (in reverse mode, the recurrent kernel's gradient) is computed
once, outside the loop. XLA's loops run on one thread and spend half their time between the products. When an LSTM is
differentiated in float32 on a CPU, both loops therefore run as native code on all threads (docs/decisions, page 12).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Carry = tuple[Array, Array]
Arrays = tuple[Array, ...]
Function = Callable[..., Arrays]
ROWS = range(16, 7, -1)
"""Batch rows that native code takes at once: the first of these that divides the batch."""


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def lstm(reverse: bool, unroll: int, given: Array, kernel: Array, h: Array, c: Array) -> tuple[Carry, Array]:
    """Return the last (h, c), and h at all times, shape (batch, time, hidden).

    Args:
        reverse: whether time runs backwards.
        unroll: steps per iteration of XLA's loop.
        given: the input's contribution to the gates i, f, g and o, with biases, shape (batch, time, 4 x hidden).
        kernel: the recurrent kernel, shape (hidden, 4 x hidden).
        h, c: initial states, shape (batch, hidden).

    Differentiable in both modes, to any order, with respect to all arrays.
    """

    def step(carry: Carry, row: Array) -> tuple[Carry, Array]:
        h, c, _ = _step(carry, row, kernel)
        return (h, c), h

    end, out = over_time(step, (h, c), given.swapaxes(0, 1), reverse, unroll)
    return end, out.swapaxes(0, 1)


def over_time(step: Callable[..., Any], carry: Any, rows: Array, reverse: bool, unroll: int) -> tuple[Any, Array]:
    """``jax.lax.scan`` over the rows. Backwards, it scans the flipped rows, for ONNX's loops run forwards."""
    end, out = jax.lax.scan(step, carry, jnp.flip(rows, 0) if reverse else rows, unroll=unroll)
    return end, jnp.flip(out, 0) if reverse else out


@lstm.defjvp
def _(reverse: bool, unroll: int, primals: Arrays, tangents: Arrays) -> Any:
    (given, kernel, h, c), (dgiven, dkernel, dh, dc) = primals, tangents
    if given.shape[1] == 0:  # no time passes
        none, dnone = (x[..., : h.shape[-1]] for x in (given, dgiven))
        return ((h, c), none), ((dh, dc), dnone)
    rows = _rows(*primals)
    noted, moved = _native(reverse, unroll, rows) if rows else _plain(reverse, unroll)
    out, end, *slopes = noted(given, kernel, h, c)
    before = jnp.concatenate([out[:, 1:], h[:, None]] if reverse else [h[:, None], out[:, :-1]], 1)
    shares = dgiven + (before.reshape(-1, h.shape[-1]) @ dkernel).reshape(given.shape)
    dout, dend = moved(*slopes, kernel, shares, dh, dc)
    last = 0 if reverse else -1
    return ((out[:, last], end), out), ((dout[:, last], dend), dout)


def _step(carry: Carry, given: Array, kernel: Array) -> tuple[Array, Array, Arrays]:
    """The next h and c, and the slopes: of c' by i, f and g before activation, of h' by o, of c' by c, of h' by c'."""
    h, c = carry
    i, f, g, o = jnp.split(given + h @ kernel, 4, -1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    after = f * c + i * g
    t = jnp.tanh(after)
    slopes = (g * i * (1 - i), c * f * (1 - f), i * (1 - g * g), t * o * (1 - o), f, o * (1 - t * t))
    return o * t, after, slopes


@functools.cache
def _plain(reverse: bool, unroll: int) -> tuple[Function, Function]:
    """XLA's loops. The first returns all h, the last c and the slopes.

    The second returns the tangents of all h and of the last c. It is linear in its last three arguments. Slopes are six
    arrays of shape (time, batch, hidden).
    """

    def noted(given: Array, kernel: Array, h: Array, c: Array) -> Arrays:
        def step(carry: Carry, row: Array) -> tuple[Carry, tuple[Array, Arrays]]:
            h, c, slopes = _step(carry, row, kernel)
            return (h, c), (h, slopes)

        (_, c), (out, slopes) = jax.lax.scan(step, (h, c), given.swapaxes(0, 1), reverse=reverse, unroll=unroll)
        return out.swapaxes(0, 1), c, *slopes

    def moved(*args: Array) -> Arrays:
        *slopes, kernel, shares, dh, dc = args

        def step(carry: Carry, row: Any) -> tuple[Carry, Array]:
            (dh, dc), (share, (to_i, to_f, to_g, to_o, kept, shown)) = carry, row
            di, df, dg, do = jnp.split(share + dh @ kernel, 4, -1)
            dc = kept * dc + to_i * di + to_f * df + to_g * dg
            dh = to_o * do + shown * dc
            return (dh, dc), dh

        rows = (shares.swapaxes(0, 1), slopes)
        (_, dc), dout = jax.lax.scan(step, (dh, dc), rows, reverse=reverse, unroll=unroll)
        return dout.swapaxes(0, 1), dc

    return noted, moved


def _rows(given: Array, *others: Array) -> int:
    """Rows per tile for native code; 0 if it cannot take these arrays."""
    (batch, _, wide), dtypes = given.shape, {x.dtype for x in (given, *others)}
    if dtypes != {jnp.dtype("float32")} or wide % 256 or not batch:
        return 0
    return next((rows for rows in ROWS if batch % rows == 0), 0)


@functools.cache
def _native(reverse: bool, unroll: int, rows: int) -> tuple[Function, Function]:
    """Like :func:`_plain`, but native code on a CPU. The slopes are one array, shape (batch, time, 6 x hidden)."""
    from ..bridge.linear import instead, linear

    (noted, moved), (forward, transposed) = _plain(reverse, unroll), _operations(reverse)

    def plainly_noted(*args: Array) -> Arrays:
        out, c, *slopes = noted(*args)
        return out, c, jnp.concatenate(slopes, -1).swapaxes(0, 1)

    def plainly_moved(slopes: Array, *args: Array) -> Arrays:
        return moved(*jnp.split(slopes.swapaxes(0, 1), 6, -1), *args)

    def plainly_back(slopes: Array, kernel: Array, dout: Array, dc: Array) -> Arrays:
        inputs = (_like(dout, 4 * len(kernel)), dc, dc)
        return jax.linear_transpose(lambda *inputs: plainly_moved(slopes, kernel, *inputs), *inputs)((dout, dc))

    def tiled(x: Array) -> Array:
        return x.reshape(-1, rows, *x.shape[1:])

    def whole(tiles: Arrays) -> Arrays:
        return tuple(x.reshape(-1, *x.shape[2:]) for x in tiles)

    def natively_noted(given: Array, kernel: Array, h: Array, c: Array) -> Arrays:
        hidden = len(kernel)
        panels = kernel.reshape(hidden, 4, -1, 16).transpose(2, 0, 1, 3).reshape(1, -1, hidden, 64)
        return whole(forward(tiled(given), panels, tiled(h), tiled(c)))

    def natively_back(slopes: Array, kernel: Array, dout: Array, dc: Array) -> Arrays:
        panels = kernel.T.reshape(1, kernel.shape[1], -1, 64).swapaxes(1, 2)
        return whole(transposed(tiled(slopes), panels, tiled(dout), tiled(dc)))

    def where_lowered(native: Function, plain: Function) -> Function:
        choice = jax.jit(lambda *args: jax.lax.platform_dependent(*args, cpu=native, default=plain), inline=True)
        return instead(choice, plain)

    back = where_lowered(natively_back, plainly_back)
    return where_lowered(natively_noted, plainly_noted), lambda slopes, kernel, *inputs: linear(
        plainly_moved, back, (slopes, kernel), inputs
    )


@functools.cache
def _operations(reverse: bool) -> tuple[Function, Function]:
    """Native code on tiles of rows.

    The first operation returns all h, the last c and the slopes. The second returns the cotangents of the gates' shares
    and of the initial h and c.
    """
    from ..bridge import kernels, warp_op

    code = kernels("float32", "lstm")

    def forward(launch: Any, given: Any, panels: Any, h: Any, c: Any, *outs: Any) -> None:
        launch(code.lstm, dim=given.shape[0], inputs=[int(reverse), given, panels, h, c], outputs=list(outs))

    def transposed(launch: Any, slopes: Any, panels: Any, dout: Any, dc: Any, *outs: Any) -> None:
        inputs = [int(reverse), slopes, panels, dout, dc]
        launch(code.lstm_transposed, dim=slopes.shape[0], inputs=inputs, outputs=list(outs))

    def noted(given: Any, panels: Any, h: Any, c: Any) -> Any:
        return _like(given, h.shape[-1]), c, _like(given, 6 * h.shape[-1])

    def moved(slopes: Any, panels: Any, dout: Any, dc: Any) -> Any:
        return _like(dout, 4 * dc.shape[-1]), dc, dc

    options: dict[str, Any] = {"differentiable": False, "zeroed": False, "name": "LSTM"}
    return warp_op(forward, noted, **options), warp_op(transposed, moved, **options)


def _like(x: Any, wide: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*x.shape[:-1], wide), x.dtype)
