"""Weight that actuators carry: compensated gravity that counts as theirs rather than as a passive force."""

import warp as wp

from ..._precision import motion, real
from ..bodies import Frames, Masses, Medium, centre


@wp.kernel
def carried_weights(
    # Structure:
    dof: wp.array(dtype=int),
    ancestry: wp.array2d(dtype=int),
    # Model:
    bodies: Masses,
    medium: Medium,
    # In:
    frames: Frames,
    axis: wp.array2d(dtype=motion),
    # Out:
    weight_out: wp.array2d(dtype=real),
):
    """Generalised force against the compensated weight of all bodies that a dof moves."""
    world, i = wp.tid()
    s = axis[world, dof[i]]
    w = wp.spatial_top(s)
    v = wp.spatial_bottom(s)
    total = real(0.0)  # a sum that the adjoint need not know
    for b in range(1, bodies.frame.shape[0]):
        if ancestry[b, dof[i]] != 0:
            moved = v + wp.cross(w, centre(world, b, bodies, frames))
            total -= bodies.mass[world, b] * medium.gravcomp[world, b] * wp.dot(medium.gravity[world], moved)
    weight_out[world, i] = total


@wp.kernel(enable_backward=False)
def subtract_weights(
    # Structure:
    number: wp.array(dtype=int),
    # In:
    force: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """Forces without the weights that bodies' loads hold too; ``number``: which weight is a dof's, or -1."""
    world, d = wp.tid()
    f = force[world, d]
    if number[d] >= 0:
        f -= weight[world, number[d]]
    force_out[world, d] = f


@wp.kernel
def weight_power(
    # Structure:
    dof: wp.array(dtype=int),
    # In:
    weight: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the subtracted weights."""
    world, i = wp.tid()
    power_out[world, i] = weight[world, i] * trial[world, dof[i]]
