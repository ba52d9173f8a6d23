"""Height fields against convex geoms: one contact for each prism that a geom touches, as in MuJoCo.

A feature is ((prism * parts of the geom + part of the geom) * parts of a prism + part of the prism) * patches + patch;
what the parts and the patch are is said in :mod:`convex`.
"""

import warp as wp

from ..._precision import quat, real, vec3, vec4
from ...math import rotate, unit
from .convex import extent, hull_row, patch_side, patches, settled, solid, start_of
from .pairs import geom_of
from .parts import part_of, parts_number, touch
from .polytope import farthest_apart
from .prism import PARTS, prism_of, prism_part
from .search import Geoms, Hulls, Search, chosen, slots_of
from .shapes import CYLINDER, HFIELD
from .solids import ball_of, farthest

TOUCHING = wp.constant(5)
"""Parts that a cylinder touches a prism with: its side, two discs, two rims."""


@wp.func
def geom_parts(shape: int, hull: int) -> int:
    """How many parts a geom may touch a prism with."""
    return wp.where(shape == CYLINDER, TOUCHING, parts_number(shape, hull))


@wp.func
def cells(low: real, high: real, half: real, lines: int) -> wp.vec2i:
    """The first cell between an axis's grid lines that an interval meets, and the one after the last."""
    scale = real(0.5) * real(lines - 1) / half
    first = wp.floor(wp.clamp(low + half, real(0.0), real(2.0) * half) * scale)
    last = wp.ceil(wp.clamp(high + half, real(0.0), real(2.0) * half) * scale)
    return wp.vec2i(wp.min(int(first), lines - 2), wp.clamp(int(last), 1, lines - 1))


@wp.kernel(enable_backward=False)
def features(
    # In:
    s: Search,
    g: Geoms,
    h: Hulls,
    geom_grid: wp.array2d(dtype=int),
    hfield_size: wp.array2d(dtype=vec4),
    hfield_data: wp.array2d(dtype=real),
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the candidates that are a height field and a convex geom."""
    world, lane = wp.tid()
    for i in range(lane, s.own.shape[0], s.lanes):
        pair_number = chosen(world, i, s)
        if pair_number < 0:
            continue
        g1 = geom_of(pair_number, 0, s.pairs)
        g2 = geom_of(pair_number, 1, s.pairs)
        margin = s.detection[world, s.own[i]]
        count = s.slot[i]
        last = count + slots_of(pair_number, s)
        rows = geom_grid[g1, 1]
        columns = geom_grid[g1, 2]
        size = hfield_size[world, geom_grid[g1, 0]]
        turn = g.quat[world, g1]
        kind = g.kind[g2]
        gap = g.pos[world, g2] - g.pos[world, g1]
        b = solid(kind, gap, g.quat[world, g2], g.size[world, g2], h.number, g2)
        low = vec3()
        high = vec3()
        axes = int(3)  # not constants: the loops are not to be unrolled
        halves = int(2)
        for k in range(axes):  # the geom's box in the field's frame
            axis = rotate(turn, unit(k))
            low = low + unit(k) * (wp.dot(axis, farthest(b, h, -axis)) - ball_of(b) - margin)
            high = high + unit(k) * (wp.dot(axis, farthest(b, h, axis)) + ball_of(b) + margin)
        across = low[0] <= size[0] and high[0] >= -size[0] and low[1] <= size[1] and high[1] >= -size[1]
        if across and high[2] >= -size[3]:
            of_x = cells(low[0], high[0], size[0], columns)
            of_y = cells(low[1], high[1], size[1], rows)
            step = vec3(real(2.0) * size[0] / real(columns - 1), real(2.0) * size[1] / real(rows - 1), real(0.0))
            least = wp.min(extent(kind, g.size[world, g2], h.radius[g2]), real(0.5) * wp.length(step))
            reach = margin + ball_of(b)
            number = patches(HFIELD, kind)
            total = geom_parts(kind, h.number[g2, 9])
            for row in range(of_y[0], of_y[1]):
                for column in range(of_x[0], of_x[1]):
                    for lower in range(halves):
                        cell = 2 * (row * columns + column) + lower
                        p = prism_of(size, rows, columns, geom_grid[g1, 3], hfield_data, world, cell)
                        top = wp.max(p.a[2], wp.max(p.b[2], p.c[2]))
                        if count < last and low[2] <= top:
                            middle = (p.a + p.b + p.c) / real(3.0)
                            a = solid(HFIELD, rotate(turn, middle), turn, vec3(), h.number, g1)
                            p.a = p.a - middle
                            p.b = p.b - middle
                            p.c = p.c - middle
                            p.base = p.base + middle[2]
                            a.prism = p
                            far = farthest_apart(a, b, h, reach)
                            if far.gap <= reach:
                                found = settled(a, b, h, far.n, least, 0)
                                if found.gap < margin:
                                    parts = (cell * total + found.second) * PARTS + found.first
                                    feature_out[world, count] = parts * number + found.patch
                                    count = count + 1
        for k in range(count, last):
            feature_out[world, k] = -1


@wp.func
def height_contact(
    p1: vec3,
    q1: quat,
    grid: wp.vec4i,
    size1: vec4,
    data: wp.array2d(dtype=real),
    world: int,
    kind: int,
    p2: vec3,
    q2: quat,
    size2: vec3,
    g2: int,
    feature: int,
    hull: wp.array2d(dtype=int),
    point: wp.array(dtype=vec3),
    direction: wp.array(dtype=vec3),
    form: wp.array(dtype=int),
):
    """Normal, signed distance and midpoint of the contact of a height field and a geom that a feature names."""
    number = patches(HFIELD, kind)
    total = geom_parts(kind, hull[g2, 9])
    patch = feature % number
    parts = feature // number
    second = (parts // PARTS) % total
    p = prism_of(size1, grid[1], grid[2], grid[3], data, world, parts // (PARTS * total))
    first, at, along = prism_part(p, parts % PARTS)
    a = part_of(HFIELD, vec3(), q1, vec3(), 0, patch, at, along, first)
    j = hull_row(hull, g2, second)
    b = part_of(kind, p2 - p1, q2, size2, second, patch, point[j], direction[j], form[j])
    n, distance, pos = touch(a, b, start_of(a, b, q1, patch, number, patch_side(HFIELD)))
    return n, distance, p1 + pos
