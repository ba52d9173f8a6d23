"""Windows: the nodes that a part of a world's particles reaches, of a grid of its own.

What a part reaches is marked (``mark``); of its grid nothing else is cleared, added to or read. ``join`` adds the
windows of all parts, in their order, and ``cut`` is its transpose.
"""

import warp as wp

from .. import _native
from .._precision import real, vec3, vec4

windows_h = _native.header("particles/native/windows.h")


@_native.func_native()
def mark_places(
    world: int, lower: vec3, dx: real, nodes: wp.vec3i, x: wp.array3d(dtype=real), marks_out: wp.array2d(dtype=int)
):
    """Mark where the stencils of a part's particles begin."""
    windows_h()


@_native.func_native()
def clear_window(world: int, nodes: wp.vec3i, marks: wp.array2d(dtype=int), grid_out: wp.array2d(dtype=vec4)):
    """Zero what a part's particles will add to; nothing without a window."""
    windows_h()


@_native.func_native()
def cut_window(
    world: int,
    nodes: wp.vec3i,
    marks: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    window_out: wp.array2d(dtype=vec4),
):
    """Copy the nodes of a part's window."""
    windows_h()


@_native.func_native()
def join_plane(
    world: int,
    nodes: wp.vec3i,
    plane: wp.array(dtype=int),
    marks: wp.array3d(dtype=int),
    windows: wp.array3d(dtype=vec4),
    grid_out: wp.array2d(dtype=vec4),
):
    """The sum of all windows in one plane of nodes."""
    windows_h()


@wp.kernel(enable_backward=False)
def mark(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    # State in:
    x: wp.array3d(dtype=real),
    # Out:
    marks_out: wp.array2d(dtype=int),
):
    """Bits for the blocks of places in which stencils of a part's particles begin."""
    world = wp.tid()
    mark_places(world, lower, dx, nodes, x, marks_out)


@wp.kernel(enable_backward=False)
def cut(
    # Model:
    nodes: wp.vec3i,
    # In:
    marks: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    # Out:
    window_out: wp.array2d(dtype=vec4),
):
    """What a part's window shows of the grid."""
    world = wp.tid()
    cut_window(world, nodes, marks, grid, window_out)


@wp.kernel(enable_backward=False)
def join(
    # Model:
    nodes: wp.vec3i,
    plane: wp.array(dtype=int),
    # In:
    marks: wp.array3d(dtype=int),
    windows: wp.array3d(dtype=vec4),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """The sum of all windows; a plane of nodes in the place of a world."""
    world = wp.tid()
    join_plane(world, nodes, plane, marks, windows, grid_out)


@wp.func
def begin(world: int, thread: int, nodes: wp.vec3i, marks: wp.array2d(dtype=int), grid_out: wp.array2d(dtype=vec4)):
    """Clear a part's window, before the first of its threads adds to it: a processor runs them one after another."""
    if thread == 0:
        clear_window(world, nodes, marks, grid_out)


@_native.func_replay(begin)
def no_replay_of_begin(
    world: int, thread: int, nodes: wp.vec3i, marks: wp.array2d(dtype=int), grid_out: wp.array2d(dtype=vec4)
):
    """A backward pass has no use for the sums."""


@wp.func_grad(begin)
def no_slope_of_begin(
    world: int, thread: int, nodes: wp.vec3i, marks: wp.array2d(dtype=int), grid_out: wp.array2d(dtype=vec4)
):
    """Nothing depends on what was there before."""


@wp.func
def end(world: int, thread: int, nodes: wp.vec3i, marks: wp.array2d(dtype=int), grid: wp.array2d(dtype=vec4)):
    """The last thing of a kernel, and so the first of its adjoint, which clears the window of the cotangent."""


@_native.func_replay(end)
def no_replay_of_end(
    world: int, thread: int, nodes: wp.vec3i, marks: wp.array2d(dtype=int), grid: wp.array2d(dtype=vec4)
):
    """There is nothing to do."""


@wp.func_grad(end)
def adj_end(world: int, thread: int, nodes: wp.vec3i, marks: wp.array2d(dtype=int), grid: wp.array2d(dtype=vec4)):
    """As :func:`begin`."""
    if thread == 0:
        clear_window(world, nodes, marks, wp.adjoint[grid])
