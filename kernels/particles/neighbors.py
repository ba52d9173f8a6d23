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


@wp.func_native("""
    typedef decltype(radius * radius) number;
    const int* cells = cell.data + world * (cell.strides[0] / sizeof(int));
    const int* starts = start.data + world * (start.strides[0] / sizeof(int));
    const number* X = x.data + world * (x.strides[0] / sizeof(number));
    const number *Y = X + x.shape[2], *Z = Y + x.shape[2];
    const int here = cells[row], width = index.shape[2], room = width - 8;
    int* rows = index.data + (world * index.strides[0] + row * index.strides[1]) / sizeof(int);
    int* numbers = found.data + world * (found.strides[0] / sizeof(int)) + row;
    const number reach = radius * radius;
#ifdef __CUDACC__
    constexpr int MOST = 1;
    const int rest = 1;
#else
    constexpr int MOST = 16;
    if (here >= 0 && row > 0 && cells[row - 1] == here) return;  // with the first of its cell
    int rest = 1;
    while (here >= 0 && row + rest < cell.shape[1] && cells[row + rest] == here) ++rest;
    typedef number many __attribute__((ext_vector_type(8)));
    typedef int lanes __attribute__((ext_vector_type(8)));
    typedef bool mask __attribute__((ext_vector_type(8)));
    typedef unsigned char bytes __attribute__((ext_vector_type(8)));
    struct Table { unsigned char lane[256][8]; };
    static constexpr Table near_first = [] {  // for every mask, its lanes
        Table table{};
        for (int bits = 0; bits < 256; ++bits)
            for (int lane = 0, place = 0; lane < 8; ++lane)
                if (bits >> lane & 1) table.lane[bits][place++] = lane;
        return table;
    }();
#endif
    for (int done = 0; done < rest; done += MOST) {
        const int members = rest - done < MOST ? rest - done : MOST, slot = first + row + done;
        int* const lists = rows + done * width;
        int number_near[MOST] = {0};
        auto append = [&](int from, int end, number turn0, number turn1, number turn2) {
            number c0[MOST], c1[MOST], c2[MOST];
            for (int k = 0; k < members; ++k)
                c0[k] = X[slot + k] + turn0, c1[k] = Y[slot + k] + turn1, c2[k] = Z[slot + k] + turn2;
#ifdef __CUDACC__
            for (int s = from; s < end; ++s) {
                const number d0 = c0[0] - X[s], d1 = c1[0] - Y[s], d2 = c2[0] - Z[s];
                lists[number_near[0] < room ? number_near[0] : room] = s;
                number_near[0] += (d0 * d0 + d1 * d1 + d2 * d2 < reach) & (s != slot);
            }
#else
            for (int s = from; s < end; s += 8) {
                many x0, x1, x2;
                __builtin_memcpy(&x0, X + s, sizeof(many));
                __builtin_memcpy(&x1, Y + s, sizeof(many));
                __builtin_memcpy(&x2, Z + s, sizeof(many));
                const lanes at = s + lanes{0, 1, 2, 3, 4, 5, 6, 7};
                for (int k = 0; k < members; ++k) {
                    const many d0 = c0[k] - x0, d1 = c1[k] - x1, d2 = c2[k] - x2;
                    const lanes near = __builtin_convertvector(d0 * d0 + d1 * d1 + d2 * d2 < reach, lanes);
                    const mask kept = __builtin_convertvector(near & (at < end) & (at != slot + k), mask);
                    const unsigned char bits = __builtin_bit_cast(unsigned char, kept);
                    bytes chosen;
                    __builtin_memcpy(&chosen, near_first.lane[bits], sizeof(bytes));
                    const lanes slots = s + __builtin_convertvector(chosen, lanes);
                    const int place = number_near[k] < room ? number_near[k] : room;
                    __builtin_memcpy(lists + k * width + place, &slots, sizeof(lanes));
                    number_near[k] += __builtin_popcount(bits);
                }
            }
#endif
        };
        const int nx = count[0], ny = count[1], nz = count[2];
        const int cx = here % nx, cy = (here / nx) % ny, cz = here / (nx * ny);
        for (int dz = nz > 1 ? -1 : 0; here >= 0 && dz <= (nz > 1 ? 1 : 0); ++dz)
            for (int dy = -1; dy <= 1; ++dy) {
                const int wz = cz + dz < 0 ? nz : cz + dz >= nz ? -nz : 0;
                const int wy = cy + dy < 0 ? ny : cy + dy >= ny ? -ny : 0;
                const int* line = starts + ((cz + dz + wz) * ny + cy + dy + wy) * nx;
                const number turn1 = (wy > 0) * period[1] - (wy < 0) * period[1];
                const number turn2 = (wz > 0) * period[2] - (wz < 0) * period[2];
                append(line[cx == 0 ? 0 : cx - 1], line[cx == nx - 1 ? nx : cx + 2], number(0), turn1, turn2);
                if (cx == 0) append(line[nx - 1], line[nx], period[0], turn1, turn2);
                if (cx == nx - 1) append(line[0], line[1], -period[0], turn1, turn2);
            }
        for (int k = 0; k < members; ++k) {
            int* const list = lists + k * width;
            numbers[done + k] = number_near[k];
            for (int e = 0; e < 8; ++e) list[(number_near[k] < room ? number_near[k] : room) + e] = slot + k;
            list[width - 1] = slot + k;
        }
    }
""")
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
    """Write the slots near one into its row, then its own, and how many are near; -1 is no cell.

    Cells that follow one another along the first axis are one run of slots; where the three of them cross the seam of
    the torus they are two. Beyond a seam the centre is moved by the period. A processor looks at eight candidates at
    once, for all of a cell in its turn: a table says which lanes of a mask are set, and as many are written, so there
    is no branch to predict. On a GPU each slot looks for itself.
    """


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
