"""Points of two flat sides of convex geoms that lie on one another, as MuJoCo 4.0 has them.

Two *faces*: the face of the second geom is cut off at the sides of the first geom's. The points that remain are corners
of the second face; crossings of its sides with those of the first; and, on it, points over corners of the first. Where
the second face is not quite flat, a point over a corner lies on the chord between the two sides that cross a side of
the first face there, if they are known; else in the plane of a corner of the second. The
distance is that of such a point from the first face, times the cosine between the faces; the contact lies on the first
face beneath the point, and its normal is that of the second face.

An *edge* over a face, of whichever geom: the edge is cut off at the sides of the face. The points that remain are its
ends and its crossings with the sides. The normal is that of the face.

Corners are numbered face by face. Each stands for itself, for the side from it to the next one, and for its face. Discs
are polygons of sixteen corners. A cylinder or capsule has one edge, the line along which it lies on the face. If a
capsule touches deepest with its end, the line lies nearer to the axis than the surface by the square of the cosine of
its tilt.
"""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import rotate, rotate_back, unit
from .parts import TURN
from .shapes import BOX, CYLINDER, MIN_SQUARED

DISC = wp.constant(16)
CORNER = wp.constant(1)
"""Kinds of points of two faces: a corner of the second, a crossing of two sides, a corner of the first."""
CROSSING = wp.constant(2)
UNDER = wp.constant(3)
CHORD = wp.constant(8)
"""And one on a chord: ``CHORD + 2 * (sides between - 1) + end``, the first of the kinds after those of edges."""


@wp.struct
class Corner:
    """A corner of a face, the one after it, the face's outward normal, and a point that its plane goes through."""

    here: vec3
    next: vec3
    normal: vec3
    base: vec3


@wp.func
def box_corner_at(size: vec3, face: int, k: int) -> vec3:
    """Corner k, in MuJoCo's order, of a face of a box."""
    axis = face // 2
    i = (axis + 1) % 3
    j = (axis + 2) % 3
    upper = face % 2 == 1
    turn = ((1203 >> (2 * face)) + wp.where(upper, -k, k)) & 3  # two bits a face: where the order starts
    x = wp.where(turn == 1 or turn == 2, real(-1.0), real(1.0))
    y = wp.where(turn >= 2, real(-1.0), real(1.0))
    return (
        unit(axis) * (wp.where(upper, real(1.0), real(-1.0)) * size[axis])
        + unit(i) * (x * size[i])
        + unit(j) * (y * size[j])
    )


@wp.func
def disc_corner_at(size: vec3, up: real, k: int) -> vec3:
    """Corner k, in MuJoCo's order, of the sixteen of a cylinder's disc."""
    angle = TURN * real(k) / real(16.0)
    return vec3(size[0] * wp.cos(angle), -up * size[0] * wp.sin(angle), up * size[1])


@wp.func
def corner_of(shape: int, p: vec3, q: quat, size: vec3, index: int, hull: Corner) -> Corner:
    """A corner of a geom; ``hull`` is that of a mesh, in its frame."""
    c = hull
    if shape == BOX:
        face = index // 4
        c.here = box_corner_at(size, face, index % 4)
        c.next = box_corner_at(size, face, (index + 1) % 4)
        c.normal = unit(face // 2) * wp.where(face % 2 == 1, real(1.0), real(-1.0))
        c.base = c.here
    elif shape == CYLINDER:
        up = wp.where(index < DISC, real(1.0), real(-1.0))
        c.here = disc_corner_at(size, up, index % DISC)
        c.next = disc_corner_at(size, up, (index + 1) % DISC)
        c.normal = unit(2) * up
        c.base = c.here
    corner = Corner()
    corner.here = p + rotate(q, c.here)
    corner.next = p + rotate(q, c.next)
    corner.normal = rotate(q, c.normal)
    corner.base = p + rotate(q, c.base)
    return corner


@wp.func
def line_end(shape: int, p: vec3, q: quat, size: vec3, end: int, facing: vec3) -> vec3:
    """The upper (0) or lower end of the line along which a cylinder or capsule lies on what a direction points to; of a
    capsule that touches deepest with its end, 2 and 3."""
    l = rotate_back(q, facing)
    out = vec3(l[0], l[1], real(0.0))
    if end < 2:
        out = out / wp.sqrt(wp.max(l[0] * l[0] + l[1] * l[1], MIN_SQUARED))
    return p + rotate(q, out * size[0] + unit(2) * wp.where(end % 2 == 0, size[1], -size[1]))


@wp.func
def crossing(side: Corner, origin: vec3, along: vec3) -> vec3:
    """Where a line crosses the plane that stands on a side of a face."""
    out = wp.cross(side.next - side.here, side.normal)
    t = wp.dot(out, side.here - origin) / away_from_zero(wp.dot(out, along))
    return origin + along * t


@wp.func
def away_from_zero(x: real) -> real:
    """A divisor that is not zero."""
    if wp.abs(x) < real(1.0e-15):
        return real(1.0e-15)
    return x


@wp.func
def between_faces(first: Corner, second: Corner, kind: int):
    """Normal, distance and midpoint of a point of two faces, those of two geoms in order."""
    n = first.normal
    m = second.normal
    v = second.here
    if kind == CROSSING:
        v = crossing(first, second.here, second.next - second.here)
    elif kind == UNDER:
        v = first.here + n * (wp.dot(m, second.here - first.here) / away_from_zero(wp.dot(m, n)))
    distance, pos = above(first, m, v)
    return -m, distance, pos


@wp.func
def above(face: Corner, m: vec3, v: vec3):
    """Distance and midpoint of a point of a face of normal m and the face under it."""
    height = wp.dot(v - face.base, face.normal)
    distance = -height * wp.dot(face.normal, m)
    return distance, v - face.normal * height - m * (real(0.5) * distance)


@wp.func
def on_chord(side: Corner, a: Corner, b: Corner, end: int):
    """Normal, distance and midpoint of the point of the second face over an end of a side of the first one, here (0) or
    next: on the line between the points at which sides a and b of the second face cross that side."""
    p = crossing(side, a.here, a.next - a.here)
    q = crossing(side, b.here, b.next - b.here)
    along = wp.cross(side.normal, wp.cross(side.next - side.here, side.normal))
    corner = wp.where(end == 0, side.here, side.next)
    v = p + (q - p) * (wp.dot(along, corner - p) / away_from_zero(wp.dot(along, q - p)))
    distance, pos = above(side, a.normal, v)
    return -a.normal, distance, pos


@wp.func
def over_face(face: Corner, v: vec3):
    """Distance and midpoint of a point of an edge and the face under it."""
    distance = wp.dot(v - face.base, face.normal)
    return distance, v - face.normal * (real(0.5) * distance)
