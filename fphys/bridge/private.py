"""The private parts of Warp, JAX and XLA that the bridge relies on, all in one place.

``tests/bridge/test_private.py`` states what each of them promises, so that a failure names the part that changed.
"""

import contextlib
import ctypes
import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jax._src import distributed, pjit, xla_bridge
from jax._src.interpreters import ad, batching, mlir, pxla
from jax._src.shard_map import ShardMapTracer
from warp._src import context
from warp._src.build import init_kernel_cache
from warp._src.codegen import Struct
from warp._src.context import _build_launch_bounds_from_tuple as launch_bounds
from warp._src.context import pack_arg
from warp._src.types import array_t, is_array, type_scalar_type, type_size_in_bytes

__all__ = [
    "Struct",
    "TypeInfo",
    "array_t",
    "explain_forward_mode",
    "forget_compiled",
    "gather_at",
    "in_a_group",
    "init_kernel_cache",
    "is_array",
    "is_eager_in_shard_map",
    "jax_has_started",
    "launch_bounds",
    "pack_arg",
    "refuse_calls",
    "runtime",
    "type_scalar_type",
    "type_size_in_bytes",
]


class TypeInfo(ctypes.Structure):
    """XLA_FFI_TypeInfo: how XLA deletes a state."""

    _fields_ = (("size", ctypes.c_uint64), ("extension", ctypes.c_void_p), ("delete", ctypes.c_void_p))


def runtime() -> Any:
    """Warp's native library, once Warp has started: ``runtime.core`` has its functions."""
    return context.runtime


def jax_has_started() -> bool:
    """Whether JAX has started its threads, or another thread, which holds the lock, is about to start them."""
    free = xla_bridge._backend_lock.acquire(blocking=False)
    if free:
        xla_bridge._backend_lock.release()
    return bool(xla_bridge._backends) or not free


def is_eager_in_shard_map(x: Any) -> bool:
    """Whether an array is in a ``shard_map`` that is evaluated, not traced by ``jit``."""
    return isinstance(x, ShardMapTracer)


def in_a_group() -> bool:
    """Whether this process has joined a group by ``jax.distributed``."""
    return distributed.global_state.client is not None


def gather_at(hostname: str) -> None:
    """Let gloo, which carries messages between processes on CPUs, listen at this address only, and give way."""
    library = importlib.import_module("jaxlib._jax")
    make = library.make_gloo_tcp_collectives
    make = make.args[0] if isinstance(make, functools.partial) else make
    setattr(library, "make_gloo_tcp_collectives", functools.partial(_giving_way, make, hostname=hostname))


def _giving_way(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What ``make`` makes; the thread that it starts takes a core only while the program waits.

    A message that comes before the program asks for it wakes gloo's thread again and again. On one core the program
    then waits for its turn: 3 ms a message instead of 0.2.
    """
    before = _threads()
    made = make(*args, **kwargs)
    for thread in _threads() - before:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, thread, 5)
    return made


def _threads() -> set[int]:
    """Of this process; none where the system does not list them."""
    tasks = Path("/proc/self/task")
    return {int(task.name) for task in tasks.iterdir()} if tasks.is_dir() else set()


def forget_compiled() -> None:
    """Make every call of a jitted function go through Python: native code calls what JAX has already compiled."""
    pjit._cpp_pjit_cache_fun_only.clear()
    pjit._cpp_pjit_cache_explicit_attributes.clear()
    importlib.import_module("jaxlib._jax").PjitFunctionCache.clear_all()


def explain_forward_mode(explain: Callable[[str, str], str | None]) -> None:
    """Let ``explain(file, function)`` give the message where forward mode reaches a ``custom_vjp`` function.

    The two name the function's backward rule; None leaves JAX's own message. JAX raises when a program is evaluated,
    batched or lowered, in its own frames, so that a jitted function cannot catch it.
    """

    def refuse(*args: Any, bwd: Any, **params: Any) -> Any:
        message = explain(bwd.debug_info.func_filename or "", bwd.debug_info.func_name)
        if message is None:
            return ad.raise_custom_vjp_error_on_jvp(*args, bwd=bwd, **params)
        raise TypeError(message)

    ad.custom_lin_p.def_impl(refuse)
    batching.primitive_batchers[ad.custom_lin_p] = lambda args, dims, **params: refuse(*args, **params)
    mlir.register_lowering(ad.custom_lin_p, refuse, cacheable=False)


def refuse_calls(refuse: Any) -> None:
    """Call ``refuse`` in place of whatever JAX would compile, run or bring to a device."""
    setattr(pjit, "_resolve_and_lower", refuse)
    setattr(pxla, "batched_device_put", refuse)
    setattr(pxla.ExecuteReplicated, "__call__", refuse)
