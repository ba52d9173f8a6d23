"""Forces of a medium on a geom: MuJoCo's model of the ellipsoid, and its derivative by velocity.

The ellipsoid carries some of the medium with it, is dragged, and is lifted by its spin (Magnus) and its slant (Kutta).
Source: "Fluid forces", MuJoCo's documentation, and Andersen et al. 2005, J. Fluid Mech. 541.
"""

import warp as wp

from ..._precision import mat33, mat66, motion, quat, real, vec3, wrench
from ...math import lower, quat_mul, quat_unit, rotate, rotation, spatial
from ..bodies import Frames, Masses, Medium
from ..dense import copy_packed
from .fluid import TINY, local_motion

PI = wp.constant(real(3.141592653589793))
SPHERE = wp.constant(2)
CAPSULE = wp.constant(3)
CYLINDER = wp.constant(5)
BLUNT = wp.constant(1)
SLENDER = wp.constant(2)
ANGULAR = wp.constant(3)
KUTTA = wp.constant(4)
MAGNUS = wp.constant(5)
MASS = wp.constant(6)
INERTIA = wp.constant(9)


@wp.struct
class Hydrofoils:
    """Geoms on which the medium acts; the columns of ``fluid`` are MuJoCo's geom_fluid."""

    geom: wp.array(dtype=int)
    kind: wp.array(dtype=int)
    body: wp.array(dtype=int)
    first: wp.array(dtype=int)  # those of body b are first[b] to first[b + 1]
    pos: wp.array2d(dtype=vec3)
    quat: wp.array2d(dtype=quat)
    size: wp.array2d(dtype=vec3)
    fluid: wp.array3d(dtype=real)


@wp.struct
class Ellipsoid:
    """One of them, and the coefficients of its forces."""

    centre: vec3  # relative to the reference point of the body's motion
    axes: mat33
    inverse: vec3  # 1 / semi-axes
    mass: vec3  # of the medium that it carries with it
    inertia: vec3
    viscous: real
    viscous_turn: real
    turn: vec3  # of the drag that grows with the square of the spin
    blunt: real  # of the drag that grows with the square of the speed and with the projected area
    slender: real  # of its remainder
    kutta: real
    magnus: real
    scale: real


@wp.func
def semi_axes(kind: int, size: vec3) -> vec3:
    """Semi-axes of the ellipsoid that stands for a geom."""
    out = size
    if kind == SPHERE:
        out = vec3(size[0], size[0], size[0])
    elif kind == CAPSULE:
        out = vec3(size[0], size[0], size[0] + size[1])
    elif kind == CYLINDER:
        out = vec3(size[0], size[0], size[1])
    return out


@wp.func
def fourth(x: real) -> real:
    """x^4."""
    return x * x * x * x


