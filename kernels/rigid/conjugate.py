"""The constraint solver without a matrix: Newton's method whose steps are found by conjugate gradients.

The same convex problem as in :mod:`newton`, for mechanisms so large that neither the mass matrix M nor the rows J are
stored (:mod:`matrix_free`).
"""

import warp as wp

from .._precision import mat33, motion, real, tolerance, vec2, vec3, vec5, wrench
from .articulated import Mechanism, collect, resist, solve_tree, spread
from .matrix_free import Rows, Scratch, conjugate_gradients, dot, locate, precondition, push, rates, respond
from .newton import SLOPE_TOLERANCE, STILL, UNCONVERGED, bracketed, row_slope

STEP = wp.constant(tolerance(1.0e-3, 3.0e-2))
"""Part of the gradient that may be left when a step of Newton's method is taken."""
EXACT = wp.constant(tolerance(1.0e-14, 1.0e-7))
"""Part of the cotangent that may be left when the backward pass solves with the Hessian."""


@wp.kernel(enable_backward=False)
def newton(
    # Structure:
    body_parent: wp.array(dtype=int),
    body_dofs: wp.array2d(dtype=int),
    row_dof: wp.array(dtype=int),
    pair: wp.array2d(dtype=int),
    pair_dim: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    max_iterations: int,
    ls_iterations: int,
    # Model:
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    friction: wp.array2d(dtype=vec5),
    # In:
    axis: wp.array2d(dtype=motion),
    diagonal: wp.array2d(dtype=real),
    offset: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=mat33),
    mixed: wp.array2d(dtype=mat33),
    shift: wp.array2d(dtype=mat33),
    frame_pos: wp.array2d(dtype=vec3),
    entry: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    candidate: wp.array2d(dtype=int),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    # Out:
    qacc_out: wp.array2d(dtype=real),
    residual_out: wp.array2d(dtype=real),
    preconditioned_out: wp.array2d(dtype=real),
    direction_out: wp.array2d(dtype=real),
    product_out: wp.array2d(dtype=real),
    stiffness_out: wp.array2d(dtype=real),
    change_out: wp.array2d(dtype=real),
    diagonal_out: wp.array2d(dtype=real),
    body_out: wp.array2d(dtype=motion),
    load_out: wp.array2d(dtype=wrench),
    turn_out: wp.array2d(dtype=mat33),
    mixed_out: wp.array2d(dtype=mat33),
    shift_out: wp.array2d(dtype=mat33),
    gain_out: wp.array2d(dtype=wrench),
    pivot_out: wp.array2d(dtype=real),
    slot_out: wp.array2d(dtype=int),
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
    m = Mechanism()
    m.body_parent = body_parent
    m.body_dofs = body_dofs
    m.axis = axis
    m.diagonal = diagonal
    m.offset = offset
    m.turn = turn
    m.mixed = mixed
    m.shift = shift
    m.gain = gain_out
    m.pivot = pivot_out
    r = Rows()
    r.row_dof = row_dof
    r.pair = pair
    r.pair_dim = pair_dim
    r.geom_body = geom_body
    r.body_frame = body_frame
    r.friction = friction
    r.frame_pos = frame_pos
    r.entry = entry
    r.weight = weight
    r.reference = reference
    r.bound = bound
    r.contact_pair = contact_pair
    r.contact_row = contact_row
    r.pos = pos
    r.frame = frame
    r.contact_slot = slot_out
    locate(world, candidate, contact_pair, slot_out)
    s = Scratch()
    s.residual = residual_out
    s.preconditioned = preconditioned_out
    s.direction = direction_out
    s.product = product_out
    s.stiffness = stiffness_out
    s.change = change_out
    s.diagonal = diagonal_out
    s.body = body_out
    s.load = load_out
    s.turn = turn_out
    s.mixed = mixed_out
    s.shift = shift_out
    n = force.shape[1]
    rows = weight.shape[1]
    scale = real(1.0) / (meaninertia[world] * real(wp.max(n, 1)))
    for i in range(rows):
        stiffness_out[world, i] = real(0.0)
    precondition(world, m, r, s)
    solve_tree(world, m, force, body_out, search_out)
    scale_squared = dot(world, search_out, search_out)
    for i in range(n):
        qacc_out[world, i] = start[world, i]
    spread(world, m, qacc_out, body_out)
    rates(world, r, qacc_out, body_out, error_out)
    resist(world, m, qacc_out, body_out, load_out, net_out)
    collect(world, m, load_out, net_out)
    for i in range(n):
        net_out[world, i] = net_out[world, i] - force[world, i]
    for i in range(rows):
        error_out[world, i] = error_out[world, i] - reference[world, i]
    count = int(0)
    still = int(0)
    norm = real(0.0)
    while count <= max_iterations:
        respond(world, r, error_out, row_force_out, stiffness_out)
        for b in range(body_parent.shape[0]):
            load_out[world, b] = wrench()
        for i in range(n):
            gradient_out[world, i] = net_out[world, i]
        push(world, r, row_force_out, load_out, gradient_out)
        collect(world, m, load_out, gradient_out)
        norm = scale * wp.sqrt(dot(world, gradient_out, gradient_out))
        if norm <= tolerance[world] or count == max_iterations or still == 1:
            break
        count = count + 1
        for i in range(n):
            gradient_out[world, i] = -gradient_out[world, i]
        precondition(world, m, r, s)
        conjugate_gradients(world, m, r, s, STEP, gradient_out, search_out)
        spread(world, m, search_out, body_out)
        rates(world, r, search_out, body_out, change_out)
        resist(world, m, search_out, body_out, load_out, change_net_out)
        collect(world, m, load_out, change_net_out)
        quad = dot(world, search_out, change_net_out)
        lin = dot(world, search_out, net_out)
        descent = dot(world, search_out, gradient_out)
        # the step at which the slope along it vanishes
        t = real(1.0)
        bracket = vec3()
        for _i in range(ls_iterations):
            slope = vec2(lin + t * quad, quad)
            for i in range(rows):
                if weight[world, i] > real(0.0):
                    slope += row_slope(world, i, t, error_out, change_out, weight, bound)
            if wp.abs(slope[0]) <= SLOPE_TOLERANCE * wp.abs(descent):
                break
            new = bracketed(t, slope, bracket)
            bracket = vec3(new[1], new[2], new[3])
            if new[0] == t:
                break
            t = new[0]
        moved = t * t * dot(world, search_out, search_out)
        for i in range(n):
            qacc_out[world, i] = qacc_out[world, i] + t * search_out[world, i]
            net_out[world, i] = net_out[world, i] + t * change_net_out[world, i]
        for i in range(rows):
            if weight[world, i] > real(0.0):
                error_out[world, i] = error_out[world, i] + t * change_out[world, i]
        if moved <= STILL * STILL * (scale_squared + dot(world, qacc_out, qacc_out)):
            still = 1
    norm_out[world] = norm
    iterations_out[world] = count
    status_out[world] = wp.uint32(0)
    if norm > tolerance[world] and still == 0:
        status_out[world] = wp.uint32(UNCONVERGED)


