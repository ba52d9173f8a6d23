"""ONNX export with jax2onnx. The graph is run and compared with the function before it is written."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import Jaxpr, Literal

from ..errors import MissingDependencyError, install
from .errors import ExportError
from .trace import inner_program, trace

Array = jax.Array


def to_onnx(
    path: str | os.PathLike[str],
    fn: Callable[..., Any],
    *examples: Any,
    batch: str | None = "batch",
    tol: float = 1e-5,
) -> Path:
    """Write a function of arrays as an ONNX file, and check it by running onnxruntime on the examples.

    Args:
        path: where to write, ``.onnx``.
        fn: ``fn(*examples)`` returns an array or a tuple of arrays. Parameters in its closure become constants.
        examples: arrays that define shapes and dtypes, float32 or integers.
        batch: name of the inputs' first axis, whose size stays open in the file; None fixes that axis too.
        tol: largest difference between the file's and the function's outputs, relative to the largest output or 1.

    Raises:
        ExportError: the function contains a Warp operation or one without a translation, the graph's outputs are
            wrong, or the file cannot be written. No file is left then. MissingDependencyError: jax2onnx or onnxruntime
            is not installed.
    """
    try:
        import jax2onnx
        import onnxruntime  # noqa: F401
    except ImportError as cause:
        raise MissingDependencyError(f"{cause.name} is not installed: {install('onnx')}") from cause
    path, examples = Path(path), tuple(map(jnp.asarray, examples))
    specs = [jax.ShapeDtypeStruct(_shape(x, batch), x.dtype) for x in examples]
    program, _ = trace(fn, tuple(specs))

    def translated(*inputs: Array) -> Any:
        outputs = tuple(_evaluate(program.jaxpr, program.consts, inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    double = any(x.dtype == jnp.float64 for x in examples)
    quiet = logging.getLogger("onnx_ir")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    cumsum = jnp.cumsum
    try:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # flax's pooling needs them
            model = jax2onnx.to_onnx(translated, specs, enable_double_precision=double)
        content = model.SerializeToString()  # type: ignore[union-attr]
    except Exception as cause:
        hint = "; batch=None may help" if batch else ""
        raise ExportError(f"jax2onnx cannot translate the function{hint}: {type(cause).__name__}: {cause}") from cause
    finally:
        quiet.setLevel(level)
        jnp.cumsum = cumsum  # jax2onnx leaves its own there, which takes no positional axis
    _compare(path, content, fn, examples, tol)
    draft = path.with_name(f"{path.name}.part")
    try:
        draft.write_bytes(content)
        os.replace(draft, path)
    except OSError as cause:
        raise ExportError(f"{path} cannot be written: {cause}; choose another folder or name") from cause
    finally:
        draft.unlink(missing_ok=True)
    return path


def _shape(x: Array, batch: str | None) -> tuple[Any, ...]:
    if batch is None or not x.ndim:
        return x.shape
    from jax import export

    (symbol,) = _symbols(export, batch)
    return (symbol, *x.shape[1:])


def _symbols(export: Any, batch: str) -> Any:
    if batch not in _SCOPE:
        _SCOPE[batch] = export.symbolic_shape(batch)
    return _SCOPE[batch]


_SCOPE: dict[str, Any] = {}
"""One symbol per name, because symbols of two scopes cannot be compared."""


def _evaluate(jaxpr: Any, consts: Any, inputs: Any) -> list[Any]:
    """Run a program equation by equation, inlining its inner functions and rewriting pooling for jax2onnx."""
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        args = [read(atom) for atom in equation.invars]
        if inner := inner_program(equation):
            outs = _evaluate(inner.jaxpr, inner.consts, args)
        elif (pooled := _pooling(equation, args)) is not None:
            outs = [pooled]
        else:
            free = {atom: value for atom, value in zip(equation.invars, args) if not isinstance(atom, Literal)}
            alone = Jaxpr([], list(free), equation.outvars, [equation], equation.effects, jaxpr.debug_info)
            outs = eval_jaxpr(alone, [], *free.values())
        values.update(zip(equation.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _pooling(equation: Any, args: list[Any]) -> Any:
    """A window's maximum or sum over height and width, as flax's pooling; None for other equations."""
    from flax import nnx

    name, params = equation.primitive.name, equation.params
    if name not in ("reduce_window_max", "reduce_window_sum") or args[0].ndim != 4:
        return None
    window, strides, padding = (params[key] for key in ("window_dimensions", "window_strides", "padding"))
    outer = [(window[i], strides[i], tuple(padding[i])) for i in (0, 3)]
    dilated = any(n != 1 for key in ("base_dilation", "window_dilation") for n in params[key])
    if dilated or outer != [(1, 1, (0, 0))] * 2:
        return None
    shapes = {"window_shape": window[1:3], "strides": strides[1:3], "padding": "VALID"}  # jax2onnx drops other padding
    if name == "reduce_window_max":
        lowest = jnp.finfo(args[0].dtype).min
        return nnx.max_pool(_padded(args[0], padding, lambda x: jnp.minimum(x, lowest)), **shapes)
    padded = _padded(args[0], padding, lambda x: x * 0)
    return nnx.avg_pool(padded, **shapes) * jnp.asarray(window[1] * window[2], padded.dtype)


def _padded(x: Array, padding: Any, outside: Callable[[Array], Array]) -> Array:
    """Pad with values computed from the array itself, because jax2onnx cannot pad arrays of open size."""
    for axis in (1, 2):
        before, after = (outside(jax.lax.slice_in_dim(x, 0, n, axis=axis)) for n in padding[axis])
        parts = [part for part in (before, x, after) if part.shape[axis]]
        x = jnp.concatenate(parts, axis) if len(parts) > 1 else x
    return x


def _compare(path: Path, content: bytes, fn: Callable[..., Any], examples: tuple[Array, ...], tol: float) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [entry.name for entry in session.get_inputs()]
        found = session.run(None, dict(zip(names, map(np.asarray, examples), strict=True)))
    except Exception as cause:
        raise ExportError(f"onnxruntime cannot run {path}: {cause}") from cause
    for i, (value, wanted) in enumerate(zip(found, jax.tree.leaves(jax.jit(fn)(*examples)), strict=True)):
        value, wanted = np.asarray(value, np.float64), np.asarray(wanted, np.float64)
        apart = ~((value == wanted) | (np.isnan(value) & np.isnan(wanted)))  # infinities and NaN may be right
        error = np.abs(value[apart] - wanted[apart]).max(initial=0.0)
        if not error <= tol * np.abs(wanted).max(initial=1.0, where=np.isfinite(wanted)):
            raise ExportError(f"output {i} of {path} is off by {error:.3g} from the function's: jax2onnx failed")
