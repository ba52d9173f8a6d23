"""A stand-in for a GPU: XLA runs on the processor, and the bridge's code for GPUs launches the processor's kernels.

Everything but CUDA itself is what a GPU gets: the operations are recorded for "cuda", planned in one block, packed for
device 0 before the first call, and launched by ``execute_cuda`` on XLA's stream. A processor's kernels run with one
lane a team, for there is no warp to share a world; in a process of ``threads.py`` there is.
"""

import contextlib
import ctypes
from collections.abc import Iterator
from ctypes import c_bool, c_int, c_size_t, c_void_p
from typing import Any, NamedTuple
from unittest import mock

import jax
import warp as wp
from warp._src.jax import xla_ffi

from fphys.bridge import driver, ffi, op, plans
from fphys.bridge.plan import Place, Program
from fphys.bridge.record import Buffer
from fphys.rigid import team

from . import races, threads

TARGET = "fphys_stand_in"
STREAM = 0x57AEA
LAUNCH = ctypes.CFUNCTYPE(
    c_size_t, c_void_p, c_void_p, c_size_t, *(c_int,) * 5, ctypes.POINTER(c_void_p), c_void_p, c_void_p
)
CLEAR = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_int, c_size_t, c_void_p)
COPY = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
HANDLER = ctypes.CFUNCTYPE(c_void_p, ctypes.POINTER(xla_ffi.XLA_FFI_CallFrame))
_kept: list[Any] = []


class Log:
    """What the stand-in was asked to do."""

    def __init__(self) -> None:
        self.launches, self.clears, self.copies, self.packed, self.streams = 0, 0, 0, 0, set[int]()
        self.fail_at: int | None = None  # the launch that fails, as CUDA's may
        self.commands: dict[int, _Command] = {}  # by where their bounds stand
        self.races: list[str] = []


class _Command(NamedTuple):
    """What is launched: the program, the kernel's name, and how many arguments stand before its adjoints, if any."""

    program: "_Packed"
    name: str
    arguments: int


class _Packed(Program):
    """A program that says what it launches, and where its buffers are."""

    log: Log

    def __init__(self, *args: Any):
        self.buffers: dict[tuple[int, int], Buffer] = {}
        super().__init__(*args)

    def _place(self, place: Place, buffer: Buffer) -> tuple[int, int, int]:
        found = super()._place(place, buffer)
        self.buffers[found[:2]] = buffer
        return found

    def gpu_words(self) -> Any:
        words = super().gpu_words()
        self.log.packed += 1
        for (_, bounds, arguments, adjoints), (launch, adjoint) in zip(self.commands, self.plan.launches, strict=True):
            name = f"{self.plan.name}: {launch.kernel.key}{', backwards' * adjoint}"
            count = len(type(arguments)._fields_) if adjoints is not None else 0
            self.log.commands[ctypes.addressof(bounds)] = _Command(self, name, count)
        return words

    def whereabouts(self) -> dict[tuple[int, int], Buffer]:
        """Where each buffer begins and ends in memory, in the call that runs."""
        found = {}
        for address, index, offset, _ in self.patches:
            buffer, begin = self.buffers[index, offset], ctypes.c_uint64.from_address(address).value
            found[begin, begin + self._bytes(buffer)] = buffer
        return found


@contextlib.contextmanager
def standing_in() -> Iterator[Log]:
    """Compile and run all operations inside as for a GPU. Programs that were compiled outside are compiled again."""
    made, log = ffi.plans(), Log()
    bridge = made.bridge
    _register(bridge)
    pointers = [_launcher(log), CLEAR(lambda *args: _clear(log, *args)), COPY(lambda *args: _copy(log, *args))]
    before = {name: getattr(bridge, name) for name in ("launch", "clear", "copy")}
    jax.clear_caches()
    try:
        with contextlib.ExitStack() as patches:
            for name, pointer in zip(before, pointers, strict=True):
                setattr(bridge, name, ctypes.cast(pointer, c_void_p).value)
            for place, name, value in (
                (ffi, "TARGET", TARGET),
                (op, "_platforms", lambda: ("cuda",)),
                (plans, "Program", type("Packed", (_Packed,), {"log": log})),
                (wp, "get_cuda_device", lambda ordinal: wp.get_device("cpu")),
                (wp, "synchronize_stream", lambda stream: None),
                (team, "WARP", team.WARP if threads.running() else 1),
            ):
                patches.enter_context(mock.patch.object(place, name, value))
            yield log
            assert not log.races, "\n".join(log.races)
    finally:
        jax.clear_caches()
        for name, pointer in before.items():
            setattr(bridge, name, pointer)
        for held in made.held.values():
            held.on_gpus.clear()
            held.entry.gpus[0] = None


