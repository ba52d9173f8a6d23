"""Sphere and the convex hull of a mesh.

A feature is the part of the hull nearest to the sphere's centre, or for a centre inside the nearest face: parts are
numbered vertices first, then edges, then faces. Each has a point, and a direction: along the edge, out of the face.
"""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import rotate, rotate_back
from .pairs import geom_of
from .search import Geoms, Hulls, Search, chosen
from .shapes import MIN_SQUARED, against_plane, two_balls


@wp.func
def sphere_part(p1: vec3, r1: real, p2: vec3, q2: quat, point: vec3, direction: vec3, part: int):
    """Normal from sphere to hull, signed distance and midpoint, at a vertex (0), edge (1) or face (2) of the hull."""
    origin = p2 + rotate(q2, point)
    along = rotate(q2, direction)
    nearest = origin
    if part == 1:
        nearest = origin + along * (wp.dot(p1 - origin, along) / wp.max(wp.dot(along, along), MIN_SQUARED))
    normal, distance, pos = two_balls(p1, r1, nearest, real(0.0), along)
    if part == 2:
        outward, distance, pos = against_plane(along, origin, p1, r1)
        normal = -outward
    return normal, distance, pos


@wp.func
def over_face(
    vert: wp.array(dtype=vec3), corner: wp.array(dtype=int), corners: wp.array(dtype=int), f: int, n: vec3, x: vec3
) -> bool:
    """Whether x lies over a face, within its edges."""
    start = corner[f]
    count = corner[f + 1] - start
    left = int(0)
    right = int(0)
    for k in range(count):
        a = vert[corners[start + k]]
        b = vert[corners[start + (k + 1) % count]]
        side = wp.dot(wp.cross(b - a, x - a), n)
        if side > real(0.0):
            left = left + 1
        if side < real(0.0):
            right = right + 1
    return left == 0 or right == 0


@wp.kernel(enable_backward=False)
def features(
    # In:
    s: Search,
    g: Geoms,
    h: Hulls,
    geom_edge: wp.array2d(dtype=int),
    geom_face: wp.array2d(dtype=int),
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the candidates that are pairs of a sphere and a mesh."""
    world, lane = wp.tid()
    for i in range(lane, s.own.shape[0], s.lanes):
        pair_number = chosen(world, i, s)
        if pair_number < 0:
            continue
        a = geom_of(pair_number, 0, s.pairs)
        b = geom_of(pair_number, 1, s.pairs)
        reach = s.detection[world, s.own[i]] + g.size[world, a][0]
        x = rotate_back(g.quat[world, b], g.pos[world, a] - g.pos[world, b])
        highest = real(-1.0e10)
        found = int(-1)
        faces = h.vert.shape[0] + h.ends.shape[0]
        for f in range(geom_face[b, 0], geom_face[b, 1]):
            height = wp.dot(x - h.vert[h.corners[h.corner[f]]], h.normal[f])
            if height > highest:
                highest = height
                found = faces + f
            if height > reach:
                break
        if highest > real(0.0) and highest <= reach:
            nearest = reach * reach
            found = int(-1)
            for f in range(geom_face[b, 0], geom_face[b, 1]):
                height = wp.dot(x - h.vert[h.corners[h.corner[f]]], h.normal[f])
                if height > real(0.0) and height * height <= nearest:
                    if over_face(h.vert, h.corner, h.corners, f, h.normal[f], x):
                        nearest = height * height
                        found = faces + f
            for e in range(geom_edge[b, 0], geom_edge[b, 1]):
                first = h.vert[h.ends[e, 0]]
                along = h.vert[h.ends[e, 1]] - first
                t = wp.dot(x - first, along) / wp.dot(along, along)
                gap = first + along * wp.clamp(t, real(0.0), real(1.0)) - x
                if wp.dot(gap, gap) <= nearest:
                    nearest = wp.dot(gap, gap)
                    found = h.vert.shape[0] + e
                    if t <= real(0.0):
                        found = h.ends[e, 0]
                    if t >= real(1.0):
                        found = h.ends[e, 1]
        feature_out[world, s.slot[i]] = wp.where(highest <= reach, found, -1)
