"""What happens at the nodes: momentum becomes velocity, gravity acts, the walls of the domain hold.

Nodes lie in the middle of cells, and a wall acts on those up to half a cell inside its face. A particle on the face
then sees no node that moves through it, and matter fills the domain up to the face and no farther.

A thread takes sixteen nodes, ``lanes`` threads a world. Those without mass, as are most of a grid, and those that
meet no wall and no collider are moved in one go; what is left is for the general code.
"""

import warp as wp

from .. import _native
from .._precision import real, vec3, vec4

OPEN = wp.constant(0)
STICKY = wp.constant(1)
SLIP = wp.constant(2)
SEPARATE = wp.constant(3)
SLIP_AT_FACE = wp.constant(4)
SEPARATE_AT_FACE = wp.constant(5)
"""Of walls only: what :func:`hold` does, as at a sticky face."""

SMALL_SQUARED = wp.constant(real(1.0e-24))

grid_h = _native.header("particles/native/grid.h")


@wp.func
def against(v: vec3, normal: vec3, kind: int, friction: real) -> vec3:
    """A velocity relative to a wall, after the wall: ``normal`` points away from it.

    Sticky: none is left. Slip: none along the normal. Separate: none into the wall. What the wall takes along the
    normal, n, it takes up to friction |n| along itself (Coulomb).
    """
    if kind == OPEN:
        return v
    if kind == STICKY:
        return vec3()
    n = wp.dot(v, normal)
    if kind == SEPARATE and n >= real(0.0):
        return v
    t = v - n * normal
    size = wp.sqrt(wp.max(wp.dot(t, t), SMALL_SQUARED))
    return wp.max(real(1.0) - friction * wp.abs(n) / size, real(0.0)) * t


@_native.func_native(adjoint=True)
def fallen(node: vec4, fall: vec3) -> vec3:
    """Velocity of a node: its momentum by its mass, and what it falls in a step."""
    grid_h()


@wp.func
def axis(i: int, sign: real) -> vec3:
    """A unit vector along an axis."""
    return vec3(wp.where(i == 0, sign, real(0.0)), wp.where(i == 1, sign, real(0.0)), wp.where(i == 2, sign, real(0.0)))


@wp.func
def within(kind: int, depth: int) -> int:
    """The contact of a node: none for the two beside a face that ``hold`` has dealt with."""
    if (kind == STICKY or kind > SEPARATE) and depth <= 1:
        return OPEN
    if kind > SEPARATE:
        return kind - SLIP_AT_FACE + SLIP
    return kind


@wp.func
def pressed(g: vec4, other: vec4, rest: vec3, normal: vec3, kind: int, friction: real) -> vec4:
    """Momentum and mass of a node half a cell from a face, after the face; ``other`` is the node across.

    The field on the face is the mean of both nodes' velocities. The impulse that stops it, on each of them, is
    -m m' / (m + m') (u + u'), of which the contact takes its part. By m + m' alone, for one mass may vanish.
    """
    mass = g[3] + other[3]
    if not (g[3] > real(0.0) and other[3] > real(0.0)):
        return g
    share = g[3] / mass
    across = other[3] / mass
    u = vec3(
        (share * other[0] + across * g[0]) / mass,
        (share * other[1] + across * g[1]) / mass,
        (share * other[2] + across * g[2]) / mass,
    )
    u = u - (real(2.0) * share * across) * rest
    change = mass * (against(u, normal, kind, friction) - u)
    return vec4(g[0] + change[0], g[1] + change[1], g[2] + change[2], g[3])


@_native.func_native()
def move_free(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    first: wp.array(dtype=int),
    touched: wp.array2d(dtype=int),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
) -> int:
    """Which nodes of a batch, as bits, meet a wall or a collider and have mass; the others are done."""
    grid_h()


@_native.func_native()
def which_met(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    first: wp.array(dtype=int),
    touched: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
) -> int:
    """Which nodes of a batch, as bits, meet a wall or a collider and have mass."""
    grid_h()


@_native.func_native()
def pull_free(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    first: wp.array(dtype=int),
    touched: wp.array2d(dtype=int),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out_bar: wp.array2d(dtype=vec4),
    gravity_bar: wp.array2d(dtype=real),
    timestep_bar: wp.array(dtype=real),
    grid_bar: wp.array2d(dtype=vec4),
):
    """The adjoint of the nodes that meet nothing: v = p / m + h g."""
    grid_h()


