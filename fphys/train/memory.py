"""Keep memory between training steps on a CPU."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of mallopt
_NEVER = -1


def keep_memory() -> bool:
    """Keep freed memory in the process for the next step. Call it once before training on a CPU.

    XLA allocates a step's scratch memory anew at each call, and glibc returns large blocks to the system at once. Every
    step then waits for the same pages to be mapped and cleared again, which took a third of a GPT's step
    (docs/decisions, page 12). The process keeps its largest footprint until it ends.

    Returns:
        True if this worked; False, with nothing changed, if the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    own = mallopt(_MMAP_MAX, 0)  # large blocks get no mapping of their own, which would be unmapped when freed
    return bool(own and mallopt(_TRIM_THRESHOLD, _NEVER) and mallopt(_TOP_PAD, 2**26))
