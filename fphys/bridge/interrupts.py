"""Ctrl-C while a compiled program runs: it waits for the program's end, ends it, or only sets a flag."""

import contextlib
import ctypes
import functools
import os
import signal
import threading
from typing import Any

from ..errors import BridgeError
from . import ffi


def interruptible() -> "contextlib.AbstractContextManager[Any]":
    """A context in which Ctrl-C ends a running program instead of waiting for its end.

    Python handles no signals while a compiled program runs: it raises KeyboardInterrupt only when the program is over,
    and a long ``scan`` takes a while. Inside this context, SIGINT abandons a program that runs on the CPU: within a
    twentieth of a second, or after the current fphys operation. The program's results are lost, and the context raises
    KeyboardInterrupt when it ends. Other signals wait as before.

    The context does nothing outside the main thread, inside another such context, or if you have installed a handler
    for SIGINT. It sets ``signal.set_wakeup_fd`` and forwards what arrives to the file descriptor that was set before.

    Raises:
        KeyboardInterrupt: at the end of the context, if SIGINT arrived.

    Example:
        >>> with fphys.bridge.interruptible():  # doctest: +SKIP
        ...     states = jax.block_until_ready(jax.jit(long_rollout)(state))
    """
    if _handled_by_default():
        return _context()()
    return contextlib.nullcontext()


@functools.cache
def _context() -> Any:
    """The class of the context. Its enter and exit are native: Python code there could itself be interrupted."""
    bridge = ffi.plans().bridge
    bridge.reader, bridge.writer = os.pipe()
    for end in (bridge.reader, bridge.writer):
        os.set_blocking(end, False)
    bridge.set_wakeup_fd = functools.partial(signal.set_wakeup_fd, warn_on_full_buffer=False)
    bridge.ours, bridge.find_lost = bridge.writer, _find_lost
    method = ctypes.pythonapi.PyInstanceMethod_New
    method.restype, method.argtypes = ctypes.py_object, [ctypes.py_object]
    enter = method(ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(bridge.enter))
    leave = method(ctypes.PYFUNCTYPE(ctypes.c_int, *(ctypes.py_object,) * 4)(bridge.leave))
    return type("Interruptible", (contextlib.AbstractContextManager,), {"__enter__": enter, "__exit__": leave})


def _find_lost(error: BaseException | None) -> None:
    """Raise the interrupt that ended a program, unless the user's own error ends the context.

    Python prints and drops what is raised while an object is deleted, and the end of a generator is such code.
    """
    if error is None or f"{BridgeError.__name__}: {ffi.INTERRUPTED}" in str(error):
        raise KeyboardInterrupt


class Deferred:
    """A context in which the first Ctrl-C only sets ``asked``. A second one raises KeyboardInterrupt.

    For loops whose state lives in arrays that a program consumes: they check ``asked`` between two programs,
    save, and raise. No program is abandoned meanwhile. In another thread, or if the user has installed a handler for
    SIGINT, ``asked`` stays False.
    """

    def __init__(self) -> None:
        self.asked = False
        self._restore = contextlib.ExitStack()

    def __enter__(self) -> "Deferred":
        if _handled_by_default():
            bridge = ffi.plans().bridge
            self._restore.callback(setattr, bridge, "interruptible", bridge.interruptible)
            bridge.interruptible = 0
            self._restore.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, self._note))
        return self

    def __exit__(self, *_: Any) -> None:
        self._restore.close()

    def _note(self, number: int, frame: Any) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True


def _handled_by_default() -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