@wp.func
def freely(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    first: wp.array(dtype=int),
    touched: wp.array2d(dtype=int),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
) -> int:
    """Move the nodes of a batch that meet nothing; which are left, as bits."""
    return move_free(world, batch, lanes, nodes, dim, first, touched, gravity, timestep, grid, velocity_out)


@_native.func_replay(freely)
def freely_before(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    first: wp.array(dtype=int),
    touched: wp.array2d(dtype=int),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
):
    """A backward pass only asks which were left."""
    return which_met(world, batch, lanes, nodes, dim, first, touched, grid)


@wp.func_grad(freely)
def adj_freely(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    first: wp.array(dtype=int),
    touched: wp.array2d(dtype=int),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
    adj_ret: int,
):
    """By hand."""
    pull_free(
        world,
        batch,
        lanes,
        nodes,
        dim,
        first,
        touched,
        gravity,
        timestep,
        grid,
        wp.adjoint[velocity_out],
        wp.adjoint[gravity],
        wp.adjoint[timestep],
        wp.adjoint[grid],
    )


@_native.func_native()
def first_node(world: int, first: wp.array(dtype=int)) -> int:
    """The number of a world's first node; 0 where ``first`` is empty."""
    grid_h()


@_native.func_native()
def node_of(batch: int, k: int, lanes: int, grid: wp.array2d(dtype=vec4)) -> int:
    """The k-th node of a batch."""
    grid_h()


