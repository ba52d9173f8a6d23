"""Symbolic arrays and the record of the launches that a function asks for.

A function given to :func:`fphys.bridge.warp_op` runs once per set of shapes, on :class:`Buffer`
objects instead of arrays, and calls ``launch`` instead of ``wp.launch``. Its launches are checked
here, against the shapes, before anything runs; the same record, read backwards, is the adjoint.
"""

import ast
import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import warp as wp

from ..errors import BridgeError, PrecisionError
from .ordered import in_order, ordered
from .private import Struct, is_array, type_scalar_type

_SYMBOL = (
    "inside a launch function arrays are symbols with shape, dtype and ndim, and no values; compute in a kernel, or in "
    "JAX before or after the operation"
)


@dataclasses.dataclass(eq=False)
class Buffer:
    """An array that a launch may use: world axis first, then lanes, then the components of its elements."""

    name: str
    role: str  # "input", "output" or "scratch"
    shape: tuple[int, ...]
    dtype: np.dtype
    writer: str | None = None  # the kernel that writes it
    shared: bool = False  # one row in memory, for all worlds

    def present(self, worlds: int) -> None:
        """Show an input of leading size 1 as if each world had its own row, as kernels see it."""
        if self.shape and self.shape[0] == 1 and worlds > 1:
            self.shape, self.shared = (worlds, *self.shape[1:]), True

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes from one world to the next."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name} {self.dtype.name}{list(self.shape)}"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name if name.startswith("_") else f"{self} has no {name}: {_SYMBOL}")

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(f"{self} cannot be computed with: {_SYMBOL}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refuse
    __neg__ = __pos__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __getitem__ = __iter__ = __float__ = __int__ = __index__ = __array__ = _refuse


@dataclasses.dataclass(eq=False)
class Constant:
    """An array that is part of the model's structure, the same for every world: an index table, a list of types."""

    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A kernel's parameter, or a field of a ``wp.struct`` parameter, whose label is then "parameter.field"."""

    label: str
    type: Any


@functools.cache
def parameters(kernel: Any) -> tuple[Parameter, ...]:
    """All parameters of a kernel, in order, with structures flattened into their fields."""
    return tuple(leaf for arg in kernel.adj.args for leaf in _leaves(arg.label, arg.type))


def _leaves(label: str, kind: Any) -> list[Parameter]:
    if not isinstance(kind, Struct):
        return [Parameter(label, kind)]
    return [leaf for name, field in kind.vars.items() for leaf in _leaves(f"{label}.{name}", field.type)]


def _taken_apart(label: str, arg: Any, value: Any) -> list[Any]:
    """The values of a parameter's leaves. A structure is given by a mapping, or by an object with its fields' names."""
    if not isinstance(arg.type, Struct):
        return [value]
    found: list[Any] = []
    for name, field in arg.type.vars.items():
        if name not in value if isinstance(value, Mapping) else not hasattr(value, name):
            raise BridgeError(
                f"{label}: argument {arg.label} is a {arg.type.key}, and the {type(value).__name__} passed for it has "
                f"no {name}: it needs {', '.join(arg.type.vars)}"
            )
        found += _taken_apart(label, field, value[name] if isinstance(value, Mapping) else getattr(value, name))
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Launch:
    """One kernel launch: ``args`` are buffers, constants or scalars, one for each that :func:`parameters` lists."""

    kernel: Any
    dim: tuple[int, ...]
    args: tuple[Any, ...]
    outputs: tuple[Buffer, ...]


class Recorder:
    """What the wrapped function sees as ``launch``."""

    def __init__(self, name: str, worlds: int, differentiable: bool = True, platform: str = "cpu", form: Any = None):
        self.name = name
        self.form = form  # of the outputs, a tree definition
        self.platform = platform
        self.worlds = worlds
        self.differentiable = differentiable
        self.launches: list[Launch] = []
        self.buffers: list[Buffer] = []
        self.zeroed: list[Buffer] = []
        self.cleared: set[Buffer] = set()
        self.used: set[Buffer] = set()

    def scratch(self, shape: Sequence[int], dtype: Any, *, zeroed: bool = False) -> Buffer:
        """Declare scratch memory; XLA owns it.

        Args:
            shape: world axis first.
            dtype: a Warp scalar, vector or matrix type.
            zeroed: fill with zeros before the first launch; otherwise every element must be written.
        """
        scalar = np.dtype(wp.dtype_to_numpy(type_scalar_type(dtype)))
        inner = tuple(getattr(dtype, "_shape_", ()))
        if not shape or shape[0] != self.worlds:
            raise BridgeError(
                f"{self.name}: scratch of shape {list(shape)} must have the world axis first: {self.worlds} worlds"
            )
        buffer = Buffer(f"scratch{len(self.buffers)}", "scratch", (*shape, *inner), scalar)
        self.buffers.append(buffer)
        if zeroed:
            self.zeroed.append(buffer)
        return buffer

    def clears(self, buffer: Buffer) -> None:
        """Say that kernels themselves clear what they use of an output, or their adjoints of an input's cotangent.

        The bridge clears no such buffer, and what nobody cleared is not to be read.
        """
        self.cleared.add(buffer)

    def __call__(
        self,
        kernel: Any,
        dim: int | Sequence[int],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Buffer] = (),
        adds: bool = False,
    ) -> None:
        """Record one launch of ``kernel`` over ``dim`` (worlds first). The arguments are those of ``wp.launch``.

        ``adds``: threads of a world add to the same numbers in C++; what a kernel's Python adds by atomics is seen.
        """
        dims = (int(dim),) if isinstance(dim, int | np.integer) else tuple(int(d) for d in dim)
        if not isinstance(kernel, wp.Kernel):
            raise BridgeError(f"{self.name}: launch needs a @wp.kernel, got {type(kernel).__name__}")
        label = f"{self.name}: kernel {kernel.key}"
        if not len(outputs):
            raise BridgeError(
                f"{label} is launched without outputs: pass what it writes as outputs=[...], the rest as inputs=[...]"
            )
        args: list[Any] = [*inputs, *outputs]
        if len(args) != len(kernel.adj.args):
            names = ", ".join(a.label for a in kernel.adj.args)
            raise BridgeError(
                f"{label} takes {len(kernel.adj.args)} arguments ({names}), the launch passes {len(args)}"
            )
        if self.differentiable and (found := _lost_adjoint(kernel)):
            raise BridgeError(
                f"{label}: the adjoint by hand of {found[0]} writes to wp.adjoint[{found[1]}], a structure's field, "
                "and Warp loses what is written there once the kernel has read that field itself: pass the array as a "
                "parameter of its own"
            )
        if kernel.is_generic:
            kernel = kernel.add_overload([_concrete(a.type, v) for a, v in zip(kernel.adj.args, args, strict=True)])
        apart = [_taken_apart(label, a, value) for a, value in zip(kernel.adj.args, args, strict=True)]
        written = [value for values in apart[len(inputs) :] for value in values]
        args = [value for values in apart for value in values]
        args = [self._bind(label, p, value) for p, value in zip(parameters(kernel), args, strict=True)]
        for value in written:
            self._claim(label, value)
        for p, value in zip(parameters(kernel)[: len(args) - len(written)], args, strict=False):
            if p.label in _written(kernel) and isinstance(value, Buffer | Constant):
                raise BridgeError(
                    f"{label} writes {p.label}, which the launch passes among its inputs: inputs are immutable; "
                    "pass an output or launch.scratch under outputs="
                )
        self._check_dims(label, dims, kernel, args)
        launch = Launch(kernel, dims, tuple(args), tuple(written))
        self.launches.append(in_order(launch) if ordered(self.platform) and (adds or _adds(kernel)) else launch)
        self.used.update(a for a in args if isinstance(a, Buffer))

    def _bind(self, label: str, arg: Any, value: Any) -> Any:
        """Check one argument against the kernel's signature."""
        if not is_array(arg.type):
            if isinstance(value, Buffer | np.ndarray):
                raise BridgeError(f"{label}: argument {arg.label} is a scalar, the launch passes an array")
            return value
        if isinstance(value, np.ndarray):
            value = Constant(value)
        shape, dtype = (value.shape, value.dtype) if isinstance(value, Buffer) else _array_spec(label, arg, value)
        inner = tuple(getattr(arg.type.dtype, "_shape_", ()))
        scalar = np.dtype(wp.dtype_to_numpy(type_scalar_type(arg.type.dtype)))
        if dtype != scalar:
            raise PrecisionError(
                f"{label}: argument {arg.label} is {scalar.name}, got {dtype.name} ({value}): cast the array by "
                f'.astype("{scalar.name}"), or let the kernel take {dtype.name} elements'
            )
        if len(shape) != arg.type.ndim + len(inner) or shape[arg.type.ndim :] != inner:
            want = "x".join(["n"] * arg.type.ndim + [str(i) for i in inner])
            raise BridgeError(f"{label}: argument {arg.label} has shape {want}, got {value}")
        return value

    def _claim(self, label: str, buffer: Any) -> None:
        """On a differentiated path an array has one writer: overwriting it would give wrong gradients."""
        if not isinstance(buffer, Buffer) or buffer.role == "input":
            raise BridgeError(f"{label} writes {buffer}: inputs are immutable, write to an output or to launch.scratch")
        if buffer.writer is not None and self.differentiable:
            raise BridgeError(
                f"{label} writes {buffer}, which {buffer.writer} wrote before: the adjoint would read overwritten "
                "values. Write to a second array"
            )
        buffer.writer = label.rsplit(" ", 1)[-1]

    def _check_dims(self, label: str, dims: tuple[int, ...], kernel: Any, args: list[Any]) -> None:
        """A launch must not run past its arrays."""
        if not dims or dims[0] != self.worlds:
            raise BridgeError(
                f"{label} is launched over {list(dims)}, but the operation has {self.worlds} worlds: the first "
                "launch axis is the world axis"
            )
        views = {
            arg.label: (a.shape if isinstance(a, Buffer) else a.value.shape)[: arg.type.ndim]
            for arg, a in zip(parameters(kernel), args, strict=True)
            if isinstance(a, Buffer | Constant)
        }
        for axis, extent in enumerate(dims[1:], start=1):
            sizes = {view[axis] for view in views.values() if len(view) > axis}
            sizes |= {n for a in args if isinstance(a, Constant) for n in a.value.shape}
            strides = zip(parameters(kernel), args, strict=True)
            sizes |= {a for arg, a in strides if arg.label.split(".")[-1] == "lanes"}
            if extent not in sizes:
                raise BridgeError(
                    f"{label} is launched over {list(dims)}, but no array has size {extent} on axis {axis} "
                    f"(sizes there: {sorted(sizes)}): the launch would run past its arrays"
                )
        for array, axis, index, thread in _thread_indices(kernel):
            if axis == thread == 0:
                continue  # the world axis, on which all arrays must agree
            if array in views and thread < len(dims) and views[array][axis] < dims[thread]:
                raise BridgeError(
                    f"{label} has {dims[thread]} threads on axis {thread}, and {array} has size {views[array][axis]} "
                    f"on axis {axis}, which is indexed by {index}: the launch would run past it. Guard the access by "
                    f"`if {index} < {array}.shape[{axis}]`, or launch over fewer threads"
                )


