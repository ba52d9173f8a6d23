"""Drag of a medium on a body: MuJoCo's model of the box of equal inertia, and its derivative by velocity."""

import warp as wp

from ..._precision import mat33, motion, real, vec2, vec3, vec6, wrench
from ...math import lower, spatial
from ..bodies import Frames, Masses, Medium, centre, principal_axes
from ..dense import copy_packed

TINY = wp.constant(real(1.0e-15))


@wp.func
def box_size(mass: real, inertia: vec3) -> vec3:
    """Sides of the box of uniform density that has this mass and inertia."""
    k = real(6.0) / mass
    return vec3(
        wp.sqrt(wp.max(TINY, inertia[1] + inertia[2] - inertia[0]) * k),
        wp.sqrt(wp.max(TINY, inertia[0] + inertia[2] - inertia[1]) * k),
        wp.sqrt(wp.max(TINY, inertia[0] + inertia[1] - inertia[2]) * k),
    )


@wp.func
def drag_coefficients(box: vec3, density: real, viscosity: real) -> vec6:
    """Quadratic drag of each axis, angular then linear, of the equivalent box (without the viscous part)."""
    a = box[0]
    b = box[1]
    c = box[2]
    return density * vec6(
        a * (b * b * b * b + c * c * c * c) / real(64.0),
        b * (a * a * a * a + c * c * c * c) / real(64.0),
        c * (a * a * a * a + b * b * b * b) / real(64.0),
        real(0.5) * b * c,
        real(0.5) * a * c,
        real(0.5) * a * b,
    )


@wp.func
def viscous_coefficients(box: vec3, viscosity: real) -> vec2:
    """Stokes drag of the equivalent sphere, angular and linear."""
    d = (box[0] + box[1] + box[2]) / real(3.0)
    return vec2(real(wp.pi) * d * d * d * viscosity, real(3.0) * real(wp.pi) * d * viscosity)


@wp.func
def local_motion(vel: motion, com: vec3, axes: mat33, wind: vec3) -> motion:
    """Velocity relative to the medium, at the centre of mass, in the body's principal axes."""
    w = wp.spatial_top(vel)
    v = wp.spatial_bottom(vel) + wp.cross(w, com) - wind
    return spatial(w * axes, v * axes)


@wp.func
def fluid_wrench(
    vel: motion, com: vec3, axes: mat33, mass: real, inertia: vec3, wind: vec3, density: real, viscosity: real
) -> wrench:
    """Drag of the medium on the box of equal inertia, at the centre of mass (MuJoCo's inertia-box model)."""
    box = box_size(mass, inertia)
    u = local_motion(vel, com, axes, wind)
    q = drag_coefficients(box, density, viscosity)
    s = viscous_coefficients(box, viscosity)
    torque = vec3(
        -(s[0] + q[0] * wp.abs(u[0])) * u[0], -(s[0] + q[1] * wp.abs(u[1])) * u[1], -(s[0] + q[2] * wp.abs(u[2])) * u[2]
    )
    force = vec3(
        -(s[1] + q[3] * wp.abs(u[3])) * u[3], -(s[1] + q[4] * wp.abs(u[4])) * u[4], -(s[1] + q[5] * wp.abs(u[5])) * u[5]
    )
    return spatial(axes * torque, axes * force)


@wp.func
def fluid_damping_power(
    vel: motion,
    rate: motion,
    trial: motion,
    com: vec3,
    axes: mat33,
    mass: real,
    inertia: vec3,
    wind: vec3,
    density: real,
    viscosity: real,
) -> real:
    """virtual . d(fluid wrench)/d(velocity) . rate, both motions of the body."""
    box = box_size(mass, inertia)
    u = local_motion(vel, com, axes, wind)
    x = local_motion(rate, com, axes, vec3())
    y = local_motion(trial, com, axes, vec3())
    q = drag_coefficients(box, density, viscosity)
    s = viscous_coefficients(box, viscosity)
    p = real(0.0)
    for i in range(3):
        p += -(s[0] + real(2.0) * q[i] * wp.abs(u[i])) * x[i] * y[i]
        p += -(s[1] + real(2.0) * q[i + 3] * wp.abs(u[i + 3])) * x[i + 3] * y[i + 3]
    return p


