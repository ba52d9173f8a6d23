"""Faces, corners and edges of a geom around the part that touches: of a box, a mesh, a cylinder or a capsule."""

import warp as wp

from ..._precision import real, vec3
from ...math import rotate, rotate_back, unit
from .clip import DISC, Corner, corner_of, line_end
from .shapes import BOX, CAPSULE, CYLINDER, MESH
from .solids import Hulls, Solid, solid_part


@wp.struct
class Touching:
    """The part of a geom that touches deepest, and what lies around it."""

    faces: int  # how many there are to look through
    edges: int
    face: int  # a face, or -1
    edge: int  # the part that is an edge, or -1
    first: (
        int  # vertices: of a mesh in the table of all, of a box corners; a cylinder's disc; an end of a capsule's line
    )
    second: int  # of an edge, else -1


@wp.func
def face_at(s: Solid, hulls: Hulls, t: Touching, k: int) -> int:
    """The k-th face that is looked through, or -1 if it does not meet the part."""
    f = t.face
    if s.kind == CYLINDER:
        f = t.first
    elif s.kind == BOX and f < 0:
        if t.second < 0 or ((t.first ^ t.second) >> k) & 1 == 0:
            f = 2 * k + ((t.first >> k) & 1)
    elif s.kind == MESH and f < 0:
        f = hulls.sides[hulls.beside[t.first] + k]
        if t.second >= 0:
            held = int(0)
            for c in range(hulls.corner[f], hulls.corner[f + 1]):
                if hulls.corners[c] == t.second:
                    held = 1
            f = wp.where(held == 1, f, -1)
    return f


@wp.func
def box_edge_ends(part: int) -> wp.vec2i:
    """The corners at the ends of an edge of a box."""
    axis = (part - 8) // 4
    bits = (part - 8) % 4
    low = ((bits & 1) << ((axis + 1) % 3)) | ((bits >> 1) << ((axis + 2) % 3))
    return wp.vec2i(low, low | (1 << axis))


@wp.func
def touching(s: Solid, hulls: Hulls, part: int, n: vec3) -> Touching:
    """What lies around a part of a geom that touches along n."""
    t = Touching()
    t.face = -1
    t.edge = -1
    t.second = -1
    if s.kind == CAPSULE:
        t.first = wp.where(part == 0, 0, 2)
        t.edges = 1
    elif s.kind == CYLINDER:
        t.first = wp.where(rotate_back(s.turn, n)[2] >= real(0.0), 0, 1)
        t.faces = 1
        t.edges = 1
    elif s.kind == BOX:
        t.first = part
        t.faces = 3
        t.edges = 3
        if part >= 20:
            t.face = part - 20
            t.faces = 1
            t.edges = 0
        elif part >= 8:
            t.edge = part
            t.edges = 1
            ends = box_edge_ends(part)
            t.first = ends[0]
            t.second = ends[1]
    elif s.kind == MESH:
        t.first = s.verts + part
        if part >= s.face_base:
            t.face = hulls.merged[s.faces + part - s.face_base]
            t.faces = 1
        else:
            if part >= s.edge_base:
                t.edge = part
                t.first = hulls.ends[s.edges + part - s.edge_base, 0]
                t.second = hulls.ends[s.edges + part - s.edge_base, 1]
            t.faces = hulls.beside[t.first + 1] - hulls.beside[t.first]
            t.edges = wp.where(t.edge >= 0, 1, t.faces)
    return t


@wp.func
def face_normal(s: Solid, hulls: Hulls, f: int) -> vec3:
    """The outward normal of a face."""
    n = vec3()
    if s.kind == CYLINDER:
        n = unit(2) * wp.where(f == 0, real(1.0), real(-1.0))
    elif s.kind == BOX:
        n = unit(f // 2) * wp.where(f % 2 == 1, real(1.0), real(-1.0))
    elif s.kind == MESH:
        n = hulls.level[f]
    return rotate(s.turn, n)


@wp.func
def face_corners(s: Solid, hulls: Hulls, f: int) -> int:
    """How many corners a face has."""
    count = int(4)
    if s.kind == CYLINDER:
        count = DISC
    elif s.kind == MESH:
        count = hulls.corner[f + 1] - hulls.corner[f]
    return count


@wp.func
def corner_index(s: Solid, hulls: Hulls, f: int, k: int) -> int:
    """The number of corner k of a face, in MuJoCo's order, which goes around a mesh's face from its last corner."""
    index = 4 * f + k
    if s.kind == CYLINDER:
        index = DISC * f + k
    elif s.kind == MESH:
        index = hulls.corner[f + 1] - hulls.corner[s.faces] - 1 - k
    return index


@wp.func
def side_index(s: Solid, hulls: Hulls, f: int, k: int) -> int:
    """The number of the corner that stands for the side from corner k of a face to the next, in MuJoCo's order."""
    next = (k + 1) % face_corners(s, hulls, f)
    return corner_index(s, hulls, f, wp.where(s.kind == MESH, next, k))


@wp.func
def solid_corner(s: Solid, hulls: Hulls, index: int) -> Corner:
    """A corner of a geom."""
    c = Corner()
    if s.kind == MESH:
        at = hulls.corner[s.faces] + index
        f = hulls.face[at]
        start = hulls.corner[f]
        end = hulls.corner[f + 1]
        c.here = hulls.vert[hulls.corners[at]]
        c.next = hulls.vert[hulls.corners[wp.where(at + 1 == end, start, at + 1)]]
        c.normal = hulls.level[f]
        c.base = hulls.vert[hulls.corners[end - 1]]
    return corner_of(s.kind, s.pos, s.turn, s.size, index, c)


@wp.struct
class Edge:
    """An edge: the part that it is, its ends, and the parts that they are; of a line, those of its ends."""

    part: int
    first: int
    second: int
    here: vec3
    next: vec3


@wp.func
def edge_at(s: Solid, hulls: Hulls, t: Touching, k: int, facing: vec3) -> Edge:
    """The k-th edge at a part; of a cylinder or capsule its line towards a direction."""
    e = Edge()
    if s.kind == CYLINDER or s.kind == CAPSULE:
        e.first = wp.where(s.kind == CAPSULE, t.first, 0)
        e.part = e.first
        e.second = e.first + 1
        e.here = line_end(s.kind, s.pos, s.turn, s.size, e.first, facing)
        e.next = line_end(s.kind, s.pos, s.turn, s.size, e.second, facing)
    else:
        e.part = t.edge
        e.first = t.first
        e.second = t.second
        if s.kind == BOX:
            if t.edge < 0:
                e.second = t.first ^ (1 << k)
                low = t.first & ~(1 << k)
                e.part = 8 + 4 * k + ((low >> ((k + 1) % 3)) & 1) + 2 * ((low >> ((k + 2) % 3)) & 1)
        elif s.kind == MESH:
            if t.edge < 0:  # in the k-th side, from the corner before
                f = hulls.sides[hulls.beside[t.first] + k]
                e.second = hulls.corners[hulls.corner[f + 1] - 1]
                for c in range(hulls.corner[f] + 1, hulls.corner[f + 1]):
                    if hulls.corners[c] == t.first:
                        e.second = hulls.corners[c - 1]
                e.part = -1
                for c in range(hulls.edge[t.first], hulls.edge[t.first + 1]):
                    if hulls.neighbour[c] == e.second:
                        e.part = hulls.leaving[c] - s.edges + s.edge_base
            e.first = e.first - s.verts
            e.second = e.second - s.verts
        e.here = solid_part(s, hulls, e.first, 0).origin
        e.next = solid_part(s, hulls, e.second, 0).origin
    return e
