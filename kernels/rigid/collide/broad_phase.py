"""Which geoms are near each other: boxes along the axes, sorted into the cells of a grid.

The cells are as large as the largest of the small geoms, so that whatever touches lies in neighbouring ones; geoms
larger than twice the mean, and those without end, are compared with all others. The cells are hashed into a table of
fixed size and filled by counting (Teschner et al. 2003, "Optimized spatial hashing for collision detection").
"""

import warp as wp

from ..._precision import mat33, quat, real, vec3, vec3i
from ...math import rotation
from .pairs import PairList, Reach, geom_of, may_touch
from .shapes import BOX, CAPSULE, CYLINDER, ELLIPSOID, HFIELD, MESH, PLANE, SPHERE

CONTACT_OVERFLOW = wp.constant(8)
ENDLESS = wp.constant(real(1.0e20))
LARGE = wp.constant(real(2.0))
"""A geom this many times larger than the mean is not sorted."""
FARTHEST = wp.constant(real(1.0e8))
"""Cells beyond this number are one."""


@wp.func
def half_extent(kind: int, turn: mat33, size: vec3, radius: real) -> vec3:
    """Half the sides of a geom's box along the axes of the world."""
    out = vec3(radius, radius, radius)
    if kind == PLANE or kind == HFIELD:
        out = vec3(ENDLESS, ENDLESS, ENDLESS)
    elif kind == SPHERE:
        out = vec3(size[0], size[0], size[0])
    elif kind != MESH:
        for i in range(3):
            x = turn[i, 0]
            y = turn[i, 1]
            along = turn[i, 2]
            if kind == CAPSULE:
                out[i] = size[0] + wp.abs(along) * size[1]
            elif kind == CYLINDER:
                out[i] = size[0] * wp.sqrt(x * x + y * y) + wp.abs(along) * size[1]
            elif kind == BOX:
                out[i] = wp.abs(x) * size[0] + wp.abs(y) * size[1] + wp.abs(along) * size[2]
            elif kind == ELLIPSOID:
                out[i] = wp.length(vec3(x * size[0], y * size[1], along * size[2]))
    return out


@wp.kernel(enable_backward=False)
def bounds(
    # Structure:
    geom_type: wp.array(dtype=int),
    geom_radius: wp.array(dtype=real),
    # Model:
    geom_size: wp.array2d(dtype=vec3),
    geom_margin: wp.array2d(dtype=real),
    geom_gap: wp.array2d(dtype=real),
    softness: wp.array(dtype=real),
    # In:
    geom_quat: wp.array2d(dtype=quat),
    # Out:
    half_out: wp.array2d(dtype=vec3),
):
    """Half the sides of every geom's box, with the distance at which a contact is reported."""
    world, g = wp.tid()
    half = half_extent(geom_type[g], rotation(geom_quat[world, g]), geom_size[world, g], geom_radius[g])
    reach = geom_margin[world, g] + geom_gap[world, g] + real(0.5) * softness[world]
    half_out[world, g] = half + vec3(reach, reach, reach)


@wp.func
def longest(v: vec3) -> real:
    """The largest component."""
    return wp.max(v[0], wp.max(v[1], v[2]))


@wp.func
def cell_of(pos: vec3, width: real) -> vec3i:
    """The cell that a point is in."""
    out = vec3i()
    for i in range(3):
        out[i] = int(wp.clamp(wp.floor(pos[i] / width), -FARTHEST, FARTHEST))
    return out


@wp.func
def bucket_of(cell: vec3i, count: int) -> int:
    """The place of a cell in a table of ``count``, a power of two."""
    return ((cell[0] * 73856093) ^ (cell[1] * 19349663) ^ (cell[2] * 83492791)) & (count - 1)


@wp.func
def meet(world: int, a: int, b: int, pos: wp.array2d(dtype=vec3), half: wp.array2d(dtype=vec3)) -> int:
    """Whether the boxes of two geoms overlap."""
    apart = pos[world, a] - pos[world, b]
    reach = half[world, a] + half[world, b]
    inside = wp.abs(apart[0]) <= reach[0] and wp.abs(apart[1]) <= reach[1] and wp.abs(apart[2]) <= reach[2]
    return wp.where(inside, 1, 0)


@wp.func
def insert(
    world: int,
    count: int,
    start: int,
    a: int,
    b: int,
    pairs: PairList,
    reach: Reach,
    pos: wp.array2d(dtype=vec3),
    half: wp.array2d(dtype=vec3),
    candidate: wp.array2d(dtype=int),
) -> int:
    """Put the pair of two geoms, if it can touch, in its order among the candidates from ``start``; their number."""
    if meet(world, a, b, pos, half) == 0:
        return count
    if not may_touch(a, b, pairs, reach):
        return count
    p = a * pairs.type.shape[0] + b
    if count < candidate.shape[1]:
        k = int(count)
        while k > start and candidate[world, wp.max(k - 1, 0)] > p:
            candidate[world, k] = candidate[world, k - 1]
            k = k - 1
        candidate[world, k] = p
    return count + 1