@wp.func
def ellipsoid_at(world: int, i: int, bodies: Masses, medium: Medium, foils: Hydrofoils, frames: Frames) -> Ellipsoid:
    """The ellipsoid of a geom, at its place."""
    g = foils.geom[i]
    b = foils.body[i]
    f = bodies.frame[b]
    density = medium.density[world]
    viscosity = medium.viscosity[world]
    s = semi_axes(foils.kind[i], foils.size[world, g])
    most = wp.max(wp.max(s[0], s[1]), s[2])
    least = wp.min(wp.min(s[0], s[1]), s[2])
    middle = s[0] + s[1] + s[2] - most - least
    product = s[0] * s[1] * s[2]
    sphere = real(2.0) / real(3.0) * (s[0] + s[1] + s[2])
    turned = (
        real(8.0)
        / real(15.0)
        * PI
        * vec3(s[0] * fourth(wp.max(s[1], s[2])), s[1] * fourth(wp.max(s[2], s[0])), s[2] * fourth(wp.max(s[0], s[1])))
    )
    whole = real(8.0) / real(15.0) * PI * middle * fourth(most)
    slender = foils.fluid[world, g, SLENDER]
    spin = foils.fluid[world, g, ANGULAR] - slender
    out = Ellipsoid()
    lever = rotate(frames.quat[world, f], foils.pos[world, g])
    out.centre = frames.pos[world, f] - frames.pos[world, bodies.origin[b]] + lever
    out.axes = rotation(quat_mul(frames.quat[world, f], quat_unit(foils.quat[world, g])))
    out.inverse = vec3(real(1.0) / s[0], real(1.0) / s[1], real(1.0) / s[2])
    out.mass = density * vec3(
        foils.fluid[world, g, MASS], foils.fluid[world, g, MASS + 1], foils.fluid[world, g, MASS + 2]
    )
    out.inertia = density * vec3(
        foils.fluid[world, g, INERTIA], foils.fluid[world, g, INERTIA + 1], foils.fluid[world, g, INERTIA + 2]
    )
    out.viscous = real(3.0) * PI * sphere * viscosity
    out.viscous_turn = PI * sphere * sphere * sphere * viscosity
    out.turn = density * (spin * turned + vec3(slender * whole, slender * whole, slender * whole))
    out.blunt = density * (foils.fluid[world, g, BLUNT] - slender) * PI * product
    out.slender = density * slender * PI * most * middle
    out.kutta = density * foils.fluid[world, g, KUTTA] * PI * product
    out.magnus = density * foils.fluid[world, g, MAGNUS] * real(4.0) / real(3.0) * PI * product
    out.scale = foils.fluid[world, g, 0]
    return out


@wp.func
def length_above(v: vec3) -> real:
    """|v|, or a tiny number if that is larger."""
    return wp.sqrt(wp.max(TINY * TINY, wp.dot(v, v)))


@wp.func
def ellipsoid_wrench(e: Ellipsoid, u: motion) -> wrench:
    """Torque and force at the centre, along the axes, for a motion relative to the medium.

    The area that the ellipsoid shows to its velocity is pi s0 s1 s2 sqrt(b / a), a = sum (v / s)^2 / v^2 and
    b = sum (v / s^2)^2 / v^2; circulation grows with that area and with the sine and cosine of its slant.
    """
    w = wp.spatial_top(u)
    v = wp.spatial_bottom(u)
    speed = length_above(v)
    d = v / speed
    m = wp.cw_mul(wp.cw_mul(d, e.inverse), e.inverse)
    a = wp.max(TINY, wp.dot(d, m))
    b = wp.max(TINY, wp.dot(m, m))
    carried = wp.cw_mul(e.mass, v)
    spin = length_above(wp.cw_mul(e.turn, w))
    torque = wp.cross(carried, v) + wp.cross(wp.cw_mul(e.inertia, w), w) - (e.viscous_turn + spin) * w
    lift = e.kutta * speed * speed * wp.sqrt(a / b) * wp.cross(wp.cross(m, d), d)
    drag = (e.viscous + speed * (e.blunt * wp.sqrt(b / a) + e.slender)) * v
    force = wp.cross(carried, w) + e.magnus * wp.cross(w, v) + lift - drag
    return e.scale * spatial(torque, force)