@wp.kernel
def body_fluid_damping_power(
    # Structure:
    # Model:
    bodies: Masses,
    medium: Medium,
    timestep: wp.array(dtype=real),
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    frame_rate: wp.array2d(dtype=motion),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """-l . h d(drag)/d(qvel) a of every body."""
    world, b = wp.tid()
    f = bodies.frame[b]
    mass = bodies.mass[world, b]
    thick = medium.density[world] > real(0.0) or medium.viscosity[world] > real(0.0)
    if b > 0 and medium.boxed[b] != 0 and mass > TINY and thick:
        com = centre(world, b, bodies, frames)
        axes = principal_axes(world, b, bodies, frames)
        power_out[world, b] = -timestep[world] * fluid_damping_power(
            frame_vel[world, f],
            frame_rate[world, f],
            frame_trial[world, f],
            com,
            axes,
            mass,
            bodies.inertia[world, b],
            medium.wind[world],
            medium.density[world],
            medium.viscosity[world],
        )


@wp.kernel(enable_backward=False)
def add_fluid_damping(
    # Structure:
    body_lastdof: wp.array(dtype=int),
    dof_parent: wp.array(dtype=int),
    # Model:
    bodies: Masses,
    medium: Medium,
    timestep: wp.array(dtype=real),
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    axis: wp.array2d(dtype=motion),
    matrix: wp.array2d(dtype=real),
    # Out:
    matrix_out: wp.array2d(dtype=real),
):
    """M - h d(drag)/d(qvel)."""
    world = wp.tid()
    copy_packed(world, 0, 1, dof_parent.shape[0], matrix, matrix_out)
    if medium.density[world] > real(0.0) or medium.viscosity[world] > real(0.0):
        for b in range(bodies.frame.shape[0]):
            mass = bodies.mass[world, b]
            f = bodies.frame[b]
            i = body_lastdof[b]
            if medium.boxed[b] != 0 and mass > TINY and i >= 0:
                com = centre(world, b, bodies, frames)
                axes = principal_axes(world, b, bodies, frames)
                while i >= 0:
                    j = i
                    while j >= 0:
                        p = fluid_damping_power(
                            frame_vel[world, f],
                            axis[world, j],
                            axis[world, i],
                            com,
                            axes,
                            mass,
                            bodies.inertia[world, b],
                            medium.wind[world],
                            medium.density[world],
                            medium.viscosity[world],
                        )
                        matrix_out[world, lower(i, j)] = matrix_out[world, lower(i, j)] - timestep[world] * p
                        j = dof_parent[j]
                    i = dof_parent[i]


@wp.func
def unit_motion(i: int) -> motion:
    """A motion of which one of six numbers is 1."""
    out = motion()
    out[i] = real(1.0)
    return out


@wp.kernel(enable_backward=False)
def add_fluid_inertia(
    # Model:
    bodies: Masses,
    medium: Medium,
    timestep: wp.array(dtype=real),
    # In:
    frames: Frames,
    frame_vel: wp.array2d(dtype=motion),
    turn: wp.array2d(dtype=mat33),
    mixed: wp.array2d(dtype=mat33),
    shift: wp.array2d(dtype=mat33),
    # Out:
    turn_out: wp.array2d(dtype=mat33),
    mixed_out: wp.array2d(dtype=mat33),
    shift_out: wp.array2d(dtype=mat33),
):
    """The same for a sparse model: blocks of each body's spatial inertia about its own origin."""
    world, b = wp.tid()
    a = turn[world, b]
    h = mixed[world, b]
    c = shift[world, b]
    mass = bodies.mass[world, b]
    moved = medium.density[world] > real(0.0) or medium.viscosity[world] > real(0.0)
    if moved and medium.boxed[b] != 0 and mass > TINY:
        f = bodies.frame[b]
        away = frames.pos[world, f] - frames.pos[world, bodies.origin[b]]
        com = centre(world, b, bodies, frames) - away
        axes = principal_axes(world, b, bodies, frames)
        v = frame_vel[world, f]
        v = spatial(wp.spatial_top(v), wp.spatial_bottom(v) + wp.cross(wp.spatial_top(v), away))
        for i in range(6):
            for j in range(6):
                p = -timestep[world] * fluid_damping_power(
                    v,
                    unit_motion(j),
                    unit_motion(i),
                    com,
                    axes,
                    mass,
                    bodies.inertia[world, b],
                    medium.wind[world],
                    medium.density[world],
                    medium.viscosity[world],
                )
                if i < 3 and j < 3:
                    a[i, j] = a[i, j] + p
                elif i < 3:
                    h[i, j - 3] = h[i, j - 3] + p
                elif j >= 3:
                    c[i - 3, j - 3] = c[i - 3, j - 3] + p
    turn_out[world, b] = a
    mixed_out[world, b] = h
    shift_out[world, b] = c
