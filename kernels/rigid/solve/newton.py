"""The constraint solver: Newton's method on MuJoCo's convex problem.

minimise (a - a0) . M (a - a0) / 2 + sum of the constraints' costs of J a - a_ref

with a dense Cholesky factor of the Hessian H = M + J^T s'' J and a line search along each step. Each row adds the clamp
of ``constraint.py`` to the gradient, and an elliptic contact adds that of its cone.

On a GPU the threads of a team (``team.py``) share a world: they divide the acting rows and the entries of vectors.
"""

import warp as wp

from ..._precision import real, tolerance, vec2, vec2i, vec3, vec4, vec5
from ...math import lower
from ..collide.shapes import num_contacts
from ..dense import add_outer, add_scaled, copy_packed, factorise, multiply_rows, multiply_symmetric, solve_in_place
from ..team import total, wait
from .cone import add_cone, cone_slope
from .constraint import TINY, UNBOUNDED, Rows

CONTACT_ROWS = wp.constant(10)
"""Most rows that a contact has."""
UNCONVERGED = wp.constant(4)
SLOPE_TOLERANCE = wp.constant(real(0.01))
"""The line search stops where the slope has fallen to this fraction: the next Newton step is exact anyway."""
STILL = wp.constant(tolerance(1.0e-12, 1.0e-5))
"""After a step shorter than this fraction of the acceleration only rounding changes: Newton converges quadratically."""


@wp.struct
class Cones:
    """The contacts whose rows may form cones."""

    elliptic: int
    first: int  # row of the first contact
    pair: wp.array2d(dtype=int)  # of every contact
    row: wp.array2d(dtype=int)  # its first row, counted from ``first``
    dim: wp.array(dtype=int)  # dimension of the contacts of each pair
    friction: wp.array2d(dtype=vec5)  # of every pair
    impratio: wp.array(dtype=real)


@wp.struct
class Work:
    """Working memory of a solve."""

    active: wp.array2d(dtype=int)  # the rows that act
    inside: wp.array2d(dtype=int)  # whether a row's force is within its bounds
    cone: wp.array2d(dtype=int)  # the contacts that act as cones
    error: wp.array2d(dtype=real)  # J a - a_ref
    change: wp.array2d(dtype=real)  # of the error along the search direction
    force: wp.array2d(dtype=real)  # of every row
    slope: wp.array3d(dtype=real)  # of a cone, two rows


@wp.struct
class Descent:
    """Vectors of Newton's method, one number for each dof."""

    gradient: wp.array2d(dtype=real)
    search: wp.array2d(dtype=real)
    net: wp.array2d(dtype=real)  # M a - force
    change_net: wp.array2d(dtype=real)  # of it along the search direction


@wp.struct
class Found:
    """How a solve ended."""

    residual: wp.array(dtype=real)
    iterations: wp.array(dtype=int)
    status: wp.array(dtype=wp.uint32)


@wp.func
def list_rows(world: int, lane: int, cones: Cones, rows: Rows, work_out: Work) -> vec2i:
    """List independent rows that act, then the rows of cones; returns how many are independent, and how many act.

    All threads of a team count; the first one writes.
    """
    end = cones.first
    contacts = num_contacts(world, cones.pair)
    if contacts > 0:
        end = wp.min(cones.first + cones.row[world, contacts - 1] + CONTACT_ROWS, rows.weight.shape[1])
    count = int(0)
    for r in range(end):
        alone = cones.elliptic == 0 or r < cones.first or rows.bound[world, r][1] < UNBOUNDED
        if rows.weight[world, r] > real(0.0) and alone:
            if lane == 0:
                work_out.active[world, count] = r
            count = count + 1
    single = count
    if cones.elliptic != 0:
        for r in range(cones.first, end):
            if rows.weight[world, r] > real(0.0) and rows.bound[world, r][1] == UNBOUNDED:
                if lane == 0:
                    work_out.active[world, count] = r
                count = count + 1
    return vec2i(single, count)


@wp.func
def list_cones(world: int, lane: int, cones: Cones, rows: Rows, work_out: Work) -> int:
    """The contacts that act and whose rows form a cone."""
    count = int(0)
    for c in range(cones.pair.shape[1]):
        p = cones.pair[world, c]
        if p >= 0:
            if cones.dim[p] > 1 and rows.weight[world, cones.first + cones.row[world, c]] > real(0.0):
                if lane == 0:
                    work_out.cone[world, count] = c
                count = count + 1
    return count


