"""Rigid shapes that nodes meet: signed distance, normal, and what is left of a velocity there."""

import warp as wp

from .._precision import mat33, quat, real, vec3, vec4
from ..math import quat_unit, rotate, rotate_back, rotation
from .fade import beyond, fading, normal_of_field, of_round_box
from .grid import OPEN, SEPARATE, SMALL_SQUARED, STICKY, against, freely, moved, node_of, walled

PLANE = wp.constant(0)
SPHERE = wp.constant(1)
BOX = wp.constant(2)
CAPSULE = wp.constant(3)
FIELD = wp.constant(4)


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
def of_field(world: int, p: vec3, spacing: vec3, count: wp.vec3i, first: int, field: wp.array2d(dtype=real)) -> vec4:
    """Normal and distance by trilinear interpolation between samples; far away where there are none."""
    far = vec4(real(0.0), real(0.0), real(1.0), real(1.0e10))
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
    a = first + (i * count[1] + j) * count[2] + k
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
def surface(
    world: int, shape: int, p: vec3, size: vec3, count: wp.vec3i, first: int, field: wp.array2d(dtype=real)
) -> vec4:
    """Outward normal and signed distance at a point in a shape's own axes; a field's samples begin at ``first``."""
    if shape == PLANE:
        n = size / wp.sqrt(wp.max(wp.dot(size, size), SMALL_SQUARED))
        return vec4(n[0], n[1], n[2], wp.dot(n, p))
    if shape == SPHERE:
        return from_centre(p, size[0])
    if shape == BOX:
        return of_box(p, size)
    if shape == CAPSULE:
        return from_centre(vec3(p[0], p[1], p[2] - wp.clamp(p[2], -size[1], size[1])), size[0])
    return of_field(world, p, size, count, first, field)


MOST = wp.constant(3)
"""How many colliders act on a node, each with ten bits of a number; of more, the first."""

box6 = wp.types.vector(length=6, dtype=int)


@wp.struct
class Shapes:
    """The colliders of a step."""

    kind: wp.array(dtype=int)
    contact: wp.array(dtype=int)
    count: wp.array(dtype=wp.vec3i)
    first: wp.array(dtype=int)
    pos: wp.array2d(dtype=vec3)
    turn: wp.array2d(dtype=quat)
    size: wp.array2d(dtype=vec3)
    velocity: wp.array2d(dtype=vec3)
    spin: wp.array2d(dtype=vec3)
    friction: wp.array2d(dtype=real)
    width: wp.array2d(dtype=real)
    samples: wp.array2d(dtype=real)


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
def facing(
    world: int,
    shape: int,
    count: wp.vec3i,
    first: int,
    field: wp.array2d(dtype=real),
    size: vec3,
    pos: vec3,
    turn: quat,
    x: vec3,
) -> vec4:
    """Outward normal in world axes, and signed distance, of a shape at a point."""
    q = quat_unit(turn)
    s = surface(world, shape, rotate_back(q, x - pos), size, count, first, field)
    n = rotate(q, vec3(s[0], s[1], s[2]))
    return vec4(n[0], n[1], n[2], s[3])


@wp.func
def smoothly(
    world: int, shape: int, p: vec3, size: vec3, width: real, count: wp.vec3i, first: int, field: wp.array2d(dtype=real)
) -> vec4:
    """As ``surface``, of a shape whose edges are round over a width, so that the normal has no jump."""
    if shape == BOX:
        return of_round_box(p, size, width)
    if shape == CAPSULE:
        return from_centre(vec3(p[0], p[1], beyond(p[2], size[1], width)), size[0])
    if shape == FIELD:
        d = surface(world, shape, p, size, count, first, field)[3]
        n = normal_of_field(world, p, size, count, first, field)
        return vec4(n[0], n[1], n[2], d)
    return surface(world, shape, p, size, count, first, field)


