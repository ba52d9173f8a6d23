"""From a record of launches to a table of pointers that can be run again and again.

A :class:`Plan` says where every buffer of a record lives among the buffers of an XLA call, what to
clear and copy first, and which launches follow, forward or adjoint. A :class:`Program` is that plan
for one device and a run of blocks of worlds, with every kernel argument packed: running it only writes
the call's pointers into the packed arguments and calls the compiled kernels. All launches run on one
block before the next block starts, in the same scratch memory, so that intermediate results stay in
the processor's cache.

An input of leading size 1 is shared by all worlds: it is packed with stride 0 on the world axis, so
kernels index it like any other array. Its gradient gets one row per block.
"""

import ast
import ctypes
import dataclasses
import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import warp as wp

from ..errors import BridgeError
from . import modules
from .ordered import in_order, ordered
from .private import Struct, array_t, launch_bounds, pack_arg, type_size_in_bytes
from .record import Buffer, Constant, Launch, Recorder, parameters
from .workers import Blocks, num_blocks


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a buffer lives: the index of the XLA buffer (inputs first, then outputs) and a byte offset in it."""

    index: int
    offset: int = 0  # for scratch memory: in a block of one world


Life = tuple[float, float]
"""The first and the last launch that need a buffer."""
ALWAYS: Life = (-math.inf, math.inf)


class Arena:
    """Lays out the scratch memory of a world. Buffers that are never needed at the same time may share a place.

    The memory of a block's worlds is contiguous; in it, each buffer's rows follow one another.
    """

    ALIGNMENT = 64  # of a vector register

    def __init__(self, index: int):
        self.index = index
        self.row_bytes = 0  # per world
        self.bytes_in_all = 0  # if no buffers shared a place
        self._taken: list[tuple[int, int, Life]] = []  # first byte, one past the last, lifetime

    def place(self, buffer: Buffer, life: Life = ALWAYS) -> Place:
        """The lowest place that is free as long as the buffer is needed."""
        size, start = -(-buffer.row_bytes // self.ALIGNMENT) * self.ALIGNMENT, 0
        for first, end, other in sorted(self._taken):
            if start + size > first and start < end and life[0] <= other[1] and other[0] <= life[1]:
                start = end
        self._taken.append((start, start + size, life))
        self.row_bytes, self.bytes_in_all = max(self.row_bytes, start + size), self.bytes_in_all + size
        return Place(self.index, start)


@dataclasses.dataclass(eq=False)
class Plan:
    """All that one XLA call does, for every device."""

    name: str
    worlds: int
    blocks: int  # shared gradients have this many rows
    values: dict[Buffer, Place]
    adjoints: dict[Buffer, Place]
    clears: list[tuple[Place, Buffer]]
    copies: list[tuple[Place, Place, Buffer]]  # to, from
    launches: list[tuple[Launch, bool]]  # launch, adjoint?
    arena: Arena  # the buffer that holds all scratch memory


def plan_forward(record: Recorder, inputs: list[Buffer], outputs: list[Buffer]) -> tuple[Plan, int]:
    """The plan of the forward pass, without launches whose results are never used, and its bytes of scratch memory."""
    arena = Arena(len(inputs) + len(outputs))
    launches = [(launch, False) for launch in _needed(record.launches, set(outputs))]
    lives = _lives([launch for launch, _ in launches], set(record.zeroed))
    values = {b: Place(i) for i, b in enumerate([*inputs, *outputs])}
    largest = sorted((b for b in record.buffers if b in lives), key=lambda b: -b.row_bytes)
    values |= {b: arena.place(b, lives[b]) for b in largest}
    clears = [(values[b], b) for b in record.zeroed if b in values]
    return _plan(record, values, {}, clears, [], launches, arena), arena.row_bytes * record.worlds


def plan_backward(
    record: Recorder, inputs: list[Buffer], outputs: list[Buffer], wanted: list[Buffer], known: Sequence[Buffer] = ()
) -> tuple[Plan, int]:
    """The plan of the adjoint: inputs, the ``known`` outputs and cotangents in, gradients of ``wanted`` out.

    It replays the launches whose outputs are read, unless these are known, then runs all adjoints in reverse order,
    except those of launches that write only integers. Cotangents of outputs that are read again are copied, because
    more are added to them.
    """
    given = [*inputs, *known]
    first_output = len(given) + len(outputs)
    arena = Arena(first_output + len(wanted))
    values = {b: Place(i) for i, b in enumerate(given)}
    values |= {b: arena.place(b) for b in [*outputs, *record.buffers] if b not in values}
    floating = [b for b in [*outputs, *record.buffers] if b.dtype.kind == "f"]
    cotangents = {b: Place(len(given) + i) for i, b in enumerate(outputs) if b in floating}
    collecting = {b for b in cotangents if any(_reads(launch, {b}) for launch in record.launches)}
    adjoints = cotangents | {b: arena.place(b) for b in floating if b not in cotangents or b in collecting}
    adjoints |= {b: Place(first_output + i) for i, b in enumerate(wanted)}
    clears = [(values[b], b) for b in record.zeroed if b not in known]
    summed = [*(b for b in floating if b.role == "scratch"), *wanted]
    clears += [(adjoints[b], b) for b in summed if b not in record.cleared]
    copies = [(adjoints[b], cotangents[b], b) for b in cotangents if b in collecting]
    launches = [(launch, False) for launch in record.launches if _is_read(launch, record.launches, known)]
    for launch, _ in launches:
        if not set(known).isdisjoint(launch.outputs):
            raise BridgeError(
                f"{record.name}: the adjoint reads more of what {launch.kernel.key} writes than the outputs that are "
                "known: it would have to be replayed, so name none of its outputs, or all that are read"
            )
    back = [launch for launch in reversed(record.launches) if any(b in adjoints for b in launch.outputs)]
    launches += [(in_order(launch) if ordered(record.platform) else launch, True) for launch in back]
    return _plan(record, values, adjoints, clears, copies, launches, arena), arena.row_bytes * record.worlds


def _plan(
    record: Recorder,
    values: dict[Buffer, Place],
    adjoints: dict[Buffer, Place],
    clears: list[tuple[Place, Buffer]],
    copies: list[tuple[Place, Place, Buffer]],
    launches: list[tuple[Launch, bool]],
    arena: Arena,
) -> Plan:
    passed = ((b, place) for places in (values, adjoints) for b, place in places.items() if place.index != arena.index)
    passed_bytes = sum(b.row_bytes for b, _ in passed if not b.shared)
    blocks = 1  # a GPU runs all worlds side by side
    if record.platform == "cpu":
        blocks = num_blocks(record.worlds, passed_bytes + arena.row_bytes, passed_bytes + arena.bytes_in_all)
    return Plan(record.name, record.worlds, blocks, values, adjoints, clears, copies, launches, arena)


def _lives(launches: list[Launch], zeroed: set[Buffer]) -> dict[Buffer, Life]:
    """The first and the last launch that need each buffer; zeroed buffers are needed from the beginning."""
    lives: dict[Buffer, Life] = {}
    for i, launch in enumerate(launches):
        for b in (a for a in launch.args if isinstance(a, Buffer)):
            lives[b] = (lives[b][0] if b in lives else -1 if b in zeroed else i, i)
    return lives


def _needed(launches: list[Launch], wanted: set[Buffer]) -> list[Launch]:
    """The launches on which the wanted buffers depend, in their order."""
    kept: list[Launch] = []
    for launch in reversed(launches):
        if not wanted.isdisjoint(launch.outputs):
            kept.append(launch)
            wanted |= {a for a in launch.args if isinstance(a, Buffer)}
    return kept[::-1]


def _is_read(launch: Launch, launches: list[Launch], known: Sequence[Buffer]) -> bool:
    """Whether any launch, including this one, reads what this launch writes, besides what is known."""
    return any(_reads(other, set(launch.outputs).difference(known)) for other in launches)


def _reads(launch: Launch, buffers: set[Buffer]) -> bool:
    """Whether a launch is given one of the buffers to read, or reads what it has itself written there."""
    passed = zip(parameters(launch.kernel), launch.args, strict=True)
    named = {p.label: value for p, value in passed if value in buffers}
    own = frozenset(label for label, value in named.items() if value in launch.outputs)
    return len(own) < len(named) or (bool(own) and _reads_own(launch.kernel, own))


@functools.cache
def _reads_own(code: Any, labels: frozenset[str]) -> bool:
    """Whether a backward pass through a kernel or function needs the values of some of its arrays.

    It does not if the code only assigns to their elements, asks for their shapes or adjoints, and passes them on to
    functions for which the same holds; for a function with a custom adjoint, its replay and that adjoint count. An
    array may be a field of a structure, "structure.field", and is passed on with it.
    """
    nodes = list(ast.walk(code.adj.tree))
    harmless = {
        id(node.value)
        for node in nodes
        if (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Attribute) and node.attr == "shape")
    }
    augmented = {node.target for node in nodes if isinstance(node, ast.AugAssign)}
    harmless -= {id(t.value) for t in augmented if isinstance(t, ast.Subscript)}
    adjoints = (n for n in nodes if isinstance(n, ast.Subscript) and ast.unparse(n.value).endswith(".adjoint"))
    harmless |= {id(node.slice) for node in adjoints}
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        callee = code.adj.func.__globals__.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if isinstance(callee, wp.Function):
            given = [(i, a, _fields(a, labels)) for i, a in enumerate(call.args)]
            harmless |= {id(a) for i, a, fields in given if fields and not _reads_argument(callee, i, fields)}
    heads = {id(n.value) for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) not in labels}
    return any(_fields(node, labels) and id(node) not in harmless | heads for node in nodes)


def _fields(node: ast.AST, labels: frozenset[str]) -> frozenset[str]:
    """Which of ``labels`` an expression refers to: "" for an array itself, the fields for a structure."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return frozenset()
    name = ast.unparse(node)
    return frozenset(label[len(name) :] for label in labels if label == name or label.startswith(f"{name}."))