@wp.func
def ellipsoid_change(e: Ellipsoid, u: motion, x: motion) -> wrench:
    """The change of that wrench for a small change x of the motion."""
    w = wp.spatial_top(u)
    v = wp.spatial_bottom(u)
    y = wp.spatial_top(x)
    z = wp.spatial_bottom(x)
    speed = length_above(v)
    d = v / speed
    m = wp.cw_mul(wp.cw_mul(d, e.inverse), e.inverse)
    n = wp.cw_mul(wp.cw_mul(z, e.inverse), e.inverse)
    a = wp.max(TINY, wp.dot(d, m))
    b = wp.max(TINY, wp.dot(m, m))
    faster = wp.dot(d, z)
    slanted = wp.dot(m, z) / a - wp.dot(m, n) / b
    carried = wp.cw_mul(e.mass, v)
    carried_change = wp.cw_mul(e.mass, z)
    g = wp.cw_mul(e.turn, w)
    spin = length_above(g)
    torque = (
        wp.cross(carried_change, v)
        + wp.cross(carried, z)
        + wp.cross(wp.cw_mul(e.inertia, y), w)
        + wp.cross(wp.cw_mul(e.inertia, w), y)
        - (e.viscous_turn + spin) * y
        - wp.dot(g, wp.cw_mul(e.turn, y)) / spin * w
    )
    slant = wp.cross(m, d)
    turned = wp.cross(wp.cross(n, d) + wp.cross(m, z), d) + wp.cross(slant, z)
    lift = e.kutta * speed * wp.sqrt(a / b) * (turned + (slanted - faster) * wp.cross(slant, d))
    area = e.blunt * wp.sqrt(b / a)
    drag = (e.viscous + speed * (area + e.slender)) * z + (area * (faster - slanted) + e.slender * faster) * v
    force = wp.cross(carried_change, w) + wp.cross(carried, y) + e.magnus * (wp.cross(y, v) + wp.cross(w, z))
    return e.scale * spatial(torque, force + lift - drag)


@wp.func
def moved(world: int, i: int, bodies: Masses, medium: Medium, foils: Hydrofoils) -> bool:
    """Whether the medium acts on a geom: not on one of a body without mass, as in MuJoCo."""
    thick = medium.density[world] > real(0.0) or medium.viscosity[world] > real(0.0)
    return thick and bodies.mass[world, foils.body[i]] > TINY


@wp.kernel(enable_backward=False)
def add_ellipsoid_loads(
    # Structure:
    lanes: int,
    # Model:
    bodies: Masses,
    medium: Medium,
    foils: Hydrofoils,
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    load: wp.array2d(dtype=wrench),
    # Out:
    load_out: wp.array2d(dtype=wrench),
):
    """Load of every body as a wrench about its own origin, less the medium's forces on its geoms."""
    world, lane = wp.tid()
    for b in range(lane, bodies.frame.shape[0], lanes):
        f = bodies.frame[b]
        total = load[world, b]
        for i in range(foils.first[b], foils.first[b + 1]):
            if moved(world, i, bodies, medium, foils):
                e = ellipsoid_at(world, i, bodies, medium, foils, frames)
                u = local_motion(frame_vel[world, f], e.centre, e.axes, medium.wind[world])
                drag = ellipsoid_wrench(e, u)
                force = e.axes * wp.spatial_bottom(drag)
                lever = e.centre + frames.pos[world, bodies.origin[b]] - frames.pos[world, f]
                total -= spatial(e.axes * wp.spatial_top(drag) + wp.cross(lever, force), force)
        load_out[world, b] = total


