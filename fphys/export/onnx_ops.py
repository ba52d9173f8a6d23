"""ONNX operators (opset 13 and later) written in JAX, under their standard names.

Source: ONNX's operator schemas. Inputs are positional; attributes are keywords with the standard's defaults.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .errors import ExportError
from .onnx_layers import conv_transpose, instance_normalization, recurrent, resize

Array = jax.Array


def relaxed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function broadcast ranks and promote dtypes as ONNX does, whatever JAX's settings."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return fn(*args, **kwargs)

    return wrapped


def gemm(a: Array, b: Array, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0):
    """alpha A' B' + beta C."""
    product = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    return product if c is None else product + beta * c


def conv(
    x: Array,
    w: Array,
    b: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
):
    """Correlation over the spatial axes, channels first."""
    axes = x.ndim - 2
    strides, dilations = strides or [1] * axes, dilations or [1] * axes
    extent = [(size - 1) * step + 1 for size, step in zip(w.shape[2:], dilations)]
    padding = _padding(x.shape[2:], extent, strides, pads, auto_pad)
    y = lax.conv_general_dilated(x, w, strides, padding, rhs_dilation=dilations, feature_group_count=group)
    return y if b is None else y + b.reshape(1, -1, *[1] * axes)


def batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    **other,
):
    """Batch normalisation with running statistics."""
    if other.get("training_mode"):
        raise ExportError("BatchNormalization is in training mode: export the model in evaluation mode")
    shape = (1, -1, *[1] * (x.ndim - 2))
    factor = scale * lax.rsqrt(var + epsilon)
    return (x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape)


def layer_normalization(x: Array, scale: Array, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, **_):
    axes = tuple(range(axis % x.ndim, x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    y = centred * lax.rsqrt((centred**2).mean(axes, keepdims=True) + epsilon) * scale
    return y if bias is None else y + bias


def max_pool(x: Array, *, kernel_shape: Any, strides: Any = None, pads: Any = None, **options: Any):
    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    return _pool(x, lax.max, np.asarray(lowest, x.dtype), kernel_shape, strides, pads, **options)[0]


def average_pool(
    x: Array, *, kernel_shape: Any, strides: Any = None, pads: Any = None, count_include_pad: int = 0, **options: Any
):
    zero = np.zeros((), x.dtype)  # known when JAX differentiates, so that it sees a sum
    total, places, padding = _pool(x, lax.add, zero, kernel_shape, strides, pads, **options)
    for axis, (place, size, (before, after)) in enumerate(zip(places, x.shape[2:], padding)):
        low, high = (-before, size + after) if count_include_pad else (0, size)  # cells beyond these do not count
        count = ((place >= low) & (place < high)).sum(1).astype(x.dtype)
        total = total / count.reshape(-1, *[1] * (x.ndim - 3 - axis))
    return total


def _pool(x, combine, start, kernel, strides, pads, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, storage_order=0):
    """The windows combined; where their cells lie in the input, (window, cell), and the padding, for each axis."""
    axes = x.ndim - 2
    strides, dilations = strides or [1] * axes, dilations or [1] * axes
    extent = [(size - 1) * step + 1 for size, step in zip(kernel, dilations)]
    given = padding = _padding(x.shape[2:], extent, strides, pads, auto_pad)
    if ceil_mode:
        padding = [
            _ceiled(size, *pad, width, stride) for size, pad, width, stride in zip(x.shape[2:], given, extent, strides)
        ]
    window, step, dilation = (1, 1, *kernel), (1, 1, *strides), (1, 1, *dilations)
    y = lax.reduce_window(x, start, combine, window, step, [(0, 0), (0, 0), *padding], window_dilation=dilation)
    numbers = zip(y.shape[2:], strides, given, kernel, dilations)
    places = [np.arange(n)[:, None] * s - before + np.arange(k) * d for n, s, (before, _), k, d in numbers]
    return y, places, given


def _ceiled(size: int, before: int, after: int, width: int, stride: int) -> tuple[int, int]:
    """Padding that keeps the last window if it starts inside the input or the padding before it."""
    count = -(-(size + before + after - width) // stride) + 1
    count -= (count - 1) * stride >= size + before
    return before, max(after, (count - 1) * stride + width - size - before)


def _padding(sizes: Any, extent: Any, strides: Any, pads: Any, auto: str) -> list[tuple[int, int]]:
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for size, width, stride in zip(sizes, extent, strides):
            total = max((-(-size // stride) - 1) * stride + width - size, 0)
            half = total // 2
            found.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
        return found
    if auto == "VALID" or not pads:
        return [(0, 0)] * len(sizes)
    return list(zip(pads[: len(sizes)], pads[len(sizes) :]))


def reshape(x: Array, shape: Any, *, allowzero: int = 0):
    shape = _static("Reshape", shape)
    return jnp.reshape(x, [x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)])


def slice_(x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None):
    starts, ends = _static("Slice", starts), _static("Slice", ends)
    axes = range(len(starts)) if axes is None else _static("Slice", axes)
    steps = [1] * len(starts) if steps is None else _static("Slice", steps)
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps):
        size = x.shape[axis]
        beyond = step < 0 and end < -size  # down to and including the first element
        index[axis] = slice(start, None if beyond else end, step)
    return x[tuple(index)]


def squeeze(x: Array, axes: Any = None):
    return jnp.squeeze(x, None if axes is None else tuple(_static("Squeeze", axes)))


def split(x: Array, sizes: Any = None, *, axis: int = 0, num_outputs: int = 0):
    if sizes is None:
        part = -(-x.shape[axis] // num_outputs)
        cuts = [part * i for i in range(1, num_outputs)]
    else:
        cuts = np.cumsum(_static("Split", sizes))[:-1].tolist()
    return tuple(jnp.split(x, cuts, axis))


def pad(x: Array, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant"):
    pads = _static("Pad", pads)
    axes = range(x.ndim) if axes is None else [axis % x.ndim for axis in _static("Pad", axes)]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = pads[i], pads[i + len(pads) // 2]
    cut = tuple(slice(max(0, -low), size + min(0, high)) for size, (low, high) in zip(x.shape, widths))
    x, widths = x[cut], [(max(0, low), max(0, high)) for low, high in widths]  # a negative width is cut off
    if mode == "constant":
        return jnp.pad(x, widths, constant_values=0 if value is None else value)
    return jnp.pad(x, widths, mode=mode)


def gather(x: Any, index: Any, *, axis: int = 0):
    return jnp.take(x, jnp.asarray(index), axis)  # negative indices count from the end in both


def flatten(x: Array, *, axis: int = 1):
    axis = axis % x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def reduction(combine: Callable[..., Array]) -> Callable[..., Array]:
    """A reduction whose axes are an attribute (up to opset 17) or an input."""

    def reduce(x: Array, given: Any = None, *, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0):
        axes = axes if given is None else _static("a reduction", given)
        if not axes and noop_with_empty_axes:
            return x
        return combine(x, axis=tuple(axes) if axes else None, keepdims=bool(keepdims))

    return reduce


def constant(**attributes: Any) -> Any:
    (value,) = attributes.values()
    return np.asarray(value, np.float32 if "value_float" in attributes or "value_floats" in attributes else None)


def _clip(x: Array, low: Any = None, high: Any = None):
    return jnp.clip(x, low, high)


def _static(operator: str, values: Any) -> list[int]:
    """Integers that determine shapes; they must not depend on the inputs' values."""
    if not isinstance(values, np.ndarray):
        raise ExportError(
            f"{operator} has a shape or axis that is computed from the inputs' values: XLA needs it fixed"
        )
    return [int(value) for value in values.reshape(-1)]


