"""The XLA side: one FFI target, which runs the plan named by the call's attribute.

On the CPU a call is native from end to end (``native.h``), so no Python runs in it. A signal that arrives during a
call waits until the program ends, or ends it inside :func:`fphys.bridge.interruptible`.
"""

import atexit
import ctypes
import functools
import time
import traceback
from typing import Any

import jax
import warp as wp

from . import driver
from .plans import Plans
from .private import TypeInfo, runtime, xla_ffi
from .start import start_warp

TARGET = "fphys_warp"
EXITING = "the interpreter is shutting down"
INTERRUPTED = "interrupted"
UNKNOWN = (
    "this program names operations of another process, or of traces that are gone: trace and compile it in the process "
    "that runs it"
)
SECONDS_TO_CLOSE = 10.0
"""How long the interpreter, when it exits, waits for calls in other threads."""

_kept: list[Any] = []  # what XLA and the native code point to


@functools.cache
def plans() -> Plans:
    """The plans of this process. The first call starts Warp and registers the target with XLA."""
    start_warp()
    bridge = driver.load().bridge
    bridge.unknown, bridge.interrupted = _text(UNKNOWN), _text(INTERRUPTED)
    made = Plans(bridge)
    _register_target(bridge, made)
    atexit.register(_close, bridge, made)
    return made


def close(reason: str) -> None:
    """Refuse all calls from now on."""
    if plans.cache_info().currsize:
        plans().bridge.closed = _text(reason)


def _close(bridge: driver.Bridge, made: Plans) -> None:
    """End the calls of other threads before Python frees the memory that they use."""
    bridge.closed = _text(EXITING)
    end = time.monotonic() + SECONDS_TO_CLOSE
    while (bridge.running or not made.team.asleep()) and time.monotonic() < end:
        time.sleep(1e-4)


def _register_target(bridge: driver.Bridge, made: Plans) -> None:
    prepare = ctypes.CFUNCTYPE(None, ctypes.c_int64)(functools.partial(_prepare, bridge, made))
    python = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64))(
        functools.partial(_launch, bridge, made)
    )
    bridge.prepare, bridge.python = (ctypes.cast(function, ctypes.c_void_p).value for function in (prepare, python))
    state = TypeInfo(ctypes.sizeof(TypeInfo), None, bridge.destroy)
    _kept.extend((prepare, python, state))
    capsule = jax.ffi.pycapsule
    number, info = ctypes.addressof(bridge) + driver.Bridge.type.offset, ctypes.addressof(state)
    jax.ffi.register_ffi_type(TARGET, {"type_id": capsule(number), "type_info": capsule(info)}, platform="cpu")
    stages = {"instantiate": capsule(bridge.instantiate), "execute": capsule(bridge.execute)}
    jax.ffi.register_ffi_target(TARGET, stages, platform="cpu")
    jax.ffi.register_ffi_target(TARGET, capsule(bridge.execute_cuda), platform="CUDA")


def _prepare(bridge: driver.Bridge, made: Plans, number: int) -> None:
    """Pack a plan that was traced for another platform, when XLA compiles it for the CPU."""
    try:
        made.prepare(number)
    except BaseException as error:
        bridge.failure = _describe(error)


def _launch(bridge: driver.Bridge, made: Plans, address: int, done: Any) -> None:
    """One call on a GPU: 1 in ``done`` says that it was launched, 2 that it failed, 0 that a signal came between."""
    try:
        frame = xla_ffi.XLA_FFI_CallFrame.from_address(address)
        attribute = ctypes.cast(frame.attrs.attrs[0], ctypes.POINTER(xla_ffi.XLA_FFI_Scalar)).contents
        _launch_all(made.held[ctypes.c_int64.from_address(attribute.value).value], frame)
        done[0] = 1
    except Exception as error:
        bridge.failure = _describe(error)
        done[0] = 2


def _launch_all(held: Any, frame: Any) -> None:
    """Launch on XLA's stream. Nothing is allocated or synchronised, so XLA may capture the call in a graph."""
    warp = runtime()
    ordinal = xla_ffi.get_device_ordinal_from_callframe(ctypes.pointer(frame))
    stream = xla_ffi.get_stream_from_callframe(ctypes.pointer(frame))
    device = wp.get_cuda_device(ordinal)
    pointers = [_pointer(frame.args.args, i) for i in range(frame.args.size)]
    pointers += [_pointer(frame.rets.rets, i) for i in range(frame.rets.size)]
    with held.lock:
        program = held.on_gpu(ordinal)
        with wp.ScopedStream(wp.Stream(device, cuda_stream=stream), sync_enter=False):
            for address, index, offset, _ in program.patches:
                ctypes.c_uint64.from_address(address).value = pointers[index] + offset
            for index, offset, _, size in program.clears:
                warp.core.wp_memset_device(device.context, pointers[index] + offset, 0, size, stream)
            for to, to_offset, _, source, offset, _, size in program.copies:
                warp.core.wp_memcpy_d2d(
                    device.context, pointers[to] + to_offset, pointers[source] + offset, size, stream
                )
            for command, (launch, _) in zip(program.commands, held.plan.launches, strict=True):
                _launch_one(warp, device, stream, launch.kernel, *command)


def _launch_one(warp: Any, device: Any, stream: int, kernel: Any, hooks: Any, bounds: Any, args: Any, adj: Any) -> None:
    fields = [ctypes.addressof(bounds)]
    for structure in (args, adj):
        if structure is not None:
            base = ctypes.addressof(structure)
            fields += [base + getattr(type(structure), f[0]).offset for f in structure._fields_]
    params = (ctypes.c_void_p * len(fields))(*fields)
    hook, smem = (
        (hooks.forward, hooks.forward_smem_bytes) if adj is None else (hooks.backward, hooks.backward_smem_bytes)
    )
    failed = warp.core.wp_cuda_launch_kernel(
        device.context,
        hook,
        bounds.size,
        0,
        256,
        int(kernel.grid_stride),
        hooks.cluster_dim,
        smem,
        params,
        stream,
        None,
    )
    if failed:
        raise RuntimeError(f"kernel {kernel.key} failed on {device}: {warp.get_error_string()}")


def _pointer(buffers: Any, index: int) -> int:
    return ctypes.cast(buffers[index], ctypes.POINTER(xla_ffi.XLA_FFI_Buffer)).contents.data or 0


def _describe(error: BaseException) -> bytes:
    return _text(f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=3)}")


def _text(message: str) -> bytes:
    """A message that the native code may keep: it is never freed."""
    _kept.append(f"fphys.BridgeError: {message}".encode())
    return _kept[-1]
