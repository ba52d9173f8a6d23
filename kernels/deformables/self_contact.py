"""Contact of a body with itself, in the incremental potential of a step: its part of W, of dW/du and of the Hessian."""

import warp as wp

from .._precision import mat33, real, vec2, vec3, vec4
from .contact import SMALL_SQUARED, drag, drag_work
from .near import Grid, free_path, list_pairs, spread_of
from .pairs import (
    PARALLEL,
    area_of,
    askew,
    barrier,
    barrier_pressure,
    barrier_slope,
    bent,
    corners_of,
    inverse_metric,
    mixed,
    nearest,
    opened,
    opened_twice,
    rub_curvature,
    size_of,
)
from .potential import Body, Setting, Work, move

AHEAD = wp.constant(real(1.0))
"""Of a mean edge: pairs within the thickness and this are watched, and vertices go half of it in an iteration."""


@wp.struct
class Pairs:
    """Those that may touch, then, from ``room`` on, those that rub; and what they add to the Hessian."""

    pair: wp.array2d(dtype=wp.vec3i)
    block: wp.array3d(dtype=mat33)  # of corners a and b at 4 a + b
    alive: wp.array2d(dtype=int)  # whether a pair has any


@wp.func
def touching(world: int, q: wp.vec3i, body: Body, setting: Setting, place: wp.array2d(dtype=vec3)):
    """Of a pair at a place: the shares c, the way r, the distance and s."""
    a, b, c, d = corners_of(q, body.skin)
    p0 = place[world, a]
    p1 = place[world, b]
    p2 = place[world, c]
    p3 = place[world, d]
    shares, _e, _f = nearest(q[0], p0, p1, p2, p3)
    r = mixed(shares, p0, p1, p2, p3)
    s = askew(q[0], p0, p1, p2, p3, size_of(world, q, setting.span))
    return shares, r, wp.sqrt(wp.max(wp.dot(r, r), SMALL_SQUARED)), s


@wp.func
def rubbing(world: int, q: wp.vec3i, body: Body, setting: Setting, work: Work):
    """Of a pair where the step begins: the shares c, the normal, mu N; and the slip [m/s] of the step."""
    c, r, d, s = touching(world, q, body, setting, setting.before)
    n = r / d
    area = area_of(world, q, setting.share, setting.seam) * s * (real(2.0) - s)
    hold = setting.rub[world] * area * barrier_pressure(d, setting.stiffness[world], setting.thickness[world])
    i, j, k, l = corners_of(q, body.skin)
    w = c[0] * (work.place[world, i] - setting.x[world, i]) + c[1] * (work.place[world, j] - setting.x[world, j])
    w += c[2] * (work.place[world, k] - setting.x[world, k]) + c[3] * (work.place[world, l] - setting.x[world, l])
    w = w / setting.timestep[world]
    return c, n, hold, w - wp.dot(w, n) * n


@wp.func
def self_work(world: int, body: Body, setting: Setting, work: Work, pairs: Pairs, grid: Grid) -> vec2:
    """The pairs' part of W, and what its rounding is relative to."""
    total = real(0.0)
    size = real(0.0)
    k = setting.stiffness[world]
    t = setting.thickness[world]
    for m in range(wp.min(grid.count[world, 0], body.skin.room)):
        q = pairs.pair[world, m]
        _c, _r, d, s = touching(world, q, body, setting, work.place)
        if d < t:
            area = area_of(world, q, setting.share, setting.seam) * s * (real(2.0) - s)
            energy = area * barrier(d, k, t)
            reach = wp.length(work.place[world, body.skin.rims[0, 0]]) + t
            total += energy
            size += energy + area * barrier_pressure(d, k, t) * reach
    rate = real(1.0) / setting.timestep[world]
    if rate > real(0.0) and setting.rub[world] > real(0.0):
        for m in range(grid.count[world, 1]):
            _c, _n, hold, w = rubbing(world, pairs.pair[world, body.skin.room + m], body, setting, work)
            energy = hold * drag_work(wp.length(w), setting.slip[world]) / rate
            total += energy
            size += energy
    return vec2(total, size)


@wp.func
def push_corner(world: int, i: int, force: vec3, body: Body, gradient_out: wp.array2d(dtype=vec3)):
    """Take a force off a vertex's gradient, unless it is pinned."""
    if body.pinned[i] == 0:
        gradient_out[world, i] = gradient_out[world, i] - force


@wp.func
def push_corners(world: int, q: wp.vec3i, c: vec4, force: vec3, body: Body, gradient_out: wp.array2d(dtype=vec3)):
    """Shares of a force on the corners of a pair."""
    i, j, k, l = corners_of(q, body.skin)
    push_corner(world, i, c[0] * force, body, gradient_out)
    push_corner(world, j, c[1] * force, body, gradient_out)
    push_corner(world, k, c[2] * force, body, gradient_out)
    push_corner(world, l, c[3] * force, body, gradient_out)