@wp.func(inline=False)
def beside(world: int, c: int, x: vec3, shapes: Shapes) -> vec4:
    """Outward normal in world axes, and signed distance, of a collider at a point."""
    size = shapes.size[world, c]
    pos = shapes.pos[world, c]
    turn = shapes.turn[world, c]
    width = shapes.width[world, c]
    if width > real(0.0):
        p = rotate_back(quat_unit(turn), x - pos)
        s = smoothly(world, shapes.kind[c], p, size, width, shapes.count[c], shapes.first[c], shapes.samples)
        n = rotate(quat_unit(turn), vec3(s[0], s[1], s[2]))
        return vec4(n[0], n[1], n[2], s[3])
    return facing(world, shapes.kind[c], shapes.count[c], shapes.first[c], shapes.samples, size, pos, turn, x)


@wp.func
def motion_at(world: int, c: int, x: vec3, shapes: Shapes) -> vec3:
    """Velocity of a collider at a point."""
    return shapes.velocity[world, c] + wp.cross(shapes.spin[world, c], x - shapes.pos[world, c])


@wp.func
def after_one(world: int, c: int, x: vec3, dx: real, u: vec3, shapes: Shapes) -> vec3:
    """A velocity after a collider, or a part of the way to it."""
    s = beside(world, c, x, shapes)
    w = motion_at(world, c, x, shapes)
    after = w + against(u - w, vec3(s[0], s[1], s[2]), shapes.contact[c], shapes.friction[world, c])
    if shapes.width[world, c] > real(0.0):
        return u + fading(s[3], dx, shapes.width[world, c]) * (after - u)
    return after


@wp.func
def ends(world: int, c: int, lower: vec3, dx: real, nodes: wp.vec3i, shapes: Shapes) -> box6:
    """The nodes along each axis, from and to, between which a collider may touch."""
    kind = shapes.kind[c]
    if kind == PLANE:
        return box6(0, nodes[0], 0, nodes[1], 0, nodes[2])
    size = shapes.size[world, c]
    half = vec3()
    middle = vec3()
    more = real(0.5) * (dx + shapes.width[world, c])
    if kind == SPHERE:
        more = more + size[0]
    elif kind == CAPSULE:
        half = vec3(real(0.0), real(0.0), size[1])
        more = more + size[0]
    elif kind == BOX:
        half = size
    else:
        n = shapes.count[c]
        half = real(0.5) * wp.cw_mul(size, vec3(real(n[0] - 1), real(n[1] - 1), real(n[2] - 1)))
        middle = half
    q = quat_unit(shapes.turn[world, c])
    r = rotation(q)
    centre = shapes.pos[world, c] + rotate(q, middle)
    out = box6(0, 1, 0, 1, 0, 1)
    for a in range(3):
        if a < 2 or nodes[2] != 1:
            far = more
            for b in range(3):
                far = far + wp.abs(r[a, b]) * half[b]
            at = (centre[a] - lower[a]) / dx + real(1.5)
            top = real(nodes[a])
            out[2 * a] = int(wp.clamp(wp.ceil(at - far / dx), real(0.0), top))
            out[2 * a + 1] = int(wp.clamp(wp.floor(at + far / dx) + real(1.0), real(0.0), top))
    return out


@wp.kernel(enable_backward=False)
def near(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    lanes: int,
    # In:
    shapes: Shapes,
    grid: wp.array2d(dtype=vec4),
    # Out:
    touched_out: wp.array2d(dtype=int),
):
    """The colliders that act on each node with mass: those at most half a cell, and half their width, away from it.

    A number has their places plus one, in ten bits each. A lane takes the nodes with one index along the first axis.
    """
    world, i = wp.tid()
    for c in range(shapes.kind.shape[0]):
        e = ends(world, c, lower, dx, nodes, shapes)
        if i >= e[0] and i < e[1]:
            for j in range(e[2], e[3]):
                for k in range(e[4], e[5]):
                    node = (i * nodes[1] + j) * nodes[2] + k
                    if grid[world, node][3] > real(0.0):
                        s = beside(world, c, place_of(node, lower, dx, nodes), shapes)
                        if s[3] < real(0.5) * (dx + shapes.width[world, c]):
                            before = touched_out[world, node]
                            if before == 0:
                                touched_out[world, node] = c + 1
                            elif before < 1024:
                                touched_out[world, node] = before + (c + 1) * 1024
                            elif before < 1024 * 1024:
                                touched_out[world, node] = before + (c + 1) * 1024 * 1024


