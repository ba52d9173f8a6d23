"""The constraint solver without a matrix: Newton's method whose steps are found by conjugate gradients.

The same convex problem as in :mod:`newton`, for mechanisms so large that neither the mass matrix M nor the rows J are
stored (:mod:`matrix_free`).
"""

import warp as wp

from ..._precision import real, tolerance, vec2, vec3, wrench
from ..tree.articulated import Factor, Inertia, Tree, collect, resist, solve_tree, spread
from .matrix_free import Rows, Scratch, conjugate_gradients, dot, precondition, push, rates, respond
from .newton import SLOPE_TOLERANCE, STILL, UNCONVERGED, bracketed, row_slope

STEP = wp.constant(tolerance(1.0e-3, 3.0e-2))
"""Part of the gradient that may be left when a step of Newton's method is taken."""
EXACT = wp.constant(tolerance(1.0e-14, 1.0e-7))
"""Part of the cotangent that may be left when the backward pass solves with the Hessian."""


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
    factor_out: Factor,
    scratch_out: Scratch,
    qacc_out: wp.array2d(dtype=real),
    error_out: wp.array2d(dtype=real),
    gradient_out: wp.array2d(dtype=real),
    search_out: wp.array2d(dtype=real),
    net_out: wp.array2d(dtype=real),
    change_net_out: wp.array2d(dtype=real),
    row_force_out: wp.array2d(dtype=real),
    norm_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Solve for the acceleration of every world, as :func:`newton.newton` does; ``net`` is M a - force."""
    world = wp.tid()
    n = force.shape[1]
    rows = r.weight.shape[1]
    scale = real(1.0) / (meaninertia[world] * real(wp.max(n, 1)))
    for i in range(rows):
        scratch_out.stiffness[world, i] = real(0.0)
    precondition(world, t, m, r, factor_out, scratch_out)
    solve_tree(world, t, factor_out, force, scratch_out.body, search_out)
    scale_squared = dot(world, search_out, search_out)
    for i in range(n):
        qacc_out[world, i] = start[world, i]
    spread(world, t, qacc_out, scratch_out.body)
    rates(world, r, qacc_out, scratch_out.body, error_out)
    resist(world, t, m, qacc_out, scratch_out.body, scratch_out.load, net_out)
    collect(world, t, scratch_out.load, net_out)
    for i in range(n):
        net_out[world, i] = net_out[world, i] - force[world, i]
    for i in range(rows):
        error_out[world, i] = error_out[world, i] - r.reference[world, i]
    count = int(0)
    still = int(0)
    norm = real(0.0)
    while count <= max_iterations:
        respond(world, r, error_out, row_force_out, scratch_out.stiffness)
        for b in range(t.parent.shape[0]):
            scratch_out.load[world, b] = wrench()
        for i in range(n):
            gradient_out[world, i] = net_out[world, i]
        push(world, r, row_force_out, scratch_out.load, gradient_out)
        collect(world, t, scratch_out.load, gradient_out)
        norm = scale * wp.sqrt(dot(world, gradient_out, gradient_out))
        if norm <= tolerance[world] or count == max_iterations or still == 1:
            break
        count = count + 1
        for i in range(n):
            gradient_out[world, i] = -gradient_out[world, i]
        precondition(world, t, m, r, factor_out, scratch_out)
        conjugate_gradients(world, t, m, r, factor_out, scratch_out, STEP, gradient_out, search_out)
        spread(world, t, search_out, scratch_out.body)
        rates(world, r, search_out, scratch_out.body, scratch_out.change)
        resist(world, t, m, search_out, scratch_out.body, scratch_out.load, change_net_out)
        collect(world, t, scratch_out.load, change_net_out)
        quad = dot(world, search_out, change_net_out)
        lin = dot(world, search_out, net_out)
        descent = dot(world, search_out, gradient_out)
        # the step at which the slope along it vanishes
        step = real(1.0)
        bracket = vec3()
        for _i in range(ls_iterations):
            slope = vec2(lin + step * quad, quad)
            for i in range(rows):
                if r.weight[world, i] > real(0.0):
                    change = scratch_out.change[world, i]
                    slope += row_slope(
                        error_out[world, i] + step * change, change, r.weight[world, i], r.bound[world, i]
                    )
            if wp.abs(slope[0]) <= SLOPE_TOLERANCE * wp.abs(descent):
                break
            new = bracketed(step, slope, bracket)
            bracket = vec3(new[1], new[2], new[3])
            if new[0] == step:
                break
            step = new[0]
        moved = step * step * dot(world, search_out, search_out)
        for i in range(n):
            qacc_out[world, i] = qacc_out[world, i] + step * search_out[world, i]
            net_out[world, i] = net_out[world, i] + step * change_net_out[world, i]
        for i in range(rows):
            if r.weight[world, i] > real(0.0):
                error_out[world, i] = error_out[world, i] + step * scratch_out.change[world, i]
        if moved <= STILL * STILL * (scale_squared + dot(world, qacc_out, qacc_out)):
            still = 1
    norm_out[world] = norm
    iterations_out[world] = count
    status_out[world] = wp.uint32(0)
    if norm > tolerance[world] and still == 0:
        status_out[world] = wp.uint32(UNCONVERGED)


@wp.kernel(enable_backward=False)
def solve(
    # In:
    t: Tree,
    m: Inertia,
    r: Rows,
    qacc: wp.array2d(dtype=real),
    right: wp.array2d(dtype=real),
    # Out:
    factor_out: Factor,
    scratch_out: Scratch,
    x_out: wp.array2d(dtype=real),
    error_out: wp.array2d(dtype=real),
):
    """H x = right with the Hessian at the accelerations ``qacc``."""
    world = wp.tid()
    spread(world, t, qacc, scratch_out.body)
    rates(world, r, qacc, scratch_out.body, error_out)
    for i in range(r.weight.shape[1]):
        error_out[world, i] = error_out[world, i] - r.reference[world, i]
    respond(world, r, error_out, scratch_out.change, scratch_out.stiffness)
    precondition(world, t, m, r, factor_out, scratch_out)
    conjugate_gradients(world, t, m, r, factor_out, scratch_out, EXACT, right, x_out)


@wp.kernel(enable_backward=False)
def restoring_forces(
    # In:
    t: Tree,
    m: Inertia,
    r: Rows,
    qacc: wp.array2d(dtype=real),
    # Out:
    scratch_out: Scratch,
    total_out: wp.array2d(dtype=real),
    error_out: wp.array2d(dtype=real),
):
    """-J^T f of the constraints at given accelerations."""
    world = wp.tid()
    spread(world, t, qacc, scratch_out.body)
    rates(world, r, qacc, scratch_out.body, error_out)
    for i in range(r.weight.shape[1]):
        error_out[world, i] = error_out[world, i] - r.reference[world, i]
    respond(world, r, error_out, scratch_out.change, scratch_out.stiffness)
    for b in range(t.parent.shape[0]):
        scratch_out.load[world, b] = wrench()
    for i in range(qacc.shape[1]):
        total_out[world, i] = real(0.0)
    push(world, r, scratch_out.change, scratch_out.load, total_out)
    collect(world, t, scratch_out.load, total_out)