@wp.func
def add_rows(
    world: int, lane: int, lanes: int, count: int, rows: Rows, gradient_out: wp.array2d(dtype=real), work_out: Work
) -> real:
    """Rows that act by themselves: their forces, what they add to the gradient, and which are within their bounds.

    Returns how many moved off or onto a bound since the last call.
    """
    changes = real(0.0)
    for k in range(lane, count, lanes):
        r = work_out.active[world, k]
        low = rows.bound[world, r][0]
        high = rows.bound[world, r][1]
        s = wp.clamp(rows.weight[world, r] * work_out.error[world, r], low, high)
        work_out.force[world, r] = -s
        inside = wp.where(s > low and s < high, 1, 0)
        if inside != work_out.inside[world, r]:
            work_out.inside[world, r] = inside
            changes += real(1.0)
    wait(lanes)
    n = rows.jacobian.shape[2]
    for k in range(count):
        r = work_out.active[world, k]
        f = work_out.force[world, r]
        if f != real(0.0):
            add_scaled(world, lane, lanes, r, n, -f, rows.jacobian, gradient_out)
    return total(lanes, changes)


@wp.func
def add_cones(
    world: int,
    lane: int,
    lanes: int,
    count: int,
    cones: Cones,
    rows: Rows,
    gradient_out: wp.array2d(dtype=real),
    hessian_out: wp.array2d(dtype=real),
    work_out: Work,
):
    """Cones' forces, and what they add to the gradient and the Hessian."""
    ratio = wp.sqrt(wp.max(TINY, cones.impratio[world]))
    for k in range(count):
        c = work_out.cone[world, k]
        mu = cones.friction[world, cones.pair[world, c]]
        add_cone(
            world,
            lane,
            lanes,
            cones.first + cones.row[world, c],
            cones.dim[cones.pair[world, c]],
            mu[0] / ratio,
            mu,
            work_out.error,
            rows,
            gradient_out,
            hessian_out,
            work_out.force,
            work_out.slope,
        )


@wp.func
def row_slope(error: real, change: real, weight: real, bound: vec2) -> vec2:
    """First and second derivative of a row's cost along the error's change."""
    s = wp.clamp(weight * error, bound[0], bound[1])
    return vec2(s * change, wp.where(s > bound[0] and s < bound[1], weight * change * change, real(0.0)))


