"""Sphere and the convex hull of a mesh.

A feature is the part of the hull nearest to the sphere's centre, or for a centre inside the nearest face: parts are
numbered vertices first, then edges, then faces. Each has a point, and a direction: along the edge, out of the face.
"""

import warp as wp

from .._precision import quat, real, vec3
from ..math import rotate, rotate_back
from .shapes import MIN_SQUARED, against_plane, chosen, two_balls


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
    # Structure:
    lanes: int,
    pair: wp.array2d(dtype=int),
    mine: wp.array(dtype=int),
    own: wp.array(dtype=int),
    slot: wp.array(dtype=int),
    geom_edge: wp.array2d(dtype=int),
    geom_face: wp.array2d(dtype=int),
    vert: wp.array(dtype=vec3),
    edge_ends: wp.array2d(dtype=int),
    normal: wp.array(dtype=vec3),
    corner: wp.array(dtype=int),
    corners: wp.array(dtype=int),
    # Model:
    geom_size: wp.array2d(dtype=vec3),
    detection: wp.array2d(dtype=real),
    # In:
    candidate: wp.array2d(dtype=int),
    geom_pos: wp.array2d(dtype=vec3),
    geom_quat: wp.array2d(dtype=quat),
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of candidates ``own`` that are pairs of a sphere and a mesh, in slot ``slot[i]``."""
    world, lane = wp.tid()
    for i in range(lane, own.shape[0], lanes):
        pair_number = chosen(world, own[i], mine, candidate)
        if pair_number < 0:
            continue
        a = pair[pair_number, 0]
        b = pair[pair_number, 1]
        reach = detection[world, own[i]] + geom_size[world, a][0]
        x = rotate_back(geom_quat[world, b], geom_pos[world, a] - geom_pos[world, b])
        highest = real(-1.0e10)
        found = int(-1)
        faces = vert.shape[0] + edge_ends.shape[0]
        for f in range(geom_face[b, 0], geom_face[b, 1]):
            height = wp.dot(x - vert[corners[corner[f]]], normal[f])
            if height > highest:
                highest = height
                found = faces + f
            if height > reach:
                break
        if highest > real(0.0) and highest <= reach:
            nearest = reach * reach
            found = int(-1)
            for f in range(geom_face[b, 0], geom_face[b, 1]):
                height = wp.dot(x - vert[corners[corner[f]]], normal[f])
                if height > real(0.0) and height * height <= nearest:
                    if over_face(vert, corner, corners, f, normal[f], x):
                        nearest = height * height
                        found = faces + f
            for e in range(geom_edge[b, 0], geom_edge[b, 1]):
                first = vert[edge_ends[e, 0]]
                along = vert[edge_ends[e, 1]] - first
                t = wp.dot(x - first, along) / wp.dot(along, along)
                gap = first + along * wp.clamp(t, real(0.0), real(1.0)) - x
                if wp.dot(gap, gap) <= nearest:
                    nearest = wp.dot(gap, gap)
                    found = vert.shape[0] + e
                    if t <= real(0.0):
                        found = edge_ends[e, 0]
                    if t >= real(1.0):
                        found = edge_ends[e, 1]
        feature_out[world, slot[i]] = wp.where(highest <= reach, found, -1)
