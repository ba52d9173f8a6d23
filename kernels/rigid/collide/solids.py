"""Convex geoms as a search sees them: their farthest points along a direction, and the parts that lie near there.

Spheres and capsules count without their balls: as a point and a segment.
"""

import warp as wp

from ..._precision import quat, real, tolerance, vec3, vec4
from ...math import rotate, rotate_back, unit
from .mesh import flattest, foremost
from .parts import Part, part_of
from .prism import (
    EDGES,
    VERTICES,
    Prism,
    edge_ends,
    face_normal,
    outside_prism,
    prism_farthest,
    prism_part,
    prism_vertex,
)
from .search import Hulls
from .shapes import BOX, CAPSULE, CYLINDER, ELLIPSOID, HFIELD, MESH, MIN_SQUARED, corner

LEVEL = wp.constant(tolerance(0.05, 0.05))
"""Cosine below which a direction is near a right angle to an axis."""
NEARBY = wp.constant(6)
"""Parts that a search tries near one direction, at most."""

choices = wp.types.vector(length=6, dtype=int)


@wp.struct
class Solid:
    """A convex geom."""

    kind: int
    pos: vec3
    turn: quat
    size: vec3
    verts: int  # first vertex, edge and face of its hull
    edges: int
    faces: int
    edge_base: int  # the numbers of its first edge and face among its parts
    face_base: int
    prism: Prism  # of a height field


@wp.func
def ball_of(s: Solid) -> real:
    """Radius of the ball that is rolled over a geom's core."""
    return wp.where(s.kind <= CAPSULE and s.kind != HFIELD, s.size[0], real(0.0))


@wp.func
def farthest(s: Solid, hulls: Hulls, n: vec3) -> vec3:
    """The point of a geom's core that lies farthest along n."""
    l = rotate_back(s.turn, n)
    x = vec3()
    if s.kind == MESH:
        x = hulls.vert[foremost(hulls.vert, hulls.edge, hulls.neighbour, s.verts, l)]
    elif s.kind == HFIELD:
        x = prism_vertex(s.prism, prism_farthest(s.prism, l))
    elif s.kind == BOX:
        x = corner(s.size, box_corner(l))
    elif s.kind == CYLINDER:
        m = wp.sqrt(l[0] * l[0] + l[1] * l[1])
        k = wp.where(m > real(1.0e-15), s.size[0] / wp.max(m, real(1.0e-15)), real(0.0))
        x = vec3(l[0] * k, l[1] * k, wp.where(l[2] >= real(0.0), s.size[1], -s.size[1]))
    elif s.kind == ELLIPSOID:
        scaled = wp.cw_mul(s.size, l)
        x = wp.cw_mul(s.size, scaled) / wp.sqrt(wp.max(wp.dot(scaled, scaled), MIN_SQUARED))
    elif s.kind == CAPSULE:
        x = vec3(real(0.0), real(0.0), wp.where(l[2] >= real(0.0), s.size[1], -s.size[1]))
    return s.pos + rotate(s.turn, x)


@wp.func
def gap_along(a: Solid, b: Solid, hulls: Hulls, n: vec3) -> real:
    """Distance of two cores along n."""
    return wp.dot(n, farthest(b, hulls, -n) - farthest(a, hulls, n))


@wp.func
def box_corner(l: vec3) -> int:
    """The corner of a box that lies farthest along a direction."""
    x = wp.where(l[0] >= real(0.0), 1, 0)
    y = wp.where(l[1] >= real(0.0), 2, 0)
    return x + y + wp.where(l[2] >= real(0.0), 4, 0)


@wp.func
def box_parts(l: vec3) -> choices:
    """The corner farthest along l, the two of its edges that are most level, and its face that is flattest."""
    c = box_corner(l)
    x = wp.vec3i(c & 1, (c >> 1) & 1, (c >> 2) & 1)
    steepest = int(0)
    for k in range(1, 3):
        if wp.abs(l[k]) > wp.abs(l[steepest]):
            steepest = k
    i = (steepest + 1) % 3
    j = (steepest + 2) % 3
    first = 8 + 4 * i + x[(i + 1) % 3] + 2 * x[(i + 2) % 3]
    second = 8 + 4 * j + x[(j + 1) % 3] + 2 * x[(j + 2) % 3]
    return choices(c, first, second, 20 + 2 * steepest + x[steepest], -1, -1)


@wp.func
def hull_parts(s: Solid, hulls: Hulls, l: vec3) -> choices:
    """The vertex farthest along l, the four of its edges that are most level, and its face that is flattest."""
    v = foremost(hulls.vert, hulls.edge, hulls.neighbour, s.verts, l)
    found = choices(v - s.verts, -1, -1, -1, -1, -1)
    slopes = vec4(real(2.0), real(2.0), real(2.0), real(2.0))
    for e in range(hulls.edge[v], hulls.edge[v + 1]):
        along = hulls.vert[hulls.neighbour[e]] - hulls.vert[v]
        slope = wp.abs(wp.dot(along, l)) / wp.length(along)
        k = hulls.leaving[e] - s.edges + s.edge_base
        for j in range(4):  # into its place among the four most level
            if slope < slopes[j]:
                held = slopes[j]
                slopes[j] = slope
                slope = held
                edge = found[1 + j]
                found[1 + j] = k
                k = edge
    found[5] = flattest(hulls.normal, hulls.meeting, hulls.faces, v, l) - s.faces + s.face_base
    return found