@wp.func
def bracketed(t: real, slope: vec2, bracket: vec3) -> vec4:
    """One step of the line search: (t, low, high, whether high is known)."""
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
    # Model:
    tolerance: wp.array(dtype=real),
    meaninertia: wp.array(dtype=real),
    # In:
    matrix: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    start: wp.array2d(dtype=real),
    rows: Rows,
    cones: Cones,
    # Out:
    qacc_out: wp.array2d(dtype=real),
    factor_out: wp.array2d(dtype=real),
    found_out: Found,
    v_out: Descent,
    work_out: Work,
):
    """Solve for the acceleration of every world; leaves the Cholesky factor of H at the solution.

    It ends where the gradient is within the tolerance, where a step is smaller than the rounding of the
    accelerations, or at the limit of iterations, which is reported.
    """
    world, lane = wp.tid()
    n = force.shape[1]
    scale = real(1.0) / (meaninertia[world] * real(wp.max(n, 1)))
    ratio = wp.sqrt(wp.max(TINY, cones.impratio[world]))
    # the rows that act: ``single`` are independent, ``acting`` includes those of cones
    listed = list_rows(world, lane, cones, rows, work_out)
    single = listed[0]
    acting = listed[1]
    curved = int(0)
    if cones.elliptic != 0:
        curved = list_cones(world, lane, cones, rows, work_out)
    wait(lanes)
    # net force and errors at the start
    multiply_symmetric(world, lane, lanes, n, matrix, start, v_out.net)
    multiply_rows(world, lane, lanes, acting, n, work_out.active, rows.jacobian, start, work_out.error)
    for i in range(lane, n, lanes):
        qacc_out[world, i] = start[world, i]
        v_out.net[world, i] = v_out.net[world, i] - force[world, i]
    for k in range(lane, acting, lanes):
        r = work_out.active[world, k]
        work_out.error[world, r] = work_out.error[world, r] - rows.reference[world, r]
        work_out.inside[world, r] = 0
    scale_squared = real(0.0)
    for i in range(lane, n, lanes):
        free = force[world, i] / matrix[world, lower(i, i)]
        scale_squared += free * free
    scale_squared = total(lanes, scale_squared)
    count = int(0)
    still = int(0)
    residual = real(0.0)
    while count <= max_iterations:
        # gradient, Hessian and its factor, which is reused if no row moved on or off a bound
        wait(lanes)
        for i in range(lane, n, lanes):
            v_out.gradient[world, i] = v_out.net[world, i]
        changes = add_rows(world, lane, lanes, single, rows, v_out.gradient, work_out)
        renewed = count == 0 or changes > real(0.0) or curved > 0
        if renewed:
            copy_packed(world, lane, lanes, n, matrix, factor_out)
            wait(lanes)
            for k in range(single):
                r = work_out.active[world, k]
                if work_out.inside[world, r] != 0:
                    add_outer(world, lane, lanes, r, n, rows.weight[world, r], rows.jacobian, factor_out)
        add_cones(world, lane, lanes, curved, cones, rows, v_out.gradient, factor_out, work_out)
        wait(lanes)
        if renewed:
            factorise(world, lane, lanes, n, factor_out)
        norm = real(0.0)
        for i in range(lane, n, lanes):
            norm += v_out.gradient[world, i] * v_out.gradient[world, i]
        residual = scale * wp.sqrt(total(lanes, norm))
        if residual <= tolerance[world] or count == max_iterations or still == 1:
            break
        # search direction: -H^-1 gradient
        count = count + 1
        for i in range(lane, n, lanes):
            v_out.search[world, i] = -v_out.gradient[world, i]
        wait(lanes)
        solve_in_place(world, lane, lanes, n, factor_out, v_out.search)
        multiply_symmetric(world, lane, lanes, n, matrix, v_out.search, v_out.change_net)
        multiply_rows(world, lane, lanes, acting, n, work_out.active, rows.jacobian, v_out.search, work_out.change)
        wait(lanes)
        quad = real(0.0)
        lin = real(0.0)
        descent = real(0.0)
        for i in range(lane, n, lanes):
            quad += v_out.search[world, i] * v_out.change_net[world, i]
            lin += v_out.search[world, i] * v_out.net[world, i]
            descent += v_out.search[world, i] * v_out.gradient[world, i]
        quad = total(lanes, quad)
        lin = total(lanes, lin)
        descent = total(lanes, descent)
        # line search: the step at which the slope along it vanishes
        t = real(1.0)
        bracket = vec3()
        for _i in range(ls_iterations):
            own = vec2()
            for k in range(lane, single, lanes):
                r = work_out.active[world, k]
                dx = work_out.change[world, r]
                own += row_slope(work_out.error[world, r] + t * dx, dx, rows.weight[world, r], rows.bound[world, r])
            for k in range(lane, curved, lanes):
                c = work_out.cone[world, k]
                p = cones.pair[world, c]
                mu = cones.friction[world, p]
                row = cones.first + cones.row[world, c]
                own += cone_slope(
                    world, row, cones.dim[p], mu[0] / ratio, mu, t, work_out.error, work_out.change, rows.weight
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
            da = t * v_out.search[world, i]
            qacc_out[world, i] = qacc_out[world, i] + da
            v_out.net[world, i] = v_out.net[world, i] + t * v_out.change_net[world, i]
            moved += da * da
            size += qacc_out[world, i] * qacc_out[world, i]
        for k in range(lane, acting, lanes):
            r = work_out.active[world, k]
            work_out.error[world, r] = work_out.error[world, r] + t * work_out.change[world, r]
        if total(lanes, moved) <= STILL * STILL * (scale_squared + total(lanes, size)):
            still = 1
    if lane == 0:
        found_out.residual[world] = residual
        found_out.iterations[world] = count
        found_out.status[world] = wp.uint32(0)
        if residual > tolerance[world] and still == 0:
            found_out.status[world] = wp.uint32(UNCONVERGED)


@wp.kernel(enable_backward=False)
def restoring_forces(
    # In:
    qacc: wp.array2d(dtype=real),
    rows: Rows,
    cones: Cones,
    # Out:
    total_out: wp.array2d(dtype=real),
    stiffness_out: wp.array2d(dtype=real),
    work_out: Work,
):
    """-J^T f of the constraints at given accelerations; ``stiffness`` is scratch."""
    world = wp.tid()
    n = qacc.shape[1]
    listed = list_rows(world, 0, cones, rows, work_out)
    for i in range(n):
        total_out[world, i] = real(0.0)
        for j in range(i + 1):
            stiffness_out[world, lower(i, j)] = real(0.0)
    multiply_rows(world, 0, 1, listed[1], n, work_out.active, rows.jacobian, qacc, work_out.error)
    for k in range(listed[1]):
        r = work_out.active[world, k]
        work_out.error[world, r] = work_out.error[world, r] - rows.reference[world, r]
        work_out.inside[world, r] = 0
    add_rows(world, 0, 1, listed[0], rows, total_out, work_out)
    if cones.elliptic != 0:
        count = list_cones(world, 0, cones, rows, work_out)
        add_cones(world, 0, 1, count, cones, rows, total_out, stiffness_out, work_out)
