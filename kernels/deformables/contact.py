"""Contact of vertices with rigid shapes, in the incremental potential: a smooth penalty, and friction.

A vertex with the area A, at the distance d from a shape, is at the depth g = t - d, t being the thickness. Where g > 0
it is pressed outwards by A p(g) grad d, with p = k g^2 / (2 t) up to g = t and p = k (g - t / 2) deeper, so that its
energy is twice differentiable everywhere, inside the shape, too.

Friction is Coulomb's, for the normal n and the force N = A p |grad d| that the vertex has where the step begins. Its
potential is mu N h f0(|w|) with the slip w = (1 - n n^T) (u / h - v), v being the surface's velocity, and f0 smooth at
w = 0 (Li et al. 2020, "Incremental potential contact", section 5): full friction from the speed ``slip`` on. At an
equilibrium, h being infinite, there is no slip and no friction.
"""

import warp as wp

from .._precision import mat33, quat, real, vec3, vec4
from ..math import quat_unit, rotate, rotate_back, rotation
from ..particles.collider import CAPSULE, FIELD, SPHERE, facing
from ..spectral import identity
from .field import bent, sensed

SMALL_SQUARED = wp.constant(real(1.0e-36))
"""Guards the root of a squared speed."""


@wp.func
def pressure(depth: real, stiffness: real, thickness: real) -> real:
    """p [Pa]."""
    if depth <= real(0.0):
        return real(0.0)
    if depth < thickness:
        return real(0.5) * stiffness * depth * depth / thickness
    return stiffness * (depth - real(0.5) * thickness)


@wp.func
def pressure_slope(depth: real, stiffness: real, thickness: real) -> real:
    """dp/dg [Pa/m]."""
    return stiffness * wp.clamp(depth / thickness, real(0.0), real(1.0))


@wp.func
def pressure_work(depth: real, stiffness: real, thickness: real) -> real:
    """Energy per area [J/m^2], whose derivative by the depth is the pressure."""
    if depth <= real(0.0):
        return real(0.0)
    if depth < thickness:
        return stiffness * depth * depth * depth / (real(6.0) * thickness)
    return real(0.5) * stiffness * (depth * (depth - thickness) + thickness * thickness / real(3.0))


@wp.func
def drag(speed: real, slip: real) -> real:
    """f1(y) / y [s/m], f1 being f0': the part of mu N that acts, over the speed."""
    if speed < slip:
        return (real(2.0) - speed / slip) / slip
    return real(1.0) / speed


@wp.func
def drag_work(speed: real, slip: real) -> real:
    """f0(y) [m/s]."""
    if speed < slip:
        y = speed / slip
        return slip * (real(1.0) / real(3.0) + y * y * (real(1.0) - y / real(3.0)))
    return speed


