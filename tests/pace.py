"""Limits in seconds, on machines of any pace."""

import subprocess
import sys
import time

YARDSTICK = "import numpy, jax, warp"
USUAL = 1.2
"""Seconds that a new process takes for it, where the limits in seconds were set."""
MOST = 2.5
"""A machine slower than so many times counts as no slower."""


def in_time(seconds: float, limit: float) -> bool:
    """Whether something took less than a limit [s], which a slower machine may exceed as it exceeds ``USUAL``."""
    return seconds < limit or seconds < limit * min(MOST, min(_import() for _ in range(3)) / USUAL)


def _import() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", YARDSTICK], check=True, timeout=120)
    return time.perf_counter() - begun