@wp.kernel
def ellipsoid_power(
    # Structure:
    # Model:
    bodies: Masses,
    medium: Medium,
    foils: Hydrofoils,
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the medium's forces on every geom, negative as all that acts on a body."""
    world, i = wp.tid()
    if moved(world, i, bodies, medium, foils):
        f = bodies.frame[foils.body[i]]
        e = ellipsoid_at(world, i, bodies, medium, foils, frames)
        u = local_motion(frame_vel[world, f], e.centre, e.axes, medium.wind[world])
        trial = local_motion(frame_trial[world, f], e.centre, e.axes, vec3())
        power_out[world, i] = -wp.dot(trial, ellipsoid_wrench(e, u))


@wp.func
def ellipsoid_damping(e: Ellipsoid, u: motion, rate: motion, trial: motion, swapped: real) -> real:
    """trial . D rate + ``swapped`` rate . D trial, D = d(wrench)/d(velocity), both motions of the body."""
    x = local_motion(rate, e.centre, e.axes, vec3())
    y = local_motion(trial, e.centre, e.axes, vec3())
    p = wp.dot(y, ellipsoid_change(e, u, x))
    if swapped != real(0.0):
        p += swapped * wp.dot(x, ellipsoid_change(e, u, y))
    return p


@wp.kernel
def ellipsoid_damping_power(
    # Structure:
    lone: wp.array(dtype=int),
    # Model:
    bodies: Masses,
    medium: Medium,
    foils: Hydrofoils,
    timestep: wp.array(dtype=real),
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    frame_rate: wp.array2d(dtype=motion),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """-l . h D a of every geom, D symmetric but for lone bodies: ``lone`` is the number of a geom's, or -1."""
    world, i = wp.tid()
    if moved(world, i, bodies, medium, foils):
        f = bodies.frame[foils.body[i]]
        e = ellipsoid_at(world, i, bodies, medium, foils, frames)
        u = local_motion(frame_vel[world, f], e.centre, e.axes, medium.wind[world])
        rate = frame_rate[world, f]
        trial = frame_trial[world, f]
        if lone[i] >= 0:
            power_out[world, i] = -timestep[world] * ellipsoid_damping(e, u, rate, trial, real(0.0))
        else:
            power_out[world, i] = real(-0.5) * timestep[world] * ellipsoid_damping(e, u, rate, trial, real(1.0))


@wp.kernel(enable_backward=False)
def add_ellipsoid_damping(
    # Structure:
    body_lastdof: wp.array(dtype=int),
    dof_parent: wp.array(dtype=int),
    # Model:
    bodies: Masses,
    medium: Medium,
    foils: Hydrofoils,
    timestep: wp.array(dtype=real),
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    axis: wp.array2d(dtype=motion),
    matrix: wp.array2d(dtype=real),
    # Out:
    matrix_out: wp.array2d(dtype=real),
):
    """M - h d(wrench)/d(qvel), its symmetric part."""
    world = wp.tid()
    copy_packed(world, 0, 1, dof_parent.shape[0], matrix, matrix_out)
    for n in range(foils.geom.shape[0]):
        if moved(world, n, bodies, medium, foils):
            b = foils.body[n]
            e = ellipsoid_at(world, n, bodies, medium, foils, frames)
            u = local_motion(frame_vel[world, bodies.frame[b]], e.centre, e.axes, medium.wind[world])
            i = body_lastdof[b]
            while i >= 0:
                j = i
                while j >= 0:
                    p = real(0.5) * ellipsoid_damping(e, u, axis[world, j], axis[world, i], real(1.0))
                    matrix_out[world, lower(i, j)] = matrix_out[world, lower(i, j)] - timestep[world] * p
                    j = dof_parent[j]
                i = dof_parent[i]


@wp.kernel(enable_backward=False)
def lone_twists(
    # Structure:
    free_dof: wp.array(dtype=int),
    lone: wp.array(dtype=int),
    # Model:
    bodies: Masses,
    medium: Medium,
    foils: Hydrofoils,
    timestep: wp.array(dtype=real),
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    axis: wp.array2d(dtype=motion),
    # Out:
    twist_out: wp.array2d(dtype=mat66),
):
    """The antisymmetric part of -h D of every lone body."""
    world, i = wp.tid()
    total = mat66()
    d = free_dof[i]
    for n in range(foils.geom.shape[0]):
        if lone[n] == i and moved(world, n, bodies, medium, foils):
            e = ellipsoid_at(world, n, bodies, medium, foils, frames)
            u = local_motion(frame_vel[world, bodies.frame[foils.body[n]]], e.centre, e.axes, medium.wind[world])
            for r in range(6):
                for c in range(r):
                    p = ellipsoid_damping(e, u, axis[world, d + c], axis[world, d + r], real(-1.0))
                    total[r, c] = total[r, c] - real(0.5) * timestep[world] * p
                    total[c, r] = total[c, r] + real(0.5) * timestep[world] * p
    twist_out[world, i] = total
