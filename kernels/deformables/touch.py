"""Contact of vertices with rigid shapes, as a position-based constraint with Coulomb's friction."""

import warp as wp

from .._precision import quat, real, vec3
from ..particles.collider import add_slope, add_wrench, facing

SMALL_SQUARED = wp.constant(real(1.0e-24))


@wp.func
def held_share(slide: vec3, depth: real, sticky: int, friction: real) -> real:
    """How much of its slide along a shape a vertex loses: at most friction times the push (Coulomb)."""
    if sticky != 0:
        return real(1.0)
    size = wp.sqrt(wp.max(wp.dot(slide, slide), SMALL_SQUARED))
    return wp.min(real(1.0), friction * depth / size)


@wp.kernel
def touch(
    # Model:
    shape: int,
    sticky: int,
    count: wp.vec3i,
    # In:
    thickness: wp.array(dtype=real),
    timestep: wp.array(dtype=real),
    pos: wp.array(dtype=vec3),
    orientation: wp.array(dtype=quat),
    size: wp.array(dtype=vec3),
    velocity: wp.array(dtype=vec3),
    spin: wp.array(dtype=vec3),
    friction: wp.array(dtype=real),
    field: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    start: wp.array2d(dtype=vec3),
    place: wp.array2d(dtype=vec3),
    # Out:
    place_out: wp.array2d(dtype=vec3),
):
    """A vertex nearer than the thickness is pushed out, and slides less by at most friction times that push."""
    world, vertex = wp.tid()
    x = place[world, vertex]
    after = x
    if weight[world, vertex] > real(0.0):
        arm = x - pos[world]
        s = facing(world, shape, count, 0, field, size[world], pos[world], orientation[world], x)
        depth = thickness[world] - s[3]
        if depth > real(0.0):
            n = vec3(s[0], s[1], s[2])
            d = x - start[world, vertex] - timestep[world] * (velocity[world] + wp.cross(spin[world], arm))
            along = d - wp.dot(d, n) * n
            after = x + depth * n - held_share(along, depth, sticky, friction[world]) * along
    place_out[world, vertex] = after


@wp.kernel
def weigh(
    # Model:
    shape: int,
    sticky: int,
    count: wp.vec3i,
    # In:
    thickness: wp.array(dtype=real),
    timestep: wp.array(dtype=real),
    origin: wp.array(dtype=vec3),
    pos: wp.array(dtype=vec3),
    orientation: wp.array(dtype=quat),
    size: wp.array(dtype=vec3),
    velocity: wp.array(dtype=vec3),
    spin: wp.array(dtype=vec3),
    friction: wp.array(dtype=real),
    field: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    start: wp.array2d(dtype=vec3),
    place: wp.array2d(dtype=vec3),
    # Out:
    slope_out: wp.array4d(dtype=real),
    pull_out: wp.array3d(dtype=real),
):
    """A and b, so that the impulse that a moving shape takes is b - A (v, w), at the contacts that it meets.

    A vertex is displaced by P (h J nu - d) with the depth that the motion adds. P is n n^T where it slides freely; with
    friction (n - friction t) n^T, and what turns the slide; all where it sticks. Impulses act where the vertex was at
    the start, so that angular momentum closes.
    """
    world, vertex = wp.tid()
    if weight[world, vertex] > real(0.0):
        x = place[world, vertex]
        h = timestep[world]
        arm = x - pos[world]
        s = facing(world, shape, count, 0, field, size[world], pos[world], orientation[world], x)
        depth = thickness[world] - s[3]
        if depth > real(0.0):
            n = vec3(s[0], s[1], s[2])
            w = velocity[world] + wp.cross(spin[world], arm)
            d = x - start[world, vertex] - h * w
            along = d - wp.dot(d, n) * n
            share = held_share(along, depth, sticky, friction[world])
            p = wp.identity(n=3, dtype=real)
            if share < real(1.0):
                t = along / wp.sqrt(wp.max(wp.dot(along, along), SMALL_SQUARED))
                p = wp.outer(n - friction[world] * t, n) + share * (p - wp.outer(n, n) - wp.outer(t, t))
            m = real(1.0) / weight[world, vertex]
            moved = depth * n - share * along
            add_slope(world, 0, start[world, vertex] - origin[world], m * p, arm, slope_out)
            add_wrench(world, 0, start[world, vertex] - origin[world], m * (p * w - moved / h), pull_out)


@wp.kernel
def give(
    # In:
    timestep: wp.array(dtype=real),
    origin: wp.array(dtype=vec3),
    weight: wp.array2d(dtype=real),
    start: wp.array2d(dtype=vec3),
    before: wp.array2d(dtype=vec3),
    after: wp.array2d(dtype=vec3),
    # Out:
    impulse_out: wp.array3d(dtype=real),
):
    """The impulse, linear and angular about ``origin``, that moved vertices."""
    world, vertex = wp.tid()
    if weight[world, vertex] > real(0.0):
        moved = after[world, vertex] - before[world, vertex]
        f = moved / (timestep[world] * weight[world, vertex])
        add_wrench(world, 0, start[world, vertex] - origin[world], f, impulse_out)
