"""Where two convex geoms overlap least, or lie farthest apart: a polytope that expands within their difference.

The difference of two convex sets is convex, and the signed distance of the sets is that of the origin from it: the
largest of the gaps along all directions n. A polytope of its points is pushed outwards (van den Bergen 2001) where it
is nearest to the origin, until it no longer gives way, or until a direction parts the sets: then a triangle approaches
the origin. The direction found is where :mod:`convex` starts from, so that neither need follow curved surfaces closely.
"""

import warp as wp

from ..._precision import real, tolerance, vec3
from ...math import rotate, unit
from .solids import Hulls, Solid, farthest, perpendicular

POINTS = wp.constant(40)
FACES = wp.constant(76)
GIVES = wp.constant(tolerance(1.0e-9, 1.0e-5))
"""How far a polytope must give way for the search to go on, in units of its size."""
NEARS = wp.constant(real(1.0e-6))
"""How much nearer a triangle must come to the origin for the search to go on, in the same units."""
FAR = wp.constant(real(1.0e10))


@wp.struct
class Best:
    """The direction along which two geoms lie farthest apart, as far as known, and that distance."""

    n: vec3
    gap: real


@wp.func
def difference(a: Solid, b: Solid, hulls: Hulls, n: vec3) -> vec3:
    """The point of the difference of two geoms' cores that lies farthest along n."""
    return farthest(a, hulls, n) - farthest(b, hulls, -n)


@wp.func
def seen(best: Best, n: vec3, w: vec3) -> Best:
    """What a direction adds to what is known."""
    better = best
    gap = -wp.dot(n, w)
    if gap > best.gap:
        better.n = n
        better.gap = gap
    return better


@wp.func
def plane_through(a: vec3, b: vec3, c: vec3, inside: vec3):
    """Outward normal of a triangle and its plane's distance from the origin; very far for one without an area."""
    cross = wp.cross(b - a, c - a)
    length = wp.length(cross)
    n = vec3()
    height = FAR
    if length > real(1.0e-9) * (wp.dot(b - a, b - a) + wp.dot(c - a, c - a)):
        n = cross / length
        if wp.dot(n, a - inside) < real(0.0):
            n = -n
        height = wp.dot(n, a)
    return n, height


@wp.func
def joined(u: int, v: int, w: int) -> int:
    """The numbers of up to three points in one, so that arrays are small: a GPU reserves them for every thread."""
    return u | (v << 8) | (w << 16)


@wp.func
def joint(numbers: int, k: int) -> int:
    """The k-th of them."""
    return (numbers >> (8 * k)) & 255


@wp.func
def nearest_on(a: vec3, b: vec3, c: vec3) -> vec3:
    """The point of a triangle nearest to the origin (Ericson 2004, 5.1.5)."""
    ab = b - a
    ac = c - a
    d1 = -wp.dot(ab, a)
    d2 = -wp.dot(ac, a)
    d3 = -wp.dot(ab, b)
    d4 = -wp.dot(ac, b)
    d5 = -wp.dot(ab, c)
    d6 = -wp.dot(ac, c)
    vc = d1 * d4 - d3 * d2
    vb = d5 * d2 - d1 * d6
    va = d3 * d6 - d5 * d4
    sum = va + vb + vc
    x = a
    if d1 <= real(0.0) and d2 <= real(0.0):
        x = a
    elif d3 >= real(0.0) and d4 <= d3:
        x = b
    elif d6 >= real(0.0) and d5 <= d6:
        x = c
    elif vc <= real(0.0) and d1 >= real(0.0) and d3 <= real(0.0) and d1 > d3:
        x = a + ab * (d1 / (d1 - d3))
    elif vb <= real(0.0) and d2 >= real(0.0) and d6 <= real(0.0) and d2 > d6:
        x = a + ac * (d2 / (d2 - d6))
    elif va <= real(0.0) and d4 - d3 >= real(0.0) and d5 - d6 >= real(0.0) and d4 - d3 + d5 - d6 > real(0.0):
        x = b + (c - b) * ((d4 - d3) / (d4 - d3 + d5 - d6))
    elif sum > real(0.0):
        x = a + ab * (vb / sum) + ac * (vc / sum)
    return x


@wp.func
def nearest_points(a: Solid, b: Solid, hulls: Hulls, start: Best, reach: real, slack: real) -> Best:
    """The direction of the largest gap of two geoms that lie apart (Gilbert, Johnson and Keerthi 1988).

    The difference of the geoms is approached by a triangle of its points, of which the one that is farthest from the
    origin gives way to a nearer one.
    """
    best = start
    n = start.n
    side = perpendicular(n)
    p = difference(a, b, hulls, n)
    q = difference(a, b, hulls, side)
    r = difference(a, b, hulls, -side)
    v = nearest_on(p, q, r)
    searching = int(1)
    for _k in range(40):
        length = wp.length(v)
        if searching == 1 and length > real(0.0):
            n = -v / length
            w = difference(a, b, hulls, n)
            best = seen(best, n, w)
            if length - best.gap <= slack or best.gap > reach:
                searching = int(0)
            else:
                x = nearest_on(p, q, w)
                y = nearest_on(q, r, w)
                z = nearest_on(r, p, w)
                if wp.dot(x, x) <= wp.dot(y, y) and wp.dot(x, x) <= wp.dot(z, z):
                    v = x
                    r = w
                elif wp.dot(y, y) <= wp.dot(z, z):
                    v = y
                    p = w
                else:
                    v = z
                    q = w
    return best


