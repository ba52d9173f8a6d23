"""Capsule and box, in the box's frame: where on the capsule's segment one or two balls touch the box.

A feature is 64 times the branch of the ball's position t on the segment, from -1 to 1, plus the ball's own feature
against the box. Branches of t:

- 0, 1: an end of the segment;
- 2 to 13: the point nearest to an edge of the box, 2 + 4 axis + (which of the four);
- 14 to 21: the point nearest to a corner;
- 22 to 27: where the segment crosses the plane of a face, 22 + 2 axis + (1 for the lower face);
- from 28: a branch b before 22, moved on by the box's extent along an axis, 28 + 6 b + 2 axis + (1 for downwards).
"""

import warp as wp

from ..._precision import real, vec3
from ...math import unit
from .shapes import MIN_SQUARED, NONE, PARALLEL, corner
from .sphere_box import sphere_box_feature

EDGE = wp.constant(2)
CORNER = wp.constant(14)
CROSSING = wp.constant(22)
MOVED = wp.constant(28)
TINY = wp.constant(real(1.0e-15))


@wp.struct
class Nearest:
    """The nearest points of a segment and a box: what the search for a second contact needs."""

    t: real  # on the segment
    branch: int
    squared: real  # distance
    along: real  # on the edge, from -1 to 1
    face: int  # axis of the face that an end is over, -1 inside; -2: an edge is nearest instead
    edge: int  # axis of the edge
    corner: int  # nearest corner of the edge
    place: int  # on the edge: 0 lower end, 1 within, 2 upper end


@wp.func
def edge_corner(axis: int, which: int) -> int:
    """The lower corner of one of the four edges along an axis."""
    low = which & 1
    high = which >> 1
    if axis == 0:
        return 2 * low + 4 * high
    if axis == 1:
        return low + 4 * high
    return low + 2 * high


@wp.func
def base_parameter(c: vec3, h: vec3, size: vec3, branch: int) -> real:
    """The branches of t up to 21."""
    t = real(1.0)
    if branch == 1:
        t = real(-1.0)
    if branch >= CORNER:
        r = corner(size, branch - CORNER) - c
        t = wp.dot(r, h) / wp.max(wp.dot(h, h), MIN_SQUARED)
    elif branch >= EDGE:
        axis = (branch - EDGE) // 4
        r = corner(size, edge_corner(axis, (branch - EDGE) % 4)) - c
        across = h - unit(axis) * h[axis]
        t = wp.dot(r, across) / wp.max(wp.dot(across, across), MIN_SQUARED)
    return t


