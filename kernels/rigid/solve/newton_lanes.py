"""Newton's method for eight worlds side by side (``lanes.py``): what ``newton.py`` does, where no contact has a cone.

Every loop runs over what any of the eight needs: where a world does not need it a row is zero, and a world whose method
has ended stays as it is. Memory is the thread's stack, which stays in the core's cache.
"""

import warp as wp

from ... import _native
from ..._precision import real, vec2
from ..dense import ROUNDING
from ..lanes import LANES
from .constraint import TINY
from .newton import CONTACT_ROWS, SLOPE_TOLERANCE, STILL, UNCONVERGED

newton_lanes_h = _native.header("rigid/native/newton_lanes.h")


@_native.func_native("")
def solve_eight(
    world: int,
    max_iterations: int,
    ls_iterations: int,
    first: int,
    contact_rows: int,
    unconverged: int,
    rounding: real,
    tiny: real,
    slope_tolerance: real,
    still_part: real,
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    matrix: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    jacobian: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    qacc_out: wp.array2d(dtype=real),
    factor_out: wp.array2d(dtype=real),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Newton's method for the worlds from ``world`` on, eight of them or as many as there are; none on a GPU."""
    newton_lanes_h()


@wp.kernel(enable_backward=False)
def newton_lanes(
    # Structure:
    max_iterations: int,
    ls_iterations: int,
    first: int,
    # Model:
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    # In:
    matrix: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    jacobian: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    # Out:
    qacc_out: wp.array2d(dtype=real),
    factor_out: wp.array2d(dtype=real),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Solve for the acceleration of every world; leaves the Cholesky factor of H at the solution. As :func:`newton`."""
    world = wp.tid()
    if world % LANES == 0:
        solve_eight(
            world,
            max_iterations,
            ls_iterations,
            first,
            CONTACT_ROWS,
            UNCONVERGED,
            ROUNDING,
            TINY,
            SLOPE_TOLERANCE,
            STILL,
            tolerance,
            meaninertia,
            matrix,
            force,
            start,
            jacobian,
            weight,
            reference,
            bound,
            contact_pair,
            contact_row,
            qacc_out,
            factor_out,
            residual_out,
            iterations_out,
            status_out,
        )
