"""Colliders whose effect fades out: how much of it is left at a distance, and shapes whose normals have no jump."""

import warp as wp

from .._precision import real, vec3, vec4
from .grid import SMALL_SQUARED


@wp.func
def fading(distance: real, dx: real, width: real) -> real:
    """The part of a collider's effect at a distance from its surface: 1/2 half a cell outside of it.

    It falls over ``width``, twice continuously differentiable: from 1 at (width - dx) / 2 inside the surface to 0 at
    (width + dx) / 2 outside. If the width is zero, it is 1 wherever the collider acts.
    """
    if width > real(0.0):
        s = wp.clamp(real(0.5) + (real(0.5) * dx - distance) / width, real(0.0), real(1.0))
        return s * s * s * (s * (real(6.0) * s - real(15.0)) + real(10.0))
    return real(1.0)


@wp.func
def of_round_box(p: vec3, half: vec3, width: real) -> vec4:
    """Normal and distance of a box as ``of_box`` has them, where faces blend over ``width`` at edges and corners.

    The distance is a smooth maximum of those to the six faces, r log(sum(exp(d / r))) with r a quarter of the width.
    """
    r = real(0.25) * width
    top = wp.max(wp.max(wp.abs(p[0]) - half[0], wp.abs(p[1]) - half[1]), wp.abs(p[2]) - half[2])
    high = p - half
    low = -p - half
    a = vec3(wp.exp((high[0] - top) / r), wp.exp((high[1] - top) / r), wp.exp((high[2] - top) / r))
    b = vec3(wp.exp((low[0] - top) / r), wp.exp((low[1] - top) / r), wp.exp((low[2] - top) / r))
    n = (a - b) / wp.sqrt(wp.max(wp.dot(a - b, a - b), SMALL_SQUARED))
    return vec4(n[0], n[1], n[2], top + r * wp.log(a[0] + a[1] + a[2] + b[0] + b[1] + b[2]))


@wp.func
def above(x: real, r: real) -> real:
    """A smooth maximum of x and zero, r log(1 + exp(x / r))."""
    return real(0.5) * (x + wp.abs(x)) + r * wp.log(real(1.0) + wp.exp(-wp.abs(x) / r))


@wp.func
def beyond(z: real, half: real, width: real) -> real:
    """How far a point is beyond the ends of a capsule's axis, z - clamp(z, -half, half), without kinks."""
    r = real(0.25) * width
    return above(z - half, r) - above(-z - half, r)


@wp.func
def along(world: int, at: int, i: int, stride: int, count: int, field: wp.array2d(dtype=real)) -> real:
    """The slope, by spacing, along an axis on which the sample at ``at`` is the i-th: central, one-sided at ends."""
    low = wp.max(i - 1, 0)
    top = wp.min(i + 1, count - 1)
    rise = field[world, at + (top - i) * stride] - field[world, at + (low - i) * stride]
    return rise / real(wp.max(top - low, 1))


@wp.func
def slope_at(
    world: int, i: int, j: int, k: int, spacing: vec3, count: wp.vec3i, first: int, field: wp.array2d(dtype=real)
) -> vec3:
    """The slope of a field at a sample, by differences of those beside it."""
    at = first + (i * count[1] + j) * count[2] + k
    wide = count[1] * count[2]
    x = along(world, at, i, wide, count[0], field) / spacing[0]
    y = along(world, at, j, count[2], count[1], field) / spacing[1]
    z = along(world, at, k, 1, count[2], field) / spacing[2]
    return vec3(x, y, z)


@wp.func
def normal_of_field(
    world: int, p: vec3, spacing: vec3, count: wp.vec3i, first: int, field: wp.array2d(dtype=real)
) -> vec3:
    """The normal of a field, by slopes at the samples and linear in between: that of the linear field itself jumps."""
    i = wp.clamp(int(p[0] / spacing[0]), 0, count[0] - 2)
    j = wp.clamp(int(p[1] / spacing[1]), 0, count[1] - 2)
    k = wp.clamp(int(p[2] / spacing[2]), 0, wp.max(count[2] - 2, 0))
    one = real(1.0)
    u = p[0] / spacing[0] - real(i)
    v = p[1] / spacing[1] - real(j)
    w = p[2] / spacing[2] - real(k)
    n = vec3()
    if count[2] == 1:
        n = n + (one - u) * (one - v) * slope_at(world, i, j, 0, spacing, count, first, field)
        n = n + (one - u) * v * slope_at(world, i, j + 1, 0, spacing, count, first, field)
        n = n + u * (one - v) * slope_at(world, i + 1, j, 0, spacing, count, first, field)
        n = n + u * v * slope_at(world, i + 1, j + 1, 0, spacing, count, first, field)
    else:
        for c in range(2):
            z = wp.where(c == 0, one - w, w)
            n = n + z * (one - u) * (one - v) * slope_at(world, i, j, k + c, spacing, count, first, field)
            n = n + z * (one - u) * v * slope_at(world, i, j + 1, k + c, spacing, count, first, field)
            n = n + z * u * (one - v) * slope_at(world, i + 1, j, k + c, spacing, count, first, field)
            n = n + z * u * v * slope_at(world, i + 1, j + 1, k + c, spacing, count, first, field)
    return n / wp.sqrt(wp.max(wp.dot(n, n), SMALL_SQUARED))
