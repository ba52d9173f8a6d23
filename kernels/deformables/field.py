"""A field of samples as bodies meet it: signed distance without kinks, and its first and second derivatives.

Between samples it is cubic (Catmull and Rom 1974), beyond the last ones linear, so that a force has no jump where a
vertex passes from cell to cell. It agrees with linear interpolation at the samples, and where the field is linear.
"""

import warp as wp

from .._precision import mat33, real, vec3, vec4


@wp.func
def spread(x: real, order: int) -> vec4:
    """Weights of four samples in a row for the derivative of this order between the second and the third."""
    if order == 0:
        a = x * (x * (real(1.0) - real(0.5) * x) - real(0.5))
        b = real(1.0) + x * x * (real(1.5) * x - real(2.5))
        c = x * (real(0.5) + x * (real(2.0) - real(1.5) * x))
        return vec4(a, b, c, real(0.5) * x * x * (x - real(1.0)))
    if order == 1:
        a = x * (real(2.0) - real(1.5) * x) - real(0.5)
        b = x * (real(4.5) * x - real(5.0))
        c = real(0.5) + x * (real(4.0) - real(4.5) * x)
        return vec4(a, b, c, x * (real(1.5) * x - real(1.0)))
    return vec4(
        real(2.0) - real(3.0) * x, real(9.0) * x - real(5.0), real(4.0) - real(9.0) * x, real(3.0) * x - real(1.0)
    )


@wp.func
def first_of(x: real, n: int) -> int:
    """The sample below a place, among n; of one sample that itself."""
    return wp.clamp(int(x), 0, wp.max(n - 2, 0))


@wp.func
def weights(x: real, n: int, order: int) -> vec4:
    """Of the samples from the one before ``first_of`` on. Those that would be beyond an end continue the line there."""
    o = real(0.0)
    if n == 1:
        return vec4(o, wp.where(order == 0, real(1.0), o), o, o)
    i = first_of(x, n)
    w = spread(x - real(i), order)
    low = wp.where(i == 0, w[0], o)
    high = wp.where(i == n - 2, w[3], o)
    return vec4(w[0] - low, w[1] + real(2.0) * low - high, w[2] - low + real(2.0) * high, w[3] - high)


@wp.func
def along_row(world: int, at: int, k: int, n: int, w: vec4, field: wp.array2d(dtype=real)) -> real:
    """The weighted sum of a row of samples, which begins at ``at``."""
    low = w[0] * field[world, at + wp.max(k - 1, 0)] + w[1] * field[world, at + k]
    high = w[2] * field[world, at + wp.min(k + 1, n - 1)] + w[3] * field[world, at + wp.min(k + 2, n - 1)]
    return low + high


@wp.func
def along_rows(
    world: int, at: int, j: int, k: int, rows: int, n: int, v: vec4, w: vec4, field: wp.array2d(dtype=real)
) -> real:
    """The same of rows."""
    low = v[0] * along_row(world, at + wp.max(j - 1, 0) * n, k, n, w, field)
    low += v[1] * along_row(world, at + j * n, k, n, w, field)
    high = v[2] * along_row(world, at + wp.min(j + 1, rows - 1) * n, k, n, w, field)
    high += v[3] * along_row(world, at + wp.min(j + 2, rows - 1) * n, k, n, w, field)
    return low + high


@wp.func
def blend(
    world: int, x: vec3, count: wp.vec3i, first: int, a: int, b: int, c: int, field: wp.array2d(dtype=real)
) -> real:
    """The derivative of orders a, b, c along the axes; x counts samples."""
    i = first_of(x[0], count[0])
    j = first_of(x[1], count[1])
    k = first_of(x[2], count[2])
    u = weights(x[0], count[0], a)
    v = weights(x[1], count[1], b)
    w = weights(x[2], count[2], c)
    wide = count[1] * count[2]
    low = u[0] * along_rows(world, first + wp.max(i - 1, 0) * wide, j, k, count[1], count[2], v, w, field)
    low += u[1] * along_rows(world, first + i * wide, j, k, count[1], count[2], v, w, field)
    high = u[2] * along_rows(world, first + wp.min(i + 1, count[0] - 1) * wide, j, k, count[1], count[2], v, w, field)
    high += u[3] * along_rows(world, first + wp.min(i + 2, count[0] - 1) * wide, j, k, count[1], count[2], v, w, field)
    return low + high


@wp.func
def holds(x: real, n: int) -> bool:
    """Whether a place is between samples."""
    return n == 1 or (x >= real(0.0) and x < real(n - 1))


@wp.func
def sensed(world: int, p: vec3, spacing: vec3, count: wp.vec3i, first: int, field: wp.array2d(dtype=real)) -> vec4:
    """Gradient and signed distance at a point in the field's own axes; far away where there are no samples."""
    x = vec3(p[0] / spacing[0], p[1] / spacing[1], p[2] / spacing[2])
    if not (holds(x[0], count[0]) and holds(x[1], count[1]) and holds(x[2], count[2])):
        return vec4(real(0.0), real(0.0), real(1.0), real(1.0e10))
    return vec4(
        blend(world, x, count, first, 1, 0, 0, field) / spacing[0],
        blend(world, x, count, first, 0, 1, 0, field) / spacing[1],
        blend(world, x, count, first, 0, 0, 1, field) / spacing[2],
        blend(world, x, count, first, 0, 0, 0, field),
    )


@wp.func
def bent(world: int, p: vec3, spacing: vec3, count: wp.vec3i, first: int, field: wp.array2d(dtype=real)) -> mat33:
    """The second derivative of the distance [1/m] between samples."""
    x = vec3(p[0] / spacing[0], p[1] / spacing[1], p[2] / spacing[2])
    xx = blend(world, x, count, first, 2, 0, 0, field) / (spacing[0] * spacing[0])
    yy = blend(world, x, count, first, 0, 2, 0, field) / (spacing[1] * spacing[1])
    zz = blend(world, x, count, first, 0, 0, 2, field) / (spacing[2] * spacing[2])
    xy = blend(world, x, count, first, 1, 1, 0, field) / (spacing[0] * spacing[1])
    xz = blend(world, x, count, first, 1, 0, 1, field) / (spacing[0] * spacing[2])
    yz = blend(world, x, count, first, 0, 1, 1, field) / (spacing[1] * spacing[2])
    return mat33(xx, xy, xz, xy, yy, yz, xz, yz, zz)