@wp.func
def capsule_box_parameter(c: vec3, h: vec3, size: vec3, branch: int) -> real:
    """Position t on the segment c + t h that a branch stands for."""
    moved = wp.max(branch - MOVED, 0)
    base = wp.where(branch >= MOVED, moved // 6, branch)
    t = base_parameter(c, h, size, wp.where(base < CROSSING, base, 0))
    if branch >= MOVED:
        axis = (moved % 6) // 2
        sign = wp.where(moved % 2 == 1, real(-1.0), real(1.0))
        t = t + sign * real(2.0) * size[axis] / wp.max(wp.abs(h[axis]), TINY)
    elif branch >= CROSSING:
        axis = (branch - CROSSING) // 2
        sign = wp.where(branch % 2 == 1, real(-1.0), real(1.0))
        step = h[axis]
        if wp.abs(step) < TINY:
            step = TINY
        t = (sign * size[axis] - c[axis]) / step
    return t


@wp.func
def nearest_end(c: vec3, h: vec3, size: vec3, limit: real) -> Nearest:
    """The end of the segment that is nearest to the box, of those over a face or inside."""
    best = Nearest()
    best.squared = limit
    best.branch = -1
    best.face = -2
    for k in range(2):
        x = c + h * wp.where(k == 0, real(-1.0), real(1.0))
        out = int(0)
        face = int(-1)
        squared = real(0.0)
        for j in range(3):
            beyond = wp.abs(x[j]) - size[j]
            if beyond > real(0.0):
                out = out + 1
                face = j
                squared = squared + beyond * beyond
        if out <= 1 and squared < best.squared:
            best.squared = squared
            best.t = wp.where(k == 0, real(-1.0), real(1.0))
            best.branch = 1 - k
            best.face = face
    return best


@wp.func
def nearest_edge(c: vec3, h: vec3, size: vec3, best: Nearest, axis: int, which: int) -> Nearest:
    """The nearer of what was found before and one edge of the box."""
    low = edge_corner(axis, which)
    r = corner(size, low) - c
    r = r - unit(axis) * r[axis]
    middle = -c[axis]
    s = size[axis]
    across = h - unit(axis) * h[axis]
    det = wp.dot(across, across)
    hh = wp.dot(h, h)
    if det * s * s < TINY or det < PARALLEL * hh:
        return best
    t = wp.dot(r, across) / det
    x = (h[axis] * t - middle) / s
    place = int(1)
    inner = int(1)
    if x > real(1.0):
        x = real(1.0)
        place = 2
        t = (wp.dot(r, h) + h[axis] * (middle + s)) / hh
    elif x < real(-1.0):
        x = real(-1.0)
        place = 0
        t = (wp.dot(r, h) + h[axis] * (middle - s)) / hh
    if wp.abs(t) > real(1.0):
        t = wp.where(t > real(1.0), real(1.0), real(-1.0))
        inner = 0
        x = (h[axis] * t - middle) / s
        if x > real(1.0):
            x = real(1.0)
            place = 2
        elif x < real(-1.0):
            x = real(-1.0)
            place = 0
    gap = r + unit(axis) * (middle + s * x) - h * t
    squared = wp.dot(gap, gap)
    found = best
    if squared < best.squared - TINY:
        found.squared = squared
        found.t = t
        found.along = x
        found.face = -2
        found.edge = axis
        found.place = place
        found.corner = low + wp.where(place == 2, 1 << axis, 0)
        found.branch = EDGE + 4 * axis + which
        if inner == 0:
            found.branch = wp.where(t > real(0.0), 0, 1)
        elif place != 1:
            found.branch = CORNER + found.corner
    return found


@wp.func
def moved(base: int, axis: int, sign: int) -> int:
    """Branch: moved on by the box's extent along an axis."""
    return MOVED + 6 * base + 2 * axis + wp.where(sign > 0, 0, 1)


@wp.func
def second_at_corner(h: vec3, size: vec3, first: Nearest, octant: int) -> int:
    """Branch of a second contact when a corner is nearest, or -1."""
    c = octant ^ first.corner
    if c == 0 or c == 7:
        return -1  # the segment points at the corner
    sign = int(1)
    if c == 3 or c == 5 or c == 6:
        sign = -1
        c = 7 - c
    axis = c // 2
    along = h[axis] * h[axis] > real(0.5) * wp.dot(h, h)
    if not along:
        sign = -sign
    room = real(1.0) - wp.where(sign > 0, first.t, -first.t)
    branch = wp.where(sign > 0, 0, 1)
    for j in range(3):
        if (j == axis) == along:
            extent = real(2.0) * size[j] / wp.abs(h[j])
            if extent < room:
                room = extent
                branch = moved(first.branch, j, sign)
    return branch


@wp.func
def second_at_edge(h: vec3, size: vec3, first: Nearest, octant: int) -> int:
    """Branch of a second contact when an edge is nearest, or -1."""
    axis = first.edge
    c = (octant ^ first.corner) & (7 - (1 << axis))
    if c != 1 and c != 2 and c != 4:
        return -1
    other = (axis + 1) % 3
    if wp.abs(h[other]) <= wp.abs(h[(axis + 2) % 3]):
        other = (axis + 2) % 3
    up = (c & (1 << other)) != 0
    sign = wp.where(up, 1, -1)
    room = real(1.0) - wp.where(up, first.t, -first.t)
    branch = wp.where(up, 0, 1)
    extent = real(2.0) * size[other] / wp.abs(h[other])
    if extent < room:
        room = extent
        branch = moved(first.branch, other, sign)
    upper = ((octant & (1 << axis)) != 0) == up
    left = real(1.0) - wp.where(upper, first.along, -first.along)
    if size[axis] * left / wp.abs(h[axis]) < room:
        branch = CROSSING + 2 * axis + wp.where(upper, 0, 1)
    return branch


@wp.func
def second_over_face(c: vec3, h: vec3, size: vec3, first: Nearest) -> int:
    """Branch of a second contact when an end over a face is nearest: where the segment leaves the face."""
    if first.face < 0:
        return -1
    sign = -first.t
    start = c + h * first.t
    room = real(2.0)
    branch = wp.where(sign > real(0.0), 0, 1)
    for k in range(6):
        i = k // 2
        if i != first.face:
            face = wp.where(k % 2 == 1, -size[i], size[i])
            e = (face - start[i]) / h[i] * sign
            if e > real(0.0) and e < room:
                room = e
                branch = CROSSING + k
    return branch


@wp.func
def capsule_box_candidates(c: vec3, h: vec3, size1: vec3, size: vec3, margin: real) -> wp.vec4i:
    """Features of the nearest ball, and of a second one where the segment lies along the box."""
    found = NONE
    limit = margin + real(2.0) * (size1[0] + size1[1] + size[0] + size[1] + size[2])
    first = nearest_end(c, h, size, limit)
    for k in range(12):
        first = nearest_edge(c, h, size, first, k // 4, k % 4)
    if first.branch < 0:
        return found
    octant = wp.where(h[0] > real(0.0), 1, 0) + wp.where(h[1] > real(0.0), 2, 0) + wp.where(h[2] > real(0.0), 4, 0)
    second = int(-1)
    if first.face >= -1:
        second = second_over_face(c, h, size, first)
    elif first.place == 1:
        second = second_at_edge(h, size, first, octant)
    else:
        second = second_at_corner(h, size, first, octant)
    found[0] = 64 * first.branch + sphere_box_feature(c + h * first.t, size)
    if second >= 0:
        t = capsule_box_parameter(c, h, size, second)
        found[1] = 64 * second + sphere_box_feature(c + h * t, size)
    return found
