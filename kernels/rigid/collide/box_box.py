"""Two boxes: a separating-axis test, then the contact of two edges or the overlap of two faces.

A feature below ``EDGES`` is a point of the overlap of a face of one box (the reference) with the face of the
other that opposes it (the incident one): the reference face, 0 to 5, plus 6 if it is the upper one, plus
12 times the incident box's axis, plus 36 if that face is the upper one, plus 72 times the point. Points 0 to 3
are the incident face's corners, 4 to 19 where its edges cross the sides of the reference face, 20 to 23 lie under
the reference face's corners. From ``EDGES`` on it names two edges and where on each of them the contact lies.

As in MuJoCo, all points of the overlap are kept: fewer would let stacks of plates rock.
"""

import warp as wp

from ..._precision import mat33, quat, real, tolerance, vec3
from ...math import rotate, rotate_back, rotation, unit
from .pairs import geom_of
from .search import Geoms, Search, chosen, slots_of
from .shapes import against_plane, end

EDGES = wp.constant(2048)
TINY = wp.constant(real(1.0e-15))
SEPARATION = wp.constant(tolerance(1.0e-13, 1.0e-6))
"""Slack of the separation tests, in units of the boxes."""
SAME_DIRECTION = wp.constant(tolerance(1.0e-16, 1.0e-7))
"""Squared sine below which two edges have no common normal."""
LEVEL = wp.constant(tolerance(1.0e-9, 1.0e-5))
"""Component of the normal below which either edge along that axis may touch."""
SAME_POINT = wp.constant(tolerance(1.0e-14, 1.0e-10))
"""Squared distance below which two points are one, in units of the reference face."""
SLACK = wp.constant(tolerance(1.0e-12, 1.0e-6))
"""How far outside a point of the overlap may lie, in units of the faces; doubles are dropped."""

corners = wp.types.matrix(shape=(8, 2), dtype=real)


@wp.struct
class Faces:
    """Reference and incident face, in the reference box's frame."""

    first: int  # whether the first box is the reference
    axis: int  # of the reference face
    up: real  # its side
    axis_in: int  # of the incident face
    up_in: real
    size: vec3  # of the reference box
    centre: vec3  # of the incident face
    u: vec3  # half edges of the incident face
    v: vec3


