"""Armature of tendons: inertia that moves with their lengths, in the mass matrix, in the bias, and its power.

The kinetic energy m l'^2 / 2 of a length l(q) with l' = J v adds J^T m J to the mass matrix and J^T m J' v to the bias.
As in MuJoCo, the matrix has no entries for dofs on different branches of the tree. The *drift* is J' v: how a length
accelerates when no dof does.
"""

import warp as wp

from ..._precision import motion, quat, real, vec3
from ...math import lower
from ..solve.constraint import point_rate
from ..solve.equality import point_acceleration
from .damping import branch_product
from .tendon import site_point
from .wrap import TINY


@wp.func
def stretch_drift(shift: vec3, rate: vec3, drift: vec3) -> real:
    """The second derivative of |shift|: that along it, and what the turning adds; 0 where it has no direction."""
    out = real(0.0)
    n = wp.dot(shift, shift)
    if n > TINY * TINY:
        along = wp.dot(shift, rate)
        out = (wp.dot(shift, drift) + wp.dot(rate, rate) - along * along / n) / wp.sqrt(n)
    return out


@wp.kernel
def segment_drifts(
    # Structure:
    segment: wp.array(dtype=int),
    segment_site: wp.array2d(dtype=int),
    segment_pulley: wp.array(dtype=int),
    segment_origin: wp.array2d(dtype=int),
    site_frame: wp.array(dtype=int),
    # Model:
    tendon_coef: wp.array2d(dtype=real),
    site_pos: wp.array2d(dtype=vec3),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    frame_vel: wp.array2d(dtype=motion),
    frame_bias: wp.array2d(dtype=motion),
    # Out:
    drift_out: wp.array2d(dtype=real),
):
    """How straight segments between two sites lengthen when no dof accelerates; ``frame_bias`` without gravity."""
    world, i = wp.tid()
    s = segment[i]
    a = segment_site[s, 0]
    b = segment_site[s, 1]
    x = site_point(a, site_frame, site_pos, frame_pos, frame_quat, world)
    y = site_point(b, site_frame, site_pos, frame_pos, frame_quat, world)
    rx = x - frame_pos[world, segment_origin[s, 0]]
    ry = y - frame_pos[world, segment_origin[s, 2]]
    va = frame_vel[world, site_frame[a]]
    vb = frame_vel[world, site_frame[b]]
    rate = point_rate(vb, ry) - point_rate(va, rx)
    drift = point_acceleration(frame_bias[world, site_frame[b]], vb, ry)
    drift -= point_acceleration(frame_bias[world, site_frame[a]], va, rx)
    share = real(1.0)
    if segment_pulley[s] >= 0:
        share = real(1.0) / tendon_coef[world, segment_pulley[s]]
    drift_out[world, i] = share * stretch_drift(y - x, rate, drift)


@wp.kernel
def tendon_drifts(
    # Structure:
    row_segment: wp.array(dtype=int),
    # In:
    segment_drift: wp.array2d(dtype=real),
    # Out:
    drift_out: wp.array2d(dtype=real),
):
    """Sums of the segments' drifts."""
    world, r = wp.tid()
    drift = real(0.0)
    for s in range(row_segment[r], row_segment[r + 1]):
        drift += segment_drift[world, s]
    drift_out[world, r] = drift


@wp.kernel(enable_backward=False)
def add_inertia(
    # Structure:
    dof_parent: wp.array(dtype=int),
    branch: wp.array2d(dtype=int),
    tendon: wp.array(dtype=int),
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # Model:
    tendon_armature: wp.array2d(dtype=real),
    # In:
    jacobian: wp.array2d(dtype=real),
    matrix: wp.array2d(dtype=real),
    # Out:
    matrix_out: wp.array2d(dtype=real),
):
    """M + J^T m J, entries of dofs on one branch only; of the packed triangle no others are written."""
    world = wp.tid()
    for k in range(dof_parent.shape[0]):
        j = k
        while j >= 0:
            matrix_out[world, lower(k, j)] = matrix[world, lower(k, j)]
            j = dof_parent[j]
    for r in range(tendon.shape[0]):
        t = tendon[r]
        for m in range(row_adr[t], row_adr[t + 1]):
            for n in range(row_adr[t], row_adr[t + 1]):
                a = entry_dof[m]
                b = entry_dof[n]
                if a >= b and branch[a, b] != 0:
                    e = lower(a, b)
                    share = tendon_armature[world, t] * jacobian[world, m] * jacobian[world, n]
                    matrix_out[world, e] = matrix_out[world, e] + share


@wp.kernel(enable_backward=False)
def add_inertia_force(
    # Structure:
    branch: wp.array2d(dtype=int),
    tendon: wp.array(dtype=int),
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # Model:
    tendon_armature: wp.array2d(dtype=real),
    # In:
    jacobian: wp.array2d(dtype=real),
    drift: wp.array2d(dtype=real),
    qacc: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """Generalised forces with J^T m (J a + J' v) added."""
    world = wp.tid()
    for d in range(force.shape[1]):
        force_out[world, d] = force[world, d]
    for r in range(tendon.shape[0]):
        t = tendon[r]
        for m in range(row_adr[t], row_adr[t + 1]):
            d = entry_dof[m]
            pull = drift[world, r]
            for n in range(row_adr[t], row_adr[t + 1]):
                if branch[d, entry_dof[n]] != 0:
                    pull += jacobian[world, n] * qacc[world, entry_dof[n]]
            force_out[world, d] = force_out[world, d] + tendon_armature[world, t] * jacobian[world, m] * pull


@wp.kernel
def armature_power(
    # Structure:
    branch: wp.array2d(dtype=int),
    tendon: wp.array(dtype=int),
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # Model:
    tendon_armature: wp.array2d(dtype=real),
    # In:
    jacobian: wp.array2d(dtype=real),
    drift: wp.array2d(dtype=real),
    qacc: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """l . J^T m (J a + J' v); ``rate`` is J l."""
    world, r = wp.tid()
    t = tendon[r]
    p = branch_product(row_adr[t], row_adr[t + 1], branch, entry_dof, jacobian, qacc, trial, world)
    power_out[world, r] = tendon_armature[world, t] * (p + rate[world, t] * drift[world, r])