def _reads_argument(callee: Any, i: int, fields: frozenset[str]) -> bool:
    """Whether a backward pass through a function needs the values of these fields of its i-th argument."""
    parts = [p for p in (callee.custom_replay_func or callee, callee.custom_grad_func) if p is not None]
    return any(
        p.native_snippet is not None
        or not hasattr(p, "adj")
        or _reads_own(p, frozenset(p.adj.args[i].label + field for field in fields))
        for p in parts
    )


def fingerprint(plan: Plan) -> int:
    """A number of 63 bits, never 0: the same in every process for equal plans, and different for different plans."""
    digest, numbers = hashlib.blake2b(digest_size=8), {}

    def put(*parts: Any) -> None:
        for part in parts:
            if isinstance(part, Buffer):
                number = numbers.setdefault(part, len(numbers))
                part = (number, part.shape, str(part.dtype), part.shared)
            elif isinstance(part, Constant):
                put(part.value.shape, str(part.value.dtype))
                part = part.value.tobytes()
            digest.update(part if isinstance(part, bytes) else repr(part).encode())
            digest.update(b"|")

    put(plan.name, plan.worlds, plan.blocks, plan.arena.index, plan.arena.row_bytes)
    for places in (plan.values, plan.adjoints):
        for buffer, place in places.items():
            put(buffer, place)
        put("after places")
    put(*(part for clear in plan.clears for part in clear), "after clears")
    put(*(part for copy in plan.copies for part in copy), "after copies")
    for launch, adjoint in plan.launches:
        put(modules.kernel_hash(launch.kernel), launch.dim, adjoint, *launch.args)
    return int.from_bytes(digest.digest(), "little") >> 1 | 1


