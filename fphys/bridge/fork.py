"""A forked child has lost JAX's threads, and would wait for them for ever: there it gets an error instead."""

import importlib
import os
from typing import Any

from jax._src import pjit, xla_bridge
from jax._src.interpreters import pxla

from ..errors import BridgeError
from . import ffi

FORKED = (
    "this process was forked after JAX had started, and JAX and its threads do not survive a fork: "
    'start workers with multiprocessing.get_context("spawn")'
)


def guard() -> None:
    """Have every child that is forked from here on guarded."""
    os.register_at_fork(after_in_child=_in_child)


def _refuse(*_: Any, **__: Any) -> Any:
    raise BridgeError(FORKED)


def _in_child() -> None:
    if not _jax_had_started():
        return
    # JAX calls what it has compiled from native code. Once that is forgotten, every call comes through Python.
    pjit._cpp_pjit_cache_fun_only.clear()
    pjit._cpp_pjit_cache_explicit_attributes.clear()
    importlib.import_module("jaxlib._jax").PjitFunctionCache.clear_all()
    setattr(pjit, "_resolve_and_lower", _refuse)
    setattr(pxla.ExecuteReplicated, "__call__", _refuse)
    ffi.close(FORKED)


def _jax_had_started() -> bool:
    """Whether JAX had its threads, or another thread was about to start them: that one holds the lock for ever."""
    free = xla_bridge._backend_lock.acquire(blocking=False)
    if free:
        xla_bridge._backend_lock.release()
    return bool(xla_bridge._backends) or not free