@wp.func
def add_self_force(
    world: int,
    body: Body,
    setting: Setting,
    work: Work,
    pairs: Pairs,
    grid: Grid,
    gradient_out: wp.array2d(dtype=vec3),
) -> real:
    """Add the pairs' part of dW/du where it is not pinned; returns the square of what its rounding is relative to."""
    scale = real(0.0)
    k = setting.stiffness[world]
    t = setting.thickness[world]
    for m in range(wp.min(grid.count[world, 0], body.skin.room)):
        q = pairs.pair[world, m]
        c, r, d, s = touching(world, q, body, setting, work.place)
        if d < t:
            area = area_of(world, q, setting.share, setting.seam)
            open_ = area * s * (real(2.0) - s)
            push_corners(world, q, c, open_ * barrier_pressure(d, k, t) / d * r, body, gradient_out)
            v0, v1, v2, v3 = corners_of(q, body.skin)
            if s < real(1.0):
                e = work.place[world, v1] - work.place[world, v0]
                f = work.place[world, v3] - work.place[world, v2]
                over = area * real(2.0) * (real(1.0) - s) * barrier(d, k, t)
                over = over / (PARALLEL * size_of(world, q, setting.span))
                push_corner(world, v0, -over * opened(0, e, f), body, gradient_out)
                push_corner(world, v1, -over * opened(1, e, f), body, gradient_out)
                push_corner(world, v2, -over * opened(2, e, f), body, gradient_out)
                push_corner(world, v3, -over * opened(3, e, f), body, gradient_out)
            size = open_ * barrier_slope(d, k, t) * (wp.length(work.place[world, v0]) + t)
            scale += size * size
    if real(1.0) / setting.timestep[world] > real(0.0) and setting.rub[world] > real(0.0):
        for m in range(grid.count[world, 1]):
            q = pairs.pair[world, body.skin.room + m]
            c, _n, hold, w = rubbing(world, q, body, setting, work)
            push_corners(world, q, c, -hold * drag(wp.length(w), setting.slip[world]) * w, body, gradient_out)
            scale += hold * hold
    return scale


@wp.func
def self_blocks(world: int, body: Body, setting: Setting, work: Work, projected: int, grid: Grid, pairs_out: Pairs):
    """The pairs' blocks of d2W/du2; projected: of the barrier its curvature along the normal alone."""
    corners = int(4)  # not a constant: the loops are not to be unrolled
    k = setting.stiffness[world]
    t = setting.thickness[world]
    for m in range(wp.min(grid.count[world, 0], body.skin.room)):
        q = pairs_out.pair[world, m]
        v0, v1, v2, v3 = corners_of(q, body.skin)
        p0 = work.place[world, v0]
        p1 = work.place[world, v1]
        p2 = work.place[world, v2]
        p3 = work.place[world, v3]
        c, e, f = nearest(q[0], p0, p1, p2, p3)
        r = mixed(c, p0, p1, p2, p3)
        d = wp.sqrt(wp.max(wp.dot(r, r), SMALL_SQUARED))
        pairs_out.alive[world, m] = 0
        if d < t:
            pairs_out.alive[world, m] = 1
            n = r / d
            size = size_of(world, q, setting.span)
            s = askew(q[0], p0, p1, p2, p3, size)
            area = area_of(world, q, setting.share, setting.seam)
            open_ = area * s * (real(2.0) - s)
            slope = real(2.0) * area * (real(1.0) - s) / (PARALLEL * size)
            steep = real(-2.0) * area / (PARALLEL * size * PARALLEL * size)
            value = barrier(d, k, t)
            press = barrier_pressure(d, k, t)
            nn = barrier_slope(d, k, t) * open_ * wp.outer(n, n)
            r1 = mixed(e, p0, p1, p2, p3)
            r2 = mixed(f, p0, p1, p2, p3)
            g = inverse_metric(r1, r2, e, f)
            for a in range(corners):
                for b in range(corners):
                    h = (c[a] * c[b]) * nn
                    if projected == 0:
                        h = h - (open_ * press) * bent(a, b, c, e, f, r, r1, r2, g, d)
                        if s < real(1.0):
                            oa = opened(a, p1 - p0, p3 - p2)
                            ob = opened(b, p1 - p0, p3 - p2)
                            h = h - (slope * press) * (c[b] * wp.outer(oa, n) + c[a] * wp.outer(n, ob))
                            h = h + value * (steep * wp.outer(oa, ob) + slope * opened_twice(a, b, p1 - p0, p3 - p2))
                    pairs_out.block[world, m, 4 * a + b] = h
    rate = real(1.0) / setting.timestep[world]
    for m in range(grid.count[world, 1]):
        row = body.skin.room + m
        c, n, hold, w = rubbing(world, pairs_out.pair[world, row], body, setting, work)
        pairs_out.alive[world, row] = 0
        if rate > real(0.0) and hold > real(0.0):
            pairs_out.alive[world, row] = 1
            h = (hold * rate) * rub_curvature(w, n, setting.slip[world])
            for a in range(corners):
                for b in range(corners):
                    pairs_out.block[world, row, 4 * a + b] = (c[a] * c[b]) * h


