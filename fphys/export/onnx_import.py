"""ONNX files as pure functions of their weights: differentiable, jittable, ready for fine-tuning."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import MissingDependencyError, install
from .errors import ExportError
from .onnx_ops import OPERATIONS

Array = jax.Array


def from_onnx(path: str | os.PathLike[str]) -> tuple[Callable[..., Any], dict[str, Array]]:
    """Return a function and its weights. ``fn(params, *inputs)`` gives the file's output, or a tuple of outputs.

    Shapes and layouts are the file's (torch's: channels first). Floating-point initialisers become ``params``, under
    their names in the file. Integers, such as a target shape, stay fixed. Gradients flow to ``params`` and to inputs.
    Supported are the neural-network operators of opset 13 and later, for inference: dropout does nothing, and batch
    normalisation uses its running statistics.

    Raises:
        ExportError: the file is missing or not ONNX, its opset is older, or it has operators without a translation; the
            message names them all. MissingDependencyError: onnx is not installed.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as cause:
        raise MissingDependencyError(f"onnx is not installed: {install('onnx')}") from cause
    path = Path(path)
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as cause:
        raise ExportError(f"{path} cannot be read as ONNX: {type(cause).__name__}: {cause}") from cause
    graph = model.graph
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < 13:
        raise ExportError(
            f"{path} has opset {opset}, must be 13 or later: export it again, or use onnx.version_converter"
        )
    unknown = sorted({node.op_type for node in graph.node if node.domain or node.op_type not in OPERATIONS})
    if unknown:
        raise ExportError(
            f"{path} has operators without a translation: {', '.join(unknown)}; known: {', '.join(OPERATIONS)}"
        )
    held = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    params = {name: jnp.asarray(value) for name, value in held.items() if value.dtype.kind == "f"}
    fixed = {name: value for name, value in held.items() if name not in params}
    steps = [_step(node, onnx) for node in graph.node]
    wanted = [entry.name for entry in graph.input if entry.name not in held]
    results = [entry.name for entry in graph.output]

    def fn(params: dict[str, Array], *inputs: Any) -> Any:
        """Run the file's graph and return its output, or a tuple of outputs."""
        if len(inputs) != len(wanted):
            raise ValueError(f"{path.name} takes {len(wanted)} inputs ({', '.join(wanted)}), got {len(inputs)}")
        values: dict[str, Any] = {"": None} | fixed | params | dict(zip(wanted, map(jnp.asarray, inputs)))
        for operator, names, outputs, attributes in steps:
            found = _run(operator, [values[name] for name in names], attributes)
            values |= dict(zip(outputs, found))
        found = tuple(jnp.asarray(values[name]) for name in results)
        return found[0] if len(found) == 1 else found

    return fn, params


def _step(node: Any, onnx: Any) -> tuple[str, list[str], list[str], dict[str, Any]]:
    """Operator, names of inputs and outputs, and attributes as Python values."""
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    for name, value in attributes.items():
        if isinstance(value, bytes):
            attributes[name] = value.decode()
        elif isinstance(value, onnx.TensorProto):
            attributes[name] = onnx.numpy_helper.to_array(value)
    return node.op_type, list(node.input), list(node.output), attributes


def _run(operator: str, inputs: list[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
    """An operator's outputs. They are NumPy arrays if all inputs are, so that shapes stay known under ``jit``."""
    if any(isinstance(value, jax.Array) for value in inputs) and operator != "Shape":
        found = OPERATIONS[operator](*inputs, **attributes)
        return found if isinstance(found, tuple) else (found,)
    with jax.ensure_compile_time_eval():
        found = OPERATIONS[operator](*inputs, **attributes)
        return tuple(np.asarray(value) for value in (found if isinstance(found, tuple) else (found,)))
