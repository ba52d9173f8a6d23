"""Rays against height fields, in the field's frame: a box from the ground up to zero, and the heights that stand on it.

As in MuJoCo, the box is seen wherever heights do not hide it. What a ray meets first is a part of the field: 0 is the
box, 1 to 4 are the sides at the ends of x and y, and 5 + k is the top of prism k (see :mod:`prism`).
"""

import warp as wp

from ..._precision import real, vec2, vec3, vec4
from .prism import prism_of
from .ray_shapes import FAR, SAME, TINY, first_crossing, in_box, in_slab

BASE = wp.constant(0)
PRISMS = wp.constant(5)


@wp.struct
class Lines:
    """Lines of the grid that a ray crosses one after the other: where a coordinate is a whole number."""

    start: real  # the coordinate at the ray's origin
    rate: real
    line: real  # the next one
    at: real  # how far along the ray


@wp.func
def lines(start: real, rate: real, after: real) -> Lines:
    """Those that are crossed after a distance."""
    found = Lines()
    found.start = start
    found.rate = rate
    found.at = FAR
    if wp.abs(rate) > TINY:
        found.line = wp.where(
            rate > real(0.0), wp.floor(start + after * rate) + real(1.0), wp.ceil(start + after * rate) - real(1.0)
        )
        found.at = (found.line - start) / rate
    return found


@wp.func
def beyond(crossed: Lines, distance: real) -> Lines:
    """The lines after a distance, which is at most one line further."""
    found = crossed
    if crossed.at <= distance:
        found.line = crossed.line + wp.sign(crossed.rate)
        found.at = (found.line - crossed.start) / crossed.rate
    return found


@wp.func
def side_of(axis: int, upper: bool) -> int:
    """The part that is the side at an end of x or y."""
    return 1 + 2 * axis + wp.where(upper, 1, 0)


@wp.func
def above(grid: wp.vec4i, size: vec4, data: wp.array2d(dtype=real), world: int, prism: int, p: vec3, d: vec3) -> vec2:
    """How far above a prism's plane the origin of a ray lies, along z, and how fast a ray rises from it."""
    top = prism_of(size, grid[1], grid[2], grid[3], data, world, prism)
    normal = wp.cross(top.b - top.a, top.c - top.a)
    return vec2(wp.dot(p - top.a, normal), wp.dot(d, normal)) / normal[2]


@wp.func
def heights_met(grid: wp.vec4i, size: vec4, data: wp.array2d(dtype=real), world: int, p: vec3, d: vec3):
    """Distance to the heights and the sides below them, and the part; negative where a ray misses them.

    The ray is followed from triangle to triangle (Amanatides and Woo 1987): where it changes from above the heights to
    below them, or back, it meets them. Neighbours agree on the heights between them, so no ray slips through.
    """
    near_x, far_x = in_slab(p[0], d[0], size[0])
    near_y, far_y = in_slab(p[1], d[1], size[1])
    begin = wp.max(real(0.0), wp.max(near_x, near_y))
    end = wp.min(far_x, far_y)
    length = real(-1.0)
    part = int(-1)
    if begin <= end and begin < FAR:
        per_x = real(0.5) * real(grid[2] - 1) / size[0]
        per_y = real(0.5) * real(grid[1] - 1) / size[1]
        u = (p[0] + size[0]) * per_x
        v = (p[1] + size[1]) * per_y
        rate_u = d[0] * per_x
        rate_v = d[1] * per_y
        columns = lines(u, rate_u, begin)
        rows = lines(v, rate_v, begin)
        diagonals = lines(u - v, rate_u - rate_v, begin)
        at = real(begin)
        over = real(0.0)  # how far above the heights the ray begins
        pieces = int(2 * (grid[1] + grid[2]) + 4)
        while pieces > 0:
            after = wp.max(at, wp.min(wp.min(columns.at, rows.at), wp.min(diagonals.at, end)))
            middle = real(0.5) * (at + after)
            x = u + middle * rate_u
            y = v + middle * rate_v
            column = wp.clamp(int(wp.floor(x)), 0, grid[2] - 2)
            row = wp.clamp(int(wp.floor(y)), 0, grid[1] - 2)
            prism = 2 * (row * grid[2] + column) + wp.where(x - real(column) >= y - real(row), 1, 0)
            height = above(grid, size, data, world, prism, p, d)
            if at == begin and over == real(0.0):
                over = height[0] + begin * height[1]
                if over == real(0.0):
                    length = begin
                    part = PRISMS + prism
                elif over < real(0.0) and begin > real(0.0):
                    length = begin
                    part = side_of(wp.where(near_x >= near_y, 0, 1), wp.where(near_x >= near_y, d[0], d[1]) < real(0.0))
            if part < 0 and (height[0] + after * height[1]) * over <= real(0.0):
                length = at
                if height[1] != real(0.0):
                    length = wp.clamp(-height[0] / height[1], at, after)
                part = PRISMS + prism
            pieces = pieces - 1
            if part >= 0 or after >= end:
                pieces = 0
            columns = beyond(columns, after)
            rows = beyond(rows, after)
            diagonals = beyond(diagonals, after)
            at = after
        if part < 0 and over < real(0.0) and end < FAR:
            length = end
            part = side_of(wp.where(far_x <= far_y, 0, 1), wp.where(far_x <= far_y, d[0], d[1]) > real(0.0))
        if part > BASE and part < PRISMS and p[2] + length * d[2] < real(0.0):
            length = real(-1.0)  # there is the box
            part = -1
    return length, part


@wp.func
def base_length(size: vec4, p: vec3, d: vec3) -> real:
    """Distance to the box on which the heights stand."""
    half = real(0.5) * size[3]
    near, far = in_box(p + vec3(real(0.0), real(0.0), half), d, vec3(size[0], size[1], half))
    return first_crossing(near, far)


@wp.func
def field_met(grid: wp.vec4i, size: vec4, data: wp.array2d(dtype=real), world: int, p: vec3, d: vec3):
    """Distance to the first part of a height field, and which one; negative where a ray misses it."""
    length = base_length(size, p, d)
    part = int(BASE)
    upper, found = heights_met(grid, size, data, world, p, d)
    if found >= 0 and (length < real(0.0) or upper <= length * (real(1.0) + SAME)):
        length = upper
        part = found
    return length, part


@wp.func
def field_length(
    grid: wp.vec4i, size: vec4, data: wp.array2d(dtype=real), world: int, part: int, p: vec3, d: vec3
) -> real:
    """Distance to one part of a height field."""
    length = real(-1.0)
    if part == BASE:
        length = base_length(size, p, d)
    elif part < PRISMS:
        axis = (part - 1) // 2
        end = wp.where((part - 1) % 2 == 1, size[axis], -size[axis])
        length = (end - p[axis]) / d[axis]
    else:
        height = above(grid, size, data, world, part - PRISMS, p, d)
        if height[1] != real(0.0):
            length = -height[0] / height[1]
        else:
            length = real(0.0)
    return length
