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
data pointer stands at byte 24. A *job* is the count of its programs and their addresses; a *queue* says how many of its
jobs were begun, how many there are, and their addresses.

Threads meet at a *mailbox*: state, queue, inputs, number of inputs, outputs, and the state before the queue came. Each
watches it for a while before it goes to sleep, for to be woken takes longer than a small job.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import warp as wp

from . import modules

ASLEEP, IDLE, POSTED, BUSY = 0, 1, 2, 3
"""States of a mailbox: its thread waits to be woken, watches the mailbox, may come to work at a queue, works at it."""

RUN = """
    typedef unsigned long long word;
    typedef void (*forward)(void*, void*);
    typedef void (*backward)(void*, void*, void*);
    auto do_job = [](const word* job, word inputs, word num_inputs, word outputs) {
        for (word programs = *job++; programs > 0; --programs) {
            const word* start = (const word*)*job++;
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
        }
    };
    auto run = [&](word* queue, word inputs, word num_inputs, word outputs) {
        for (word i; (i = __atomic_fetch_add(queue, 1, __ATOMIC_RELAXED)) < queue[1];)
            do_job((const word*)queue[2 + i], inputs, num_inputs, outputs);
    };
"""
WATCH = f"""
    enum : unsigned long long {{ ASLEEP = {ASLEEP}, IDLE = {IDLE}, POSTED = {POSTED}, BUSY = {BUSY} }};
    auto* const box = (unsigned long long*)mailbox;
    auto change = [&](unsigned long long from, unsigned long long to) {{
        return __atomic_compare_exchange_n(box, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }};
    auto watch = [&](unsigned long long state, bool until) {{
        auto is = [&] {{ return __atomic_load_n(box, __ATOMIC_ACQUIRE) == state; }};
        for (auto looks = patience; is() != until && looks > 0; --looks) {{
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }}
        return is() == until;
    }};
"""
SERVE = """
    for (;;) {
        if (!watch(POSTED, true)) {
            if (change(IDLE, ASLEEP)) return;
        } else if (change(POSTED, BUSY)) {
            run((word*)box[1], box[2], box[3], box[4]);
            __atomic_store_n(box, IDLE, __ATOMIC_RELEASE);
        }
    }
"""


@wp.func_native(RUN + "    run((word*)queue, inputs, num_inputs, outputs);\n")
def run_queue(queue: wp.uint64, inputs: wp.uint64, num_inputs: wp.uint64, outputs: wp.uint64):  # type: ignore[empty-body]
    ...


@wp.func_native(RUN + WATCH + SERVE)
def serve_mailbox(mailbox: wp.uint64, patience: wp.uint64):  # type: ignore[empty-body]
    ...


@wp.func_native(WATCH + "    change(POSTED, IDLE) || watch(BUSY, false);\n")
def watch_mailbox(mailbox: wp.uint64, patience: wp.uint64):  # type: ignore[empty-body]
    ...


@wp.func_native(f"""
    auto* const box = (unsigned long long*)mailbox;
    box[1] = queue, box[2] = inputs, box[3] = num_inputs, box[4] = outputs;
    box[5] = __atomic_exchange_n(box, {POSTED}, __ATOMIC_ACQ_REL);
""")
def post_queue(mailbox: wp.uint64, queue: wp.uint64, inputs: wp.uint64, num_inputs: wp.uint64, outputs: wp.uint64): ...  # type: ignore[empty-body]


@wp.func_native("    *(unsigned long long*)now = __builtin_readcyclecounter();\n")
def read_ticks(now: wp.uint64):  # type: ignore[empty-body]
    ...


@wp.kernel(enable_backward=False)
def drive(queue: wp.uint64, inputs: wp.uint64, num_inputs: wp.uint64, outputs: wp.uint64):
    """Run the jobs of a queue that nobody has begun, on the buffers of one XLA call."""
    wp.tid()
    run_queue(queue, inputs, num_inputs, outputs)


@wp.kernel(enable_backward=False)
def serve(mailbox: wp.uint64, patience: wp.uint64):
    """Work at the queues posted in a mailbox, until none has come in ``patience`` looks: then it says ASLEEP."""
    wp.tid()
    serve_mailbox(mailbox, patience)


@wp.kernel(enable_backward=False)
def post(mailbox: wp.uint64, queue: wp.uint64, inputs: wp.uint64, num_inputs: wp.uint64, outputs: wp.uint64):
    """Post a queue in a mailbox, and in its last word in which state it was: a sleeper has to be woken."""
    wp.tid()
    post_queue(mailbox, queue, inputs, num_inputs, outputs)


@wp.kernel(enable_backward=False)
def watch(mailbox: wp.uint64, patience: wp.uint64):
    """Take a queue back that nobody came for; otherwise look until its thread is done, at most ``patience`` times."""
    wp.tid()
    watch_mailbox(mailbox, patience)


@wp.kernel(enable_backward=False)
def tick(now: wp.uint64):
    """Write the processor's tick."""
    wp.tid()
    read_ticks(now)


class Driver(NamedTuple):
    """The kernels as functions of whole numbers. They release the GIL while they run."""

    drive: Callable[..., None]
    serve: Callable[..., None]
    post: Callable[..., None]
    watch: Callable[..., None]
    tick: Callable[..., None]


@functools.cache
def load() -> Driver:
    """Compile the driver."""
    kernels = [drive, serve, post, watch, tick]
    device = wp.get_device("cpu")
    _, code = modules.load(kernels, device, "the bridge's driver")
    return Driver(*(_callable(kernel, device, code) for kernel in kernels))


def _callable(kernel: Any, device: Any, code: Any) -> Callable[..., None]:
    count = len(kernel.adj.args)
    command: Any = wp.launch(kernel, dim=1, inputs=[wp.uint64(0)] * count, device=device, record_cmd=True)
    address = ctypes.cast(command.hooks.forward, ctypes.c_void_p).value
    assert address is not None
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
    bounds = command.bounds
    bounds_address, arguments = ctypes.addressof(bounds), ctypes.c_uint64 * count

    def call(*words: int) -> None:
        packed = arguments(*words)
        function(bounds_address, ctypes.addressof(packed))

    setattr(call, "keep", (command, bounds, code))
    return call


def ticks() -> int:
    """The processor's tick."""
    now = ctypes.c_uint64()
    load().tick(ctypes.addressof(now))
    return now.value
