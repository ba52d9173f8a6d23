"""Rigid shapes that nodes meet: signed distance, normal, and what is left of a velocity there."""

import warp as wp

from .._precision import quat, real, vec3, vec4
from ..math import quat_unit, rotate, rotate_back
from .grid import against

PLANE = wp.constant(0)
SPHERE = wp.constant(1)
BOX = wp.constant(2)
CAPSULE = wp.constant(3)
FIELD = wp.constant(4)

SMALL_SQUARED = wp.constant(real(1.0e-24))


@wp.func
def from_centre(p: vec3, radius: real) -> vec4:
    """Normal and distance of a sphere."""
    r = wp.sqrt(wp.max(wp.dot(p, p), SMALL_SQUARED))
    return vec4(p[0] / r, p[1] / r, p[2] / r, r - radius)


@wp.func
def of_box(p: vec3, half: vec3) -> vec4:
    """Normal and distance of the nearest face seen from inside; positive outside."""
    x = wp.abs(p[0]) - half[0]
    y = wp.abs(p[1]) - half[1]
    z = wp.abs(p[2]) - half[2]
    o = real(0.0)
    if x >= y and x >= z:
        return vec4(wp.sign(p[0]), o, o, x)
    if y >= z:
        return vec4(o, wp.sign(p[1]), o, y)
    return vec4(o, o, wp.sign(p[2]), z)


@wp.func
def of_field(world: int, p: vec3, spacing: vec3, count: wp.vec3i, field: wp.array2d(dtype=real)) -> vec4:
    """Normal and distance by trilinear interpolation between samples; far away where there are none."""
    far = vec4(real(0.0), real(0.0), real(1.0), real(1.0))
    x = p[0] / spacing[0]
    y = p[1] / spacing[1]
    z = p[2] / spacing[2]
    flat = count[2] == 1
    if not (x >= real(0.0) and y >= real(0.0) and x < real(count[0] - 1) and y < real(count[1] - 1)):
        return far
    if not flat and not (z >= real(0.0) and z < real(count[2] - 1)):
        return far
    i = int(x)
    j = int(y)
    k = int(0)
    up = int(0)
    if not flat:
        k = int(z)
        up = int(1)
    u = x - real(i)
    v = y - real(j)
    w = z - real(k)
    if flat:
        w = real(0.0)
    one = real(1.0)
    a = (i * count[1] + j) * count[2] + k
    b = a + count[1] * count[2]
    d00 = (one - w) * field[world, a] + w * field[world, a + up]
    d01 = (one - w) * field[world, a + count[2]] + w * field[world, a + count[2] + up]
    d10 = (one - w) * field[world, b] + w * field[world, b + up]
    d11 = (one - w) * field[world, b + count[2]] + w * field[world, b + count[2] + up]
    dz0 = (one - v) * (field[world, a + up] - field[world, a])
    dz0 = dz0 + v * (field[world, a + count[2] + up] - field[world, a + count[2]])
    dz1 = (one - v) * (field[world, b + up] - field[world, b])
    dz1 = dz1 + v * (field[world, b + count[2] + up] - field[world, b + count[2]])
    distance = (one - u) * ((one - v) * d00 + v * d01) + u * ((one - v) * d10 + v * d11)
    n = vec3(
        ((one - v) * (d10 - d00) + v * (d11 - d01)) / spacing[0],
        ((one - u) * (d01 - d00) + u * (d11 - d10)) / spacing[1],
        ((one - u) * dz0 + u * dz1) / spacing[2],
    )
    n = n / wp.sqrt(wp.max(wp.dot(n, n), SMALL_SQUARED))
    return vec4(n[0], n[1], n[2], distance)


@wp.func
def surface(world: int, shape: int, p: vec3, size: vec3, count: wp.vec3i, field: wp.array2d(dtype=real)) -> vec4:
    """Outward normal and signed distance at a point in a shape's own axes."""
    if shape == PLANE:
        n = size / wp.sqrt(wp.max(wp.dot(size, size), SMALL_SQUARED))
        return vec4(n[0], n[1], n[2], wp.dot(n, p))
    if shape == SPHERE:
        return from_centre(p, size[0])
    if shape == BOX:
        return of_box(p, size)
    if shape == CAPSULE:
        return from_centre(vec3(p[0], p[1], p[2] - wp.clamp(p[2], -size[1], size[1])), size[0])
    return of_field(world, p, size, count, field)


@wp.kernel
def collide(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    shape: int,
    contact: int,
    count: wp.vec3i,
    # In:
    pos: wp.array(dtype=vec3),
    orientation: wp.array(dtype=quat),
    size: wp.array(dtype=vec3),
    velocity: wp.array(dtype=vec3),
    spin: wp.array(dtype=vec3),
    friction: wp.array(dtype=real),
    field: wp.array2d(dtype=real),
    grid: wp.array2d(dtype=vec4),
    # Out:
    velocity_out: wp.array2d(dtype=vec4),
):
    """A node inside a shape, or at most half a cell away, moves against it: relative to v + w x r."""
    world, node = wp.tid()
    g = grid[world, node]
    u = vec3(g[0], g[1], g[2])
    after = u
    if g[3] > real(0.0):
        k = node % nodes[2]
        j = (node // nodes[2]) % nodes[1]
        i = node // (nodes[2] * nodes[1])
        z = real(0.0)
        if nodes[2] != 1:
            z = lower[2] + (real(k) - real(1.5)) * dx
        arm = vec3(lower[0] + (real(i) - real(1.5)) * dx, lower[1] + (real(j) - real(1.5)) * dx, z) - pos[world]
        q = quat_unit(orientation[world])
        s = surface(world, shape, rotate_back(q, arm), size[world], count, field)
        if s[3] < real(0.5) * dx:
            w = velocity[world] + wp.cross(spin[world], arm)
            after = w + against(u - w, rotate(q, vec3(s[0], s[1], s[2])), contact, friction[world])
    velocity_out[world, node] = vec4(after[0], after[1], after[2], g[3])
