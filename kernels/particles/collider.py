"""Rigid shapes that nodes meet: signed distance, normal, and what is left of a velocity there."""

import warp as wp

from .._precision import mat33, quat, real, vec3, vec4
from ..math import quat_unit, rotate, rotate_back
from .grid import OPEN, SEPARATE, STICKY, against

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


@wp.func
def place_of(node: int, lower: vec3, dx: real, nodes: wp.vec3i) -> vec3:
    """Where a node is."""
    k = node % nodes[2]
    j = (node // nodes[2]) % nodes[1]
    i = node // (nodes[2] * nodes[1])
    z = real(0.0)
    if nodes[2] != 1:
        z = lower[2] + (real(k) - real(1.5)) * dx
    return vec3(lower[0] + (real(i) - real(1.5)) * dx, lower[1] + (real(j) - real(1.5)) * dx, z)


@wp.func
def reach(dx: real) -> real:
    """How far from a shape nodes are that it acts on."""
    return real(0.5) * dx


@wp.func
def add_wrench(world: int, arm: vec3, f: vec3, out: wp.array2d(dtype=real)):
    """Add a force, or an impulse, and its moment."""
    m = wp.cross(arm, f)
    for i in range(3):
        wp.atomic_add(out, world, i, f[i])
        wp.atomic_add(out, world, 3 + i, m[i])


@wp.func
def add_slope(world: int, left: vec3, p: mat33, right: vec3, out: wp.array3d(dtype=real)):
    """Add L^T p R, with R (v, w) = v + w x right, and L alike."""
    r = wp.skew(right)
    l = wp.skew(left)
    pr = p * r
    lp = l * p
    lpr = lp * r
    for i in range(3):
        for j in range(3):
            wp.atomic_add(out, world, i, j, p[i, j])
            wp.atomic_add(out, world, i, 3 + j, -pr[i, j])
            wp.atomic_add(out, world, 3 + i, j, lp[i, j])
            wp.atomic_add(out, world, 3 + i, 3 + j, -lpr[i, j])


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
        arm = place_of(node, lower, dx, nodes) - pos[world]
        q = quat_unit(orientation[world])
        s = surface(world, shape, rotate_back(q, arm), size[world], count, field)
        if s[3] < reach(dx):
            w = velocity[world] + wp.cross(spin[world], arm)
            after = w + against(u - w, rotate(q, vec3(s[0], s[1], s[2])), contact, friction[world])
    velocity_out[world, node] = vec4(after[0], after[1], after[2], g[3])


@wp.func
def impulse_slope(u: vec3, n: vec3, contact: int, friction: real) -> mat33:
    """P, with which a velocity u relative to a surface becomes u - P u by its contact: linear for the way it touches.

    Sticky, and with friction that holds: all of it. Sliding: n n^T, and friction along the slide,
    (n - friction s t) n^T, with t the direction of the slide and s the sign of the normal velocity's change.
    """
    none = mat33()
    all = wp.identity(n=3, dtype=real)
    if contact == OPEN:
        return none
    if contact == STICKY:
        return all
    along = wp.dot(u, n)
    if contact == SEPARATE and along >= real(0.0):
        return none
    if friction == real(0.0):
        return wp.outer(n, n)
    t = u - along * n
    size = wp.sqrt(wp.max(wp.dot(t, t), SMALL_SQUARED))
    if size <= friction * wp.abs(along):
        return all
    pull = wp.where(along < real(0.0), -friction, friction) / size
    return wp.outer(n + pull * t, n)


@wp.kernel
def weigh(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    shape: int,
    contact: int,
    count: wp.vec3i,
    # In:
    origin: wp.array(dtype=vec3),
    pos: wp.array(dtype=vec3),
    orientation: wp.array(dtype=quat),
    size: wp.array(dtype=vec3),
    velocity: wp.array(dtype=vec3),
    spin: wp.array(dtype=vec3),
    friction: wp.array(dtype=real),
    field: wp.array2d(dtype=real),
    grid: wp.array2d(dtype=vec4),
    # Out:
    slope_out: wp.array3d(dtype=real),
    pull_out: wp.array2d(dtype=real),
):
    """A = sum of m J^T P J and b = sum of m J^T P u over the nodes that a collider meets; J u' = v + w x r about
    ``origin``, so that the impulse it takes from the grid is b - A (v, w)."""
    world, node = wp.tid()
    g = grid[world, node]
    if g[3] > real(0.0):
        x = place_of(node, lower, dx, nodes)
        arm = x - pos[world]
        q = quat_unit(orientation[world])
        s = surface(world, shape, rotate_back(q, arm), size[world], count, field)
        if s[3] < reach(dx):
            u = vec3(g[0], g[1], g[2])
            w = velocity[world] + wp.cross(spin[world], arm)
            p = g[3] * impulse_slope(u - w, rotate(q, vec3(s[0], s[1], s[2])), contact, friction[world])
            add_slope(world, x - origin[world], p, x - origin[world], slope_out)
            add_wrench(world, x - origin[world], p * u, pull_out)


@wp.kernel
def give(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    # In:
    origin: wp.array(dtype=vec3),
    before: wp.array2d(dtype=vec4),
    after: wp.array2d(dtype=vec4),
    # Out:
    impulse_out: wp.array2d(dtype=real),
):
    """The impulse, linear and angular about ``origin``, that changed the velocities of a grid."""
    world, node = wp.tid()
    a = before[world, node]
    b = after[world, node]
    if a[0] != b[0] or a[1] != b[1] or a[2] != b[2]:
        f = a[3] * vec3(b[0] - a[0], b[1] - a[1], b[2] - a[2])
        add_wrench(world, place_of(node, lower, dx, nodes) - origin[world], f, impulse_out)