@wp.func
def met(world: int, node: int, u: vec3, which: int, lower: vec3, dx: real, nodes: wp.vec3i, shapes: Shapes) -> vec3:
    """A node's velocity after the colliders that touch it, in their order."""
    x = place_of(node, lower, dx, nodes)
    for slot in range(MOST):
        c = ((which >> (10 * slot)) & 1023) - 1
        if c >= 0:
            u = after_one(world, c, x, dx, u, shapes)
    return u


@wp.kernel
def move_among(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    lanes: int,
    dim: int,
    first: wp.array(dtype=int),
    wall_kind: wp.array(dtype=int),
    wall_friction: wp.array2d(dtype=real),
    wall_velocity: wp.array2d(dtype=vec3),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    touched: wp.array2d(dtype=int),
    shapes: Shapes,
    grid: wp.array2d(dtype=vec4),
    # Out:
    velocity_out: wp.array2d(dtype=vec4),
):
    """As ``grid.move``, then every collider moves the nodes it touches, relative to v + w x r, then walls again."""
    world, batch = wp.tid()
    left = freely(world, batch, lanes, nodes, dim, first, touched, gravity, timestep, grid, velocity_out)
    if left != 0:
        for m in range(wp.min(16, grid.shape[1])):
            if (left >> m) % 2 == 1:
                node = node_of(batch, m, lanes, grid)
                g = grid[world, node]
                u = moved(world, node, g, nodes, dim, wall_kind, wall_friction, wall_velocity, gravity, timestep)
                if touched[world, node] != 0:
                    u = met(world, node, u, touched[world, node], lower, dx, nodes, shapes)
                    u = walled(world, node, u, nodes, dim, wall_kind, wall_friction, wall_velocity)
                velocity_out[world, node] = vec4(u[0], u[1], u[2], g[3])


@wp.func
def impulse_slope(u: vec3, n: vec3, contact: int, friction: real) -> mat33:
    """P, with which a velocity u relative to a surface becomes u - P u by its contact; P du is the change of P u. Where
    it sticks, or friction holds: all of it. Sliding: (n - friction s t) n^T, with t the direction of the slide and s
    the sign of the normal velocity's change, and friction |n u| / |t u| across both, as the slide may turn.
    """
    all = wp.identity(n=3, dtype=real)
    if contact == OPEN:
        return mat33()
    if contact == STICKY:
        return all
    along = wp.dot(u, n)
    if contact == SEPARATE and along >= real(0.0):
        return mat33()
    t = u - along * n
    size = wp.sqrt(wp.max(wp.dot(t, t), SMALL_SQUARED))
    if size <= friction * wp.abs(along):
        return all
    t = t / size  # the square of size, and that of its square in the adjoint, would leave float32
    pull = wp.where(along < real(0.0), -friction, friction)
    across = all - wp.outer(n, n) - wp.outer(t, t)
    return wp.outer(n + pull * t, n) + (friction * wp.abs(along) / size) * across


@wp.func
def add_wrench(world: int, c: int, arm: vec3, f: vec3, out: wp.array3d(dtype=real)):
    """Add a force, or an impulse, and its moment."""
    m = wp.cross(arm, f)
    for i in range(3):
        wp.atomic_add(out, world, c, i, f[i])
        wp.atomic_add(out, world, c, 3 + i, m[i])


@wp.func
def add_slope(world: int, c: int, left: vec3, p: mat33, right: vec3, out: wp.array4d(dtype=real)):
    """Add L^T p R, with R (v, w) = v + w x right, and L alike."""
    r, l = wp.skew(right), wp.skew(left)
    pr = p * r
    lp = l * p
    lpr = lp * r
    for i in range(3):
        for j in range(3):
            wp.atomic_add(out, world, c, i, j, p[i, j])
            wp.atomic_add(out, world, c, i, 3 + j, -pr[i, j])
            wp.atomic_add(out, world, c, 3 + i, j, lp[i, j])
            wp.atomic_add(out, world, c, 3 + i, 3 + j, -lpr[i, j])


