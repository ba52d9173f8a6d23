"""Potential energy of bodies, springs and tendons."""

import warp as wp

from ..._precision import quat, real, vec2, vec3
from ...math import rotate
from ..forces.forces import displacement


@wp.kernel
def gravity_energy(
    # Structure:
    body_frame: wp.array(dtype=int),
    # Model:
    body_ipos: wp.array2d(dtype=vec3),
    body_mass: wp.array2d(dtype=real),
    gravity: wp.array(dtype=vec3),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    # Out:
    energy_out: wp.array2d(dtype=real),
):
    """-m g . x of every body's centre of mass."""
    world, b = wp.tid()
    f = body_frame[b]
    com = frame_pos[world, f] + rotate(frame_quat[world, f], body_ipos[world, b])
    energy_out[world, b] = -body_mass[world, b] * wp.dot(gravity[world], com)


@wp.kernel
def joint_energy(
    # Structure:
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    # Model:
    joint_stiffness: wp.array2d(dtype=real),
    qpos_spring: wp.array2d(dtype=real),
    # State in:
    qpos: wp.array2d(dtype=real),
    # Out:
    energy_out: wp.array2d(dtype=real),
):
    """k |q - q_rest|^2 / 2 of every joint."""
    world, j = wp.tid()
    x = displacement(joint_type[j], qpos, qpos_spring, world, joint_qpos[j])
    energy_out[world, j] = real(0.5) * joint_stiffness[world, j] * wp.dot(x, x)


@wp.kernel
def tendon_energy(
    # Model:
    tendon_stiffness: wp.array2d(dtype=real),
    tendon_lengthspring: wp.array2d(dtype=vec2),
    # In:
    length: wp.array2d(dtype=real),
    # Out:
    energy_out: wp.array2d(dtype=real),
):
    """k x^2 / 2 of every tendon, x its length beyond the rest interval."""
    world, t = wp.tid()
    rest = tendon_lengthspring[world, t]
    x = wp.max(length[world, t] - rest[1], real(0.0)) + wp.max(rest[0] - length[world, t], real(0.0))
    energy_out[world, t] = real(0.5) * tendon_stiffness[world, t] * x * x
