"""The XLA side: one FFI target, which runs the plan that the call's attribute names."""

import ctypes
import itertools
import threading
import traceback
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import warp as wp
from warp._src.jax import xla_ffi

from . import profile
from .plan import Plan, Program
from .start import start_warp
from .workers import Blocks, Team, make_queue, refuse_fork, shares

TARGET = "fphys_warp"

_plans: dict[int, Plan] = {}
_runners: dict[tuple[int, str], Callable[[Any], None]] = {}
_numbers = itertools.count()
_lock = threading.RLock()
_team = Team()
_keep: list[Any] = []


def register(plan: Plan) -> int:
    """Give a plan the number by which calls name it. Plans live as long as the process, as compiled calls may."""
    with _lock:
        start_warp()
        _register_target()
        number = next(_numbers)
        _plans[number] = plan
        return number


def prepare(number: int, platform: str) -> None:
    """Compile and pack a plan before its first call, so that the call does nothing but run."""
    with _lock:
        if (number, platform) not in _runners:
            make = _cpu_runner if platform == "cpu" else _cuda_runner
            _runners[number, platform] = make(_plans[number])


def _cpu_runner(plan: Plan) -> Callable[[Any], None]:
    device = wp.get_device("cpu")
    programs = [[Program(plan, device, run) for run in share] for share in shares(plan.worlds, plan.blocks)]
    tables = [[program.table() for program in share] for share in programs]
    jobs = [np.array([len(share), *(t.ctypes.data for t in share)], np.uint64) for share in tables]
    queue = make_queue([job.ctypes.data for job in jobs])
    lock = threading.Lock()  # the packed arguments serve one call at a time
    profile.add(itertools.chain(*programs), itertools.chain(*tables))

    def run(frame: Any) -> None:
        refuse_fork()
        inputs = ctypes.cast(frame.args.args, ctypes.c_void_p).value or 0
        outputs = ctypes.cast(frame.rets.rets, ctypes.c_void_p).value or 0
        with lock:
            _team.run(queue, inputs, frame.args.size, outputs)

    setattr(run, "keep", (programs, tables, jobs))
    return run


def _cuda_runner(plan: Plan) -> Callable[[Any], None]:
    """Launch on XLA's stream. Nothing is allocated or synchronised, so XLA may capture the call in a graph."""
    from warp._src.context import runtime

    programs: dict[int, Program] = {}
    lock = threading.Lock()

    def run(frame: Any) -> None:
        ordinal = xla_ffi.get_device_ordinal_from_callframe(ctypes.pointer(frame))
        stream = xla_ffi.get_stream_from_callframe(ctypes.pointer(frame))
        device = wp.get_cuda_device(ordinal)
        count = frame.args.size
        pointers = [_pointer(frame.args.args, i) for i in range(count)]
        pointers += [_pointer(frame.rets.rets, i) for i in range(frame.rets.size)]
        with lock:
            if ordinal not in programs:
                programs[ordinal] = Program(plan, device, Blocks(0, 0, plan.worlds, 1))
            program = programs[ordinal]
            with wp.ScopedStream(wp.Stream(device, cuda_stream=stream), sync_enter=False):
                for address, index, offset, _ in program.patches:
                    ctypes.c_uint64.from_address(address).value = pointers[index] + offset
                for index, offset, _, size in program.clears:
                    runtime.core.wp_memset_device(device.context, pointers[index] + offset, 0, size, stream)
                for to, to_offset, _, source, offset, _, size in program.copies:
                    runtime.core.wp_memcpy_d2d(
                        device.context, pointers[to] + to_offset, pointers[source] + offset, size, stream
                    )
                for (hooks, bounds, arguments, adjoints), (launch, _) in zip(
                    program.commands, plan.launches, strict=True
                ):
                    _launch_cuda(runtime, device, stream, launch.kernel, hooks, bounds, arguments, adjoints)

    return run


def _launch_cuda(
    runtime: Any, device: Any, stream: int, kernel: Any, hooks: Any, bounds: Any, args: Any, adj: Any
) -> None:
    fields = [ctypes.addressof(bounds)]
    for structure in (args, adj):
        if structure is not None:
            base = ctypes.addressof(structure)
            fields += [base + getattr(type(structure), f[0]).offset for f in structure._fields_]
    params = (ctypes.c_void_p * len(fields))(*fields)
    hook, smem = (
        (hooks.forward, hooks.forward_smem_bytes) if adj is None else (hooks.backward, hooks.backward_smem_bytes)
    )
    failed = runtime.core.wp_cuda_launch_kernel(
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
        raise RuntimeError(f"kernel {kernel.key} failed on {device}: {runtime.get_error_string()}")


def _pointer(buffers: Any, index: int) -> int:
    return ctypes.cast(buffers[index], ctypes.POINTER(xla_ffi.XLA_FFI_Buffer)).contents.data or 0


def _callback(platform: str) -> Callable[[Any], Any]:
    def callback(call_frame: Any) -> Any:
        frame = call_frame.contents
        try:
            extension = frame.extension_start
            if extension:
                if extension.contents.type == xla_ffi.XLA_FFI_Extension_Type.Metadata:
                    metadata = ctypes.cast(
                        extension, ctypes.POINTER(xla_ffi.XLA_FFI_Metadata_Extension)
                    ).contents.metadata
                    metadata.contents.api_version.major_version = 0
                    metadata.contents.api_version.minor_version = 1
                    if platform == "cuda":
                        metadata.contents.traits = xla_ffi.XLA_FFI_Handler_TraitsBits.COMMAND_BUFFER_COMPATIBLE
                return None
            attribute = ctypes.cast(frame.attrs.attrs[0], ctypes.POINTER(xla_ffi.XLA_FFI_Scalar)).contents
            number = ctypes.c_int64.from_address(attribute.value).value
            runner = _runners.get((number, platform))
            if runner is None:
                prepare(number, platform)
                runner = _runners[number, platform]
            runner(frame)
        except Exception as error:
            return xla_ffi.create_ffi_error(
                frame.api,
                xla_ffi.XLA_FFI_Error_Code.INTERNAL,
                f"fphys.BridgeError: {type(error).__name__}: {error}\n{traceback.format_exc(limit=3)}",
            )
        return None

    return callback


def _register_target() -> None:
    if _keep:
        return
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(xla_ffi.XLA_FFI_CallFrame))
    for platform, name in (("cpu", "cpu"), ("cuda", "CUDA")):
        function = prototype(_callback(platform))
        capsule = jax.ffi.pycapsule(ctypes.cast(function, ctypes.c_void_p).value)
        _keep.append((function, capsule))
        jax.ffi.register_ffi_target(TARGET, capsule, platform=name)