@wp.func
def sign_bit(feature: int, bit: int) -> real:
    """+1 where a digit of a feature is 1, -1 where it is 0."""
    return wp.where((feature // bit) % 2 == 1, real(1.0), real(-1.0))


@wp.func
def away_from_zero(x: real) -> real:
    """A divisor that is not zero."""
    if wp.abs(x) < TINY:
        return TINY
    return x


@wp.func
def faces(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int) -> Faces:
    """The two faces that a feature names."""
    f = Faces()
    f.axis = feature % 6
    f.first = wp.where(f.axis < 3, 1, 0)
    f.axis = f.axis % 3
    f.up = sign_bit(feature, 6)
    f.axis_in = (feature // 12) % 3
    f.up_in = sign_bit(feature, 36)
    first = f.first == 1
    f.size = wp.where(first, size1, size2)
    q = wp.where(first, q1, q2)
    other = wp.where(first, q2, q1)
    r = wp.where(first, p2 - p1, p1 - p2)
    size = wp.where(first, size2, size1)
    b = f.axis_in
    bu = (b + 1) % 3
    bv = (b + 2) % 3
    f.centre = rotate_back(q, r + rotate(other, unit(b) * (f.up_in * size[b])))
    f.u = rotate_back(q, rotate(other, unit(bu) * size[bu]))
    f.v = rotate_back(q, rotate(other, unit(bv) * size[bv]))
    return f


@wp.func
def face_point(f: Faces, point: int) -> vec3:
    """A point of the overlap on the incident face; see the module's docstring."""
    ax = (f.axis + 1) % 3
    ay = (f.axis + 2) % 3
    alpha = sign_bit(point, 1)
    beta = sign_bit(point, 2)
    if point >= 20:  # under a corner of the reference face
        x = alpha * f.size[ax] - f.centre[ax]
        y = beta * f.size[ay] - f.centre[ay]
        det = f.u[ax] * f.v[ay] - f.u[ay] * f.v[ax]
        alpha = (x * f.v[ay] - y * f.v[ax]) / away_from_zero(det)
        beta = (y * f.u[ax] - x * f.u[ay]) / away_from_zero(det)
    elif point >= 4:  # where an edge crosses a side
        side = wp.where((point - 4) % 8 >= 4, ay, ax)
        limit = alpha * f.size[side] - f.centre[side]
        if point < 12:  # an edge along u
            alpha = (limit - beta * f.v[side]) / away_from_zero(f.u[side])
        else:
            alpha = sign_bit(point, 2)
            beta = (limit - alpha * f.u[side]) / away_from_zero(f.v[side])
    return f.centre + f.u * alpha + f.v * beta


@wp.func
def face_contact(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int):
    """Normal from the first box to the second, signed distance and midpoint at a point of two faces' overlap."""
    f = faces(p1, q1, size1, p2, q2, size2, feature)
    first = f.first == 1
    p = wp.where(first, p1, p2)
    q = wp.where(first, q1, q2)
    axis = unit(f.axis)
    n, distance, pos = against_plane(
        rotate(q, axis) * f.up,
        p + rotate(q, axis * (f.up * f.size[f.axis])),
        p + rotate(q, face_point(f, feature // 72)),
        real(0.0),
    )
    return wp.where(first, n, -n), distance, pos


@wp.func
def edge_middle(size: vec3, axis: int, side: int) -> vec3:
    """Middle of one of the four edges along an axis; the two bits of ``side`` are the signs along the next two axes."""
    i = (axis + 1) % 3
    j = (axis + 2) % 3
    return unit(i) * (sign_bit(side, 1) * size[i]) + unit(j) * (sign_bit(side, 2) * size[j])


@wp.func
def edge_contact(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int):
    """Normal from the first box to the second, signed distance and midpoint of the contact of two edges."""
    i = (feature % 9) // 3
    j = feature % 3
    s1 = (feature // 18) % 4
    s2 = (feature // 72) % 4
    m1 = (feature // 288) % 3
    m2 = feature // 864
    d1 = rotate(q1, unit(i))
    d2 = rotate(q2, unit(j))
    c1 = p1 + rotate(q1, edge_middle(size1, i, s1))
    c2 = p2 + rotate(q2, edge_middle(size2, j, s2))
    cross = wp.cross(d1, d2)
    n = cross * (sign_bit(feature, 9) / wp.sqrt(wp.max(wp.dot(cross, cross), SAME_DIRECTION)))
    e = c2 - c1
    b = wp.dot(d1, d2)
    s = end(m1) * size1[i]
    t = end(m2) * size2[j]
    if m1 == 0 and m2 == 0:
        s = (wp.dot(d1, e) - b * wp.dot(d2, e)) / wp.max(real(1.0) - b * b, TINY)
        t = b * s - wp.dot(d2, e)
    elif m1 == 0:
        s = wp.dot(d1, e) + b * (end(m2) * size2[j])
    elif m2 == 0:
        t = b * (end(m1) * size1[i]) - wp.dot(d2, e)
    w1 = c1 + d1 * s
    w2 = c2 + d2 * t
    return n, wp.dot(w2 - w1, n), (w1 + w2) * real(0.5)


@wp.func
def box_box(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, feature: int):
    """Normal from the first box to the second, signed distance and midpoint of the contact that a feature names."""
    if feature >= EDGES:
        normal, distance, pos = edge_contact(p1, q1, size1, p2, q2, size2, feature - EDGES)
    else:
        normal, distance, pos = face_contact(p1, q1, size1, p2, q2, size2, feature)
    return normal, distance, pos


@wp.struct
class Axis:
    """The axis along which two boxes are farthest apart: a face of the first (0-2), of the second (3-5), or edges."""

    code: int
    gap: real
    apart: int  # some axis separates them


@wp.func
def better(best: Axis, gap: real, code: int, limit: real) -> Axis:
    """The better of two axes, a face's winning over those after it."""
    found = best
    if gap > limit:
        found.apart = 1
    if gap > best.gap:
        found.gap = gap
        found.code = code
    return found


@wp.func
def best_face(rot: mat33, r1: vec3, r2: vec3, size1: vec3, size2: vec3, limit: real) -> Axis:
    """The face whose plane is farthest from the other box."""
    best = Axis()
    best.gap = real(-1.0e10)
    best.code = -1
    for i in range(3):
        radius = wp.abs(rot[i, 0]) * size2[0] + wp.abs(rot[i, 1]) * size2[1] + wp.abs(rot[i, 2]) * size2[2]
        best = better(best, wp.abs(r1[i]) - size1[i] - radius, i, limit)
    for j in range(3):
        radius = wp.abs(rot[0, j]) * size1[0] + wp.abs(rot[1, j]) * size1[1] + wp.abs(rot[2, j]) * size1[2]
        best = better(best, wp.abs(r2[j]) - size2[j] - radius, 3 + j, limit)
    return best


@wp.func
def common_normal(rot: mat33, i: int, j: int) -> vec3:
    """Axis i of the first box crossed with axis j of the second, in the first's frame."""
    return wp.cross(unit(i), vec3(rot[0, j], rot[1, j], rot[2, j]))


@wp.func
def best_axis(rot: mat33, r1: vec3, r2: vec3, size1: vec3, size2: vec3, limit: real) -> Axis:
    """The best of fifteen axes. Two edges must beat a face clearly: a face touches at several points."""
    face = best_face(rot, r1, r2, size1, size2, limit)
    best = face
    if face.apart == 1:
        return best
    for k in range(9):
        axis = common_normal(rot, k // 3, k % 3)
        s = wp.dot(axis, axis)
        if s >= SAME_DIRECTION:
            axis = axis / wp.sqrt(s)
            other = wp.transpose(rot) * axis
            gap = wp.abs(wp.dot(axis, r1))
            for i in range(3):
                gap = gap - size1[i] * wp.abs(axis[i]) - size2[i] * wp.abs(other[i])
            if gap > limit:
                best.apart = 1
                return best
            if gap - real(1.0e-6) * wp.abs(gap) > best.gap and gap > face.gap:
                best.gap = gap
                best.code = 6 + k
    if best.code >= 6:
        k = best.code - 6
        axis = wp.normalize(common_normal(rot, k // 3, k % 3))
        normal = unit(face.code % 3)
        if face.code >= 3:
            normal = rot * normal
        near = wp.abs(wp.dot(axis, normal)) > real(0.99)
        if near and best.gap < face.gap + real(0.05) * wp.abs(face.gap) + TINY:
            best = face
    return best


@wp.func
def clamp_within(x: real, limit: real) -> int:
    """0 within the limits, 1 at the upper one, 2 at the lower one."""
    if x >= limit:
        return 1
    if x <= -limit:
        return 2
    return 0


@wp.func
def supports(n: vec3, axis: int, side: int) -> bool:
    """Whether the edge on a side lies foremost along n; where n is level, both edges do."""
    u = n[(axis + 1) % 3]
    v = n[(axis + 2) % 3]
    level_u = wp.abs(u) < LEVEL
    level_v = wp.abs(v) < LEVEL and not level_u
    return (level_u or (u >= real(0.0)) == ((side & 1) != 0)) and (level_v or (v >= real(0.0)) == ((side & 2) != 0))


@wp.func
def edge_feature(p1: vec3, q1: quat, size1: vec3, p2: vec3, q2: quat, size2: vec3, rot: mat33, r1: vec3, k: int) -> int:
    """Feature of the contact of two edges, of axis k // 3 of the first box and k % 3 of the second."""
    i = k // 3
    j = k % 3
    n = wp.normalize(common_normal(rot, i, j))
    upper = wp.where(wp.dot(n, r1) < real(0.0), 0, 1)
    if upper == 0:
        n = -n
    other = wp.transpose(rot) * n
    d2 = rot * unit(j)
    b = d2[i]
    best = int(-1)
    nearest = real(1.0e10)
    pairs = int(16)  # not a constant: the loop is not to be unrolled
    for c in range(pairs):
        s1 = c % 4
        s2 = c // 4
        if supports(n, i, s1) and supports(-other, j, s2):
            e = r1 + rot * edge_middle(size2, j, s2) - edge_middle(size1, i, s1)
            s = real(0.0)
            if real(1.0) - b * b >= TINY:
                s = (e[i] - b * wp.dot(d2, e)) / (real(1.0) - b * b)
            s = wp.clamp(s, -size1[i], size1[i])
            t = b * s - wp.dot(d2, e)
            m2 = clamp_within(t, size2[j])
            t = wp.clamp(t, -size2[j], size2[j])
            s = e[i] + b * t
            m1 = clamp_within(s, size1[i])
            gap = e + d2 * t - unit(i) * wp.clamp(s, -size1[i], size1[i])
            if wp.dot(gap, gap) < nearest:
                nearest = wp.dot(gap, gap)
                best = EDGES + k + 9 * upper + 18 * s1 + 72 * s2 + 288 * m1 + 864 * m2
    return best


@wp.func
def within(f: Faces, point: int) -> bool:
    """Whether a point of face_point's list belongs to the overlap."""
    ax = (f.axis + 1) % 3
    ay = (f.axis + 2) % 3
    slack = real(1.0) + SLACK
    x = face_point(f, point)
    if point < 20:
        in_x = wp.abs(x[ax]) <= f.size[ax] * slack
        in_y = wp.abs(x[ay]) <= f.size[ay] * slack
        if not (in_x and in_y):
            return False
        if point < 4:
            return True
        side = wp.where((point - 4) % 8 >= 4, ay, ax)
        step = wp.where(point < 12, f.u[side], f.v[side])
        if wp.abs(step) < SLACK * f.size[side]:
            return False  # the edge runs along the side
    r = x - f.centre
    alpha = wp.dot(r, f.u) / wp.max(wp.dot(f.u, f.u), TINY * TINY)
    beta = wp.dot(r, f.v) / wp.max(wp.dot(f.v, f.v), TINY * TINY)
    return wp.abs(alpha) <= slack and wp.abs(beta) <= slack


@wp.func
def face_code(rot: mat33, r1: vec3, r2: vec3, code: int) -> int:
    """The part of a feature that names the reference and the incident face."""
    axis = code % 3
    row = vec3(rot[axis, 0], rot[axis, 1], rot[axis, 2])
    r = r1
    if code >= 3:
        row = vec3(rot[0, axis], rot[1, axis], rot[2, axis])
        r = r2
    up = wp.where(r[axis] >= real(0.0), 1, 0)
    b = int(0)
    for k in range(1, 3):
        if wp.abs(row[k]) > wp.abs(row[b]):
            b = k
    facing = wp.where(up == 1, row[b], -row[b])
    return code + 6 * up + 12 * b + 36 * wp.where(facing > real(0.0), 0, 1)


@wp.func
def fresh(kept: corners, count: int, f: Faces, x: vec3) -> bool:
    """Whether a point lies apart from those kept before."""
    sx = f.size[(f.axis + 1) % 3]
    sy = f.size[(f.axis + 2) % 3]
    for k in range(count):
        dx = kept[k, 0] - x[(f.axis + 1) % 3]
        dy = kept[k, 1] - x[(f.axis + 2) % 3]
        if dx * dx + dy * dy < SAME_POINT * (sx * sx + sy * sy):
            return False
    return True


@wp.kernel(enable_backward=False)
def features(
    # In:
    s: Search,
    g: Geoms,
    # Out:
    feature_out: wp.array2d(dtype=int),
):
    """Features of the candidates that are pairs of boxes."""
    world, lane = wp.tid()
    for i in range(lane, s.own.shape[0], s.lanes):
        pair_number = chosen(world, i, s)
        if pair_number < 0:
            continue
        a = geom_of(pair_number, 0, s.pairs)
        b = geom_of(pair_number, 1, s.pairs)
        p1 = g.pos[world, a]
        p2 = g.pos[world, b]
        s1 = g.size[world, a]
        s2 = g.size[world, b]
        margin = s.detection[world, s.own[i]]
        count = s.slot[i]
        last = count + slots_of(pair_number, s)
        r = p2 - p1
        reach = wp.length(s1) + wp.length(s2) + margin
        if wp.dot(r, r) <= reach * reach:
            q1 = g.quat[world, a]
            q2 = g.quat[world, b]
            r1 = rotate_back(q1, r)
            r2 = -rotate_back(q2, r)
            rot = wp.transpose(rotation(q1)) * rotation(q2)
            limit = margin + SEPARATION * (s1[0] + s1[1] + s1[2] + s2[0] + s2[1] + s2[2])
            best = best_axis(rot, r1, r2, s1, s2, limit)
            if best.apart == 0 and best.code >= 6:
                edges = edge_feature(p1, q1, s1, p2, q2, s2, rot, r1, best.code - 6)
                _n, distance, _x = edge_contact(p1, q1, s1, p2, q2, s2, edges - EDGES)
                if distance <= limit:
                    feature_out[world, count] = edges
                    count = count + 1
            elif best.apart == 0 and best.code >= 0:
                base = face_code(rot, r1, r2, best.code)
                f = faces(p1, q1, s1, p2, q2, s2, base)
                kept = corners()
                n = int(0)
                for k in range(24):
                    if count < last and within(f, k):
                        x = face_point(f, k)
                        if x[f.axis] * f.up - f.size[f.axis] <= margin and fresh(kept, n, f, x):
                            kept[n, 0] = x[(f.axis + 1) % 3]
                            kept[n, 1] = x[(f.axis + 2) % 3]
                            feature_out[world, count] = base + 72 * k
                            n = n + 1
                            count = count + 1
        for k in range(count, last):
            feature_out[world, k] = -1
