"""Height fields: the triangular prisms that they are made of, as MuJoCo cuts them.

Heights stand on the corners of a grid, row by row along y, and each cell is cut along the diagonal from its first to
its last corner. Each half is a prism from the ground, ``base`` below the field's origin, to the triangle of heights. It
is one convex solid, whose parts are six vertices (the upper three first), nine edges (upper, lower, upright) and five
faces (top, bottom, sides). The prism of number 2 (row * columns + column) is the upper half of that cell, in y; the
next one is the lower half.
"""

import warp as wp

from ..._precision import real, vec3, vec4
from ...math import unit
from .shapes import MIN_SQUARED

VERTICES = wp.constant(6)
EDGES = wp.constant(9)
PARTS = wp.constant(20)


@wp.struct
class Prism:
    """The upper corners of a prism, and how far below the origin its bottom lies."""

    a: vec3
    b: vec3
    c: vec3
    base: real


@wp.func
def height_corner(
    size: vec4, rows: int, columns: int, first: int, data: wp.array2d(dtype=real), world: int, row: int, column: int
) -> vec3:
    """A corner of the grid, in the field's frame."""
    x = size[0] * (real(2 * column) / real(columns - 1) - real(1.0))
    y = size[1] * (real(2 * row) / real(rows - 1) - real(1.0))
    return vec3(x, y, size[2] * data[world, first + row * columns + column])


@wp.func
def prism_of(
    size: vec4, rows: int, columns: int, first: int, data: wp.array2d(dtype=real), world: int, number: int
) -> Prism:
    """A prism of a height field, in the field's frame."""
    cell = number // 2
    row = cell // columns
    column = cell - row * columns
    lower = number - 2 * cell
    p = Prism()
    p.a = height_corner(size, rows, columns, first, data, world, row, column)
    p.b = height_corner(size, rows, columns, first, data, world, row + 1, column + 1)
    p.c = height_corner(size, rows, columns, first, data, world, row + 1 - lower, column + lower)
    p.base = size[3]
    return p


@wp.func
def prism_vertex(p: Prism, index: int) -> vec3:
    """A vertex of a prism."""
    top = wp.where(index % 3 == 0, p.a, wp.where(index % 3 == 1, p.b, p.c))
    return wp.where(index < 3, top, vec3(top[0], top[1], -p.base))


@wp.func
def edge_ends(edge: int) -> wp.vec2i:
    """The two vertices of an edge."""
    k = edge % 3
    low = wp.where(edge >= 3, k + 3, k)
    high = wp.where(edge >= 6, k, (k + 1) % 3 + wp.where(edge >= 3, 3, 0))
    return wp.vec2i(low, high)


@wp.func
def unit_along(x: vec3) -> vec3:
    """A direction; zero has none."""
    return x / wp.sqrt(wp.max(wp.dot(x, x), MIN_SQUARED))


@wp.func
def face_normal(p: Prism, face: int) -> vec3:
    """The outward normal of a face."""
    n = -unit(2)
    if face == 0:
        up = wp.cross(p.b - p.a, p.c - p.a)
        n = unit_along(wp.where(up[2] < real(0.0), -up, up))
    elif face >= 2:
        here = prism_vertex(p, face - 2)
        along = prism_vertex(p, (face - 1) % 3) - here
        out = vec3(along[1], -along[0], real(0.0))
        inward = wp.dot(out, prism_vertex(p, face % 3) - here)
        n = unit_along(wp.where(inward > real(0.0), -out, out))
    return n


@wp.func
def prism_part(p: Prism, index: int):
    """Kind, a point and a direction of a part, as of a mesh's: 0 a vertex, 1 an edge, 2 a face."""
    kind = int(0)
    point = prism_vertex(p, index)
    direction = vec3()
    if index >= VERTICES + EDGES:
        face = index - VERTICES - EDGES
        kind = 2
        point = prism_vertex(p, wp.where(face == 1, 3, wp.where(face == 0, 0, face - 2)))
        direction = face_normal(p, face)
    elif index >= VERTICES:
        kind = 1
        ends = edge_ends(index - VERTICES)
        point = prism_vertex(p, ends[0])
        direction = unit_along(prism_vertex(p, ends[1]) - point)
    return kind, point, direction


@wp.func
def prism_farthest(p: Prism, l: vec3) -> int:
    """The vertex of a prism that lies farthest along l."""
    best = int(0)
    for k in range(1, 6):
        if wp.dot(prism_vertex(p, k) - prism_vertex(p, best), l) > real(0.0):
            best = k
    return best


@wp.func
def outside_prism(p: Prism, index: int, l: vec3) -> real:
    """How far a point on the line or plane of an edge or face lies outside it."""
    most = real(0.0)
    if index >= VERTICES + EDGES:
        face = index - VERTICES - EDGES
        for k in range(5):
            if k != face:
                at = prism_vertex(p, wp.where(k == 1, 3, wp.where(k == 0, 0, k - 2)))
                most = wp.max(most, wp.dot(face_normal(p, k), l - at))
    elif index >= VERTICES:
        ends = edge_ends(index - VERTICES)
        a = prism_vertex(p, ends[0])
        along = prism_vertex(p, ends[1]) - a
        length = wp.length(along)
        t = wp.dot(l - a, along) / wp.max(length, real(1.0e-15))
        most = wp.max(-t, t - length)
    return most
