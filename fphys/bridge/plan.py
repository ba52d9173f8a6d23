"""From a record of launches to a table of pointers that can be run again and again.

A :class:`Plan` says where every buffer of a record lives among the buffers of an XLA call, what to
clear and copy first, and which launches follow, forward or adjoint. A :class:`Program` is that plan
for one device and one range of worlds, with every kernel argument packed: running it writes the
call's pointers into the packed arguments and calls the compiled kernels, nothing else.

An input of leading size 1 is shared by all worlds: it is packed with stride 0 on the world axis, so
kernels index it like any other array. Its gradient gets one row per range of worlds.
"""

import ast
import ctypes
import dataclasses
import functools
from typing import Any

import numpy as np
import warp as wp
from warp._src.context import pack_arg
from warp._src.types import array_t, type_size_in_bytes

from . import modules
from .record import Buffer, Constant, Launch, Recorder


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a buffer lives: the number of the XLA buffer (inputs first, then outputs) and a byte offset."""

    index: int
    offset: int = 0


@dataclasses.dataclass(eq=False)
class Plan:
    """All that one XLA call does, for every device."""

    name: str
    worlds: int
    ranges: int  # how many ranges of worlds run at once; shared gradients have this many rows
    values: dict[Buffer, Place]
    adjoints: dict[Buffer, Place]
    clears: list[tuple[Place, Buffer]]
    copies: list[tuple[Place, Place, Buffer]]  # to, from
    launches: list[tuple[Launch, bool]]  # launch, adjoint?
    num_inputs: int


class Arena:
    """Lays out one block of scratch memory."""

    ALIGNMENT = 64

    def __init__(self, index: int):
        self.index = index
        self.size = 0

    def place(self, buffer: Buffer) -> Place:
        place = Place(self.index, self.size)
        self.size += -(-buffer.shape[0] * buffer.row_bytes // self.ALIGNMENT) * self.ALIGNMENT
        return place


def plan_forward(record: Recorder, inputs: list[Buffer], outputs: list[Buffer], ranges: int) -> tuple[Plan, int]:
    """The plan of the operation itself, and the bytes of scratch it needs."""
    arena = Arena(len(inputs) + len(outputs))
    values = {b: Place(i) for i, b in enumerate([*inputs, *outputs])}
    values |= {b: arena.place(b) for b in record.buffers}
    clears = [(values[b], b) for b in record.zeroed]
    launches = [(launch, False) for launch in record.launches]
    plan = Plan(record.name, record.worlds, ranges, values, {}, clears, [], launches, len(inputs))
    return plan, arena.size


def plan_backward(
    record: Recorder, inputs: list[Buffer], outputs: list[Buffer], wanted: list[Buffer], ranges: int
) -> tuple[Plan, int]:
    """The plan of the adjoint: inputs and cotangents in, gradients of ``wanted`` out.

    Runs again the launches whose outputs somebody reads, then all adjoints in reverse order, but of those that write
    integers only. Cotangents are copied, because an output that a later launch reads collects more of them.
    """
    first_output = len(inputs) + len(outputs)
    arena = Arena(first_output + len(wanted))
    values = {b: Place(i) for i, b in enumerate(inputs)}
    values |= {b: arena.place(b) for b in [*outputs, *record.buffers]}
    floating = [b for b in [*outputs, *record.buffers] if b.dtype.kind == "f"]
    adjoints = {b: arena.place(b) for b in floating}
    adjoints |= {b: Place(first_output + i) for i, b in enumerate(wanted)}
    clears = [(values[b], b) for b in record.zeroed]
    clears += [(adjoints[b], b) for b in [*(b for b in floating if b.role == "scratch"), *wanted]]
    copies = [(adjoints[b], Place(len(inputs) + i), b) for i, b in enumerate(outputs) if b in adjoints]
    launches = [(launch, False) for launch in record.launches if _is_read(launch, record.launches)]
    launches += [(launch, True) for launch in reversed(record.launches) if any(b in adjoints for b in launch.outputs)]
    plan = Plan(
        record.name, record.worlds, ranges, values, adjoints, clears, copies, launches, len(inputs) + len(outputs)
    )
    return plan, arena.size


def _is_read(launch: Launch, launches: list[Launch]) -> bool:
    """Whether another launch, or the kernel itself, reads what a launch writes."""
    written = set(launch.outputs)
    if any(written & {a for a in other.args if isinstance(a, Buffer)} for other in launches if other is not launch):
        return True
    labels = {a.label for a, value in zip(launch.kernel.adj.args, launch.args, strict=True) if value in written}
    return _reads_own(launch.kernel, frozenset(labels))


@functools.cache
def _reads_own(kernel: Any, labels: frozenset[str]) -> bool:
    """Whether a kernel uses some of its arrays otherwise than by assigning to their elements."""
    stores = {
        id(node.value)
        for node in ast.walk(kernel.adj.tree)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    }
    augmented = {node.target for node in ast.walk(kernel.adj.tree) if isinstance(node, ast.AugAssign)}
    stores -= {id(t.value) for t in augmented if isinstance(t, ast.Subscript)}
    names = (node for node in ast.walk(kernel.adj.tree) if isinstance(node, ast.Name) and node.id in labels)
    return any(id(node) not in stores for node in names)


class Program:
    """A plan with its arguments packed, for worlds ``start`` to ``stop`` on one device."""

    def __init__(self, plan: Plan, device: Any, number: int, start: int, stop: int):
        self.plan, self.device = plan, device
        self.number, self.start, self.stop = number, start, stop
        hooks, code = modules.load([launch.kernel for launch, _ in plan.launches], device, plan.name)
        self.keep: list[Any] = [hooks, code]
        self.patches: list[tuple[int, int, int]] = []
        self.commands = [self._command(launch, adjoint, hooks[launch.kernel]) for launch, adjoint in plan.launches]
        self.clears = [(p.index, self._offset(p, b), self._bytes(b)) for p, b in plan.clears]
        self.copies = [
            (to.index, self._offset(to, b), source.index, self._offset(source, b), self._bytes(b))
            for to, source, b in plan.copies
        ]

    def _offset(self, place: Place, buffer: Buffer) -> int:
        """Byte offset of this range's first row; a shared value has one row, a shared gradient one per range."""
        if buffer.shared:
            return place.offset + (0 if self.plan.values.get(buffer) is place else self.number * buffer.row_bytes)
        return place.offset + self.start * buffer.row_bytes

    def _bytes(self, buffer: Buffer) -> int:
        return buffer.row_bytes * (1 if buffer.shared else self.stop - self.start)

    def _command(self, launch: Launch, adjoint: bool, hooks: Any) -> tuple[Any, Any, Any, Any]:
        """Pack one launch: hooks, bounds, arguments and adjoint arguments, as C structures."""
        from warp._src.context import _build_launch_bounds_from_tuple

        dim = (self.stop - self.start, *launch.dim[1:])
        bounds = _build_launch_bounds_from_tuple(dim, launch.kernel.adj.kernel_dim)
        arguments = self._pack(launch, self.plan.values, False)
        adjoints = self._pack(launch, self.plan.adjoints, True) if adjoint else None
        self.keep += [bounds, arguments, adjoints]
        return hooks, bounds, arguments, adjoints

    def _pack(self, launch: Launch, places: dict[Buffer, Place], adjoint: bool) -> ctypes.Structure:
        fields, values = [], []
        for arg, value in zip(launch.kernel.adj.args, launch.args, strict=True):
            if isinstance(value, Constant):
                packed = array_t() if adjoint else self._constant(arg, value)
            elif not isinstance(value, Buffer):
                value = None if adjoint else value
                packed = pack_arg(launch.kernel, arg.type, arg.label, value, self.device, adjoint)
            else:
                packed = self._view(arg, value) if value in places else array_t()
            fields.append((arg.label, type(packed)))
            values.append(packed)
        structure = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
        arguments = structure(*values)
        address = ctypes.addressof(arguments)
        for arg, value in zip(launch.kernel.adj.args, launch.args, strict=True):
            if isinstance(value, Buffer) and value in places:
                field = address + getattr(structure, arg.label).offset + array_t.data.offset
                self.patches.append((field, places[value].index, self._offset(places[value], value)))
        return arguments

    def _view(self, arg: Any, buffer: Buffer) -> array_t:
        """The buffer as the kernel sees it, its address left open."""
        ndim = arg.type.ndim
        strides = [type_size_in_bytes(arg.type.dtype)]
        for extent in reversed(buffer.shape[1:ndim]):
            strides.insert(0, strides[0] * extent)
        if buffer.shared:
            strides[0] = 0
        return array_t(ndim=ndim, shape=(self.stop - self.start, *buffer.shape[1:ndim]), strides=strides)

    def _constant(self, arg: Any, constant: Constant) -> array_t:
        array = wp.array(np.ascontiguousarray(constant.value), dtype=arg.type.dtype, device=self.device)
        self.keep.append(array)
        return array.__ctype__()

    def table(self) -> np.ndarray:
        """The program in the words that :mod:`fphys.bridge.driver` reads; CPU only."""
        calls = []
        for hooks, bounds, arguments, adjoints in self.commands:
            function = hooks.forward if adjoints is None else hooks.backward
            if function is None:
                raise ValueError(f"{self.plan.name}: a kernel on the differentiated path was built without its adjoint")
            address = ctypes.cast(function, ctypes.c_void_p).value
            second = 0 if adjoints is None else ctypes.addressof(adjoints)
            calls.append((address, ctypes.addressof(bounds), ctypes.addressof(arguments), second))
        words: list[int] = []
        for rows in (self.patches, self.clears, self.copies, calls):
            words.append(len(rows))
            for row in rows:
                words.extend(row)
        return np.array(words, np.uint64)
