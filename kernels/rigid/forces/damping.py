"""Damping of joints, tendons and actuators that the integrator treats implicitly: M + h D, and l . h D a."""

import warp as wp

from ..._precision import real
from ...math import lower
from ..dense import copy_packed


@wp.kernel(enable_backward=False)
def add_joint_damping(
    # Structure:
    damper: int,
    # Model:
    dof_damping: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    matrix: wp.array2d(dtype=real),
    # Out:
    matrix_out: wp.array2d(dtype=real),
):
    """M + h D with D the joints' damping."""
    world = wp.tid()
    n = dof_damping.shape[1]
    copy_packed(world, 0, 1, n, matrix, matrix_out)
    for k in range(n):
        e = lower(k, k)
        matrix_out[world, e] = matrix_out[world, e] + timestep[world] * dof_damping[world, k] * real(damper)


@wp.kernel(enable_backward=False)
def damping_force(
    # Structure:
    damper: int,
    # Model:
    dof_damping: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """-h D a with D the joints' damping."""
    world, d = wp.tid()
    force_out[world, d] = -timestep[world] * dof_damping[world, d] * real(damper) * qacc[world, d]


@wp.kernel
def damping_power(
    # Structure:
    damper: int,
    # Model:
    dof_damping: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """l . h D a, dof by dof."""
    world, d = wp.tid()
    power_out[world, d] = timestep[world] * dof_damping[world, d] * real(damper) * qacc[world, d] * trial[world, d]


@wp.kernel(enable_backward=False)
def add_row_damping(
    # Structure:
    branch: wp.array2d(dtype=int),
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # Model:
    timestep: wp.array(dtype=real),
    # In:
    entry: wp.array2d(dtype=real),
    damping: wp.array2d(dtype=real),
    matrix: wp.array2d(dtype=real),
    # Out:
    matrix_out: wp.array2d(dtype=real),
):
    """M + h J^T d J for the rows J of tendons or actuators, entries of dofs on one branch only, as in MuJoCo."""
    world = wp.tid()
    copy_packed(world, 0, 1, branch.shape[0], matrix, matrix_out)
    for r in range(row_adr.shape[0] - 1):
        c = timestep[world] * damping[world, r]
        if c != real(0.0):
            for m in range(row_adr[r], row_adr[r + 1]):
                for n in range(row_adr[r], row_adr[r + 1]):
                    a = entry_dof[m]
                    b = entry_dof[n]
                    if a >= b and branch[a, b] != 0:
                        e = lower(a, b)
                        matrix_out[world, e] = matrix_out[world, e] + c * entry[world, m] * entry[world, n]


@wp.kernel(enable_backward=False)
def add_dof_damping(
    # Structure:
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # Model:
    timestep: wp.array(dtype=real),
    # In:
    entry: wp.array2d(dtype=real),
    damping: wp.array2d(dtype=real),
    diagonal: wp.array2d(dtype=real),
    # Out:
    diagonal_out: wp.array2d(dtype=real),
):
    """The same on the diagonal of a sparse model, whose rows have one dof each."""
    world = wp.tid()
    for d in range(diagonal.shape[1]):
        diagonal_out[world, d] = diagonal[world, d]
    for r in range(row_adr.shape[0] - 1):
        for m in range(row_adr[r], row_adr[r + 1]):
            d = entry_dof[m]
            more = timestep[world] * damping[world, r] * entry[world, m] * entry[world, m]
            diagonal_out[world, d] = diagonal_out[world, d] + more


@wp.func
def branch_product(
    first: int,
    last: int,
    branch: wp.array2d(dtype=int),
    entry_dof: wp.array(dtype=int),
    entry: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    world: int,
) -> real:
    """(J l) (J a) of a row, pairs of dofs on one branch only."""
    p = real(0.0)
    for m in range(first, last):
        for n in range(first, last):
            if m == n or branch[entry_dof[m], entry_dof[n]] != 0:
                lead = entry[world, m] * trial[world, entry_dof[m]]
                p += lead * entry[world, n] * rate[world, entry_dof[n]]
    return p


@wp.kernel
def row_damping_power(
    # Structure:
    branch: wp.array2d(dtype=int),
    row_adr: wp.array(dtype=int),
    entry_dof: wp.array(dtype=int),
    # Model:
    timestep: wp.array(dtype=real),
    # In:
    entry: wp.array2d(dtype=real),
    damping: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    trial: wp.array2d(dtype=real),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """l . h J^T d J a of every row, pairs of dofs on one branch only."""
    world, r = wp.tid()
    p = branch_product(row_adr[r], row_adr[r + 1], branch, entry_dof, entry, rate, trial, world)
    power_out[world, r] = timestep[world] * damping[world, r] * p
