"""The constraint solver: Newton's method on MuJoCo's convex problem.

minimise (a - a0) . M (a - a0) / 2 + sum of the constraints' costs of J a - a_ref

with a dense Cholesky factor of the Hessian H = M + J^T s'' J and a line search along each step. The cost's gradient
by a row is the clamp of :mod:`constraint`, that of an elliptic contact its cone's.

On a GPU the threads of a team (:mod:`team`) share a world: the acting rows are dealt, as are a vector's entries.
"""

import warp as wp

from .._precision import real, tolerance, vec2, vec2i, vec3, vec4, vec5
from ..math import lower
from .cone import add_cone, cone_slope
from .constraint import TINY, UNBOUNDED
from .dense import (
    add_outer,
    add_scaled,
    copy_packed,
    factorise,
    multiply_rows,
    multiply_symmetric,
    solve_in_place,
)
from .shapes import num_contacts
from .team import total, wait

CONTACT_ROWS = wp.constant(10)
"""Most rows that a contact has."""
UNCONVERGED = wp.constant(4)
SLOPE_TOLERANCE = wp.constant(real(0.01))
"""The line search stops where the slope has fallen to this part: the next Newton step is exact anyway."""
STILL = wp.constant(tolerance(1.0e-12, 1.0e-5))
"""After a step shorter than this part of the acceleration nothing changes but rounding: Newton converges twice over."""


@wp.func
def list_rows(
    world: int,
    lane: int,
    first: int,
    elliptic: int,
    weight: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    active_out: wp.array2d(dtype=int),
) -> vec2i:
    """The rows that act, those that do so by themselves first, then cones': the numbers of the first and of all.

    All threads of a team count, the first writes.
    """
    end = first
    contacts = num_contacts(world, contact_pair)
    if contacts > 0:
        end = wp.min(first + contact_row[world, contacts - 1] + CONTACT_ROWS, weight.shape[1])
    count = int(0)
    for r in range(end):
        if weight[world, r] > real(0.0) and (elliptic == 0 or r < first or bound[world, r][1] < UNBOUNDED):
            if lane == 0:
                active_out[world, count] = r
            count = count + 1
    rows = count
    if elliptic != 0:
        for r in range(first, end):
            if weight[world, r] > real(0.0) and bound[world, r][1] == UNBOUNDED:
                if lane == 0:
                    active_out[world, count] = r
                count = count + 1
    return vec2i(rows, count)


@wp.func
def list_cones(
    world: int,
    lane: int,
    first: int,
    pair_dim: wp.array(dtype=int),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    weight: wp.array2d(dtype=real),
    cone_out: wp.array2d(dtype=int),
) -> int:
    """The contacts that act and whose rows form a cone."""
    count = int(0)
    for c in range(contact_pair.shape[1]):
        p = contact_pair[world, c]
        if p >= 0:
            if pair_dim[p] > 1 and weight[world, first + contact_row[world, c]] > real(0.0):
                if lane == 0:
                    cone_out[world, count] = c
                count = count + 1
    return count


@wp.func
def add_rows(
    world: int,
    lane: int,
    lanes: int,
    rows: int,
    active: wp.array2d(dtype=int),
    error: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    jacobian: wp.array3d(dtype=real),
    gradient_out: wp.array2d(dtype=real),
    inside_out: wp.array2d(dtype=int),
    force_out: wp.array2d(dtype=real),
) -> real:
    """Rows that act by themselves: their forces, what they add to the gradient, and which are within their bounds.

    Returns how many have left their bounds, or come to them, since the last call.
    """
    changes = real(0.0)
    for k in range(lane, rows, lanes):
        r = active[world, k]
        low = bound[world, r][0]
        high = bound[world, r][1]
        s = wp.clamp(weight[world, r] * error[world, r], low, high)
        force_out[world, r] = -s
        inside = wp.where(s > low and s < high, 1, 0)
        if inside != inside_out[world, r]:
            inside_out[world, r] = inside
            changes += real(1.0)
    wait(lanes)
    for k in range(rows):
        f = force_out[world, active[world, k]]
        if f != real(0.0):
            add_scaled(world, lane, lanes, active[world, k], jacobian.shape[2], -f, jacobian, gradient_out)
    return total(lanes, changes)


@wp.func
def row_slope(
    world: int,
    r: int,
    t: real,
    error: wp.array2d(dtype=real),
    change: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
) -> vec2:
    """First and second derivative of a row's cost along the error's change, at step t."""
    dx = change[world, r]
    low = bound[world, r][0]
    high = bound[world, r][1]
    s = wp.clamp(weight[world, r] * (error[world, r] + t * dx), low, high)
    return vec2(s * dx, wp.where(s > low and s < high, weight[world, r] * dx * dx, real(0.0)))


