"""The memory of this process, on Linux."""

import ctypes
import gc
import os
import sys


def resident() -> int:
    """Resident memory [bytes]."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def machine() -> int:
    """The machine's memory [bytes]."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def forget_traces() -> None:
    """Let the library's own jitted functions be traced anew, because a test has changed what they call."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fphys":
            for value in list(vars(module).values()):
                if type(value).__name__ == "PjitFunction":
                    value.clear_cache()


def forget_programs(above: float) -> None:
    """Drop JAX's compiled programs, and hand free memory back, if the process has more than a share of all memory."""
    if not sys.platform.startswith("linux") or resident() <= above * machine():
        return
    import jax

    jax.clear_caches()
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc keeps what is freed: two gigabytes after some tests
        libc.malloc_trim(0)
