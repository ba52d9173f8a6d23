"""Flat sides of convex geoms that lie on one another: the points of a face or edge that lies over a face.

Where the normal of a contact is within five degrees of a face's, the *reference*, and the other geom has a face or an
edge there that is as level, the *incident* one, the pair touches at the points of the latter that lie over the
reference, cut off at its sides. Each is one of three: a vertex of the incident geom, which is a contact of two parts; a
point where an incident edge crosses a side of the reference; a corner of the reference over or under the incident face.

Corners are numbered face by face. Each stands for itself, for the side from it to the next one, and for its face. Discs
are polygons of sixteen corners, as in MuJoCo; the line along which a cylinder or capsule touches is a side as well.
Of a capsule, as there, the line lies nearer to the axis than the surface by the square of the cosine of its tilt.
"""

import warp as wp

from ..._precision import quat, real, vec3
from ...math import rotate, rotate_back, unit
from .parts import TURN
from .shapes import BOX, CAPSULE, CYLINDER, MIN_SQUARED

DISC = wp.constant(16)
LINE = wp.constant(32)
"""Number of the side along which a cylinder lies on a face."""


@wp.struct
class Corner:
    """A corner of a face, the one after it, and the face's outward normal."""

    here: vec3
    next: vec3
    normal: vec3


@wp.func
def box_corner_at(size: vec3, face: int, k: int) -> vec3:
    """Corner k, in order, of a face of a box."""
    axis = face // 2
    i = (axis + 1) % 3
    j = (axis + 2) % 3
    x = wp.where(k == 1 or k == 2, real(-1.0), real(1.0))
    y = wp.where(k >= 2, real(-1.0), real(1.0))
    up = wp.where(face % 2 == 1, real(1.0), real(-1.0))
    return unit(axis) * (up * size[axis]) + unit(i) * (x * size[i]) + unit(j) * (y * size[j])


@wp.func
def disc_corner_at(size: vec3, up: real, k: int) -> vec3:
    """Corner k of the sixteen of a cylinder's disc."""
    angle = TURN * real(k) / real(16.0)
    return vec3(size[0] * wp.cos(angle), size[0] * wp.sin(angle), up * size[1])


@wp.func
def corner_of(
    shape: int, p: vec3, q: quat, size: vec3, index: int, facing: vec3, here: vec3, after: vec3, normal: vec3
) -> Corner:
    """A corner of a geom that faces a direction; ``here``, ``after`` and ``normal`` are those of a mesh's corner."""
    x = here
    y = after
    n = normal
    if shape == BOX:
        x = box_corner_at(size, index // 4, index % 4)
        y = box_corner_at(size, index // 4, (index + 1) % 4)
        n = unit(index // 8) * wp.where((index // 4) % 2 == 1, real(1.0), real(-1.0))
    elif shape == CYLINDER:
        up = wp.where(index < DISC, real(1.0), real(-1.0))
        n = unit(2) * up
        x = disc_corner_at(size, up, index % DISC)
        y = disc_corner_at(size, up, (index + 1) % DISC)
        if index == LINE:
            l = rotate_back(q, facing)
            out = vec3(l[0], l[1], real(0.0)) * (size[0] / wp.sqrt(wp.max(l[0] * l[0] + l[1] * l[1], MIN_SQUARED)))
            x = out + unit(2) * size[1]
            y = out - unit(2) * size[1]
    elif shape == CAPSULE:
        n = vec3()
        l = rotate_back(q, facing)
        x = vec3(l[0], l[1], real(0.0)) * size[0] + unit(2) * wp.where(index == 0, size[1], -size[1])
        y = vec3(l[0], l[1], real(0.0)) * size[0] - unit(2) * size[1]
    corner = Corner()
    corner.here = p + rotate(q, x)
    corner.next = p + rotate(q, y)
    corner.normal = rotate(q, n)
    return corner


@wp.func
def crossing(reference: Corner, incident: Corner):
    """Distance and midpoint where an incident side crosses a side of the reference; its outward normal is theirs."""
    n = reference.normal
    side = wp.cross(reference.next - reference.here, n)
    along = incident.next - incident.here
    t = wp.dot(side, reference.here - incident.here) / away_from_zero(wp.dot(side, along))
    v = incident.here + along * t
    distance = wp.dot(v - reference.here, n)
    return distance, v - n * (real(0.5) * distance)


@wp.func
def away_from_zero(x: real) -> real:
    """A divisor that is not zero."""
    if wp.abs(x) < real(1.0e-15):
        return real(1.0e-15)
    return x


@wp.func
def under(reference: Corner, incident: Corner):
    """Distance and midpoint of a corner of the reference and the incident face; of an end of a capsule, over it."""
    n = reference.normal
    gap = incident.here - reference.here
    h = wp.dot(gap, n)
    pos = incident.here - n * (real(0.5) * h)
    if wp.dot(incident.normal, incident.normal) > real(0.5):
        h = wp.dot(incident.normal, gap) / away_from_zero(wp.dot(incident.normal, n))
        pos = reference.here + n * (real(0.5) * h)
    return h, pos
