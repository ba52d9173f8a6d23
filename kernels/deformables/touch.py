"""Contact of vertices with rigid shapes, as a position-based constraint with Coulomb's friction."""

import warp as wp

from .._precision import quat, real, vec3
from ..math import quat_unit, rotate, rotate_back
from ..particles.collider import surface

SMALL_SQUARED = wp.constant(real(1.0e-24))


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
        q = quat_unit(orientation[world])
        s = surface(world, shape, rotate_back(q, arm), size[world], count, field)
        depth = thickness[world] - s[3]
        if depth > real(0.0):
            n = rotate(q, vec3(s[0], s[1], s[2]))
            d = x - start[world, vertex] - timestep[world] * (velocity[world] + wp.cross(spin[world], arm))
            along = d - wp.dot(d, n) * n
            share = real(1.0)
            if sticky == 0:
                slide = wp.sqrt(wp.max(wp.dot(along, along), SMALL_SQUARED))
                share = wp.min(real(1.0), friction[world] * depth / slide)
            after = x + depth * n - share * along
    place_out[world, vertex] = after
