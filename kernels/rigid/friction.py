"""Dry friction of dofs and tendons: rows whose force opposes motion, up to the friction loss."""

import warp as wp

from .._precision import real, vec2, vec5
from .constraint import impedance, resistance, restoring, set_row, spring_damper


@wp.kernel(enable_backward=False)
def dof_friction_rows(
    # Structure:
    friction_dof: wp.array(dtype=int),
    friction_column: wp.array(dtype=int),
    refsafe: int,
    first: int,
    # Model:
    dof_frictionloss: wp.array2d(dtype=real),
    dof_solref: wp.array2d(dtype=vec2),
    dof_solimp: wp.array2d(dtype=vec5),
    dof_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    qvel: wp.array2d(dtype=real),
    # Out:
    jacobian_out: wp.array3d(dtype=real),
    weight_out: wp.array2d(dtype=real),
    reference_out: wp.array2d(dtype=real),
    bound_out: wp.array2d(dtype=vec2),
):
    """One row for each dof with friction; ``first`` is the first one's."""
    world, i = wp.tid()
    d = friction_dof[i]
    loss = dof_frictionloss[world, d]
    kb = spring_damper(dof_solref[world, d], dof_solimp[world, d], timestep[world], refsafe)
    r = resistance(impedance(dof_solimp[world, d], real(0.0)), dof_invweight0[world, d])
    row = first + i
    set_row(world, row, r, -kb[1] * qvel[world, d], -loss, loss, jacobian_out, weight_out, reference_out, bound_out)
    jacobian_out[world, row, friction_column[i]] = real(1.0)


@wp.kernel
def dof_friction_power(
    # Structure:
    friction_dof: wp.array(dtype=int),
    refsafe: int,
    # Model:
    dof_frictionloss: wp.array2d(dtype=real),
    dof_solref: wp.array2d(dtype=vec2),
    dof_solimp: wp.array2d(dtype=vec5),
    dof_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # State in:
    qvel: wp.array2d(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the friction, negative as all that acts on the joints."""
    world, i = wp.tid()
    d = friction_dof[i]
    loss = dof_frictionloss[world, d]
    kb = spring_damper(dof_solref[world, d], dof_solimp[world, d], timestep[world], refsafe)
    r = resistance(impedance(dof_solimp[world, d], real(0.0)), dof_invweight0[world, d])
    error = qacc[world, d] + kb[1] * qvel[world, d]
    power_out[world, i] = restoring(error, r, -loss, loss) * trial[world, d]


@wp.kernel(enable_backward=False)
def tendon_friction_rows(
    # Structure:
    friction_tendon: wp.array(dtype=int),
    refsafe: int,
    first: int,
    # Model:
    tendon_frictionloss: wp.array2d(dtype=real),
    tendon_solref: wp.array2d(dtype=vec2),
    tendon_solimp: wp.array2d(dtype=vec5),
    tendon_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    velocity: wp.array2d(dtype=real),
    moment: wp.array3d(dtype=real),
    # Out:
    jacobian_out: wp.array3d(dtype=real),
    weight_out: wp.array2d(dtype=real),
    reference_out: wp.array2d(dtype=real),
    bound_out: wp.array2d(dtype=vec2),
):
    """One row for each tendon with friction; ``moment`` is the tendons' Jacobian."""
    world, i = wp.tid()
    t = friction_tendon[i]
    loss = tendon_frictionloss[world, t]
    kb = spring_damper(tendon_solref[world, t], tendon_solimp[world, t], timestep[world], refsafe)
    r = resistance(impedance(tendon_solimp[world, t], real(0.0)), tendon_invweight0[world, t])
    row = first + i
    set_row(world, row, r, -kb[1] * velocity[world, t], -loss, loss, jacobian_out, weight_out, reference_out, bound_out)
    for d in range(moment.shape[2]):
        jacobian_out[world, row, d] = moment[world, t, d]


@wp.kernel
def tendon_friction_power(
    # Structure:
    friction_tendon: wp.array(dtype=int),
    refsafe: int,
    # Model:
    tendon_frictionloss: wp.array2d(dtype=real),
    tendon_solref: wp.array2d(dtype=vec2),
    tendon_solimp: wp.array2d(dtype=vec5),
    tendon_invweight0: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    velocity: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the friction; ``rate`` is J a of the tendons, ``trial`` J l."""
    world, i = wp.tid()
    t = friction_tendon[i]
    loss = tendon_frictionloss[world, t]
    kb = spring_damper(tendon_solref[world, t], tendon_solimp[world, t], timestep[world], refsafe)
    r = resistance(impedance(tendon_solimp[world, t], real(0.0)), tendon_invweight0[world, t])
    error = rate[world, t] + kb[1] * velocity[world, t]
    power_out[world, i] = restoring(error, r, -loss, loss) * trial[world, t]
