"""An LSTM over all times in one launch, and its transposed derivative: native code, in float32, on a processor.

A thread takes a world, some rows of the batch, through time. What the rows share, the recurrent kernel, comes packed in
panels of 64 columns, so that six rows by four vector registers are summed without leaving them; gates follow at once,
while the sums are still there.
"""

import warp as wp

from . import _native
from ._precision import real

lstm_h = _native.header("native/lstm.h")


@_native.func_native("")
def lstm_forward(
    world: int,
    backwards: int,
    given: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array3d(dtype=real),
    c_in: wp.array3d(dtype=real),
    h_out: wp.array4d(dtype=real),
    c_out: wp.array3d(dtype=real),
    slopes_out: wp.array4d(dtype=real),
):
    lstm_h()


@_native.func_native("")
def lstm_backward(
    world: int,
    backwards: int,
    slopes: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array4d(dtype=real),
    c_in: wp.array3d(dtype=real),
    share_out: wp.array4d(dtype=real),
    h_out: wp.array3d(dtype=real),
    c_out: wp.array3d(dtype=real),
):
    lstm_h()


@wp.kernel(enable_backward=False)
def lstm(
    # Structure:
    backwards: int,
    # In:
    given: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array3d(dtype=real),
    c_in: wp.array3d(dtype=real),
    # Out:
    h_out: wp.array4d(dtype=real),
    c_out: wp.array3d(dtype=real),
    slopes_out: wp.array4d(dtype=real),
):
    """Hidden states at all times, the last c, and the slopes, of a world, a tile of rows.

    Shapes by world and row: ``given`` (time, 4 hidden), ``h_out`` (time, hidden), ``slopes_out`` (time, 6 hidden), the
    others (hidden,). ``panels``, shared, has the recurrent kernel's columns 16 j of each gate in panel j, shape
    (hidden / 16, hidden, 64).
    """
    world = wp.tid()
    lstm_forward(world, backwards, given, panels, h_in, c_in, h_out, c_out, slopes_out)


@wp.kernel(enable_backward=False)
def lstm_transposed(
    # Structure:
    backwards: int,
    # In:
    slopes: wp.array4d(dtype=real),
    panels: wp.array4d(dtype=real),
    h_in: wp.array4d(dtype=real),
    c_in: wp.array3d(dtype=real),
    # Out:
    share_out: wp.array4d(dtype=real),
    h_out: wp.array3d(dtype=real),
    c_out: wp.array3d(dtype=real),
):
    """From cotangents of all h and of the last c, those of the gates before activation and of the first h and c.

    ``panels`` has the recurrent kernel transposed, in blocks of 64 columns: (hidden / 64, 4 hidden, 64).
    """
    world = wp.tid()
    lstm_backward(world, backwards, slopes, panels, h_in, c_in, share_out, h_out, c_out)
