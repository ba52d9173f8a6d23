"""Threads that share one world's algebra: a warp of them on a GPU, one on a CPU.

What is dealt goes to the threads in turn, and whoever reads what another has written waits first. All threads of a team
take the same way through a kernel: what decides is the same number for all.
"""

import warp as wp

from .._precision import real

DEAL = """
#ifdef __CUDA_ARCH__
    const int own = lane, step = lanes;
#else
    const int own = 0, step = 1;  // known when it is compiled, so that loops become vector instructions
#endif
"""
"""For native functions: a thread has the numbers from ``own`` on, in steps of ``step``."""

WAIT = """
#ifdef __CUDA_ARCH__
    auto wait = [&] { if (lanes > 1) __syncwarp(); };
    auto total = [&](auto x) {
        for (int d = lanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
        return x;
    };
#else
    auto wait = [] {};
    auto total = [](auto x) { return x; };
#endif
"""
"""For native functions: ``wait()`` for what the others write, and the ``total`` of what each has."""


@wp.func_native(WAIT + "    wait();\n")
def wait(lanes: int):
    """Wait until every thread of the team has written what comes before."""


@wp.func_native(WAIT + "    return total(x);\n")
def total(lanes: int, x: real) -> real:  # type: ignore[empty-body]
    """The sum of the team's values, the same for each of its threads."""
