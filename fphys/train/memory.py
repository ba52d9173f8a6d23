"""Where memory goes between two steps, on a CPU."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of mallopt
_NEVER = -1


def keep_memory() -> bool:
    """Keep freed memory in the process, for the next step to take: call it once, before training on a CPU.

    XLA asks for a step's scratch at each call anew, and glibc gives large blocks back to the system at once: every step
    then waits for the same pages to be mapped and cleared again. That took a third of a GPT's step (docs/decisions,
    page 12). The process keeps its largest footprint until it ends.

    Returns:
        Whether it is so now; False where the C library is not glibc, and nothing was changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    own = mallopt(_MMAP_MAX, 0)  # no block has pages of its own, however large, which would go when it is freed
    return bool(own and mallopt(_TRIM_THRESHOLD, _NEVER) and mallopt(_TOP_PAD, 2**26))
