"""Which pairs of a body's surface may touch, and how far they may go: a hash grid, and conservative advancement."""

import warp as wp

from .._precision import real, vec3
from .pairs import EDGES, Skin, corners_of, distance

FARTHEST = wp.constant(real(1.0e9))
"""Cells from the origin beyond which all are one."""
KEPT = wp.constant(real(0.1))
"""Part of the distance of a pair that is left after a step at least."""


@wp.struct
class Grid:
    """Points by hash of their cell, and pairs."""

    start: wp.array2d(dtype=int)  # of each hash, and the end
    order: wp.array2d(dtype=int)
    cell: wp.array2d(dtype=wp.vec3i)
    count: wp.array2d(dtype=int)  # of pairs, those without room, too; of those that rub; and the most of the first


@wp.func
def cell_of(p: vec3, size: real) -> wp.vec3i:
    """The cell of a place."""
    c = wp.vec3i()
    for k in range(3):
        c[k] = int(wp.clamp(wp.floor(p[k] / size), -FARTHEST, FARTHEST))
    return c


@wp.func
def hash_of(c: wp.vec3i, buckets: int) -> int:
    """A number below ``buckets``."""
    h = wp.uint32(c[0]) * wp.uint32(73856093)
    h = h ^ (wp.uint32(c[1]) * wp.uint32(19349663))
    h = h ^ (wp.uint32(c[2]) * wp.uint32(83492791))
    return int(h % wp.uint32(buckets))


@wp.func
def point(world: int, i: int, edges: int, skin: Skin, place: wp.array2d(dtype=vec3)) -> vec3:
    """A vertex of the surface, or the middle of an edge."""
    if edges != 0:
        return real(0.5) * (place[world, skin.rims[i, 0]] + place[world, skin.rims[i, 1]])
    return place[world, skin.points[i]]


@wp.func
def fill(world: int, edges: int, count: int, size: real, skin: Skin, place: wp.array2d(dtype=vec3), grid_out: Grid):
    """Points by the hash of their cell, by counting."""
    buckets = grid_out.start.shape[1] - 2
    for b in range(buckets + 2):
        grid_out.start[world, b] = 0
    for i in range(count):
        c = cell_of(point(world, i, edges, skin, place), size)
        grid_out.cell[world, i] = c
        b = hash_of(c, buckets) + 2
        grid_out.start[world, b] = grid_out.start[world, b] + 1
    for b in range(buckets):
        grid_out.start[world, b + 2] = grid_out.start[world, b + 2] + grid_out.start[world, b + 1]
    for i in range(count):
        b = hash_of(grid_out.cell[world, i], buckets) + 1
        at = grid_out.start[world, b]
        grid_out.start[world, b] = at + 1
        grid_out.order[world, at] = i


@wp.func
def joined(pair: wp.vec3i, skin: Skin, pinned: wp.array(dtype=int)) -> int:
    """Whether a pair has a vertex in common, or all of it is pinned: it is none."""
    a, b, c, d = corners_of(pair, skin)
    if pinned[a] != 0 and pinned[b] != 0 and pinned[c] != 0 and pinned[d] != 0:
        return 1
    if pair[0] == EDGES:
        if a == c or a == d or b == c or b == d:
            return 1
    elif a == b or a == c or a == d:
        return 1
    return 0


@wp.func
def pair_distance(world: int, pair: wp.vec3i, skin: Skin, place: wp.array2d(dtype=vec3)) -> real:
    """Between the nearest points of a pair [m]."""
    a, b, c, d = corners_of(pair, skin)
    return distance(pair[0], place[world, a], place[world, b], place[world, c], place[world, d])


@wp.func
def look(
    world: int,
    edges: int,
    radius: real,
    size: real,
    reach: real,
    skin: Skin,
    pinned: wp.array(dtype=int),
    place: wp.array2d(dtype=vec3),
    grid_out: Grid,
    pair_out: wp.array2d(dtype=wp.vec3i),
):
    """Add pairs nearer than the radius; points are at most ``reach`` from what they stand for."""
    buckets = grid_out.start.shape[1] - 2
    total = skin.sides.shape[0]
    if edges != 0:
        total = skin.rims.shape[0]
    for j in range(total):
        corner = skin.sides[j, 0]
        if edges != 0:
            corner = skin.rims[j, 0]
        low = place[world, corner]
        high = low
        for a in range(1, 3):
            if a == 1 or edges == 0:
                if edges != 0:
                    corner = skin.rims[j, a]
                else:
                    corner = skin.sides[j, a]
                low = wp.min(low, place[world, corner])
                high = wp.max(high, place[world, corner])
        border = vec3(radius + reach, radius + reach, radius + reach)
        first = cell_of(low - border, size)
        last = cell_of(high + border, size)
        for cx in range(first[0], last[0] + 1):
            for cy in range(first[1], last[1] + 1):
                for cz in range(first[2], last[2] + 1):
                    here = wp.vec3i(cx, cy, cz)
                    b = hash_of(here, buckets)
                    for s in range(grid_out.start[world, b], grid_out.start[world, b + 1]):
                        i = grid_out.order[world, s]
                        if grid_out.cell[world, i] == here and (edges == 0 or i < j):
                            pair = wp.vec3i(edges, i, j)
                            if edges == 0:
                                pair = wp.vec3i(edges, skin.points[i], j)
                            if joined(pair, skin, pinned) == 0:
                                if pair_distance(world, pair, skin, place) < radius:
                                    n = grid_out.count[world, 0]
                                    grid_out.count[world, 0] = n + 1
                                    if n < skin.room:
                                        pair_out[world, n] = pair


