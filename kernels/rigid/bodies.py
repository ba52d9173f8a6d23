"""What kernels are given of bodies: poses of their frames, the dofs that move them, masses, and the medium."""

import warp as wp

from .._precision import mat33, quat, real, vec3
from ..math import quat_mul, quat_unit, rotate, rotation


@wp.struct
class Bodies:
    """Bodies' frames, and the dofs that move them."""

    frame: wp.array(dtype=int)  # of every body
    origin: wp.array(dtype=int)  # frame of the root of its tree: the reference point of its motion
    last_dof: wp.array(dtype=int)  # the outermost dof that moves it, or -1
    dof_parent: wp.array(dtype=int)  # the next dof towards the root, or -1
    dof_origin: wp.array(dtype=int)  # frame of the root of every dof's tree


@wp.struct
class Frames:
    """Poses of all frames."""

    pos: wp.array2d(dtype=vec3)
    quat: wp.array2d(dtype=quat)


@wp.struct
class Masses:
    """Mass and inertia of all bodies."""

    frame: wp.array(dtype=int)
    origin: wp.array(dtype=int)  # frame of the root of its tree: the reference point of its motion
    ipos: wp.array2d(dtype=vec3)
    iquat: wp.array2d(dtype=quat)
    mass: wp.array2d(dtype=real)
    inertia: wp.array2d(dtype=vec3)


@wp.struct
class Medium:
    """Gravity, and the medium that the bodies move in."""

    gravcomp: wp.array2d(dtype=real)  # fraction of every body's weight that is compensated
    gravity: wp.array(dtype=vec3)
    wind: wp.array(dtype=vec3)
    density: wp.array(dtype=real)
    viscosity: wp.array(dtype=real)
    boxed: wp.array(dtype=int)  # bodies whose drag is that of a box: the others' geoms have their own


@wp.func
def centre(world: int, b: int, bodies: Masses, frames: Frames) -> vec3:
    """Centre of mass of a body, relative to the reference point of its motion."""
    f = bodies.frame[b]
    return (
        frames.pos[world, f]
        + rotate(frames.quat[world, f], bodies.ipos[world, b])
        - frames.pos[world, bodies.origin[b]]
    )


@wp.func
def principal_axes(world: int, b: int, bodies: Masses, frames: Frames) -> mat33:
    """Principal axes of a body's inertia, as columns."""
    return rotation(quat_mul(frames.quat[world, bodies.frame[b]], quat_unit(bodies.iquat[world, b])))