@wp.func
def bracketed(t: real, slope: vec2, bracket: vec3) -> vec4:
    """The next step of a line search, and its bracket: (t, low, high, whether high is known)."""
    low = bracket[0]
    high = bracket[1]
    known = bracket[2]
    if slope[0] < real(0.0):
        low = t
    else:
        high = t
        known = real(1.0)
    new = t - slope[0] / slope[1]
    if known > real(0.0) and (new <= low or new >= high):
        new = real(0.5) * (low + high)
    return vec4(new, low, high, known)


@wp.kernel(enable_backward=False)
def newton(
    # Structure:
    lanes: int,
    max_iterations: int,
    ls_iterations: int,
    first: int,
    elliptic: int,
    pair_dim: wp.array(dtype=int),
    # Model:
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    pair_friction: wp.array2d(dtype=vec5),
    impratio: wp.array(dtype=real),
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
    gradient_out: wp.array2d(dtype=real),
    search_out: wp.array2d(dtype=real),
    net_out: wp.array2d(dtype=real),
    change_net_out: wp.array2d(dtype=real),
    error_out: wp.array2d(dtype=real),
    change_out: wp.array2d(dtype=real),
    active_out: wp.array2d(dtype=int),
    inside_out: wp.array2d(dtype=int),
    cone_out: wp.array2d(dtype=int),
    work_out: wp.array3d(dtype=real),
    force_out: wp.array2d(dtype=real),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Solve for the acceleration of every world; leaves the Cholesky factor of H at the solution.

    ``net`` is M a - force, ``error`` J a - a_ref. Ends where the gradient is within the tolerance, where a step changes
    nothing but rounding (of it or of the accelerations that balance), or at the limit of iterations, which is reported.
    """
    world, lane = wp.tid()
    n = force.shape[1]
    scale = real(1.0) / (meaninertia[world] * real(wp.max(n, 1)))
    ratio = wp.sqrt(wp.max(TINY, impratio[world]))
    listed = list_rows(world, lane, first, elliptic, weight, bound, contact_pair, contact_row, active_out)
    rows = listed[0]
    acting = listed[1]
    cones = int(0)
    if elliptic != 0:
        cones = list_cones(world, lane, first, pair_dim, contact_pair, contact_row, weight, cone_out)
    wait(lanes)
    multiply_symmetric(world, lane, lanes, n, matrix, start, net_out)
    multiply_rows(world, lane, lanes, acting, n, active_out, jacobian, start, error_out)
    for i in range(lane, n, lanes):
        qacc_out[world, i] = start[world, i]
        net_out[world, i] = net_out[world, i] - force[world, i]
    for k in range(lane, acting, lanes):
        r = active_out[world, k]
        error_out[world, r] = error_out[world, r] - reference[world, r]
        inside_out[world, r] = 0
    scale_squared = real(0.0)
    for i in range(lane, n, lanes):
        free = force[world, i] / matrix[world, lower(i, i)]
        scale_squared += free * free
    scale_squared = total(lanes, scale_squared)
    count = int(0)
    still = int(0)
    residual = real(0.0)
    while count <= max_iterations:
        # gradient, Hessian and its factor, which stays where no row came to its bound or left it
        wait(lanes)
        for i in range(lane, n, lanes):
            gradient_out[world, i] = net_out[world, i]
        changes = add_rows(
            world,
            lane,
            lanes,
            rows,
            active_out,
            error_out,
            weight,
            bound,
            jacobian,
            gradient_out,
            inside_out,
            force_out,
        )
        renewed = count == 0 or changes > real(0.0) or cones > 0
        if renewed:
            copy_packed(world, lane, lanes, n, matrix, factor_out)
            wait(lanes)
            for k in range(rows):
                r = active_out[world, k]
                if inside_out[world, r] != 0:
                    add_outer(world, lane, lanes, r, n, weight[world, r], jacobian, factor_out)
        for k in range(cones):
            c = cone_out[world, k]
            mu = pair_friction[world, contact_pair[world, c]]
            dim = pair_dim[contact_pair[world, c]]
            add_cone(
                world,
                lane,
                lanes,
                first + contact_row[world, c],
                dim,
                mu[0] / ratio,
                mu,
                error_out,
                weight,
                jacobian,
                gradient_out,
                factor_out,
                force_out,
                work_out,
            )
        wait(lanes)
        if renewed:
            factorise(world, lane, lanes, n, factor_out)
        norm = real(0.0)
        for i in range(lane, n, lanes):
            norm += gradient_out[world, i] * gradient_out[world, i]
        residual = scale * wp.sqrt(total(lanes, norm))
        if residual <= tolerance[world] or count == max_iterations or still == 1:
            break
        # search direction: -H^-1 gradient
        count = count + 1
        for i in range(lane, n, lanes):
            search_out[world, i] = -gradient_out[world, i]
        wait(lanes)
        solve_in_place(world, lane, lanes, n, factor_out, search_out)
        multiply_symmetric(world, lane, lanes, n, matrix, search_out, change_net_out)
        multiply_rows(world, lane, lanes, acting, n, active_out, jacobian, search_out, change_out)
        wait(lanes)
        quad = real(0.0)
        lin = real(0.0)
        descent = real(0.0)
        for i in range(lane, n, lanes):
            quad += search_out[world, i] * change_net_out[world, i]
            lin += search_out[world, i] * net_out[world, i]
            descent += search_out[world, i] * gradient_out[world, i]
        quad = total(lanes, quad)
        lin = total(lanes, lin)
        descent = total(lanes, descent)
        # the step at which the slope along it vanishes
        t = real(1.0)
        bracket = vec3()
        for _i in range(ls_iterations):
            own = vec2()
            for k in range(lane, rows, lanes):
                own += row_slope(world, active_out[world, k], t, error_out, change_out, weight, bound)
            for k in range(lane, cones, lanes):
                c = cone_out[world, k]
                mu = pair_friction[world, contact_pair[world, c]]
                dim = pair_dim[contact_pair[world, c]]
                own += cone_slope(
                    world, first + contact_row[world, c], dim, mu[0] / ratio, mu, t, error_out, change_out, weight
                )
            slope = vec2(lin + t * quad + total(lanes, own[0]), quad + total(lanes, own[1]))
            if wp.abs(slope[0]) <= SLOPE_TOLERANCE * wp.abs(descent):
                break
            new = bracketed(t, slope, bracket)
            bracket = vec3(new[1], new[2], new[3])
            if new[0] == t:
                break
            t = new[0]
        # take it
        moved = real(0.0)
        size = real(0.0)
        for i in range(lane, n, lanes):
            da = t * search_out[world, i]
            qacc_out[world, i] = qacc_out[world, i] + da
            net_out[world, i] = net_out[world, i] + t * change_net_out[world, i]
            moved += da * da
            size += qacc_out[world, i] * qacc_out[world, i]
        for k in range(lane, acting, lanes):
            r = active_out[world, k]
            error_out[world, r] = error_out[world, r] + t * change_out[world, r]
        if total(lanes, moved) <= STILL * STILL * (scale_squared + total(lanes, size)):
            still = 1
    if lane == 0:
        residual_out[world] = residual
        iterations_out[world] = count
        status_out[world] = wp.uint32(0)
        if residual > tolerance[world] and still == 0:
            status_out[world] = wp.uint32(UNCONVERGED)


@wp.kernel(enable_backward=False)
def restoring_forces(
    # Structure:
    first: int,
    elliptic: int,
    pair_dim: wp.array(dtype=int),
    # Model:
    pair_friction: wp.array2d(dtype=vec5),
    impratio: wp.array(dtype=real),
    # In:
    qacc: wp.array2d(dtype=real),
    jacobian: wp.array3d(dtype=real),
    weight: wp.array2d(dtype=real),
    reference: wp.array2d(dtype=real),
    bound: wp.array2d(dtype=vec2),
    contact_pair: wp.array2d(dtype=int),
    contact_row: wp.array2d(dtype=int),
    # Out:
    total_out: wp.array2d(dtype=real),
    error_out: wp.array2d(dtype=real),
    active_out: wp.array2d(dtype=int),
    inside_out: wp.array2d(dtype=int),
    cone_out: wp.array2d(dtype=int),
    work_out: wp.array3d(dtype=real),
    stiffness_out: wp.array2d(dtype=real),
    force_out: wp.array2d(dtype=real),
):
    """-J^T f of the constraints at given accelerations; ``stiffness`` is scratch."""
    world = wp.tid()
    n = qacc.shape[1]
    ratio = wp.sqrt(wp.max(TINY, impratio[world]))
    listed = list_rows(world, 0, first, elliptic, weight, bound, contact_pair, contact_row, active_out)
    for i in range(n):
        total_out[world, i] = real(0.0)
        for j in range(i + 1):
            stiffness_out[world, lower(i, j)] = real(0.0)
    multiply_rows(world, 0, 1, listed[1], n, active_out, jacobian, qacc, error_out)
    for k in range(listed[1]):
        r = active_out[world, k]
        error_out[world, r] = error_out[world, r] - reference[world, r]
        inside_out[world, r] = 0
    add_rows(world, 0, 1, listed[0], active_out, error_out, weight, bound, jacobian, total_out, inside_out, force_out)
    if elliptic != 0:
        for k in range(list_cones(world, 0, first, pair_dim, contact_pair, contact_row, weight, cone_out)):
            c = cone_out[world, k]
            mu = pair_friction[world, contact_pair[world, c]]
            add_cone(
                world,
                0,
                1,
                first + contact_row[world, c],
                pair_dim[contact_pair[world, c]],
                mu[0] / ratio,
                mu,
                error_out,
                weight,
                jacobian,
                total_out,
                stiffness_out,
                force_out,
                work_out,
            )