@wp.kernel(enable_backward=False)
def solve(
    # Structure:
    body_parent: wp.array(dtype=int),
    body_dofs: wp.array2d(dtype=int),
    row_dof: wp.array(dtype=int),
    pair: wp.array2d(dtype=int),
    pair_dim: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    # Model:
    friction: wp.array2d(dtype=vec5),
    # In:
    axis: wp.array2d(dtype=motion),
    diagonal: wp.array2d(dtype=real),
    offset: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=mat33),
    mixed: wp.array2d(dtype=mat33),
    shift: wp.array2d(dtype=mat33),
    frame_pos: wp.array2d(dtype=vec3),
    entry: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    candidate: wp.array2d(dtype=int),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    qacc: wp.array2d(dtype=real),
    right: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=real),
    residual_out: wp.array2d(dtype=real),
    preconditioned_out: wp.array2d(dtype=real),
    direction_out: wp.array2d(dtype=real),
    product_out: wp.array2d(dtype=real),
    stiffness_out: wp.array2d(dtype=real),
    change_out: wp.array2d(dtype=real),
    diagonal_out: wp.array2d(dtype=real),
    body_out: wp.array2d(dtype=motion),
    load_out: wp.array2d(dtype=wrench),
    turn_out: wp.array2d(dtype=mat33),
    mixed_out: wp.array2d(dtype=mat33),
    shift_out: wp.array2d(dtype=mat33),
    gain_out: wp.array2d(dtype=wrench),
    pivot_out: wp.array2d(dtype=real),
    slot_out: wp.array2d(dtype=int),
    error_out: wp.array2d(dtype=real),
):
    """H x = right with the Hessian at the accelerations ``qacc``."""
    world = wp.tid()
    m = Mechanism()
    m.body_parent = body_parent
    m.body_dofs = body_dofs
    m.axis = axis
    m.diagonal = diagonal
    m.offset = offset
    m.turn = turn
    m.mixed = mixed
    m.shift = shift
    m.gain = gain_out
    m.pivot = pivot_out
    r = Rows()
    r.row_dof = row_dof
    r.pair = pair
    r.pair_dim = pair_dim
    r.geom_body = geom_body
    r.body_frame = body_frame
    r.friction = friction
    r.frame_pos = frame_pos
    r.entry = entry
    r.weight = weight
    r.reference = reference
    r.bound = bound
    r.contact_pair = contact_pair
    r.contact_row = contact_row
    r.pos = pos
    r.frame = frame
    r.contact_slot = slot_out
    locate(world, candidate, contact_pair, slot_out)
    s = Scratch()
    s.residual = residual_out
    s.preconditioned = preconditioned_out
    s.direction = direction_out
    s.product = product_out
    s.stiffness = stiffness_out
    s.change = change_out
    s.diagonal = diagonal_out
    s.body = body_out
    s.load = load_out
    s.turn = turn_out
    s.mixed = mixed_out
    s.shift = shift_out
    spread(world, m, qacc, body_out)
    rates(world, r, qacc, body_out, error_out)
    for i in range(weight.shape[1]):
        error_out[world, i] = error_out[world, i] - reference[world, i]
    respond(world, r, error_out, change_out, stiffness_out)
    precondition(world, m, r, s)
    conjugate_gradients(world, m, r, s, EXACT, right, x_out)


