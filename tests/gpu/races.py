"""Races: two threads touch the same number in one launch, one of them to write.

On a processor threads come one after another, so a race may give what it should, in every order. Here the compiler
marks each access to memory, as for its ThreadSanitizer, and for each number of a program's buffers it is known which
threads have read and written it in this launch. It is no race if both threads are of a warp, and have waited for each
other in between. After a shuffle, too, all have read what they read before, but CUDA does not promise that one sees
what another has written. Atomic additions are no race, either: they are not marked.
"""

import ctypes
import mmap
from collections.abc import Iterable
from pathlib import Path

FLAGS = "-fsanitize=thread -fsanitize-ignorelist="
AT = 0x2EED10000000
"""Where a :class:`Page` stands in memory, in every process. The numbers that were touched follow at ``TOUCHED``."""
TOUCHED, TABLE = 0x2EED20000000, 1 << 22  # as many numbers of four bytes as one launch may touch
MOST = 4096  # buffers


class Page(ctypes.Structure):
    """What Python and compiled kernels tell each other."""

    _fields_ = (
        ("launch", ctypes.c_uint64),
        ("races", ctypes.c_uint64),
        ("address", ctypes.c_uint64),  # of the first
        ("threads", ctypes.c_uint64 * 2),
        ("buffers", ctypes.c_uint64),
        ("bounds", ctypes.c_uint64 * (2 * MOST)),  # begin and end of each, ascending
    )


# `lanes_of_warp` is that of threads.py: how often each thread of the warp has waited, and its number in the launch.
CODE = (
    f"""
namespace fphys {{
namespace {{
struct Page {{ size_t launch, races, address, threads[2], buffers, bounds[{2 * MOST}]; }};
struct Touched {{ size_t number, launch; int writer, reader; unsigned written, read; bool several, apart; }};
#define FPHYS_OWN __attribute__((no_sanitize("thread"))) inline
FPHYS_OWN Page& page() {{ return *(Page*){AT:#x}; }}
FPHYS_OWN bool is_known(size_t at)
{{
    const Page& own = page();
    size_t low = 0, high = own.buffers;
    while (low < high) {{
        const size_t middle = (low + high) / 2;
        if (own.bounds[2 * middle + 1] <= at) low = middle + 1; else high = middle;
    }}
    return low < own.buffers && own.bounds[2 * low] <= at;
}}
FPHYS_OWN Touched& touched(size_t number)
{{
    Touched* const table = (Touched*){TOUCHED:#x};
    const size_t launch = page().launch;
    size_t i = number * 0x9E3779B97F4A7C15ull % {TABLE};
    for (size_t tries = 0; table[i].launch == launch && table[i].number != number; i = (i + 1) % {TABLE})
        if (++tries == {TABLE}) __builtin_trap();
    if (table[i].launch != launch) table[i] = {{number, launch, -1, -1, 0, 0, false, false}};
    return table[i];
}}
FPHYS_OWN void race(size_t number, int one, int other)
{{
    Page& own = page();
    if (own.races++ == 0) own.address = 4 * number, own.threads[0] = one, own.threads[1] = other;
}}
FPHYS_OWN void access(const void* at, size_t size, bool writes)
{{
    if (!lanes_of_warp.running || size < 4 || !is_known((size_t)at)) return;
    const int lane = wp_cpu_get_thread_idx(), thread = (int)lanes_of_warp.thread[lane];
    const unsigned waited = (unsigned)lanes_of_warp.waited[lane], met = (unsigned)lanes_of_warp.met[lane];
    auto away = [&](int other) {{ return other / 32 != thread / 32; }};
    for (size_t number = (size_t)at / 4; number < ((size_t)at + size) / 4; ++number) {{
        Touched& own = touched(number);
        const bool unseen = away(own.writer) || own.written == waited;
        if (own.writer >= 0 && own.writer != thread && unseen) race(number, own.writer, thread);
        if (writes) {{
            const bool others = own.reader >= 0 && (own.several || own.reader != thread);
            if (others && (own.apart || away(own.reader) || own.read == met)) race(number, own.reader, thread);
            own.writer = thread, own.written = waited, own.reader = -1, own.several = own.apart = false;
        }} else {{
            const bool other = own.reader >= 0 && own.reader != thread;
            own.apart = own.apart || (other && away(own.reader));
            own.several = own.apart || ((own.several || other) && own.read == met);
            own.reader = thread, own.read = met;
        }}
    }}
}}
FPHYS_OWN void copied(const void* to, const void* from, size_t size)
{{
    for (size_t i = 0; i + 4 <= size; i += 4) {{
        if (from) access((const char*)from + i, 4, false);
        access((const char*)to + i, 4, true);
    }}
}}
}}
}}
extern "C" {{
#define FPHYS_MARK __attribute__((no_sanitize("thread")))
FPHYS_MARK void __tsan_init() {{}}
FPHYS_MARK void __tsan_func_entry(void*) {{}}
FPHYS_MARK void __tsan_func_exit() {{}}
FPHYS_MARK void* __tsan_memcpy(void* to, const void* from, size_t n)
{{
    fphys::copied(to, from, n);
    return __builtin_memcpy(to, from, n);
}}
FPHYS_MARK void* __tsan_memmove(void* to, const void* from, size_t n)
{{
    fphys::copied(to, from, n);
    return __builtin_memmove(to, from, n);
}}
FPHYS_MARK void* __tsan_memset(void* to, int value, size_t n)
{{
    fphys::copied(to, nullptr, n);
    return __builtin_memset(to, value, n);
}}
"""
    + "".join(
        f"FPHYS_MARK void __tsan_{kind}{verb}{size}(void* at) {{ fphys::access(at, {size}, {writes}); }}\n"
        for kind in ("", "unaligned_")
        for verb, writes in (("read", "false"), ("write", "true"))
        for size in (1, 2, 4, 8, 16)
    )
    + "}\n"
)


def flags(folder: Path) -> str:
    """The compiler's flags, and a file of theirs: the functions that are not marked."""
    file = folder / "unmarked.txt"
    file.write_text("fun:*atomic_*\n")
    return f"{FLAGS}{file}"


def map_memory(libc: ctypes.CDLL) -> None:
    """Take the places in memory."""
    private, not_reserved, not_elsewhere = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x4000, 0x100000
    for at, size in ((AT, ctypes.sizeof(Page)), (TOUCHED, 64 * TABLE)):
        kind = private | not_reserved | not_elsewhere
        found = libc.mmap(at, size, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0)
        assert found == at, f"no memory at {at:#x}"


def begin(buffers: Iterable[tuple[int, int]]) -> Page:
    """Say where a launch's buffers begin and end in memory, before it runs; the page then tells what was found."""
    page = Page.from_address(AT)
    page.launch, page.races, page.buffers = page.launch + 1, 0, 0
    end = 0
    for first, last in sorted(buffers):
        if page.buffers and first <= end:
            page.bounds[2 * page.buffers - 1] = end = max(end, last)
        elif last > first:
            page.bounds[2 * page.buffers], page.bounds[2 * page.buffers + 1] = first, last
            page.buffers, end = page.buffers + 1, last
    return page
