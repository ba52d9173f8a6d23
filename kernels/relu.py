"""The rectifier, the smallest of kernels: what a call through the bridge costs is measured with it."""

import warp as wp

from ._precision import real


@wp.kernel
def relu(
    # In:
    x: wp.array2d(dtype=real),
    # Out:
    y_out: wp.array2d(dtype=real),
):
    """y = max(x, 0)."""
    world, i = wp.tid()
    y_out[world, i] = wp.max(x[world, i], real(0.0))
