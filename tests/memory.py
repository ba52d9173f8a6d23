"""The memory of this process, on Linux."""

import ctypes
import gc
import os
import sys


def resident() -> int:
    """Resident memory [bytes]."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_programs(above: int) -> None:
    """Drop JAX's compiled programs, and hand free memory back, if the process has more than ``above`` bytes."""
    if not sys.platform.startswith("linux") or resident() <= above:
        return
    import jax

    jax.clear_caches()
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc keeps what is freed: two gigabytes after some tests
        libc.malloc_trim(0)
