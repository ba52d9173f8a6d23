"""A linear element: its shape at rest, its deformation gradient, and the blocks of its stiffness.

Tetrahedra; triangles in plane strain; or triangles in space, a sheet. A triangle is a prism across its plane, whose
third edge keeps its length: in the plane one metre, in space the sheet's thickness. Vectors have three components; in
the plane the third is zero. A sheet's third edge follows its normal. The stress does no work on it, so that forces are
those of the other two; plane stress comes with its moduli.
"""

import warp as wp

from .._precision import mat33, real, tolerance, vec3

SMALL = wp.constant(tolerance(1.0e-100, 1.0e-30))
"""Guards the root of a squared area."""


@wp.func
def edges(elements: wp.array2d(dtype=int), e: int, p: wp.array2d(dtype=vec3), world: int) -> mat33:
    """Edges from vertex 0, as columns; a triangle's third is zero."""
    o = p[world, elements[e, 0]]
    a = p[world, elements[e, 1]] - o
    b = p[world, elements[e, 2]] - o
    c = vec3()
    if elements.shape[1] == 4:
        c = p[world, elements[e, 3]] - o
    return wp.matrix_from_cols(a, b, c)


@wp.func
def across(d: mat33, corners: int, sheet: int) -> mat33:
    """Edges with the third of a triangle: the plane's normal, or a sheet's own."""
    if corners == 4:
        return d
    a = vec3(d[0, 0], d[1, 0], d[2, 0])
    b = vec3(d[0, 1], d[1, 1], d[2, 1])
    c = vec3(real(0.0), real(0.0), real(1.0))
    if sheet != 0:
        n = wp.cross(a, b)
        c = n / wp.sqrt(wp.max(wp.dot(n, n), SMALL))
    return wp.matrix_from_cols(a, b, c)


@wp.func
def volume_of(rest: mat33, corners: int, thick: real) -> real:
    """Volume at rest [m^3], from the edges; of a triangle its area times its thickness."""
    if corners == 4:
        return wp.determinant(rest) / real(6.0)
    return wp.determinant(rest) / real(2.0) * thick


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
