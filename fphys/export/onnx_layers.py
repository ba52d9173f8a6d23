"""ONNX's recurrent layers, transposed convolution and resizing, written in JAX.

Source: ONNX's operator schemas. Channels and time come first, as in the standard.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .errors import ExportError

Array = jax.Array


def recurrent(kind: str) -> Any:
    """The operator RNN, GRU or LSTM, with its default activations."""
    gates, step = _STEPS[kind]

    def run(
        x: Array,
        w: Array,
        r: Array,
        b: Any = None,
        lengths: Any = None,
        h: Any = None,
        c: Any = None,
        peephole: Any = None,
        *,
        hidden_size: int | None = None,
        direction: str = "forward",
        layout: int = 0,
        linear_before_reset: int = 0,
        **other: Any,
    ) -> tuple[Array, ...]:
        strange = [name for name, value in other.items() if name != "activations" and value]
        strange += [name for name, value in (("sequence_lens", lengths), ("P", peephole)) if value is not None]
        usual = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[kind]
        given = [a.decode() if isinstance(a, bytes) else a for a in other.get("activations") or usual * w.shape[0]]
        if strange or given != usual * w.shape[0]:
            raise ExportError(f"{kind} with {', '.join(strange) or f'activations {given}'} has no translation")
        x = x.swapaxes(0, 1) if layout else x
        ends, outs = [], []
        for i in range(w.shape[0]):
            size = r.shape[-1]
            zeros = jnp.zeros((x.shape[1], size), x.dtype)
            rows, back = (zeros[0, :1], zeros[0, :1]) if b is None else jnp.split(b[i], 2)
            start = tuple(zeros if s is None else s.swapaxes(0, 1)[i] if layout else s[i] for s in (h, c))
            into, kernel = x @ w[i].T + rows, r[i].T

            def one(state: Any, row: Array, kernel: Array = kernel, back: Array = back) -> Any:
                state = step(
                    state, row, kernel, jnp.broadcast_to(back, (gates * kernel.shape[0],)), linear_before_reset
                )
                return state, state[0]

            end, out = lax.scan(one, start, into, reverse=direction == "reverse" or i == 1)
            ends.append(end)
            outs.append(out)
        y, last = jnp.stack(outs, 1), [jnp.stack(state) for state in zip(*ends)]
        if layout:
            y, last = jnp.moveaxis(y, 2, 0), [state.swapaxes(0, 1) for state in last]
        return (y, *last[: 2 if kind == "LSTM" else 1])

    return run


def _rnn(state: Any, row: Array, kernel: Array, back: Array, _: int) -> Any:
    return jnp.tanh(row + state[0] @ kernel + back), state[1]


def _gru(state: Any, row: Array, kernel: Array, back: Array, linear_before_reset: int) -> Any:
    """z, r, n, in ONNX's order."""
    h, size = state[0], kernel.shape[0]
    both = row[:, : 2 * size] + h @ kernel[:, : 2 * size] + back[: 2 * size]
    z, r = jnp.split(jax.nn.sigmoid(both), 2, -1)
    rest, last = kernel[:, 2 * size :], back[2 * size :]
    inner = r * (h @ rest + last) if linear_before_reset else (r * h) @ rest + last
    n = jnp.tanh(row[:, 2 * size :] + inner)
    return (1 - z) * n + z * h, state[1]