@functools.cache
def _written(kernel: Any) -> frozenset[str]:
    """Arrays whose elements a kernel assigns or adds to."""
    found = set()
    for node in ast.walk(kernel.adj.tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(ast.unparse(node.value))
        elif isinstance(node, ast.Call) and ".atomic_" in ast.unparse(node.func):
            found.add(ast.unparse(node.args[0]))
    return frozenset(found)


@functools.cache
def _adds(code: Any) -> bool:
    """Whether a kernel, or a function that it calls, adds to elements of arrays by atomics: not what C++ in it does."""
    arrays = {arg.label for arg in code.adj.args if is_array(arg.type)}
    for node in ast.walk(code.adj.tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            array = node.target.value  # or a field of a structure
            if isinstance(array, ast.Attribute) or ast.unparse(array) in arrays:
                return True
        elif isinstance(node, ast.Call) and ".atomic_" in ast.unparse(node.func):
            return True
    return any(map(_adds, _callees(code)))


def _callees(code: Any) -> Iterator[Any]:
    """The Warp functions that a kernel or a function calls by their names."""
    known = {**code.adj.func.__globals__, **inspect.getclosurevars(code.adj.func).nonlocals}
    for node in ast.walk(code.adj.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            callee = known.get(node.func.id)
            if isinstance(callee, wp.Function) and hasattr(callee, "adj") and callee is not code:
                yield callee


@functools.cache
def _lost_adjoint(code: Any) -> tuple[str, str] | None:
    """A called function's custom adjoint that addresses a structure's field, and the name of that field."""
    for node in ast.walk(code.adj.tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".adjoint"):
            if isinstance(node.slice, ast.Attribute):
                return code.key, ast.unparse(node.slice)
    for callee in _callees(code):
        for part in (callee, callee.custom_grad_func):
            if part is not None and hasattr(part, "adj") and part is not code and (found := _lost_adjoint(part)):
                return found
    return None


@functools.cache
def _thread_indices(kernel: Any) -> tuple[tuple[str, int, str, int], ...]:
    """Where a kernel indexes an array directly by ``wp.tid()``: (array, its axis, the index, its axis of the launch).

    What stands under a condition on the index is left out: only a run can tell where it leads.
    """
    threads: dict[str, int] = {}
    for node in ast.walk(kernel.adj.tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".tid()"):
            target = node.targets[0]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            threads |= {name.id: i for i, name in enumerate(names) if isinstance(name, ast.Name)}
    stores = [n.id for n in ast.walk(kernel.adj.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    found = set()

    def visit(node: ast.AST, free: set[str]) -> None:
        """Look at and below a node, where no condition on the free names holds."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name | ast.Attribute):
            indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for axis, index in enumerate(indices):
                if isinstance(index, ast.Name) and index.id in free:
                    found.add((ast.unparse(node.value), axis, index.id, threads[index.id]))
        condition = getattr(node, "test", getattr(node, "iter", None))
        for _, value in ast.iter_fields(node):
            here = free if value is condition else free - _names(condition)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, here)
                    if isinstance(node, ast.BoolOp):
                        here = here - _names(child)
                    elif isinstance(child, ast.If) and _leaves_early(child):
                        here = here - _names(child.test)

    visit(kernel.adj.tree, {name for name in threads if stores.count(name) == 1})
    return tuple(sorted(found))


def _leaves_early(node: ast.If) -> bool:
    """Whether what follows a condition may be left out: it returns, or leaves the loop or round that it stands in."""
    returns = any(isinstance(n, ast.Return) for n in ast.walk(node))
    return returns or isinstance(node.body[-1], ast.Continue | ast.Break)


def _names(node: ast.AST | None) -> set[str]:
    """The names that an expression mentions."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node else set()


def _array_spec(label: str, arg: Any, value: Any) -> tuple[tuple[int, ...], np.dtype]:
    if not isinstance(value, Constant):
        raise BridgeError(
            f"{label}: argument {arg.label} is an array, got {type(value).__name__}. Pass the operation's own arrays, "
            "launch.scratch, or a NumPy array that is the same for every world"
        )
    return value.value.shape, value.value.dtype


def _concrete(template: Any, value: Any) -> Any:
    """The concrete type of a generic kernel's argument."""
    if isinstance(value, Buffer) and is_array(template):
        return wp.array(dtype=wp.dtype_from_numpy(value.dtype), ndim=value.ndim)
    if isinstance(value, np.ndarray):
        return wp.array(dtype=wp.dtype_from_numpy(value.dtype), ndim=value.ndim)
    return template if is_array(template) else type(value)
