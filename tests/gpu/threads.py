"""Kernels for the processor that run as on a GPU: with a GPU's code, its warps, and threads in any order.

On a processor a kernel's threads come one after another, in their order, and two kinds of mistakes hide behind that: a
thread that reads what another one writes in the same launch, and a team whose threads do not wait for each other. Here
the 32 threads of a warp are fibers, which Warp has for its tiles: each runs until it waits for the others. The warps,
and the threads within one, come in the order that :func:`order` sets. Headers are compiled as for CUDA, Warp's aside.
What no order shows, ``races.py`` finds: numbers that two threads touch.

This changes the code of every kernel of the process, of which Warp's cache knows nothing. So such a process has a
folder of kernels of its own, named after the changes.
"""

import ctypes
import hashlib
import mmap
import os
import re
from pathlib import Path
from typing import Any

import warp as wp
from warp._src import context

from fphys.bridge import driver

from . import races

ORDERS = ASCENDING, DESCENDING, SHUFFLED = range(3)
AT = 0x2EED00000000
"""Where the order stands in memory, in every process: compiled kernels read it there."""

# A trap ends the process: no result is better than one of threads that have lost each other.
HEADER = f"""
#define FPHYS_GPU 1
namespace fphys {{
namespace {{
// The i-th of so many: in order, backwards, or, shuffled, by strides of about two fifths that meet every number once.
inline size_t in_order(size_t i, size_t count)
{{
    const unsigned order = *(const volatile unsigned*){AT:#x};
    if (order == {ASCENDING}) return i;
    if (order == {DESCENDING}) return count - 1 - i;
    for (size_t stride = 2 * count / 5 + 1;; ++stride) {{
        size_t a = stride, b = count;
        while (b > 0) {{ const size_t rest = a % b; a = b; b = rest; }}
        if (a == 1) return (i * stride + count / 3) % count;
    }}
}}
static struct {{ unsigned long long met[32], waited[32], thread[32]; char value[32][8]; bool running; }} lanes_of_warp;
template <class Body> struct Warp {{
    Body body;
    size_t first, count;
    static void run(void*, size_t, int lane, void* at)
    {{
        Warp& own = *(Warp*)at;
        const size_t thread = own.first + in_order(lane, own.count);
        lanes_of_warp.thread[lane] = thread;
        own.body(thread);
    }}
}};
template <class Body> inline void each_thread(size_t count, Body body)
{{
    const size_t warps = (count + 31) / 32;
    lanes_of_warp.running = true;
    for (size_t i = 0; i < warps; ++i) {{
        const size_t first = 32 * in_order(i, warps);
        Warp<Body> own = {{body, first, count - first < 32 ? count - first : 32}};
        wp_cpu_run_block(32, (int)own.count, &Warp<Body>::run, nullptr, i, &own);
    }}
    lanes_of_warp.running = false;
}}
// Wait for the whole warp. Its threads must have waited equally often: otherwise they have taken different ways.
inline void meet()
{{
    unsigned long long* met = lanes_of_warp.met;
    const unsigned long long own = ++met[wp_cpu_get_thread_idx()];
    if (wp_cpu_get_active_count() != 32) __builtin_trap();
    wp_cpu_tile_sync();
    for (int i = 0; i < 32; ++i) if (met[i] != own) __builtin_trap();
    wp_cpu_tile_sync();
}}
}}
}}
inline void __syncwarp() {{ fphys::meet(); ++fphys::lanes_of_warp.waited[wp_cpu_get_thread_idx()]; }}
template <class T> inline T __shfl_xor_sync(unsigned, T x, int distance)
{{
    const int lane = wp_cpu_get_thread_idx();
    *(T*)fphys::lanes_of_warp.value[lane] = x;
    fphys::meet();
    x = *(T*)fphys::lanes_of_warp.value[lane ^ distance];
    fphys::meet();
    return x;
}}
"""
LOOP = re.compile(
    r"for \(size_t task_index = 0; task_index < dim->size; \+\+task_index\)\s*\{\s*(\w+<\w+>\([^;]*\);)\s*\}"
)
_order: list[ctypes.c_uint] = []


def compile_as_for_a_gpu(folder: str | os.PathLike[str]) -> None:
    """From now on this process compiles its kernels in this way, into a folder there, or takes them from it."""
    assert wp._src.context.runtime is None, "Warp has started, and has its folder of kernels"
    own = Path(folder) / hashlib.blake2b((HEADER + races.CODE).encode(), digest_size=4).hexdigest()
    own.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]
    not_elsewhere = 0x100000  # MAP_FIXED_NOREPLACE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | not_elsewhere
    found = libc.mmap(AT, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    assert found == AT, f"no memory at {AT:#x}: {os.strerror(ctypes.get_errno())}"
    races.map_memory(libc)
    _order.append(ctypes.c_uint.from_address(AT))
    usual = wp.config.cpu_compiler_flags
    wp.get_module(driver.__name__).options["cpu_compiler_flags"] = usual  # no kernel
    wp.config.cpu_compiler_flags = f"{usual} {races.flags(own)}"
    os.environ["WARP_CACHE_PATH"] = str(own)
    context.ModuleBuilder.codegen = _changed(context.ModuleBuilder.codegen)  # type: ignore[method-assign]


def running() -> bool:
    """Whether this process's kernels run in this way."""
    return bool(_order)


def order(which: int) -> None:
    """In which order threads come from now on."""
    _order[0].value = which


def _changed(codegen: Any) -> Any:
    def changed(self: Any, device: str) -> str:
        source = codegen(self, device)
        for name in ("__CUDACC__", "__CUDA_ARCH__"):
            source = source.replace(name, "FPHYS_GPU")
        source, count = LOOP.subn(r"fphys::each_thread(dim->size, [&](size_t task_index) { \1 });", source)
        assert count >= len(self.kernels), "Warp writes its loops over threads in another way than before"
        return HEADER + races.CODE + source

    return changed