def _offset(structure: Any, path: tuple[str, ...]) -> int:
    """Byte offset of a nested field in a structure."""
    offset = 0
    for name in path:
        field = getattr(structure, name)
        offset, structure = offset + field.offset, dict(structure._fields_)[name]
    return offset


class Program:
    """A plan with its arguments packed, for blocks of worlds of one size on one device."""

    def __init__(self, plan: Plan, device: Any, blocks: Blocks):
        self.plan, self.device, self.blocks = plan, device, blocks
        hooks, code = modules.load([launch.kernel for launch, _ in plan.launches], device, plan.name)
        self.keep: list[Any] = [hooks, code]
        self.constants: dict[Any, Any] = {}  # one copy of each, however many launches use it
        self.patches: list[tuple[int, ...]] = []
        self.commands = [self._command(launch, adjoint, hooks[launch.kernel]) for launch, adjoint in plan.launches]
        self.clears = [(*self._place(p, b), self._bytes(b)) for p, b in plan.clears if b.row_bytes]
        self.copies = [
            (*self._place(to, b), *self._place(source, b), self._bytes(b))
            for to, source, b in plan.copies
            if b.row_bytes
        ]

    def _place(self, place: Place, buffer: Buffer) -> tuple[int, int, int]:
        """Buffer, byte offset of the first block's first row, and stride in bytes from block to block.

        Scratch memory serves one block after another. A shared value has one row, a shared gradient one per block.
        """
        first, step = self.blocks.start * buffer.row_bytes, self.blocks.size * buffer.row_bytes
        if place.index == self.plan.arena.index:
            return place.index, self.blocks.start * self.plan.arena.row_bytes + self.blocks.size * place.offset, 0
        if buffer.shared and self.plan.values.get(buffer) is place:
            first, step = 0, 0
        elif buffer.shared:
            first, step = self.blocks.number * buffer.row_bytes, buffer.row_bytes
        return place.index, place.offset + first, step

    def _bytes(self, buffer: Buffer) -> int:
        return buffer.row_bytes * (1 if buffer.shared else self.blocks.size)

    def _command(self, launch: Launch, adjoint: bool, hooks: Any) -> tuple[Any, Any, Any, Any]:
        """Pack one launch: hooks, bounds, arguments and adjoint arguments, as C structures."""
        dim = (self.blocks.size, *launch.dim[1:])
        bounds = launch_bounds(dim, launch.kernel.adj.kernel_dim)
        arguments = self._pack(launch, self.plan.values, self.plan.adjoints if adjoint else {}, False)
        adjoints = self._pack(launch, self.plan.adjoints, {}, True) if adjoint else None
        self.keep += [bounds, arguments, adjoints]
        return hooks, bounds, arguments, adjoints

    def _pack(
        self, launch: Launch, places: dict[Buffer, Place], grads: dict[Buffer, Place], adjoint: bool
    ) -> ctypes.Structure:
        """Arguments as the compiled kernel takes them.

        As in Warp, the adjoints of a structure's fields are in the ``grad`` of the arrays themselves.
        """
        values = iter(zip(parameters(launch.kernel), launch.args, strict=True))
        patches: list[tuple[tuple[str, ...], Place, Buffer]] = []

        def packed(path: tuple[str, ...], kind: Any) -> Any:
            if isinstance(kind, Struct):
                return kind.ctype(**{name: packed((*path, name), field.type) for name, field in kind.vars.items()})
            parameter, value = next(values)
            if isinstance(value, Constant):
                return array_t() if adjoint else self._constant(parameter, value)
            if not isinstance(value, Buffer):
                value = pack_arg(launch.kernel, kind, parameter.label, None if adjoint else value, self.device, adjoint)
                return value.value if len(path) > 1 else value
            if value not in places:
                return array_t()
            patches.append(((*path, "data"), places[value], value))
            if len(path) > 1 and value in grads:
                patches.append(((*path, "grad"), grads[value], value))
            return self._view(parameter, value)

        arguments = [(arg.label, packed((arg.label,), arg.type)) for arg in launch.kernel.adj.args]
        structure = type("Arguments", (ctypes.Structure,), {"_fields_": [(name, type(v)) for name, v in arguments]})
        made = structure(*(value for _, value in arguments))
        for path, place, buffer in patches:
            self.patches.append((ctypes.addressof(made) + _offset(structure, path), *self._place(place, buffer)))
        return made

    def _view(self, arg: Any, buffer: Buffer) -> array_t:
        """The buffer as the kernel sees it, with its address left open."""
        ndim = arg.type.ndim
        strides = [type_size_in_bytes(arg.type.dtype)]
        for extent in reversed(buffer.shape[1:ndim]):
            strides.insert(0, strides[0] * extent)
        if buffer.shared:
            strides[0] = 0
        return array_t(ndim=ndim, shape=(self.blocks.size, *buffer.shape[1:ndim]), strides=strides)

    def _constant(self, arg: Any, constant: Constant) -> array_t:
        key = id(constant.value), arg.type.dtype
        if key not in self.constants:
            value = np.ascontiguousarray(constant.value)
            self.constants[key] = wp.array(value, dtype=arg.type.dtype, device=self.device)
        return self.constants[key].__ctype__()

    def _function(self, hooks: Any, adjoint: bool) -> int:
        """The address of a compiled kernel, or a GPU's handle of it."""
        function = hooks.backward if adjoint else hooks.forward
        if function is None:
            raise ValueError(f"{self.plan.name}: a kernel on the differentiated path was built without its adjoint")
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def _words(self, head: tuple[int, ...], calls: list[tuple[int, ...]]) -> np.ndarray:
        words = list(head)
        for rows in (self.patches, self.clears, self.copies, calls):
            words.append(len(rows))
            for row in rows:
                words.extend(row)
        return np.array(words, np.uint64)

    @functools.cached_property
    def words(self) -> np.ndarray:
        """The program as the words that ``native.h`` reads, for a CPU."""
        calls = []
        for hooks, bounds, arguments, adjoints in self.commands:
            second = 0 if adjoints is None else ctypes.addressof(adjoints)
            function = self._function(hooks, adjoints is not None)
            calls.append((function, ctypes.addressof(bounds), ctypes.addressof(arguments), second))
        return self._words((self.blocks.count, 0), calls)

    def gpu_words(self) -> np.ndarray:
        """The program as the words that ``native.h`` reads, for a GPU. Kernels there take arguments by address."""
        calls = []
        for (hooks, bounds, arguments, adjoints), (launch, adjoint) in zip(
            self.commands, self.plan.launches, strict=True
        ):
            fields = [ctypes.addressof(bounds)]
            for structure in (arguments, adjoints) if adjoint else (arguments,):
                start = ctypes.addressof(structure)
                fields += [start + getattr(type(structure), name).offset for name, _ in structure._fields_]
            self.keep.append(np.array(fields, np.uint64))
            shared = hooks.backward_smem_bytes if adjoint else hooks.forward_smem_bytes
            function, parameters = self._function(hooks, adjoint), self.keep[-1].ctypes.data
            strides = int(launch.kernel.grid_stride)
            calls.append((function, bounds.size, strides, hooks.cluster_dim, shared, parameters))
        return self._words((self.device.context or 0,), calls)
