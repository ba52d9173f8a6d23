"""Rays against triangles of meshes, in the mesh's frame, and the tree of boxes that tells which ones may be met."""

import warp as wp

from ..._precision import real, vec3
from ...math import unit
from .ray_shapes import SAME, TINY, in_box


@wp.struct
class Meshes:
    """The triangles of all meshes; see ``fphys.model.structure.Meshes``."""

    vert: wp.array(dtype=vec3)
    corner: wp.array2d(dtype=int)
    middle: wp.array(dtype=vec3)
    half: wp.array(dtype=vec3)
    past: wp.array(dtype=int)
    triangle: wp.array(dtype=int)


@wp.func
def triangle_length(triangle: int, m: Meshes, p: vec3, d: vec3) -> real:
    """Distance to a triangle, seen from both sides; negative where a ray misses it.

    As seen along the ray, the origin lies on the same side of all three edges. Two triangles judge the edge that they
    share by the same products, so no ray passes between them.
    """
    a = m.vert[m.corner[triangle, 0]] - p
    b = m.vert[m.corner[triangle, 1]] - p
    c = m.vert[m.corner[triangle, 2]] - p
    least = int(0)  # the axis that the ray is least along
    if wp.abs(d[1]) < wp.abs(d[0]):
        least = 1
    if wp.abs(d[2]) < wp.abs(d[least]):
        least = 2
    right = wp.cross(d, unit(least))
    up = wp.cross(d, right)
    x = vec3(wp.dot(a, right), wp.dot(b, right), wp.dot(c, right))
    y = vec3(wp.dot(a, up), wp.dot(b, up), wp.dot(c, up))
    of_a = x[1] * y[2] - x[2] * y[1]
    of_b = x[2] * y[0] - x[0] * y[2]
    of_c = x[0] * y[1] - x[1] * y[0]
    total = of_a + of_b + of_c
    length = real(-1.0)
    if wp.min(of_a, wp.min(of_b, of_c)) >= real(0.0) or wp.max(of_a, wp.max(of_b, of_c)) <= real(0.0):
        if total != real(0.0):
            length = (of_a * wp.dot(a, d) + of_b * wp.dot(b, d) + of_c * wp.dot(c, d)) / (total * wp.dot(d, d))
    return length


@wp.func
def mesh_met(root: int, m: Meshes, p: vec3, d: vec3):
    """Distance to the first triangle of a mesh, and which one; negative where a ray misses all."""
    best = real(-1.0)
    first = int(-1)
    if wp.dot(d, d) > TINY * TINY:
        node = int(root)
        end = m.past[root]
        while node < end:
            near, far = in_box(p - m.middle[node], d, m.half[node])
            after = m.past[node]
            if near <= far + SAME * wp.abs(far) and far >= real(0.0) and (first < 0 or near <= best):
                after = node + 1
                triangle = m.triangle[node]
                if triangle >= 0:
                    length = triangle_length(triangle, m, p, d)
                    if length >= real(0.0) and (first < 0 or length < best):
                        best = length
                        first = triangle
            node = after
    return best, first