@wp.func
def weigh_one(
    world: int,
    c: int,
    node: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    touched: wp.array2d(dtype=int),
    shapes: Shapes,
    origin: wp.array2d(dtype=vec3),
    velocity: wp.array2d(dtype=vec4),
    slope_out: wp.array4d(dtype=real),
    pull_out: wp.array3d(dtype=real),
):
    """What a node adds to A and b of a collider that touches it."""
    if touches(touched[world, node], c):
        g = velocity[world, node]
        x = place_of(node, lower, dx, nodes)
        u = vec3(g[0], g[1], g[2])
        s = beside(world, c, x, shapes)
        w = motion_at(world, c, x, shapes)
        n = vec3(s[0], s[1], s[2])
        p = (g[3] * fading(s[3], dx, shapes.width[world, c])) * impulse_slope(
            u - w, n, shapes.contact[c], shapes.friction[world, c]
        )
        add_slope(world, c, x - origin[world, c], p, x - origin[world, c], slope_out)
        add_wrench(world, c, x - origin[world, c], p * u, pull_out)


@wp.func
def touches(which: int, c: int) -> bool:
    """Whether a collider is among those that touch a node."""
    return which % 1024 == c + 1 or (which // 1024) % 1024 == c + 1 or which // (1024 * 1024) == c + 1


@wp.func
def node_between(e: box6, i: int, m: int, nodes: wp.vec3i) -> int:
    """The m-th node with index i along the first axis."""
    width = e[5] - e[4]
    return (i * nodes[1] + e[2] + m // width) * nodes[2] + e[4] + m % width


@wp.func
def number_between(e: box6, i: int) -> int:
    """How many nodes with index i along the first axis lie between the ends."""
    if i < e[0] or i >= e[1]:
        return 0
    return wp.max(e[3] - e[2], 0) * wp.max(e[5] - e[4], 0)


@wp.kernel
def weigh(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    lanes: int,
    answers: wp.array(dtype=int),
    # In:
    touched: wp.array2d(dtype=int),
    shapes: Shapes,
    origin: wp.array2d(dtype=vec3),
    velocity: wp.array2d(dtype=vec4),
    # Out:
    slope_out: wp.array4d(dtype=real),
    pull_out: wp.array3d(dtype=real),
):
    """A = sum of m J^T P J and b = sum of m J^T P u over the nodes that a collider touches; J (v, w) = v + w x r about
    ``origin``, so that the impulse it takes from the grid is b - A (v, w). Only for colliders that answer."""
    world, c, i = wp.tid()
    if answers[c] != 0:
        e = ends(world, c, lower, dx, nodes, shapes)
        for m in range(number_between(e, i)):
            node = node_between(e, i, m, nodes)
            weigh_one(world, c, node, lower, dx, nodes, touched, shapes, origin, velocity, slope_out, pull_out)


@wp.func
def give_one(
    world: int,
    c: int,
    node: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    touched: wp.array2d(dtype=int),
    shapes: Shapes,
    origin: wp.array2d(dtype=vec3),
    velocity: wp.array2d(dtype=vec4),
    impulse_out: wp.array3d(dtype=real),
):
    """The impulse that a collider gives a node, after those that touch it before."""
    which = touched[world, node]
    if touches(which, c):
        g = velocity[world, node]
        x = place_of(node, lower, dx, nodes)
        u = vec3(g[0], g[1], g[2])
        change = vec3()
        for slot in range(MOST):
            d = ((which >> (10 * slot)) & 1023) - 1
            if d >= 0:
                after = after_one(world, d, x, dx, u, shapes)
                if d == c:
                    change = after - u
                u = after
        add_wrench(world, c, x - origin[world, c], g[3] * change, impulse_out)


@wp.kernel
def give(
    # Model:
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    lanes: int,
    # In:
    touched: wp.array2d(dtype=int),
    shapes: Shapes,
    origin: wp.array2d(dtype=vec3),
    velocity: wp.array2d(dtype=vec4),
    # Out:
    impulse_out: wp.array3d(dtype=real),
):
    """The impulse, linear and angular about ``origin``, that each collider gives the nodes."""
    world, c, i = wp.tid()
    e = ends(world, c, lower, dx, nodes, shapes)
    for m in range(number_between(e, i)):
        node = node_between(e, i, m, nodes)
        give_one(world, c, node, lower, dx, nodes, touched, shapes, origin, velocity, impulse_out)
