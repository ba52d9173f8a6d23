"""Implicit gyroscopic forces of bodies that float alone, for the implicitfast integrator.

MuJoCo's implicitfast leaves out the derivatives of Coriolis and centrifugal forces, except for a free
body without further dofs, whose block is M + h (D + db/dv), six by six and not symmetric. The bias b is
quadratic in the velocity, so its derivative along x is exactly (b(v + x) - b(v - x)) / 2.
"""

import warp as wp

from ..._precision import mat33, mat66, motion, quat, real, vec3, vec6, wrench
from ...math import cross_motion, lower, quat_mul, quat_unit, rotate, rotation, spatial
from .articulated import Inertia, momentum
from .dynamics import newton_euler


@wp.func
def free_load(shift: motion, turn: motion, com: vec3, axes: mat33, mass: real, inertia: vec3) -> wrench:
    """Load of a lone body that moves at constant velocity, about the reference point."""
    torque, force = newton_euler(shift + turn, cross_motion(shift, turn), com, axes, mass, inertia)
    return spatial(torque + wp.cross(com, force), force)


@wp.func
def column(i: int, a: motion, b: motion, c: motion, x: vec3) -> motion:
    """Motion of three axes at rates x, the i-th rate raised by one."""
    r = vec3(
        x[0] + wp.where(i == 0, real(1.0), real(0.0)),
        x[1] + wp.where(i == 1, real(1.0), real(0.0)),
        x[2] + wp.where(i == 2, real(1.0), real(0.0)),
    )
    return a * r[0] + b * r[1] + c * r[2]


@wp.kernel(enable_backward=False)
def packed_blocks(
    # Structure:
    free_dof: wp.array(dtype=int),
    # In:
    matrix: wp.array2d(dtype=real),
    # Out:
    block_out: wp.array2d(dtype=mat66),
):
    """The lone bodies' blocks of a packed matrix."""
    world, i = wp.tid()
    d = free_dof[i]
    m = mat66()
    for r in range(6):
        for k in range(6):
            m[r, k] = matrix[world, lower(d + wp.max(r, k), d + wp.min(r, k))]
    block_out[world, i] = m


@wp.kernel(enable_backward=False)
def inertia_blocks(
    # Structure:
    free_body: wp.array(dtype=int),
    free_dof: wp.array(dtype=int),
    # In:
    axis: wp.array2d(dtype=motion),
    m: Inertia,
    # Out:
    block_out: wp.array2d(dtype=mat66),
):
    """The same of a sparse model, from the bodies' spatial inertias."""
    world, i = wp.tid()
    b = free_body[i]
    d = free_dof[i]
    out = mat66()
    for k in range(6):
        load = momentum(m.turn[world, b], m.mixed[world, b], m.shift[world, b], axis[world, d + k])
        for r in range(6):
            out[r, k] = wp.dot(axis[world, d + r], load)
        out[k, k] = out[k, k] + m.diagonal[world, d + k]
    block_out[world, i] = out


@wp.kernel(enable_backward=False)
def free_inverses(
    # Structure:
    free_body: wp.array(dtype=int),
    free_dof: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    # Model:
    body_ipos: wp.array2d(dtype=vec3),
    body_iquat: wp.array2d(dtype=quat),
    body_mass: wp.array2d(dtype=real),
    body_inertia: wp.array2d(dtype=vec3),
    timestep: wp.array(dtype=real),
    # In:
    frame_quat: wp.array2d(dtype=quat),
    qvel: wp.array2d(dtype=real),
    axis: wp.array2d(dtype=motion),
    block: wp.array2d(dtype=mat66),
    twist: wp.array2d(dtype=mat66),
    # Out:
    inverse_out: wp.array2d(dtype=mat66),
):
    """Inverse of M + h (D + db/dv) of every lone body, by Gauss-Jordan elimination with pivoting.

    ``block`` is M + h D with the symmetric part of D, ``twist`` h times the rest.
    """
    world, i = wp.tid()
    b = free_body[i]
    d = free_dof[i]
    f = body_frame[b]
    com = rotate(frame_quat[world, f], body_ipos[world, b])
    axes = rotation(quat_mul(frame_quat[world, f], quat_unit(body_iquat[world, b])))
    v = vec3(qvel[world, d], qvel[world, d + 1], qvel[world, d + 2])
    w = vec3(qvel[world, d + 3], qvel[world, d + 4], qvel[world, d + 5])
    m = mat66()
    inverse = mat66()
    for k in range(6):
        shift = column(k, axis[world, d], axis[world, d + 1], axis[world, d + 2], v)
        turn = column(k - 3, axis[world, d + 3], axis[world, d + 4], axis[world, d + 5], w)
        ahead = free_load(shift, turn, com, axes, body_mass[world, b], body_inertia[world, b])
        shift = -column(k, axis[world, d], axis[world, d + 1], axis[world, d + 2], -v)
        turn = -column(k - 3, axis[world, d + 3], axis[world, d + 4], axis[world, d + 5], -w)
        behind = free_load(shift, turn, com, axes, body_mass[world, b], body_inertia[world, b])
        change = (ahead - behind) * real(0.5)
        for r in range(6):
            m[r, k] = (
                block[world, i][r, k] + timestep[world] * wp.dot(axis[world, d + r], change) + twist[world, i][r, k]
            )
        inverse[k, k] = real(1.0)
    for k in range(6):
        p = k
        for r in range(6):
            if r > k and wp.abs(m[r, k]) > wp.abs(m[p, k]):
                p = r
        for c in range(6):
            swap = m[k, c]
            m[k, c] = m[p, c]
            m[p, c] = swap
            swap = inverse[k, c]
            inverse[k, c] = inverse[p, c]
            inverse[p, c] = swap
        s = real(1.0) / m[k, k]
        for c in range(6):
            m[k, c] = m[k, c] * s
            inverse[k, c] = inverse[k, c] * s
        for r in range(6):
            if r != k:
                s = m[r, k]
                for c in range(6):
                    m[r, c] = m[r, c] - s * m[k, c]
                    inverse[r, c] = inverse[r, c] - s * inverse[k, c]
    inverse_out[world, i] = inverse


