"""Cells: particles in the order of the cells of a grid, so that neighbours are runs of consecutive slots.

The grid is a torus of ``count`` cells along each axis. Along a periodic axis the torus is the domain; along an open
one space is wound around it, so that no place lies outside: particles a whole turn apart share a cell, and their
distance tells them apart. With at least three cells along an axis no cell is met twice among a particle's 3^dim.
"""

import warp as wp

from .. import _native
from .._precision import double, real, vec3, vec3i

FARTHEST = wp.constant(double(1.0e9))
"""Cells from the origin beyond which a particle is nowhere."""

neighbors_h = _native.header("particles/native/neighbors.h")


@wp.func
def cell_along(x: real, lower: real, size: real, count: int, period: real) -> int:
    """The cell along one axis; -1 if x is not finite or too far. Exact in either precision: differences are double."""
    q = wp.floor((double(x) - double(lower)) / double(size))
    c = int(-1)
    if wp.abs(q) < FARTHEST:
        c = int(q)
        if period > real(0.0):
            c = wp.clamp(c, 0, count - 1)
        else:
            c = c % count
            if c < 0:
                c = c + count
    return c


@wp.kernel(enable_backward=False)
def locate(
    # Grid:
    count: vec3i,
    size: vec3,
    lower: vec3,
    period: vec3,
    # State in:
    x: wp.array2d(dtype=vec3),
    valid: wp.array2d(dtype=int),
    # Out:
    cell_out: wp.array2d(dtype=int),
):
    """The cell of each particle, or the one after the last for those that take no part."""
    world, i = wp.tid()
    p = x[world, i]
    cx = cell_along(p[0], lower[0], size[0], count[0], period[0])
    cy = cell_along(p[1], lower[1], size[1], count[1], period[1])
    cz = cell_along(p[2], lower[2], size[2], count[2], period[2])
    c = count[0] * count[1] * count[2]
    if valid[world, i] != 0 and cx >= 0 and cy >= 0 and cz >= 0:
        c = (cz * count[1] + cy) * count[0] + cx
    cell_out[world, i] = c


@wp.kernel(enable_backward=False)
def counting_sort(
    # Grid:
    cells: int,
    # In:
    cell: wp.array2d(dtype=int),
    # Out:
    order_out: wp.array2d(dtype=int),
    slot_out: wp.array2d(dtype=int),
    slot_cell_out: wp.array2d(dtype=int),
    start_out: wp.array2d(dtype=int),
):
    """Particles by cell, and by their number within a cell, and the slot of each.

    Cell c's slots are start[c] to start[c + 1]. Particles without a cell stand last, their cell -1.
    """
    world = wp.tid()
    n = cell.shape[1]
    for c in range(cells + 3):
        start_out[world, c] = 0
    for i in range(n):
        c = cell[world, i] + 2
        start_out[world, c] = start_out[world, c] + 1
    for c in range(cells + 2):
        start_out[world, c + 1] = start_out[world, c + 1] + start_out[world, c]
    for i in range(n):
        c = cell[world, i]
        slot = start_out[world, c + 1]
        start_out[world, c + 1] = slot + 1
        order_out[world, slot] = i
        slot_out[world, i] = slot
        slot_cell_out[world, slot] = wp.where(c < cells, c, -1)


@wp.kernel(enable_backward=False)
def gather_positions(
    # Cells:
    order: wp.array2d(dtype=int),
    # State in:
    x: wp.array2d(dtype=vec3),
    # Out:
    x_out: wp.array3d(dtype=real),
):
    """Positions in the order of slots, each axis on its own, (world, axis, slot)."""
    world, slot = wp.tid()
    at = x[world, order[world, slot]]
    for axis in range(3):
        x_out[world, axis, slot] = at[axis]


@wp.func_native("""
    const int width = value.shape[2];
    const auto* from = value.data + world * (value.strides[0] / sizeof(*value.data)) + source * width;
    auto* to = copy.data + world * (copy.strides[0] / sizeof(*copy.data)) + row * width;
    for (int k = 0; k < width; ++k) to[k] = from[k];
""")
def copy_row(world: int, source: int, row: int, value: wp.array3d(dtype=real), copy: wp.array3d(dtype=real)):
    """Copy one row's numbers."""


@wp.kernel(enable_backward=False)
def gather_rows(
    # Order:
    order: wp.array2d(dtype=int),
    # In:
    value: wp.array3d(dtype=real),
    # Out:
    value_out: wp.array3d(dtype=real),
):
    """What stands in other places."""
    world, row = wp.tid()
    copy_row(world, order[world, row], row, value, value_out)


@_native.func_native()
def list_cell(
    world: int,
    row: int,
    first: int,
    count: vec3i,
    period: vec3,
    radius: real,
    cell: wp.array2d(dtype=int),
    start: wp.array2d(dtype=int),
    x: wp.array3d(dtype=real),
    index: wp.array3d(dtype=int),
    found: wp.array2d(dtype=int),
):
    """Write the slots near one into its row, then its own, and how many are near; -1 is no cell."""
    neighbors_h()


@wp.kernel(enable_backward=False)
def list_neighbors(
    # Grid:
    count: vec3i,
    period: vec3,
    radius: real,
    # Cells:
    first: wp.array(dtype=int),
    cell: wp.array2d(dtype=int),
    start: wp.array2d(dtype=int),
    # Slots in:
    x: wp.array3d(dtype=real),
    # Out:
    index_out: wp.array3d(dtype=int),
    number_out: wp.array2d(dtype=int),
):
    """For each slot, from the first on, the others within the radius; those without room are counted alone.

    Behind its neighbours a slot stands itself, up to a whole eight of them. The last eight columns are where candidates
    are written that come after; the very last is always the slot's own.
    """
    world, row = wp.tid()
    list_cell(world, row, first[world], count, period, radius, cell, start, x, index_out, number_out)


@wp.func
def listed(index: wp.array3d(dtype=int), number: wp.array2d(dtype=int), world: int, row: int) -> int:
    """How many neighbours there are in a row."""
    return wp.min(number[world, row], index.shape[2] - 8)


@wp.func
def own_slot(index: wp.array3d(dtype=int), world: int, row: int) -> int:
    """The slot whose neighbours stand in a row."""
    return index[world, row, index.shape[2] - 1]


@wp.func
def separation(a: vec3, b: vec3, period: vec3) -> vec3:
    """a - b between the nearest images; an axis of period 0 is open."""
    d = a - b
    for k in range(3):
        if period[k] > real(0.0):
            d[k] = d[k] - period[k] * wp.round(d[k] / period[k])
    return d
