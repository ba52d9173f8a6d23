"""A plane and the convex hull of a mesh: the corners of the side that lies flattest on the plane, of those at the
lowest vertex. Of more than four corners the lowest vertex and three that span much of the side with it are kept.

A feature is the index of a vertex of the hull.
"""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import rotate, rotate_back
from .pairs import geom_of
from .polygon import widest_at
from .search import Geoms, Hulls, Search, chosen, slots_of
from .shapes import against_plane, z_axis


@wp.func
def foremost(
    vert: wp.array(dtype=vec3), edge: wp.array(dtype=int), neighbour: wp.array(dtype=int), v: int, n: vec3
) -> int:
    """The vertex of a hull that lies farthest along n: climb from neighbour to neighbour."""
    best = int(v)
    before = int(-1)
    reach = wp.dot(vert[v], n)
    while before != best:
        before = int(best)
        for e in range(edge[before], edge[before + 1]):
            x = wp.dot(vert[neighbour[e]], n)
            if x > reach:
                reach = x
                best = neighbour[e]
    return best


@wp.func
def flattest(
    normal: wp.array(dtype=vec3), meeting: wp.array(dtype=int), faces: wp.array(dtype=int), v: int, n: vec3
) -> int:
    """The face at a vertex whose normal is nearest to n."""
    best = int(-1)
    most = real(-2.0)
    for k in range(meeting[v], meeting[v + 1]):
        x = wp.dot(normal[faces[k]], n)
        if x > most:
            most = x
            best = faces[k]
    return best


@wp.func
def plane_vertex(origin: vec3, q1: quat, p: vec3, q: quat, vertex: vec3):
    """The plane's normal, signed distance and midpoint of the contact of a plane and a vertex of a geom."""
    normal, distance, pos = against_plane(z_axis(q1), origin, p + rotate(q, vertex), real(0.0))
    return normal, distance, pos


@wp.kernel(enable_backward=False)
def features(
    # In:
    s: Search,
    g: Geoms,
    h: Hulls,
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the candidates that are pairs of a plane and a mesh."""
    world, lane = wp.tid()
    for i in range(lane, s.own.shape[0], s.lanes):
        pair_number = chosen(world, i, s)
        if pair_number < 0:
            continue
        a = geom_of(pair_number, 0, s.pairs)
        b = geom_of(pair_number, 1, s.pairs)
        margin = s.detection[world, s.own[i]]
        count = s.slot[i]
        last = count + slots_of(pair_number, s)
        axis = z_axis(g.quat[world, a])
        height = wp.dot(g.pos[world, b] - g.pos[world, a], axis)
        if height <= margin + h.radius[b]:
            up = rotate_back(g.quat[world, b], axis)
            lowest = foremost(h.vert, h.edge, h.neighbour, h.first[b], -up)
            if height + wp.dot(up, h.vert[lowest]) <= margin:
                f = h.merged[flattest(h.side, h.meeting, h.faces, lowest, -up)]
                start = h.corner[f]
                n = h.corner[f + 1] - start
                at = int(-1)
                for k in range(n):
                    if h.corners[start + k] == lowest:
                        at = k
                chosen_four = widest_at(h.vert, h.corners, start, n, wp.max(at, 0))
                for k in range(wp.where(at < 0, 1, wp.min(n, 4))):  # alone, where it bulges out of a side nearly flat
                    v = wp.where(at < 0, lowest, h.corners[start + chosen_four[k] % n])
                    below = wp.dot(up, h.vert[v]) <= real(0.0)
                    if (below or v == lowest) and height + wp.dot(up, h.vert[v]) <= margin and count < last:
                        feature_out[world, count] = v
                        count = count + 1
        for k in range(count, last):
            feature_out[world, k] = -1