def _register(bridge: driver.Bridge) -> None:
    """The functions for GPUs as a target on the processor, where a call has no stream and no device: they get these."""
    if _kept:
        return
    execute, initialize = (HANDLER(getattr(bridge, f"{name}_cuda")) for name in ("execute", "initialize"))

    @xla_ffi.XLA_FFI_Stream_Get
    def stream(args: Any) -> None:
        args.contents.stream = STREAM

    @xla_ffi.XLA_FFI_DeviceOrdinal_Get
    def device(args: Any) -> None:
        args.contents.device_ordinal = 0

    @HANDLER
    def run(frame: Any) -> Any:
        given = frame.contents
        if given.extension_start:
            return execute(frame)
        table = xla_ffi.XLA_FFI_Api.from_buffer_copy(given.api.contents)
        table.XLA_FFI_Stream_Get, table.XLA_FFI_DeviceOrdinal_Get = stream, device
        shown = xla_ffi.XLA_FFI_CallFrame.from_buffer_copy(given)
        shown.api = ctypes.pointer(table)
        return initialize(shown) or execute(shown)

    capsule, kind = jax.ffi.pycapsule, next(k for k in ffi._kept if isinstance(k, ffi.TypeInfo))
    number = ctypes.addressof(bridge) + driver.Bridge.type_cuda.offset
    _kept.extend((stream, device, run, execute, initialize))
    jax.ffi.register_ffi_type(
        TARGET, {"type_id": capsule(number), "type_info": capsule(ctypes.addressof(kind))}, platform="cpu"
    )
    stages = {"instantiate": capsule(bridge.instantiate_cuda), "execute": capsule(ctypes.cast(run, c_void_p).value)}
    jax.ffi.register_ffi_target(TARGET, stages, platform="cpu")


def _launcher(log: Log) -> Any:
    forward = ctypes.PYFUNCTYPE(None, c_void_p, c_void_p)  # keeps Python's lock: one launch at a time
    backward = ctypes.PYFUNCTYPE(None, c_void_p, c_void_p, c_void_p)

    @LAUNCH
    def launch(
        context: Any, kernel: Any, count: int, most: int, block: int, strides: int, cluster: int, shared: int,
        arguments: Any, stream: Any, recorder: Any,
    ) -> int:  # fmt: skip
        log.launches += 1
        log.streams.add(stream)
        if log.launches == log.fail_at:
            return 700
        assert (most, block, cluster, recorder) == (0, 256, 1, None) and count > 0
        program, name, before = log.commands[arguments[0]]
        known = program.whereabouts() if threads.running() else {}
        page = races.begin(known) if known else None
        if before:
            backward(kernel)(arguments[0], arguments[1], arguments[1 + before])
        else:
            forward(kernel)(arguments[0], arguments[1])
        if page is not None and page.races:
            which = next(buffer for (begin, end), buffer in known.items() if begin <= page.address < end)
            log.races.append(f"{name}: threads {page.threads[0]} and {page.threads[1]} touch a number of {which}")
        return 0

    return launch


def _clear(log: Log, context: Any, to: Any, value: int, size: int, stream: Any) -> bool:
    log.clears += 1
    log.streams.add(stream)
    ctypes.memset(to, value, size)
    return True


def _copy(log: Log, context: Any, to: Any, source: Any, size: int, stream: Any) -> bool:
    log.copies += 1
    log.streams.add(stream)
    ctypes.memmove(to, source, size)
    return True