@wp.kernel(enable_backward=False)
def solve_free(
    # Structure:
    free_dof: wp.array(dtype=int),
    transposed: int,
    # In:
    inverse: wp.array2d(dtype=mat66),
    force: wp.array2d(dtype=real),
    others: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=real),
):
    """The solution of all dofs, with that of the lone bodies by their own inverses."""
    world = wp.tid()
    for d in range(force.shape[1]):
        x_out[world, d] = others[world, d]
    for i in range(free_dof.shape[0]):
        d = free_dof[i]
        m = inverse[world, i]
        if transposed != 0:
            m = wp.transpose(m)
        x = m * vec6(
            force[world, d],
            force[world, d + 1],
            force[world, d + 2],
            force[world, d + 3],
            force[world, d + 4],
            force[world, d + 5],
        )
        for k in range(6):
            x_out[world, d + k] = x[k]


@wp.kernel
def gyroscopic_power(
    # Structure:
    free_body: wp.array(dtype=int),
    free_dof: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    # Model:
    body_ipos: wp.array2d(dtype=vec3),
    body_iquat: wp.array2d(dtype=quat),
    body_mass: wp.array2d(dtype=real),
    body_inertia: wp.array2d(dtype=vec3),
    timestep: wp.array(dtype=real),
    # In:
    frame_quat: wp.array2d(dtype=quat),
    qvel: wp.array2d(dtype=real),
    axis: wp.array2d(dtype=motion),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """l . h (db/dv) a of every lone body."""
    world, i = wp.tid()
    b = free_body[i]
    d = free_dof[i]
    f = body_frame[b]
    com = rotate(frame_quat[world, f], body_ipos[world, b])
    axes = rotation(quat_mul(frame_quat[world, f], quat_unit(body_iquat[world, b])))
    v = (
        axis[world, d] * qvel[world, d]
        + axis[world, d + 1] * qvel[world, d + 1]
        + axis[world, d + 2] * qvel[world, d + 2]
    )
    w = (
        axis[world, d + 3] * qvel[world, d + 3]
        + axis[world, d + 4] * qvel[world, d + 4]
        + axis[world, d + 5] * qvel[world, d + 5]
    )
    x = (
        axis[world, d] * rate[world, d]
        + axis[world, d + 1] * rate[world, d + 1]
        + axis[world, d + 2] * rate[world, d + 2]
    )
    y = (
        axis[world, d + 3] * rate[world, d + 3]
        + axis[world, d + 4] * rate[world, d + 4]
        + axis[world, d + 5] * rate[world, d + 5]
    )
    l = (
        axis[world, d] * trial[world, d]
        + axis[world, d + 1] * trial[world, d + 1]
        + axis[world, d + 2] * trial[world, d + 2]
    )
    l += (
        axis[world, d + 3] * trial[world, d + 3]
        + axis[world, d + 4] * trial[world, d + 4]
        + axis[world, d + 5] * trial[world, d + 5]
    )
    ahead = free_load(v + x, w + y, com, axes, body_mass[world, b], body_inertia[world, b])
    behind = free_load(v - x, w - y, com, axes, body_mass[world, b], body_inertia[world, b])
    power_out[world, i] = real(0.5) * timestep[world] * wp.dot(l, ahead - behind)