@wp.func
def face_of(node: int, nodes: wp.vec3i, along: int, wall_kind: wp.array(dtype=int)) -> wp.vec2i:
    """The face half a cell from a node that holds the field itself, and the node across it; -1 if there is none."""
    stride = int(1)
    if along == 0:
        stride = nodes[1] * nodes[2]
    if along == 1:
        stride = nodes[2]
    at = (node // stride) % nodes[along]
    face = int(-1)
    if within(wall_kind[2 * along], 0) != wall_kind[2 * along] and (at == 1 or at == 2):
        face = 2 * along
    if within(wall_kind[2 * along + 1], 0) != wall_kind[2 * along + 1]:
        if at == nodes[along] - 3 or at == nodes[along] - 2:
            face = 2 * along + 1
    across = wp.where(face == 2 * along, 3 - at, 2 * nodes[along] - 5 - at)
    return wp.vec2i(face, node + (across - at) * stride)


@wp.func
def held(g: vec4, other: vec4, rest: vec3, face: int, kind: int, friction: real) -> vec4:
    """Momentum and mass of a node half a cell from a face that holds the field; ``other`` is the node across."""
    if kind == STICKY:
        p = vec3(g[0] - other[0], g[1] - other[1], g[2] - other[2]) + (real(2.0) * other[3]) * rest
        return vec4(p[0], p[1], p[2], g[3] + other[3])
    normal = axis(face // 2, wp.where(face % 2 == 0, real(1.0), real(-1.0)))
    return pressed(g, other, rest, normal, within(kind, 2), friction)


@wp.kernel
def hold(
    # Model:
    nodes: wp.vec3i,
    dim: int,
    along: int,
    wall_kind: wp.array(dtype=int),
    wall_friction: wp.array2d(dtype=real),
    wall_velocity: wp.array2d(dtype=vec3),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    grid: wp.array2d(dtype=vec4),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """At a sticky face the field itself vanishes: its nodes half a cell inside and outside move oppositely.

    With one unknown for the two, u = -u', its momentum is that of both, m u - m' u', its mass m + m' (Galerkin, mass
    lumped): the wall takes what it must to hold the matter on its face, and no more. Other contacts take a part of
    that impulse (:func:`pressed`). Along one axis.
    """
    world, node = wp.tid()
    g = grid[world, node]
    at = face_of(node, nodes, along, wall_kind)
    if at[0] >= 0:
        z = real(0.0)
        if dim == 3:
            z = gravity[world, 2]
        rest = wall_velocity[world, at[0]] - timestep[world] * vec3(gravity[world, 0], gravity[world, 1], z)
        friction = wall_friction[world, at[0]]
        grid_out[world, node] = held(g, grid[world, at[1]], rest, at[0], wall_kind[at[0]], friction)
    else:
        grid_out[world, node] = g


@wp.func
def momentum_of(velocity: vec4, mass: real) -> vec4:
    """Momentum of a node, and its mass."""
    return vec4(mass * velocity[0], mass * velocity[1], mass * velocity[2], mass)


@wp.kernel
def hold_again(
    # Model:
    nodes: wp.vec3i,
    along: int,
    wall_kind: wp.array(dtype=int),
    wall_friction: wp.array2d(dtype=real),
    wall_velocity: wp.array2d(dtype=vec3),
    # In:
    touched: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    velocity: wp.array2d(dtype=vec4),
    # Out:
    velocity_out: wp.array2d(dtype=vec4),
):
    """As :func:`hold`, where colliders have moved a node or the one across; ``grid`` is what ``hold`` was given."""
    world, node = wp.tid()
    v = velocity[world, node]
    at = face_of(node, nodes, along, wall_kind)
    again = bool(False)
    if at[0] >= 0:
        again = (touched[world, node] != 0 or touched[world, at[1]] != 0) and v[3] > real(0.0)
    if again:
        g = momentum_of(v, grid[world, node][3])
        other = momentum_of(velocity[world, at[1]], grid[world, at[1]][3])
        p = held(g, other, wall_velocity[world, at[0]], at[0], wall_kind[at[0]], wall_friction[world, at[0]])
        if p[3] > real(0.0):
            velocity_out[world, node] = vec4(p[0] / p[3], p[1] / p[3], p[2] / p[3], v[3])
        else:
            velocity_out[world, node] = v
    else:
        velocity_out[world, node] = v


@wp.func
def walled(
    world: int,
    node: int,
    v: vec3,
    nodes: wp.vec3i,
    dim: int,
    wall_kind: wp.array(dtype=int),
    wall_friction: wp.array2d(dtype=real),
    wall_velocity: wp.array2d(dtype=vec3),
) -> vec3:
    """A node's velocity after each face of the domain that is at most half a cell away."""
    u = v
    k = node % nodes[2]
    j = (node // nodes[2]) % nodes[1]
    i = node // (nodes[2] * nodes[1])
    for a in range(3):
        at = wp.where(a == 0, i, wp.where(a == 1, j, k))
        if a < dim:
            if at <= 2:
                w = wall_velocity[world, 2 * a]
                kind = within(wall_kind[2 * a], 2 - at)
                u = w + against(u - w, axis(a, real(1.0)), kind, wall_friction[world, 2 * a])
            if at >= nodes[a] - 3:
                w = wall_velocity[world, 2 * a + 1]
                kind = within(wall_kind[2 * a + 1], at - nodes[a] + 3)
                u = w + against(u - w, axis(a, real(-1.0)), kind, wall_friction[world, 2 * a + 1])
    return u


@wp.func
def moved(
    world: int,
    node: int,
    g: vec4,
    nodes: wp.vec3i,
    dim: int,
    wall_kind: wp.array(dtype=int),
    wall_friction: wp.array2d(dtype=real),
    wall_velocity: wp.array2d(dtype=vec3),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
) -> vec3:
    """v_i = (m v)_i / m_i + h g, then the walls."""
    u = vec3()
    if g[3] > real(0.0):
        z = real(0.0)
        if dim == 3:
            z = gravity[world, 2]
        u = fallen(g, timestep[world] * vec3(gravity[world, 0], gravity[world, 1], z))
        u = walled(world, node, u, nodes, dim, wall_kind, wall_friction, wall_velocity)
    return u


@wp.kernel
def move(
    # Model:
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
    grid: wp.array2d(dtype=vec4),
    # Out:
    velocity_out: wp.array2d(dtype=vec4),
):
    """Velocity of the nodes, from their momentum; the mass goes along. ``touched`` has one number: no colliders.

    A world may be a plane of nodes: ``first`` is then the number of its first one, and otherwise empty.
    """
    world, batch = wp.tid()
    left = freely(world, batch, lanes, nodes, dim, first, touched, gravity, timestep, grid, velocity_out)
    if left != 0:
        for m in range(wp.min(16, grid.shape[1])):
            if (left >> m) % 2 == 1:
                node = node_of(batch, m, lanes, grid)
                g = grid[world, node]
                number = node + first_node(world, first)
                u = moved(world, number, g, nodes, dim, wall_kind, wall_friction, wall_velocity, gravity, timestep)
                velocity_out[world, node] = vec4(u[0], u[1], u[2], g[3])
