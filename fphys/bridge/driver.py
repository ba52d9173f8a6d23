"""The native driver: one call runs all launches of a program, outside Python.

Python would spend a microsecond on every argument of every launch. Instead a *program*, a flat
table of 64-bit words made once per set of shapes, says which pointers of the XLA call go where,
what to clear, what to copy and which compiled kernels to run; a Warp kernel of one thread reads it.

Layout, all counts and addresses being words::

    blocks:  how often all that follows is done, each time for the next block of worlds
    ticks:   where to add the processor's ticks of each call, or 0
    patches: count, then (field address, place)
    clears:  count, then (place, bytes)
    copies:  count, then (to place, from place, bytes)
    calls:   count, then (function, bounds, arguments, adjoint arguments or 0)

A place is (buffer, byte offset, bytes from one block to the next). Buffers are numbered inputs first,
then outputs; ``inputs`` and ``outputs`` are the addresses of XLA's arrays of ``XLA_FFI_Buffer*``, whose
data pointer stands at byte 24. Without a program, the processor's tick is written to ``inputs``.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import warp as wp

from . import modules

SNIPPET = """
    typedef unsigned long long word;
    typedef void (*forward)(void*, void*);
    typedef void (*backward)(void*, void*, void*);
    if (!program) {
        *(word*)inputs = __builtin_readcyclecounter();
        return;
    }
    const word* start = (const word*)program;
    const word blocks = *start++;
    word* const ticks = (word*)*start++;
    for (word block = 0; block < blocks; ++block) {
        const word* p = start;
        auto at = [&](const word* place) -> char* {
            const word i = place[0];
            const char* buffer =
                i < num_inputs ? ((char* const*)inputs)[i] : ((char* const*)outputs)[i - num_inputs];
            return *(char* const*)(buffer + 24) + place[1] + block * place[2];
        };
        for (word n = *p++; n > 0; --n, p += 4)
            *(char**)p[0] = at(p + 1);
        for (word n = *p++; n > 0; --n, p += 4)
            __builtin_memset(at(p), 0, p[3]);
        for (word n = *p++; n > 0; --n, p += 7)
            __builtin_memcpy(at(p), at(p + 3), p[6]);
        word* tick = ticks;
        for (word n = *p++; n > 0; --n, p += 4) {
            if (tick) *tick -= __builtin_readcyclecounter();
            if (p[3]) ((backward)p[0])((void*)p[1], (void*)p[2], (void*)p[3]);
            else ((forward)p[0])((void*)p[1], (void*)p[2]);
            if (tick) *tick++ += __builtin_readcyclecounter();
        }
    }
"""


@wp.func_native(SNIPPET)
def run_program(program: wp.uint64, inputs: wp.uint64, num_inputs: wp.uint64, outputs: wp.uint64):  # type: ignore[empty-body]
    ...


@wp.kernel(enable_backward=False)
def drive(program: wp.uint64, inputs: wp.uint64, num_inputs: wp.uint64, outputs: wp.uint64):
    """Run a program on the buffers of one XLA call."""
    wp.tid()
    run_program(program, inputs, num_inputs, outputs)


class _Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("program", "inputs", "num_inputs", "outputs")]


@functools.cache
def load() -> Callable[[int, int, int, int], None]:
    """Compile the driver and return ``run(program, inputs, num_inputs, outputs)``, which releases the GIL."""
    device = wp.get_device("cpu")
    _, code = modules.load([drive], device, "the bridge's driver")
    command: Any = wp.launch(drive, dim=1, inputs=[wp.uint64(0)] * 4, device=device, record_cmd=True)
    address = ctypes.cast(command.hooks.forward, ctypes.c_void_p).value
    assert address is not None
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
    bounds = command.bounds
    bounds_address = ctypes.addressof(bounds)
    keep = (command, bounds, code)

    def run(program: int, inputs: int, num_inputs: int, outputs: int) -> None:
        arguments = _Arguments(program, inputs, num_inputs, outputs)
        function(bounds_address, ctypes.addressof(arguments))

    setattr(run, "keep", keep)
    return run


def ticks() -> int:
    """The processor's tick."""
    now = ctypes.c_uint64()
    load()(0, ctypes.addressof(now), 0, 0)
    return now.value
