"""A linear element: its shape at rest, its deformation gradient, and the blocks of its stiffness.

Tetrahedra, or triangles in plane strain: a triangle is a prism of one metre across the plane, whose third edge keeps
its length. Vectors have three components; in the plane the third is zero.
"""

import warp as wp

from .._precision import mat33, real, vec3


@wp.func
def edges(elements: wp.array2d(dtype=int), e: int, p: wp.array2d(dtype=vec3), world: int, across: real) -> mat33:
    """Edges from vertex 0, as columns; the third of a triangle is ``across`` times the plane's normal."""
    o = p[world, elements[e, 0]]
    a = p[world, elements[e, 1]] - o
    b = p[world, elements[e, 2]] - o
    c = vec3(real(0.0), real(0.0), across)
    if elements.shape[1] == 4:
        c = p[world, elements[e, 3]] - o
    return wp.matrix_from_cols(a, b, c)


@wp.func
def volume_of(rest: mat33, corners: int) -> real:
    """Volume at rest [m^3], from the edges; of a triangle its area times one metre."""
    if corners == 4:
        return wp.determinant(rest) / real(6.0)
    return wp.determinant(rest) / real(2.0)


@wp.func
def slope(inverse: mat33, a: int, corners: int) -> vec3:
    """Gradient of the shape function of corner a [1/m]; ``inverse`` is that of the edges at rest."""
    if a > 0:
        return inverse[a - 1]
    total = inverse[0] + inverse[1]
    if corners == 4:
        total += inverse[2]
    return -total


@wp.func
def stiffness(ga: vec3, gb: vec3, u: mat33, a: mat33, b: mat33, c: mat33) -> mat33:
    """Block of corners a and b per volume, from the curvature A, B, C and the slopes, both in the principal frame."""
    k = mat33()
    for m in range(3):
        for n in range(3):
            if m == n:
                total = a[m, m] * ga[m] * gb[m]
                for o in range(3):
                    total += b[m, o] * ga[o] * gb[o]
                k[m, m] = total
            else:
                k[m, n] = a[m, n] * ga[m] * gb[n] + c[m, n] * ga[n] * gb[m]
    return u * k * wp.transpose(u)