@wp.func
def list_pairs(
    world: int,
    radius: real,
    skin: Skin,
    pinned: wp.array(dtype=int),
    place: wp.array2d(dtype=vec3),
    grid_out: Grid,
    pair_out: wp.array2d(dtype=wp.vec3i),
):
    """All pairs of the surface nearer than the radius; unused room holds the kind -1."""
    grid_out.count[world, 0] = 0
    total = real(0.0)
    longest = real(0.0)
    edges = skin.rims.shape[0]
    for i in range(edges):
        length = wp.length(place[world, skin.rims[i, 1]] - place[world, skin.rims[i, 0]])
        total += length
        longest = wp.max(longest, length)
    size = wp.max(total / real(edges), real(0.25) * longest) + real(2.0) * radius
    fill(world, 0, skin.points.shape[0], size, skin, place, grid_out)
    look(world, 0, radius, size, real(0.0), skin, pinned, place, grid_out, pair_out)
    fill(world, 1, edges, size, skin, place, grid_out)
    look(world, 1, radius, size, real(0.5) * longest, skin, pinned, place, grid_out, pair_out)
    for n in range(grid_out.count[world, 0], skin.room):
        pair_out[world, n] = wp.vec3i(-1, 0, 0)


@wp.func
def spread_of(world: int, move: wp.array2d(dtype=vec3)) -> real:
    """The longest displacement, after a common one is taken off, which brings no pair nearer."""
    n = move.shape[1]
    mean = vec3()
    for i in range(n):
        mean += move[world, i]
    mean = mean / real(n)
    most = real(0.0)
    for i in range(n):
        most = wp.max(most, wp.length(move[world, i] - mean))
    return most


@wp.func
def free_path(
    world: int,
    skin: Skin,
    place: wp.array2d(dtype=vec3),
    move: wp.array2d(dtype=vec3),
    pair: wp.array2d(dtype=wp.vec3i),
    grid: Grid,
) -> real:
    """The part of a displacement after which every pair in the list keeps a tenth of its distance.

    Conservative advancement (Li et al. 2021, "Codimensional incremental potential contact", section 5.2): the distance
    changes at most as fast as the fastest vertices of both parts, the pair's common motion taken off.
    """
    part = real(1.0)
    for n in range(wp.min(grid.count[world, 0], skin.room)):
        q = pair[world, n]
        a, b, c, d = corners_of(q, skin)
        s0 = move[world, a]
        s1 = move[world, b]
        s2 = move[world, c]
        s3 = move[world, d]
        mean = real(0.25) * (s0 + s1 + s2 + s3)
        s0 = s0 - mean
        s1 = s1 - mean
        s2 = s2 - mean
        s3 = s3 - mean
        speed = wp.length(s0) + wp.max(wp.max(wp.length(s1), wp.length(s2)), wp.length(s3))
        if q[0] == EDGES:
            speed = wp.max(wp.length(s0), wp.length(s1)) + wp.max(wp.length(s2), wp.length(s3))
        p0 = place[world, a]
        p1 = place[world, b]
        p2 = place[world, c]
        p3 = place[world, d]
        gap = distance(q[0], p0, p1, p2, p3)
        keep = KEPT * gap
        at = real(0.0)
        going = int(1)
        for _k in range(100):
            if going != 0:
                ahead = at + (gap - keep) / wp.max(speed, real(1.0e-30))
                if ahead >= part:
                    at = part
                    going = 0
                elif (ahead - at) * speed < real(0.01) * keep:
                    going = 0
                else:
                    at = ahead
                    gap = distance(q[0], p0 + at * s0, p1 + at * s1, p2 + at * s2, p3 + at * s3)
        part = wp.min(part, at)
    return part