def _lstm(state: Any, row: Array, kernel: Array, back: Array, _: int) -> Any:
    """i, o, f, g, in ONNX's order."""
    h, c = state
    i, o, f, g = jnp.split(row + h @ kernel + back, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


_STEPS: dict[str, tuple[int, Any]] = {"RNN": (1, _rnn), "GRU": (3, _gru), "LSTM": (4, _lstm)}
"""The number of gates, and a step."""


def conv_transpose(
    x: Array,
    w: Array,
    b: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    output_padding: Any = None,
    dilations: Any = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_shape: Any = None,
) -> Array:
    """The transpose of a convolution; the kernel has shape (in, out / group, ...)."""
    if auto_pad != "NOTSET" or output_shape:
        raise ExportError("ConvTranspose with auto_pad or output_shape has no translation: export it with pads")
    axes = x.ndim - 2
    ones = [1] * axes
    strides, dilations, more = strides or ones, dilations or ones, output_padding or [0] * axes
    pads = pads or [0] * 2 * axes
    reach = [d * (size - 1) for d, size in zip(dilations, w.shape[2:])]
    padding = [(n - pads[i], n - pads[i + axes] + more[i]) for i, n in enumerate(reach)]
    kernel = jnp.flip(w, range(2, w.ndim)).reshape(group, w.shape[0] // group, *w.shape[1:])
    kernel = kernel.swapaxes(1, 2).reshape(group * w.shape[1], w.shape[0] // group, *w.shape[2:])
    y = lax.conv_general_dilated(
        x, kernel, ones, padding, lhs_dilation=strides, rhs_dilation=dilations, feature_group_count=group
    )
    return y if b is None else y + b.reshape(1, -1, *ones)


def resize(
    x: Array,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    axes: Sequence[int] | None = None,
    **other: Any,
) -> Array:
    """Sample each axis at new places: the nearest cell, or a linear or cubic mean of neighbours."""
    other = {name: value for name, value in other.items() if name != "extrapolation_value"}
    if other.get("keep_aspect_ratio_policy") == "stretch":
        del other["keep_aspect_ratio_policy"]
    strange = [name for name, value in other.items() if value]
    if strange or coordinate_transformation_mode == "tf_crop_and_resize":
        raise ExportError(f"Resize with {', '.join(strange) or coordinate_transformation_mode} has no translation")
    given = sizes if sizes is not None and np.size(sizes) else scales
    if not isinstance(given, np.ndarray):
        raise ExportError("Resize has a size that is computed from the inputs' values: XLA needs it fixed")
    for axis, value in zip(range(x.ndim) if axes is None else axes, given.tolist()):
        old = x.shape[axis]
        new = int(value) if given is sizes else int(np.floor(old * value))
        if new == old and (given is sizes or value == 1):
            continue
        scale = new / old if given is sizes else value
        place = _places(coordinate_transformation_mode, new, old, scale)
        if mode == "nearest":
            x = jnp.take(x, _nearest(nearest_mode, place).clip(0, old - 1), axis)
        else:
            weights = jnp.asarray(_weights(mode, place, old, cubic_coeff_a), x.dtype)
            x = jnp.moveaxis(jnp.tensordot(x, weights, ((axis,), (1,)), precision="highest"), -1, axis)
    return x


def _places(mode: str, new: int, old: int, scale: Any) -> np.ndarray:
    """Where each new cell lies among the old, in float32 as in onnxruntime: rounding decides between neighbours."""
    cells, scale = np.arange(new, dtype=np.float32), np.float32(scale)
    if mode == "asymmetric":
        return cells / scale
    if mode == "align_corners":
        return cells * (old - 1) / max(new - 1, 1)
    if mode == "pytorch_half_pixel" and new == 1:
        return np.zeros(1)
    if mode == "half_pixel_symmetric":
        length = old * scale
        return old / 2 * (1 - new / length) + (cells + 0.5) / scale - 0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (cells + 0.5) / scale - 0.5
    raise ExportError(f"Resize with coordinate_transformation_mode {mode} has no translation")


def _nearest(mode: str, place: np.ndarray) -> np.ndarray:
    return {
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }[mode](place).astype(int)


def _weights(mode: str, place: np.ndarray, old: int, a: float) -> np.ndarray:
    """Row i holds the weights of the old cells in new cell i; cells beyond the edge are the edge's."""
    base = np.floor(place)
    t = (place - base)[:, None]
    if mode == "linear":
        offsets, shares = np.arange(2), np.concatenate([1 - t, t], 1)
    else:
        offsets = np.arange(-1, 3)
        d = np.abs(t - offsets)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        shares = np.where(d <= 1, near, far)
    found = np.zeros((len(place), old))
    index = (base[:, None] + offsets).clip(0, old - 1).astype(int)
    np.add.at(found, (np.arange(len(place))[:, None], index), shares)
    return found


def instance_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5) -> Array:
    """Each channel of each example, normalised over its spatial axes."""
    axes, shape = tuple(range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    centred = x - x.mean(axes, keepdims=True)
    y = centred * lax.rsqrt((centred**2).mean(axes, keepdims=True) + epsilon)
    return y * scale.reshape(shape) + bias.reshape(shape)