@wp.func(inline=False)
def farthest_apart(a: Solid, b: Solid, hulls: Hulls, reach: real) -> Best:
    """The direction of the largest gap between two geoms; the search ends early where a gap exceeds the reach."""
    point = wp.zeros(shape=(40,), dtype=vec3)
    face = wp.zeros(shape=(76,), dtype=int)
    normal = wp.zeros(shape=(76,), dtype=vec3)
    height = wp.zeros(shape=(76,), dtype=real)
    rim = wp.zeros(shape=(76,), dtype=int)
    best = Best()
    best.gap = -FAR
    n = b.pos - a.pos
    if wp.dot(n, n) < real(1.0e-20):
        n = vec3(real(0.0), real(0.0), real(1.0))
    n = wp.normalize(n)
    axes = int(12)  # not constants: the loops are not to be unrolled
    vertices = int(4)
    near = difference(a, b, hulls, n)
    best = seen(best, n, near)
    size = wp.length(near - difference(a, b, hulls, -n))
    if best.gap > reach:
        return best
    for k in range(axes):  # the axes of both, which symmetric geoms touch along
        if best.gap <= real(0.0):
            axis = rotate(wp.where(k < 6, a.turn, b.turn), unit(k % 3)) * wp.where(k % 6 < 3, real(1.0), real(-1.0))
            best = seen(best, axis, difference(a, b, hulls, axis))
    if best.gap > reach:
        return best
    if best.gap > real(0.0):
        return nearest_points(a, b, hulls, best, reach, NEARS * size)
    for k in range(vertices):  # a tetrahedron: each point as far as can be from those before it
        if k == 2:
            n = perpendicular(point[1] - point[0])
        elif k == 3:
            n = wp.normalize(wp.cross(point[1] - point[0], point[2] - point[0]))
        w = difference(a, b, hulls, n)
        best = seen(best, n, w)
        if k > 0:
            other = difference(a, b, hulls, -n)
            best = seen(best, -n, other)
            if k == 1 or wp.abs(wp.dot(n, other - point[0])) > wp.abs(wp.dot(n, w - point[0])):
                w = other
        point[k] = w
        if best.gap > reach:
            return best
    centre = (point[0] + point[1] + point[2] + point[3]) / real(4.0)
    slack = GIVES * size
    for k in range(vertices):
        corners = wp.vec3i((k + 1) % 4, (k + 2) % 4, (k + 3) % 4)
        m, h = plane_through(point[corners[0]], point[corners[1]], point[corners[2]], centre)
        if wp.dot(wp.cross(point[corners[1]] - point[corners[0]], point[corners[2]] - point[corners[0]]), m) < real(
            0.0
        ):
            corners = wp.vec3i(corners[0], corners[2], corners[1])
        face[k] = joined(corners[0], corners[1], corners[2])
        normal[k] = m
        height[k] = h
    faces = int(4)
    points = int(4)
    searching = wp.where(best.gap > real(0.0), 0, 1)
    while searching == 1:
        f = int(0)
        for k in range(faces):
            if height[k] < height[f]:
                f = k
        w = difference(a, b, hulls, normal[f])
        best = seen(best, normal[f], w)
        if best.gap > wp.min(reach, real(0.0)) or wp.dot(w, normal[f]) - height[f] <= slack or points == POINTS:
            searching = 0
        else:
            edges = int(0)
            k = int(0)
            while k < faces:  # drop what w sees; the edges where it stops seeing remain
                if height[k] < FAR and wp.dot(normal[k], w) - height[k] > real(0.1) * slack:
                    for e in range(3):
                        u = joint(face[k], e)
                        v = joint(face[k], (e + 1) % 3)
                        twin = int(-1)
                        for j in range(edges):
                            if rim[j] == joined(v, u, 0):
                                twin = j
                        if twin >= 0:
                            edges = edges - 1
                            rim[twin] = rim[edges]
                        elif edges < FACES:
                            rim[edges] = joined(u, v, 0)
                            edges = edges + 1
                    faces = faces - 1
                    face[k] = face[faces]
                    normal[k] = normal[faces]
                    height[k] = height[faces]
                else:
                    k = k + 1
            point[points] = w
            if faces + edges > FACES:
                searching = 0
            else:
                for j in range(edges):
                    u = joint(rim[j], 0)
                    v = joint(rim[j], 1)
                    face[faces] = joined(u, v, points)
                    m, h = plane_through(point[u], point[v], w, centre)
                    normal[faces] = m
                    height[faces] = h
                    faces = faces + 1
                points = points + 1
                if faces == 0:
                    searching = 0
    if best.gap > real(0.0):
        best = nearest_points(a, b, hulls, best, reach, NEARS * size)
    return best
