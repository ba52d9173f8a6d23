"""The XLA side: one FFI target, which runs the plan named by the call's attribute.

A call is native from end to end (``native.h``), so no Python runs in it. A signal that arrives during a call waits
until the program ends, or ends it inside :func:`fphys.bridge.interruptible`.
"""

import atexit
import ctypes
import functools
import time
import traceback
from typing import Any

import jax

from . import driver
from .plans import Plans
from .private import TypeInfo, runtime
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
    _set(bridge, "prepare", 1, functools.partial(_prepare, bridge, lambda number: made.prepare(number)))
    _set(bridge, "prepare_gpu", 2, functools.partial(_prepare, bridge, lambda *numbers: made.prepare_gpu(*numbers)))
    _set(bridge, "explain", 3, functools.partial(_explain, bridge, made))
    state = TypeInfo(ctypes.sizeof(TypeInfo), None, bridge.destroy)
    _kept.append(state)
    capsule, start = jax.ffi.pycapsule, ctypes.addressof(bridge)
    for platform, number, stages in (
        ("cpu", driver.Bridge.type, {"instantiate": "instantiate", "execute": "execute"}),
        (
            "CUDA",
            driver.Bridge.type_cuda,
            {"instantiate": "instantiate_cuda", "initialize": "initialize_cuda", "execute": "execute_cuda"},
        ),
    ):
        kind: Any = {"type_id": capsule(start + number.offset), "type_info": capsule(ctypes.addressof(state))}
        jax.ffi.register_ffi_type(TARGET, kind, platform=platform)
        functions = {stage: capsule(getattr(bridge, name)) for stage, name in stages.items()}
        jax.ffi.register_ffi_target(TARGET, functions, platform=platform)


def _set(bridge: driver.Bridge, name: str, arguments: int, function: Any) -> None:
    """Let the native code call a Python function of that many integers."""
    pointer = ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * arguments)(function)
    _kept.append(pointer)
    setattr(bridge, name, ctypes.cast(pointer, ctypes.c_void_p).value)


def _prepare(bridge: driver.Bridge, prepare: Any, *numbers: int) -> None:
    """Pack a plan when XLA compiles it for the CPU, or before it runs on a GPU."""
    try:
        prepare(*numbers)
    except BaseException as error:
        bridge.failure = _text(f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=3)}")


def _explain(bridge: driver.Bridge, made: Plans, number: int, ordinal: int, launch: int) -> None:
    """Say what failed on a GPU. CUDA's error is Warp's last."""
    plan, why = made.held[number].plan, runtime().get_error_string()
    what = "clearing or copying memory" if launch < 0 else f"kernel {plan.launches[launch][0].kernel.key}"
    bridge.failure = _text(f"{plan.name}: {what} failed on cuda:{ordinal}: {why}")


def _text(message: str) -> bytes:
    """A message that the native code may keep: it is never freed."""
    _kept.append(f"fphys.BridgeError: {message}".encode())
    return _kept[-1]