@wp.func
def corner(world: int, a: int, q: wp.vec3i, body: Body) -> int:
    """Vertex a of a pair."""
    i, j, k, l = corners_of(q, body.skin)
    if a == 0:
        return i
    if a == 1:
        return j
    if a == 2:
        return k
    return l


@wp.func
def add_self_diagonal(world: int, body: Body, pairs: Pairs, grid: Grid, diagonal_out: wp.array2d(dtype=mat33)):
    """Add the blocks of a vertex with itself."""
    corners = int(4)  # not a constant: the loops are not to be unrolled
    room = body.skin.room
    for row in range(room + grid.count[world, 1]):
        if row < wp.min(grid.count[world, 0], room) or row >= room:
            if pairs.alive[world, row] != 0:
                for a in range(corners):
                    i = corner(world, a, pairs.pair[world, row], body)
                    diagonal_out[world, i] = diagonal_out[world, i] + pairs.block[world, row, 5 * a]


@wp.func
def add_self_product(
    world: int,
    body: Body,
    pairs: Pairs,
    grid: Grid,
    p: wp.array2d(dtype=vec3),
    product_out: wp.array2d(dtype=vec3),
):
    """Add the blocks' product with p."""
    corners = int(4)  # not a constant: the loops are not to be unrolled
    room = body.skin.room
    for row in range(room + grid.count[world, 1]):
        if row < wp.min(grid.count[world, 0], room) or row >= room:
            if pairs.alive[world, row] != 0:
                for a in range(corners):
                    sum_ = vec3()
                    for b in range(corners):
                        j = corner(world, b, pairs.pair[world, row], body)
                        sum_ += pairs.block[world, row, 4 * a + b] * p[world, j]
                    i = corner(world, a, pairs.pair[world, row], body)
                    product_out[world, i] = product_out[world, i] + sum_


@wp.func(inline=False)
def look_ahead(
    world: int,
    body: Body,
    setting: Setting,
    work: Work,
    length: real,
    way: wp.array2d(dtype=vec3),
    grid_out: Grid,
    pairs_out: Pairs,
) -> real:
    """List the pairs that a displacement may bring near, and return the part of it that brings none through another.

    Where there is no room for all of them it looks less far ahead.
    """
    spread = spread_of(world, way)
    margin = wp.min(real(2.0) * spread, AHEAD * length)
    tries = int(8)  # not a constant: the loop is not to be unrolled
    for k in range(tries):
        if k == 0 or grid_out.count[world, 0] > body.skin.room:
            if k > 0:
                margin = real(0.5) * margin
            radius = setting.thickness[world] + margin
            list_pairs(world, radius, body.skin, body.pinned, work.place, grid_out, pairs_out.pair)
    grid_out.count[world, 2] = wp.max(grid_out.count[world, 2], grid_out.count[world, 0])
    part = real(1.0)
    if real(2.0) * spread > margin:
        part = margin / (real(2.0) * spread)
    return wp.min(part, free_path(world, body.skin, work.place, way, pairs_out.pair, grid_out))


@wp.func(inline=False)
def set_out(
    world: int,
    body: Body,
    setting: Setting,
    length: real,
    start: wp.array2d(dtype=vec3),
    work_out: Work,
    grid_out: Grid,
    pairs_out: Pairs,
    way_out: wp.array2d(dtype=vec3),
    u_out: wp.array2d(dtype=vec3),
) -> int:
    """From where nothing touches move the pinned vertices to their ends; returns whether something is in their way."""
    n = start.shape[1]
    room = body.skin.room
    for i in range(n):
        u_out[world, i] = setting.before[world, i] - setting.x[world, i]
        if i >= setting.v.shape[1]:
            u_out[world, i] = start[world, i]
    move(world, body, setting, u_out, work_out)
    list_pairs(world, setting.thickness[world], body.skin, body.pinned, work_out.place, grid_out, pairs_out.pair)
    grid_out.count[world, 1] = wp.min(grid_out.count[world, 0], room)
    grid_out.count[world, 2] = grid_out.count[world, 0]
    for m in range(room):
        pairs_out.pair[world, room + m] = pairs_out.pair[world, m]
    left = int(1)
    for _k in range(100):
        if left != 0:
            for i in range(n):
                way_out[world, i] = vec3()
                if body.pinned[i] != 0:
                    way_out[world, i] = start[world, i] - u_out[world, i]
            if spread_of(world, way_out) == real(0.0):
                left = 0
            else:
                part = look_ahead(world, body, setting, work_out, length, way_out, grid_out, pairs_out)
                for i in range(n):
                    u_out[world, i] = u_out[world, i] + part * way_out[world, i]
                if part == real(1.0):
                    left = 0
                    for i in range(n):
                        if body.pinned[i] != 0:
                            u_out[world, i] = start[world, i]
                move(world, body, setting, u_out, work_out)
    return left