@wp.kernel(enable_backward=False)
def restoring_forces(
    # Structure:
    body_parent: wp.array(dtype=int),
    body_dofs: wp.array2d(dtype=int),
    row_dof: wp.array(dtype=int),
    pair: wp.array2d(dtype=int),
    pair_dim: wp.array(dtype=int),
    geom_body: wp.array(dtype=int),
    body_frame: wp.array(dtype=int),
    # Model:
    friction: wp.array2d(dtype=vec5),
    # In:
    axis: wp.array2d(dtype=motion),
    diagonal: wp.array2d(dtype=real),
    offset: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=mat33),
    mixed: wp.array2d(dtype=mat33),
    shift: wp.array2d(dtype=mat33),
    frame_pos: wp.array2d(dtype=vec3),
    entry: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    candidate: wp.array2d(dtype=int),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    qacc: wp.array2d(dtype=real),
    # Out:
    total_out: wp.array2d(dtype=real),
    residual_out: wp.array2d(dtype=real),
    preconditioned_out: wp.array2d(dtype=real),
    direction_out: wp.array2d(dtype=real),
    product_out: wp.array2d(dtype=real),
    stiffness_out: wp.array2d(dtype=real),
    change_out: wp.array2d(dtype=real),
    diagonal_out: wp.array2d(dtype=real),
    body_out: wp.array2d(dtype=motion),
    load_out: wp.array2d(dtype=wrench),
    turn_out: wp.array2d(dtype=mat33),
    mixed_out: wp.array2d(dtype=mat33),
    shift_out: wp.array2d(dtype=mat33),
    gain_out: wp.array2d(dtype=wrench),
    pivot_out: wp.array2d(dtype=real),
    slot_out: wp.array2d(dtype=int),
    error_out: wp.array2d(dtype=real),
):
    """-J^T f of the constraints at given accelerations."""
    world = wp.tid()
    m = Mechanism()
    m.body_parent = body_parent
    m.body_dofs = body_dofs
    m.axis = axis
    m.diagonal = diagonal
    m.offset = offset
    m.turn = turn
    m.mixed = mixed
    m.shift = shift
    m.gain = gain_out
    m.pivot = pivot_out
    r = Rows()
    r.row_dof = row_dof
    r.pair = pair
    r.pair_dim = pair_dim
    r.geom_body = geom_body
    r.body_frame = body_frame
    r.friction = friction
    r.frame_pos = frame_pos
    r.entry = entry
    r.weight = weight
    r.reference = reference
    r.bound = bound
    r.contact_pair = contact_pair
    r.contact_row = contact_row
    r.pos = pos
    r.frame = frame
    r.contact_slot = slot_out
    locate(world, candidate, contact_pair, slot_out)
    s = Scratch()
    s.residual = residual_out
    s.preconditioned = preconditioned_out
    s.direction = direction_out
    s.product = product_out
    s.stiffness = stiffness_out
    s.change = change_out
    s.diagonal = diagonal_out
    s.body = body_out
    s.load = load_out
    s.turn = turn_out
    s.mixed = mixed_out
    s.shift = shift_out
    spread(world, m, qacc, body_out)
    rates(world, r, qacc, body_out, error_out)
    for i in range(weight.shape[1]):
        error_out[world, i] = error_out[world, i] - reference[world, i]
    respond(world, r, error_out, change_out, stiffness_out)
    for b in range(body_parent.shape[0]):
        load_out[world, b] = wrench()
    for i in range(qacc.shape[1]):
        total_out[world, i] = real(0.0)
    push(world, r, change_out, load_out, total_out)
    collect(world, m, load_out, total_out)
