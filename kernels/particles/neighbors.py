"""Cells: particles in the order of the cells of a grid, so that neighbours are runs of consecutive slots.

The grid is a torus of ``count`` cells along each axis. Along a periodic axis the torus is the domain; along an open
one space is wound around it, so that no place lies outside: particles a whole turn apart share a cell, and their
distance tells them apart. With at least three cells along an axis no cell is met twice among a particle's 3^dim.
"""

import warp as wp

from .._precision import double, real, vec3, vec3i

FARTHEST = wp.constant(double(1.0e9))
"""Cells from the origin beyond which a particle is nowhere."""


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
    slot_cell_out: wp.array2d(dtype=int),
    start_out: wp.array2d(dtype=int),
):
    """Particles by cell, and by their number within a cell; ``start`` must be zero before.

    Cell c's slots are start[c] to start[c + 1]. Particles without a cell stand last, their cell -1.
    """
    world = wp.tid()
    n = cell.shape[1]
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
        slot_cell_out[world, slot] = wp.where(c < cells, c, -1)


@wp.func
def run(
    world: int, k: int, cell: int, count: vec3i, period: vec3, start: wp.array2d(dtype=int)
) -> tuple[int, int, vec3]:
    """The k-th run of slots around a cell, begin and end, and by what its particles are moved to be near.

    Cells that follow one another along the first axis are one run; where the three of them cross the seam of the
    torus they are two, so there are six runs in a plane and eighteen in space.
    """
    cx = cell % count[0]
    cy = (cell // count[0]) % count[1]
    cz = cell // (count[0] * count[1])
    row = k // 2
    y = cy + row % 3 - 1
    z = cz
    if count[2] > 1:
        z = cz + row // 3 - 1
    moved = vec3()
    if y < 0:
        y = y + count[1]
        moved = vec3(moved[0], -period[1], moved[2])
    elif y >= count[1]:
        y = y - count[1]
        moved = vec3(moved[0], period[1], moved[2])
    if z < 0:
        z = z + count[2]
        moved = vec3(moved[0], moved[1], -period[2])
    elif z >= count[2]:
        z = z - count[2]
        moved = vec3(moved[0], moved[1], period[2])
    first = wp.max(cx - 1, 0)
    last = wp.min(cx + 1, count[0] - 1)
    if k % 2 == 1:
        if cx == 0:
            first = count[0] - 1
            last = first
            moved = vec3(-period[0], moved[1], moved[2])
        elif cx == count[0] - 1:
            first = 0
            last = 0
            moved = vec3(period[0], moved[1], moved[2])
        else:
            first = 1
            last = 0
    base = (z * count[1] + y) * count[0]
    return start[world, base + first], start[world, base + last + 1], moved


@wp.kernel(enable_backward=False)
def gather_positions(
    # Cells:
    order: wp.array2d(dtype=int),
    # State in:
    x: wp.array2d(dtype=vec3),
    # Out:
    x_out: wp.array2d(dtype=vec3),
):
    """Positions in the order of slots."""
    world, slot = wp.tid()
    x_out[world, slot] = x[world, order[world, slot]]


@wp.func_native("""
    const auto* X = x.data + world * (x.strides[0] / sizeof(*x.data));
    int* to = index.data + (world * index.strides[0] + slot * index.strides[1]) / sizeof(int);
    const int last = index.shape[2] - 1;
    for (int s = begin; s < end; ++s) {
        const auto d0 = centre[0] - X[s][0], d1 = centre[1] - X[s][1], d2 = centre[2] - X[s][2];
        to[found < last ? found : last] = s;
        found += (d0 * d0 + d1 * d1 + d2 * d2 < reach) & (s != slot);
    }
    return found;
""")
def append_near(
    world: int,
    slot: int,
    begin: int,
    end: int,
    found: int,
    centre: vec3,
    reach: real,
    x: wp.array2d(dtype=vec3),
    index: wp.array3d(dtype=int),
) -> int:
    """Append the slots of a run that are near a centre to a row, and return how many the row has.

    Every candidate is written and the place moves on if it is near, so there is no branch to predict. Native, for
    Warp's own indexing multiplies by strides at every access.
    """


@wp.kernel(enable_backward=False)
def list_neighbors(
    # Grid:
    count: vec3i,
    period: vec3,
    radius: real,
    runs: int,
    # Cells:
    cell: wp.array2d(dtype=int),
    start: wp.array2d(dtype=int),
    # Slots in:
    x: wp.array2d(dtype=vec3),
    # Out:
    index_out: wp.array3d(dtype=int),
    number_out: wp.array2d(dtype=int),
):
    """For each slot the others within the radius; those for which there is no room are counted alone.

    The last column is no neighbour's, but where the candidates are written that come after.
    """
    world, slot = wp.tid()
    found = int(0)
    if cell[world, slot] >= 0:
        xi = x[world, slot]
        reach = radius * radius
        for k in range(runs):
            begin, end, moved = run(world, k, cell[world, slot], count, period, start)
            found = append_near(world, slot, begin, end, found, xi - moved, reach, x, index_out)
    number_out[world, slot] = found


@wp.func
def separation(a: vec3, b: vec3, period: vec3) -> vec3:
    """a - b between the nearest images; an axis of period 0 is open."""
    d = a - b
    for k in range(3):
        if period[k] > real(0.0):
            d[k] = d[k] - period[k] * wp.round(d[k] / period[k])
    return d
