"""Starting JAX and Warp so that they get along with each other and with the terminal."""

import contextlib
import functools
import os
import sys
import tempfile

import jax
import warp as wp

from . import cache

_NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"


def run_where_called() -> None:
    """Run CPU programs in the thread that calls them: a program in flight at the interpreter's exit would hang it."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


@functools.cache
def start_warp() -> None:
    """Initialise Warp without its greeting, its load times and its warning about a missing CUDA driver.

    ``modules.py`` reports compilation, and ``fphys doctor`` lists the devices.
    """
    wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)
    wp.config.cuda_output = wp.config.cuda_output or "cubin"  # as PTX, the driver would compile it at every start
    sys.stderr.flush()
    with contextlib.ExitStack() as opened:
        try:
            told = opened.enter_context(tempfile.TemporaryFile())
            saved = os.dup(2)
        except OSError:  # no standard error to keep clean, or no folder for what is told
            cache.start()
            return
        os.dup2(told.fileno(), 2)
        try:
            cache.start()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            told.seek(0)
            os.write(2, b"".join(line for line in told.read().splitlines(keepends=True) if _NO_DRIVER not in line))
