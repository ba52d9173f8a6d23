"""The native half of the bridge: the functions of ``native.h``, compiled by Warp, and what they share with Python.

Python would spend a microsecond on every argument of every launch, and would run signal handlers in the middle of a
call. So XLA, and the threads that help it, call native code only.
"""

import ctypes
import functools
from ctypes import POINTER, Structure, c_char, c_char_p, c_int64, c_uint64, c_void_p, py_object
from pathlib import Path
from typing import Any

import warp as wp

from . import modules
from .private import runtime

ASLEEP, IDLE, POSTED, BUSY = 0, 1, 2, 3
"""States of a mailbox: its thread sleeps, watches the mailbox, has been offered a call, or works on one."""
PATIENCE = 8000
"""How often a thread checks its mailbox before it sleeps: some 200 microseconds, longer than XLA between two calls."""


@wp.func_native((Path(__file__).parent / "native.h").read_text(encoding="utf-8"))
def start(address: wp.uint64):  # type: ignore[empty-body]
    ...


@wp.kernel(enable_backward=False)
def start_bridge(address: wp.uint64):
    """Write the addresses of the native functions into a ``Bridge``, which uses them from then on."""
    wp.tid()
    start(address)


class Call(Structure):
    """One XLA call: the queue of its jobs, and XLA's buffers."""

    _fields_ = (("queue", c_void_p), ("arguments", c_void_p), ("num_arguments", c_uint64), ("results", c_void_p))


class Mailbox(Structure):
    """Where a thread finds the call that it should help with."""

    _fields_ = (("state", c_uint64), ("call", Call), ("semaphore", c_char * 64))


class Team(Structure):
    """Threads that help one caller at a time."""

    _fields_ = (("busy", c_uint64), ("size", c_uint64), ("members", POINTER(POINTER(Mailbox))))


MOST_GPUS = 64


class PlanEntry(Structure):
    """A plan as the native code sees it: how many executables hold it, and what a call of it does."""

    _fields_ = (
        ("references", c_uint64),
        ("busy", c_uint64),
        ("queue", c_void_p),
        ("helpers", c_uint64),
        ("number", c_int64),
        ("gpus", c_void_p * MOST_GPUS),
    )


class Slot(Structure):
    """A plan and the number that names it; empty if there is no plan."""

    _fields_ = (("number", c_int64), ("plan", c_void_p))


_STAGES = ("instantiate", "execute", "instantiate_cuda", "initialize_cuda", "execute_cuda", "destroy")
_OUT = (*_STAGES, "run", "serve", "post", "recall", "ticks", "enter", "leave")
_WARP = ("launch", "clear", "copy")
_PYTHON = ("PyErr_CheckSignals", "PyObject_CallFunctionObjArgs", "Py_DecRef", "PyLong_AsLongLong")
_LIBRARY = ("sem_wait", "sem_post", "clock_gettime", "nanosleep", "read", "write")


class Bridge(Structure):
    """All that the native code knows; ``native.h`` documents each field."""

    _fields_ = (
        *((name, c_void_p) for name in _OUT),
        ("type", c_int64),
        ("type_cuda", c_int64),
        ("slots", POINTER(Slot)),
        ("num_slots", c_uint64),
        ("team", Team),
        ("patience", c_uint64),
        ("running", c_uint64),
        ("closed", c_char_p),
        ("reader", c_int64),
        ("writer", c_int64),
        ("previous", c_int64),
        ("set_wakeup_fd", py_object),
        ("ours", py_object),
        ("before", c_void_p),
        ("find_lost", py_object),
        ("interruptible", c_uint64),
        ("checked", c_uint64),
        ("abandoned", c_uint64),
        ("ended", c_uint64),
        ("unknown", c_char_p),
        ("interrupted", c_char_p),
        ("failure", c_char_p),
        ("prepare", c_void_p),
        ("prepare_gpu", c_void_p),
        ("explain", c_void_p),
        *((name, c_void_p) for name in (*_WARP, *_PYTHON)),
        *((name, c_void_p) for name in _LIBRARY),
    )


class Driver:
    """The native functions that Python itself calls. They release the GIL."""

    def __init__(self, bridge: Bridge):
        def function(name: str, *arguments: Any) -> Any:
            return ctypes.CFUNCTYPE(None, *arguments)(getattr(bridge, name))

        self.bridge = bridge
        self.run = function("run", POINTER(Team), c_uint64, POINTER(Call))
        self.serve = function("serve", POINTER(Mailbox))
        self.post = function("post", POINTER(Mailbox), POINTER(Call))
        self.recall = function("recall", POINTER(Mailbox))
        self._ticks = function("ticks", POINTER(c_uint64))

    def ticks(self) -> int:
        """The processor's tick."""
        now = c_uint64()
        self._ticks(now)
        return now.value


@functools.cache
def load() -> Driver:
    """Compile the driver. What XLA may still call when the interpreter exits is never freed."""
    bridge = Bridge(patience=PATIENCE)
    for functions, names in ((ctypes.pythonapi, _PYTHON), (ctypes.CDLL(None), _LIBRARY)):
        for name in names:
            setattr(bridge, name, ctypes.cast(getattr(functions, name), c_void_p).value)
    core = runtime().core
    functions = (core.wp_cuda_launch_kernel, core.wp_memset_device, core.wp_memcpy_d2d)
    for name, function in zip(_WARP, functions, strict=True):
        setattr(bridge, name, ctypes.cast(function, c_void_p).value)
    device = wp.get_device("cpu")
    _, code = modules.load([start_bridge], device, "the bridge's driver")
    wp.launch(start_bridge, dim=1, inputs=[wp.uint64(ctypes.addressof(bridge))], device=device)
    for kept in (bridge, code):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return Driver(bridge)


def make_semaphore(box: Mailbox) -> None:
    """Initialise the semaphore on which a mailbox's thread sleeps."""
    ctypes.CDLL(None).sem_init(c_void_p(ctypes.addressof(box) + Mailbox.semaphore.offset), 0, 0)