@wp.func
def prism_parts(p: Prism, l: vec3) -> choices:
    """The vertex farthest along l, the three edges that meet there, and the two of its faces that are flattest."""
    v = prism_farthest(p, l)
    found = choices(v, -1, -1, -1, -1, -1)
    count = int(1)
    for e in range(EDGES):
        ends = edge_ends(e)
        if ends[0] == v or ends[1] == v:
            found[count] = VERTICES + e
            count = count + 1
    least = real(2.0)
    steepest = int(0)
    for k in range(3):  # top or bottom, and the two sides that meet at the corner
        f = wp.where(k == 0, v // 3, 2 + (v + k + 1) % 3)
        along = wp.dot(face_normal(p, f), l)
        if along < least:
            least = along
            steepest = k
    for k in range(3):
        if k != steepest:
            found[count] = VERTICES + EDGES + wp.where(k == 0, v // 3, 2 + (v + k + 1) % 3)
            count = count + 1
    return found


@wp.func
def parts_near(s: Solid, hulls: Hulls, n: vec3) -> choices:
    """Parts of a geom that may touch along n, -1 after the last."""
    l = rotate_back(s.turn, n)
    up = wp.where(l[2] >= real(0.0), 0, 1)
    found = choices(0, -1, -1, -1, -1, -1)
    if s.kind == CAPSULE:
        found = choices(0, 1 + up, -1, -1, -1, -1)
        if wp.abs(l[2]) < LEVEL:
            found[2] = 2 - up
    elif s.kind == CYLINDER:
        found = choices(0, 1 + up, 3 + up, -1, -1, -1)
        if wp.abs(l[2]) < LEVEL:
            found[3] = 4 - up
    elif s.kind == BOX:
        found = box_parts(l)
    elif s.kind == MESH:
        found = hull_parts(s, hulls, l)
    elif s.kind == HFIELD:
        found = prism_parts(s.prism, l)
    return found


@wp.func
def solid_part(s: Solid, hulls: Hulls, index: int, patch: int) -> Part:
    """A part of a geom."""
    point = vec3()
    direction = vec3()
    kind = int(0)
    if s.kind == MESH:
        if index < s.edge_base:
            point = hulls.vert[s.verts + index]
        elif index < s.face_base:
            e = s.edges + index - s.edge_base
            point = hulls.vert[hulls.ends[e, 0]]
            direction = wp.normalize(hulls.vert[hulls.ends[e, 1]] - point)
            kind = 1
        else:
            f = s.faces + index - s.face_base
            point = hulls.vert[hulls.corners[hulls.corner[f]]]
            direction = hulls.normal[f]
            kind = 2
    elif s.kind == HFIELD:
        kind, point, direction = prism_part(s.prism, index)
    return part_of(s.kind, s.pos, s.turn, s.size, index, patch, point, direction, kind)


@wp.func
def outside_face(hulls: Hulls, f: int, l: vec3) -> real:
    """How far a point on the plane of a hull's face lies outside the face."""
    start = hulls.corner[f]
    count = hulls.corner[f + 1] - start
    centre = vec3()
    for k in range(count):
        centre = centre + hulls.vert[hulls.corners[start + k]] / real(count)
    most = real(0.0)
    for k in range(count):
        a = hulls.vert[hulls.corners[start + k]]
        out = wp.normalize(wp.cross(hulls.vert[hulls.corners[start + (k + 1) % count]] - a, hulls.normal[f]))
        side = wp.where(wp.dot(out, centre - a) > real(0.0), real(-1.0), real(1.0))
        most = wp.max(most, side * wp.dot(out, l - a))
    return most


@wp.func
def outside(s: Solid, hulls: Hulls, index: int, x: vec3) -> real:
    """How far a point on the line or plane of a part lies outside the part."""
    l = rotate_back(s.turn, x - s.pos)
    beyond = real(0.0)
    if s.kind == CAPSULE and index == 0:
        beyond = wp.abs(l[2]) - s.size[1]
    elif s.kind == CYLINDER:
        if index == 0:
            beyond = wp.abs(l[2]) - s.size[1]
        elif index <= 2:
            beyond = wp.sqrt(l[0] * l[0] + l[1] * l[1]) - s.size[0]
    elif s.kind == BOX:
        for k in range(3):
            beyond = wp.max(beyond, wp.abs(l[k]) - s.size[k])
    elif s.kind == MESH:
        if index >= s.face_base:
            beyond = outside_face(hulls, s.faces + index - s.face_base, l)
        elif index >= s.edge_base:
            e = s.edges + index - s.edge_base
            a = hulls.vert[hulls.ends[e, 0]]
            along = hulls.vert[hulls.ends[e, 1]] - a
            length = wp.length(along)
            t = wp.dot(l - a, along) / length
            beyond = wp.max(-t, t - length)
    elif s.kind == HFIELD:
        beyond = outside_prism(s.prism, index, l)
    return wp.max(beyond, real(0.0))


@wp.func
def perpendicular(n: vec3) -> vec3:
    """A unit vector at right angles to n."""
    return wp.normalize(wp.cross(wp.where(wp.abs(n[0]) < real(0.7) * wp.length(n), unit(0), unit(1)), n))
