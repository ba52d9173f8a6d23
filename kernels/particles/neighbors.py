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
    const int nx = count[0], ny = count[1], nz = count[2];
    const int cx = cell % nx, cy = (cell / nx) % ny, cz = cell / (nx * ny);
    const int* first = start.data + world * (start.strides[0] / sizeof(int));
    const auto* X = x.data + world * (x.strides[0] / sizeof(*x.data));
    int* to = index.data + (world * index.strides[0] + slot * index.strides[1]) / sizeof(int);
    const int last = index.shape[2] - 1;
    const auto reach = radius * radius;
    const auto centre = X[slot];
    int found = 0;
    for (int dz = nz > 1 ? -1 : 0; dz <= (nz > 1 ? 1 : 0); ++dz)
        for (int dy = -1; dy <= 1; ++dy) {
            const int wz = cz + dz < 0 ? nz : cz + dz >= nz ? -nz : 0;
            const int wy = cy + dy < 0 ? ny : cy + dy >= ny ? -ny : 0;
            const int* row = first + ((cz + dz + wz) * ny + cy + dy + wy) * nx;
            const auto c1 = centre[1] + (wy > 0) * period[1] - (wy < 0) * period[1];
            const auto c2 = centre[2] + (wz > 0) * period[2] - (wz < 0) * period[2];
            const int across = cx == 0 ? nx - 1 : cx == nx - 1 ? 0 : -1;
            for (int part = 0; part < (across < 0 ? 1 : 2); ++part) {
                const int from = part ? across : cx == 0 ? 0 : cx - 1;
                const int end = part ? across : cx == nx - 1 ? cx : cx + 1;
                const auto c0 = centre[0] + part * (cx == 0 ? period[0] : -period[0]);
                for (int s = row[from]; s < row[end + 1]; ++s) {
                    const auto d0 = c0 - X[s][0], d1 = c1 - X[s][1], d2 = c2 - X[s][2];
                    to[found < last ? found : last] = s;
                    found += (d0 * d0 + d1 * d1 + d2 * d2 < reach) & (s != slot);
                }
            }
        }
    return found;
""")
def append_near(
    world: int,
    slot: int,
    cell: int,
    count: vec3i,
    period: vec3,
    radius: real,
    start: wp.array2d(dtype=int),
    x: wp.array2d(dtype=vec3),
    index: wp.array3d(dtype=int),
) -> int:
    """Write the slots near one in a cell into its row, and return how many they are.

    Cells that follow one another along the first axis are one run of slots; where the three of them cross the seam of
    the torus they are two. Beyond a seam the centre is moved by the period. Every candidate is written and the place
    moves on if it is near, so there is no branch to predict. Native, for Warp's own indexing multiplies by strides at
    every access.
    """


@wp.kernel(enable_backward=False)
def list_neighbors(
    # Grid:
    count: vec3i,
    period: vec3,
    radius: real,
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
    c = cell[world, slot]
    if c >= 0:
        found = append_near(world, slot, c, count, period, radius, start, x, index_out)
    number_out[world, slot] = found


@wp.func
def separation(a: vec3, b: vec3, period: vec3) -> vec3:
    """a - b between the nearest images; an axis of period 0 is open."""
    d = a - b
    for k in range(3):
        if period[k] > real(0.0):
            d[k] = d[k] - period[k] * wp.round(d[k] / period[k])
    return d