def _cast(x: Any, *, to: int, **_: Any):
    from onnx import helper

    dtype = jax.dtypes.canonicalize_dtype(helper.tensor_dtype_to_np_dtype(to))  # int32 for int64 where x64 is off
    return jnp.asarray(x).astype(dtype)


def _variadic(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *inputs: functools.reduce(combine, inputs)


def _divide(a: Any, b: Any) -> Any:
    return lax.div(*jnp.broadcast_arrays(a, b)) if jnp.issubdtype(a.dtype, jnp.integer) else a / b


def _concat(*inputs: Any, axis: int) -> Array:
    return jnp.concatenate([jnp.asarray(x) for x in inputs], axis)


def _expand(x: Array, shape: Any) -> Array:
    shape = _static("Expand", shape)
    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape)))


def _gelu(x: Array, *, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _selu(x: Array, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Array:
    return gamma * jax.nn.elu(x, alpha)


def _filled(shape: Any, *, value: Any = None) -> Any:
    value = np.zeros(1, np.float32) if value is None else value
    return np.full(_static("ConstantOfShape", shape), value[0], value.dtype)


def _unsqueeze(x: Array, axes: Any) -> Array:
    return jnp.expand_dims(x, tuple(_static("Unsqueeze", axes)))


def _shape(x: Array, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.asarray(np.shape(x)[start:end], np.int64)


def _transpose(x: Array, *, perm: Sequence[int] | None = None) -> Array:
    return jnp.transpose(x, perm)


def _range(start: Any, limit: Any, delta: Any) -> np.ndarray:
    (first,), (last,), (step,) = (_static("Range", value) for value in (start, limit, delta))
    return np.arange(first, last, step).astype(start.dtype)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


OPERATIONS: dict[str, Callable[..., Any]] = {
    name: relaxed(fn)
    for name, fn in {
        "Abs": jnp.abs,
        "Add": lambda a, b: a + b,
        "And": jnp.logical_and,
        "AveragePool": average_pool,
        "BatchNormalization": batch_normalization,
        "Cast": _cast,
        "Clip": _clip,
        "Concat": _concat,
        "Constant": constant,
        "ConstantOfShape": _filled,
        "Conv": conv,
        "ConvTranspose": conv_transpose,
        "Cos": jnp.cos,
        "Div": _divide,
        "Dropout": lambda x, *_, **__: x,
        "Einsum": lambda *inputs, equation: jnp.einsum(equation, *inputs),
        "Elu": lambda x, alpha=1.0: jax.nn.elu(x, alpha),
        "Equal": lambda a, b: a == b,
        "Erf": jax.scipy.special.erf,
        "Exp": jnp.exp,
        "Expand": _expand,
        "Flatten": flatten,
        "Floor": jnp.floor,
        "Gather": gather,
        "Gelu": _gelu,
        "GRU": recurrent("GRU"),
        "Gemm": gemm,
        "GlobalAveragePool": lambda x: x.mean(_spatial(x), keepdims=True),
        "GlobalMaxPool": lambda x: x.max(_spatial(x), keepdims=True),
        "Greater": lambda a, b: a > b,
        "GreaterOrEqual": lambda a, b: a >= b,
        "HardSigmoid": lambda x, alpha=0.2, beta=0.5: jnp.clip(alpha * x + beta, 0, 1),
        "HardSwish": lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1),
        "Identity": lambda x: x,
        "InstanceNormalization": instance_normalization,
        "LSTM": recurrent("LSTM"),
        "LayerNormalization": layer_normalization,
        "LeakyRelu": lambda x, alpha=0.01: jnp.where(x >= 0, x, alpha * x),
        "Less": lambda a, b: a < b,
        "LessOrEqual": lambda a, b: a <= b,
        "Log": jnp.log,
        "LogSoftmax": lambda x, axis=-1: jax.nn.log_softmax(x, axis),
        "MatMul": lambda a, b: jnp.matmul(a, b),
        "Max": _variadic(jnp.maximum),
        "MaxPool": max_pool,
        "Min": _variadic(jnp.minimum),
        "Mul": lambda a, b: a * b,
        "Neg": lambda x: -x,
        "Not": jnp.logical_not,
        "Or": jnp.logical_or,
        "PRelu": lambda x, slope: jnp.where(x >= 0, x, slope * x),
        "Pad": pad,
        "Pow": lambda a, b: jnp.power(a, b).astype(a.dtype),
        "RNN": recurrent("RNN"),
        "Range": _range,
        "Reciprocal": lambda x: 1 / x,
        "ReduceMax": reduction(jnp.max),
        "ReduceMean": reduction(jnp.mean),
        "ReduceMin": reduction(jnp.min),
        "ReduceSum": reduction(jnp.sum),
        "ReduceSumSquare": reduction(lambda x, **options: jnp.sum(x * x, **options)),
        "Relu": jax.nn.relu,
        "Reshape": reshape,
        "Resize": resize,
        "Selu": _selu,
        "Shape": _shape,
        "Sigmoid": jax.nn.sigmoid,
        "Sin": jnp.sin,
        "Slice": slice_,
        "Softmax": lambda x, axis=-1: jax.nn.softmax(x, axis),
        "Softplus": jax.nn.softplus,
        "Softsign": jax.nn.soft_sign,
        "Split": split,
        "Sqrt": jnp.sqrt,
        "Squeeze": squeeze,
        "Sub": lambda a, b: a - b,
        "Sum": _variadic(lambda a, b: a + b),
        "Tanh": jnp.tanh,
        "Transpose": _transpose,
        "Unsqueeze": _unsqueeze,
        "Where": jnp.where,
    }.items()
}
"""Operators by name."""