@wp.func
def bucket_end(world: int, k: int, bucket: wp.array2d(dtype=int), total: int) -> int:
    """One past the last member of a bucket that starts at ``bucket[k]``."""
    end = total
    if k + 1 < bucket.shape[1]:
        end = bucket[world, k + 1]
    return end


@wp.kernel(enable_backward=False)
def near_pairs(
    # Structure:
    pairs: PairList,
    reach: Reach,
    # In:
    pos: wp.array2d(dtype=vec3),
    half: wp.array2d(dtype=vec3),
    # Out:
    cell_out: wp.array2d(dtype=vec3i),
    bucket_out: wp.array2d(dtype=int),
    member_out: wp.array2d(dtype=int),
    large_out: wp.array2d(dtype=int),
    candidate_out: wp.array2d(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Pairs of geoms that may touch and whose boxes overlap, ascending."""
    world = wp.tid()
    n = pos.shape[1]
    buckets = bucket_out.shape[1] - 1
    total = real(0.0)
    ends = int(0)
    for g in range(n):
        if longest(half[world, g]) < ENDLESS:
            total += longest(half[world, g])
            ends += 1
    most = LARGE * total / real(wp.max(ends, 1))
    width = real(1.0e-6)
    larges = int(0)
    for g in range(n):
        if longest(half[world, g]) <= most:
            width = wp.max(width, real(2.0) * longest(half[world, g]))
        else:
            large_out[world, larges] = g
            larges += 1
    for k in range(buckets + 1):
        bucket_out[world, k] = 0
    for g in range(n):
        if longest(half[world, g]) <= most:
            cell_out[world, g] = cell_of(pos[world, g], width)
            k = bucket_of(cell_out[world, g], buckets)
            bucket_out[world, k + 1] = bucket_out[world, k + 1] + 1
    for k in range(buckets):
        bucket_out[world, k + 1] = bucket_out[world, k + 1] + bucket_out[world, k]
    for i in range(n):  # from the last to the first, which leaves every bucket's end at its start
        g = n - 1 - i
        if longest(half[world, g]) <= most:
            k = bucket_of(cell_out[world, g], buckets) + 1
            at = bucket_out[world, k] - 1
            bucket_out[world, k] = at
            member_out[world, at] = g
    count = int(0)
    for a in range(n):
        start = count
        if longest(half[world, a]) > most:
            for b in range(a + 1, n):
                count = insert(world, count, start, a, b, pairs, reach, pos, half, candidate_out)
        else:
            for k in range(larges):
                b = large_out[world, k]
                if b > a:
                    count = insert(world, count, start, a, b, pairs, reach, pos, half, candidate_out)
            own = cell_out[world, a]
            for turn in range(27):
                cell = own + vec3i(turn % 3 - 1, (turn // 3) % 3 - 1, turn // 9 - 1)
                k = bucket_of(cell, buckets) + 1
                last = bucket_end(world, k, bucket_out, n - larges)
                for at in range(bucket_out[world, k], last):
                    b = member_out[world, at]
                    if b > a:
                        other = cell_out[world, b]
                        if other[0] == cell[0] and other[1] == cell[1] and other[2] == cell[2]:
                            count = insert(world, count, start, a, b, pairs, reach, pos, half, candidate_out)
    for k in range(wp.min(count, candidate_out.shape[1]), candidate_out.shape[1]):
        candidate_out[world, k] = -1
    status_out[world] = wp.where(count > candidate_out.shape[1], wp.uint32(CONTACT_OVERFLOW), wp.uint32(0))


@wp.kernel(enable_backward=False)
def reaches(
    # Structure:
    lanes: int,
    pairs: PairList,
    # Model:
    geom_margin: wp.array2d(dtype=real),
    geom_gap: wp.array2d(dtype=real),
    softness: wp.array(dtype=real),
    # In:
    candidate: wp.array2d(dtype=int),
    # Out:
    distance_out: wp.array2d(dtype=real),
):
    """Distance at which a contact of each candidate is reported: margins, gaps and softness."""
    world, lane = wp.tid()
    for i in range(lane, candidate.shape[1], lanes):
        p = candidate[world, i]
        if p < 0:
            break
        a = geom_of(p, 0, pairs)
        b = geom_of(p, 1, pairs)
        own = geom_margin[world, a] + geom_margin[world, b]
        distance_out[world, i] = own + (geom_gap[world, a] + geom_gap[world, b]) + softness[world]