@wp.func
def apart(
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
    """Gradient, in world axes, and signed distance of a shape at a point; a gradient is a normal, but for a field's."""
    if shape == FIELD:
        q = quat_unit(turn)
        s = sensed(world, rotate_back(q, x - pos), size, count, first, field)
        n = rotate(q, vec3(s[0], s[1], s[2]))
        return vec4(n[0], n[1], n[2], s[3])
    return facing(world, shape, count, first, field, size, pos, turn, x)


@wp.func
def gradient_of(s: vec4) -> vec3:
    """Of a gradient and distance, the gradient."""
    return vec3(s[0], s[1], s[2])


@wp.func
def normal_of(s: vec4) -> vec3:
    """Its direction."""
    n = gradient_of(s)
    return n / wp.sqrt(wp.max(wp.dot(n, n), SMALL_SQUARED))


@wp.func
def steepness(shape: int, s: vec4) -> real:
    """Its length, by which the force exceeds the pressure: 1, but for a field's."""
    if shape == FIELD:
        n = gradient_of(s)
        return wp.sqrt(wp.max(wp.dot(n, n), SMALL_SQUARED))
    return real(1.0)


@wp.func
def slipping(speed: vec3, n: vec3) -> vec3:
    """The part of a velocity along the surface."""
    return speed - wp.dot(speed, n) * n


@wp.func
def bending(
    world: int,
    shape: int,
    count: wp.vec3i,
    first: int,
    field: wp.array2d(dtype=real),
    size: vec3,
    pos: vec3,
    orientation: quat,
    place: vec3,
    n: vec3,
) -> mat33:
    """The second derivative of the distance [1/m]; zero where a surface is flat."""
    h = mat33()
    if shape == FIELD:
        q = quat_unit(orientation)
        r = rotation(q)
        h = r * bent(world, rotate_back(q, place - pos), size, count, first, field) * wp.transpose(r)
    if shape == SPHERE or shape == CAPSULE:
        h = identity() - wp.outer(n, n)
        arm = place - pos
        if shape == CAPSULE:
            axis = rotate(quat_unit(orientation), vec3(real(0.0), real(0.0), real(1.0)))
            along = wp.dot(arm, axis)
            arm = arm - wp.clamp(along, -size[1], size[1]) * axis
            if wp.abs(along) < size[1]:
                h = h - wp.outer(axis, axis)
        h = h / wp.sqrt(wp.max(wp.dot(arm, arm), SMALL_SQUARED))
    return h


@wp.kernel
def push(
    # Structure:
    shape: wp.array(dtype=int),
    count: wp.array(dtype=wp.vec3i),
    first: wp.array(dtype=int),
    # Model:
    area: wp.array2d(dtype=real),
    stiffness: wp.array(dtype=real),
    thickness: wp.array(dtype=real),
    slip: wp.array(dtype=real),
    # In:
    size: wp.array2d(dtype=vec3),
    friction: wp.array2d(dtype=real),
    field: wp.array2d(dtype=real),
    begin: wp.array2d(dtype=vec3),
    begin_turn: wp.array2d(dtype=quat),
    end: wp.array2d(dtype=vec3),
    end_turn: wp.array2d(dtype=quat),
    velocity: wp.array2d(dtype=vec3),
    spin: wp.array2d(dtype=vec3),
    timestep: wp.array(dtype=real),
    before: wp.array2d(dtype=vec3),
    x: wp.array2d(dtype=vec3),
    u: wp.array2d(dtype=vec3),
    # Out:
    force_out: wp.array3d(dtype=vec3),
):
    """Force [N] of each collider on each vertex."""
    world, i, c = wp.tid()
    force = vec3()
    if area[world, i] > real(0.0):
        k = stiffness[world]
        t = thickness[world]
        s = apart(
            world,
            shape[c],
            count[c],
            first[c],
            field,
            size[world, c],
            end[world, c],
            end_turn[world, c],
            x[world, i] + u[world, i],
        )
        force = area[world, i] * pressure(t - s[3], k, t) * gradient_of(s)
        if real(1.0) / timestep[world] > real(0.0):
            o = apart(
                world,
                shape[c],
                count[c],
                first[c],
                field,
                size[world, c],
                begin[world, c],
                begin_turn[world, c],
                before[world, i],
            )
            hold = friction[world, c] * area[world, i] * pressure(t - o[3], k, t) * steepness(shape[c], o)
            arm = before[world, i] - begin[world, c]
            speed = u[world, i] / timestep[world] - velocity[world, c] - wp.cross(spin[world, c], arm)
            w = slipping(speed, normal_of(o))
            fast = wp.sqrt(wp.max(wp.dot(w, w), SMALL_SQUARED))
            force = force - hold * drag(fast, slip[world]) * w
    force_out[world, i, c] = force


@wp.kernel
def push_power(
    # In:
    force: wp.array3d(dtype=vec3),
    trial: wp.array2d(dtype=vec3),
    # Out:
    power_out: wp.array3d(dtype=real),
):
    """What the colliders' forces take along a trial direction."""
    world, i, c = wp.tid()
    power_out[world, i, c] = -wp.dot(force[world, i, c], trial[world, i])
