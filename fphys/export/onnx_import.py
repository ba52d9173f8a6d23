"""ONNX files as pure functions of their weights: differentiable, jittable, ready for fine-tuning."""

import os
from collections.abc import Callable, Iterator
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
    their names in the file. What is no weight stays fixed: integers, such as a target shape; scalars, such as an
    epsilon or an exponent; and arrays that are not finite, such as a mask. Gradients flow to ``params`` and to inputs.
    A ``Loop`` must run for a number of steps that is known when it is compiled.

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
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < 13:
        raise ExportError(
            f"{path} has opset {opset}, must be 13 or later: export it again, or use onnx.version_converter"
        )
    known = {*OPERATIONS, "Loop"}
    graphs = list(_graphs(model.graph))
    unknown = sorted({n.op_type for graph in graphs for n in graph.node if n.domain or n.op_type not in known})
    if unknown:
        raise ExportError(
            f"{path} has operators without a translation: {', '.join(unknown)}; known: {', '.join(sorted(known))}"
        )
    held = {entry.name: numpy_helper.to_array(entry) for graph in graphs for entry in graph.initializer}
    sizes = {name for graph in graphs for node in graph.node if node.op_type == "Resize" for name in node.input[1:]}
    params = {name: jnp.asarray(value) for name, value in held.items() if name not in sizes and _is_weight(value)}
    fixed = {name: value for name, value in held.items() if name not in params}
    program = _Program(model.graph, onnx, held)

    def fn(params: dict[str, Array], *inputs: Any) -> Any:
        """Run the file's graph and return its output, or a tuple of outputs."""
        names = program.inputs
        if len(inputs) != len(names):
            raise ValueError(f"{path.name} takes {len(names)} inputs ({', '.join(names)}), got {len(inputs)}")
        values: dict[str, Any] = {"": None} | fixed | params | dict(zip(names, map(jnp.asarray, inputs)))
        found = tuple(map(jnp.asarray, program(values)))
        return found[0] if len(found) == 1 else found

    return fn, params


class _Program:
    """A graph, run node by node in a dictionary of values by name."""

    def __init__(self, graph: Any, onnx: Any, held: Any):
        self.inputs = [entry.name for entry in graph.input if entry.name not in held]
        self.outputs = [entry.name for entry in graph.output]
        self.steps = [_step(node, onnx) for node in graph.node]
        for *_, attributes in self.steps:
            if "body" in attributes:
                attributes["body"] = _Program(attributes["body"], onnx, held)

    def __call__(self, values: dict[str, Any]) -> list[Any]:
        values = dict(values)
        for operator, names, outputs, attributes in self.steps:
            inputs = [values[name] for name in names]
            found = _loop(values, *inputs, **attributes) if operator == "Loop" else _run(operator, inputs, attributes)
            values |= dict(zip(outputs, found))
        return [values[name] for name in self.outputs]


def _loop(values: dict[str, Any], count: Any, go: Any, *start: Any, body: _Program) -> list[Any]:
    """The last states, and what each round returns, stacked."""
    if not isinstance(count, np.ndarray) or not (go is None or (isinstance(go, np.ndarray) and go.all())):
        raise ExportError(
            "Loop runs for a number of steps that is computed from the inputs' values: XLA needs it fixed"
        )

    def one(states: list[Any], number: Any) -> Any:
        given = dict(zip(body.inputs, [number, np.asarray(True), *states]))
        go, *found = body(values | given)
        if not isinstance(go, np.ndarray) or not go.all():
            raise ExportError("Loop may end early, by a value that is computed: XLA needs its number of steps fixed")
        return found[: len(states)], found[len(states) :]

    states, rows = jax.lax.scan(one, list(map(jnp.asarray, start)), jnp.arange(int(count)))
    return [*states, *rows]


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _is_weight(value: np.ndarray) -> bool:
    return value.dtype.kind == "f" and value.ndim > 0 and bool(np.isfinite(value).all())


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
