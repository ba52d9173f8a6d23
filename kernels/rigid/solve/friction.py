"""Dry friction of dofs and tendons: rows whose force opposes motion, up to the friction loss."""

import warp as wp

from ..._precision import real
from .constraint import Rows, Soft, restoring, set_row, softened


@wp.struct
class Friction:
    """What rubs: dofs or tendons."""

    index: wp.array(dtype=int)  # the dofs or tendons with friction
    frictionloss: wp.array2d(dtype=real)  # of all of them
    invweight0: wp.array2d(dtype=real)


@wp.func
def friction_force(world: int, i: int, friction: Friction, soft: Soft, acceleration: real, velocity: real) -> real:
    """Minus the force of the i-th dof or tendon."""
    loss = friction.frictionloss[world, i]
    kbr = softened(world, i, friction.invweight0[world, i], real(0.0), soft)
    return restoring(acceleration + kbr[1] * velocity, kbr[2], -loss, loss)


@wp.func
def friction_row(world: int, row: int, i: int, friction: Friction, soft: Soft, velocity: real, rows_out: Rows):
    """Start the row of the i-th dof or tendon."""
    loss = friction.frictionloss[world, i]
    kbr = softened(world, i, friction.invweight0[world, i], real(0.0), soft)
    set_row(world, row, kbr[2], -kbr[1] * velocity, -loss, loss, rows_out)


@wp.kernel(enable_backward=False)
def dof_friction_rows(
    # Structure:
    first: int,
    column: wp.array(dtype=int),
    # Model:
    friction: Friction,
    soft: Soft,
    # State in:
    qvel: wp.array2d(dtype=real),
    # Out:
    rows_out: Rows,
):
    """One row for each dof with friction, from row ``first`` on."""
    world, k = wp.tid()
    d = friction.index[k]
    friction_row(world, first + k, d, friction, soft, qvel[world, d], rows_out)
    rows_out.jacobian[world, first + k, column[k]] = real(1.0)


@wp.kernel
def dof_friction_power(
    # Model:
    friction: Friction,
    soft: Soft,
    # State in:
    qvel: wp.array2d(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the friction, negative as all that acts on the joints."""
    world, k = wp.tid()
    d = friction.index[k]
    power_out[world, k] = friction_force(world, d, friction, soft, qacc[world, d], qvel[world, d]) * trial[world, d]


@wp.kernel(enable_backward=False)
def tendon_friction_rows(
    # Structure:
    first: int,
    # Model:
    friction: Friction,
    soft: Soft,
    # In:
    velocity: wp.array2d(dtype=real),
    moment: wp.array3d(dtype=real),
    # Out:
    rows_out: Rows,
):
    """One row for each tendon with friction, from row ``first`` on; ``moment`` is the tendons' Jacobian."""
    world, k = wp.tid()
    t = friction.index[k]
    friction_row(world, first + k, t, friction, soft, velocity[world, t], rows_out)
    for d in range(moment.shape[2]):
        rows_out.jacobian[world, first + k, d] = moment[world, t, d]


@wp.kernel
def tendon_friction_power(
    # Model:
    friction: Friction,
    soft: Soft,
    # In:
    velocity: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the friction; ``rate`` is J a of the tendons, ``trial`` J l."""
    world, k = wp.tid()
    t = friction.index[k]
    power_out[world, k] = friction_force(world, t, friction, soft, rate[world, t], velocity[world, t]) * trial[world, t]
