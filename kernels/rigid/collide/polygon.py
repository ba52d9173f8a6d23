"""Four corners of a polygon that span much of it, by rotating calipers (Shamos 1978), as MuJoCo chooses them."""

import warp as wp

from ..._precision import real, vec3


@wp.func
def spanned(point: wp.array(dtype=vec3), index: wp.array(dtype=int), start: int, count: int, k: wp.vec4i) -> real:
    """Twice the area of the quadrilateral of four corners; corner i is ``point[index[start + i % count]]``."""
    a = point[index[start + k[0] % count]]
    b = point[index[start + k[1] % count]]
    c = point[index[start + k[2] % count]]
    d = point[index[start + k[3] % count]]
    return wp.length(wp.cross(a - c, b - d))


@wp.func
def widened(
    point: wp.array(dtype=vec3), index: wp.array(dtype=int), start: int, count: int, k: wp.vec4i, least: real
) -> wp.vec4i:
    """Four corners with the same first one: the last moves on while that makes the area larger than it was and than
    ``least``, and after each of its steps the third does, then the second."""
    best = k
    most = real(least)
    growing = int(1)
    while growing == 1:
        growing = int(0)
        for turn in range(3):
            moving = int(turn == 0 or growing == 1)
            while moving == 1:
                moving = int(0)
                next = best
                next[3 - turn] = (best[3 - turn] + 1) % count
                area = spanned(point, index, start, count, next)
                if area > most:
                    most = area
                    best = next
                    growing = int(1)
                    moving = int(turn > 0)
    return best


@wp.func
def widest_at(point: wp.array(dtype=vec3), index: wp.array(dtype=int), start: int, count: int, first: int) -> wp.vec4i:
    """Four corners of which one is given; they need not span the most of all."""
    k = wp.vec4i(first, first + 1, first + 2, first + 3)
    if count > 4:
        k = widened(point, index, start, count, k, spanned(point, index, start, count, k))
    return k


@wp.func
def widest(point: wp.array(dtype=vec3), index: wp.array(dtype=int), start: int, count: int) -> wp.vec4i:
    """Four corners, where every corner has been the first."""
    k = wp.vec4i(0, 1, 2, 3)
    best = wp.vec4i(0, 1, 2, 3)
    most = spanned(point, index, start, count, k)
    while k[0] < count:
        wider = widened(point, index, start, count, k, most)
        if (
            wider[1] != k[1] or wider[2] != k[2] or wider[3] != k[3]
        ):  # where no corner moves, MuJoCo does not look at the area
            most = spanned(point, index, start, count, wider)
            best = wider
        k = wider
        pushed = int(1)
        for i in range(3):  # the first moves on next, and pushes those that stand where it does
            pushed = int(pushed == 1 and k[i + 1] == k[i])
            if pushed == 1:
                k[i + 1] = (k[i + 1] + 1) % count
        k[0] = k[0] + 1
    return best
