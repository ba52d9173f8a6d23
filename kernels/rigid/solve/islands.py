"""Newton's method, island by island, for mechanisms so large that neither the mass matrix M nor the rows J are stored.

The convex problem is that of :mod:`newton`. Trees that contacts connect form an island. Each has its own line search
and its own end, and its numbers stay in the core's cache meanwhile.

A Newton step solves with H = M + J^T s'' J. The unknowns are the motions of bodies, six numbers each, and H couples the
two bodies of each contact. Elimination goes from leaf to root of every tree, as for articulated inertias (Featherstone
2008, table 7.1). The inertias here include the stiffness of contacts. A body that is eliminated leaves a coupling
between all bodies that it was coupled to, and its parent. The body with the fewest couplings comes first. For free
bodies this is a sparse Cholesky factor in blocks of six, and for a chain the articulated inertia.

In a large, dense island the couplings would not fit their room. There, conjugate gradients solve, and what couples
bodies is left out of the elimination, which becomes the preconditioner. MuJoCo's constraints are soft in proportion to
what they move, J M^-1 J^T s'' <= d / (1 - d) row by row, which bounds the number of sweeps.
"""

import warp as wp

from ... import _native
from ..._precision import mat33, real, tolerance, vec2, vec3, vec5, vec6
from ..collide.pairs import PairList
from ..tree.articulated import Inertia, Tree
from .newton import SLOPE_TOLERANCE, STILL, UNCONVERGED

SWEEPS = wp.constant(1000)
"""Most sweeps of one solve by conjugate gradients; friction and stacks of hundreds of bodies need some thirty."""
STEP = wp.constant(tolerance(1.0e-3, 3.0e-2))
"""Part of the gradient that conjugate gradients may leave when a step of Newton's method is taken."""
EXACT = wp.constant(tolerance(1.0e-14, 1.0e-7))
"""Part of the cotangent that they may leave when the backward pass solves with the Hessian."""

islands_h = _native.header("rigid/native/solve_islands.h")


@wp.struct
class Rows:
    """The constraints' rows: those of single joints, of links and of contacts."""

    first: int  # row of the first contact
    couplings: int  # most pairs of bodies that an island's elimination may couple
    elliptic: int
    impratio: wp.array(dtype=real)
    root: wp.array(dtype=int)  # first moving body of the tree of each body; 0: it does not move
    joint_row: wp.array(dtype=int)  # the rows of single dofs
    row_dof: wp.array(dtype=int)  # the dof of each of them
    row_body: wp.array(dtype=int)  # its body
    link_row: wp.array(dtype=int)  # the rows of links, which are linear in the motions of several bodies
    link_start: wp.array(dtype=int)  # the first term of each, and one past the last
    term_body: wp.array(dtype=int)
    term_base: wp.array(dtype=int)
    term_column: wp.array(dtype=int)  # entry of the row by which the base is multiplied; -1: by 1
    base: wp.array2d(dtype=vec6)  # wrenches
    pairs: PairList
    body_frame: wp.array(dtype=int)
    candidate: wp.array2d(dtype=int)
    friction: wp.array2d(dtype=vec5)  # of each candidate
    frame_pos: wp.array2d(dtype=vec3)
    jacobian: wp.array3d(dtype=real)  # the entry of a row of a joint, or the factors of a link's bases
    weight: wp.array2d(dtype=real)
    reference: wp.array2d(dtype=real)
    bound: wp.array2d(dtype=vec2)
    contact_pair: wp.array2d(dtype=int)
    contact_row: wp.array2d(dtype=int)
    pos: wp.array2d(dtype=vec3)
    frame: wp.array2d(dtype=mat33)


@_native.func_native()
def newton_islands(
    world: int,
    iterations: int,
    ls_iterations: int,
    sweeps: int,
    unconverged: int,
    slope: real,
    still: real,
    rest: real,
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    t: Tree,
    m: Inertia,
    r: Rows,
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    ints: wp.array2d(dtype=int),
    numbers: wp.array2d(dtype=real),
    qacc: wp.array2d(dtype=real),
    residual: wp.array(dtype=real),
    count: wp.array(dtype=int),
    status: wp.array(dtype=wp.uint32),
):
    """The constrained accelerations of a world, and how the solve ended."""
    islands_h()


@_native.func_native()
def solve_islands(
    world: int,
    sweeps: int,
    rest: real,
    t: Tree,
    m: Inertia,
    r: Rows,
    qacc: wp.array2d(dtype=real),
    right: wp.array2d(dtype=real),
    ints: wp.array2d(dtype=int),
    numbers: wp.array2d(dtype=real),
    out: wp.array2d(dtype=real),
):
    """H out = right with the Hessian at the accelerations ``qacc``."""
    islands_h()


@_native.func_native()
def restore_islands(
    world: int,
    t: Tree,
    m: Inertia,
    r: Rows,
    qacc: wp.array2d(dtype=real),
    ints: wp.array2d(dtype=int),
    numbers: wp.array2d(dtype=real),
    out: wp.array2d(dtype=real),
):
    """-J^T f at the accelerations ``qacc``, for the dofs of bodies that move."""
    islands_h()


@wp.kernel(enable_backward=False)
def newton(
    # Structure:
    max_iterations: int,
    ls_iterations: int,
    # Model:
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    # In:
    t: Tree,
    m: Inertia,
    r: Rows,
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    # Out:
    ints_out: wp.array2d(dtype=int),
    numbers_out: wp.array2d(dtype=real),
    qacc_out: wp.array2d(dtype=real),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Solve for the acceleration of every world, as :func:`newton.newton` does; ``ints``, ``numbers``: scratch."""
    world = wp.tid()
    newton_islands(
        world,
        max_iterations,
        ls_iterations,
        SWEEPS,
        UNCONVERGED,
        SLOPE_TOLERANCE,
        STILL,
        STEP,
        tolerance,
        meaninertia,
        t,
        m,
        r,
        force,
        start,
        ints_out,
        numbers_out,
        qacc_out,
        residual_out,
        iterations_out,
        status_out,
    )


@wp.kernel(enable_backward=False)
def solve(
    # In:
    t: Tree,
    m: Inertia,
    r: Rows,
    qacc: wp.array2d(dtype=real),
    right: wp.array2d(dtype=real),
    # Out:
    ints_out: wp.array2d(dtype=int),
    numbers_out: wp.array2d(dtype=real),
    x_out: wp.array2d(dtype=real),
):
    """H x = right with the Hessian at the accelerations ``qacc``."""
    world = wp.tid()
    solve_islands(world, SWEEPS, EXACT, t, m, r, qacc, right, ints_out, numbers_out, x_out)


@wp.kernel(enable_backward=False)
def restoring_forces(
    # In:
    t: Tree,
    m: Inertia,
    r: Rows,
    qacc: wp.array2d(dtype=real),
    # Out:
    ints_out: wp.array2d(dtype=int),
    numbers_out: wp.array2d(dtype=real),
    total_out: wp.array2d(dtype=real),
):
    """-J^T f of the constraints at given accelerations."""
    world = wp.tid()
    restore_islands(world, t, m, r, qacc, ints_out, numbers_out, total_out)
