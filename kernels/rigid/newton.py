"""The constraint solver: Newton's method on MuJoCo's convex problem.

minimise (a - a0) . M (a - a0) / 2 + sum over rows of D min(J a - a_ref, 0)^2 / 2

with a dense Cholesky factor of the Hessian H = M + J^T D J (acting rows) and an exact line search.
The cost is piecewise quadratic: once the acting rows stay the same, a full step is the solution.
"""

import warp as wp

from .._precision import real
from ..math import lower
from .constraint import symmetric

UNCONVERGED = wp.constant(4)


@wp.func
def slope(
    t: real,
    world: int,
    quad: real,
    lin: real,
    x: wp.array2d(dtype=real),
    dx: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
) -> real:
    """Derivative of the cost along the search direction at step t."""
    s = lin + t * quad
    for r in range(x.shape[1]):
        y = x[world, r] + t * dx[world, r]
        if y < real(0.0):
            s += weight[world, r] * y * dx[world, r]
    return s


@wp.func
def curvature(
    t: real,
    world: int,
    quad: real,
    x: wp.array2d(dtype=real),
    dx: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
) -> real:
    """Second derivative of the cost along the search direction at step t."""
    s = quad
    for r in range(x.shape[1]):
        if x[world, r] + t * dx[world, r] < real(0.0):
            s += weight[world, r] * dx[world, r] * dx[world, r]
    return s


@wp.func
def line_search(
    world: int,
    quad: real,
    lin: real,
    x: wp.array2d(dtype=real),
    dx: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
    iterations: int,
) -> real:
    """The step at which the slope vanishes: Newton steps on a monotone, piecewise linear slope, kept in a bracket."""
    low = real(0.0)
    high = real(0.0)
    bounded = int(0)
    t = real(1.0)
    for _i in range(iterations):
        s = slope(t, world, quad, lin, x, dx, weight)
        if s == real(0.0):
            return t
        if s < real(0.0):
            low = t
        else:
            high = t
            bounded = 1
        new = t - s / curvature(t, world, quad, x, dx, weight)
        if bounded == 1 and (new <= low or new >= high):
            new = real(0.5) * (low + high)
        if new == t:
            return t
        t = new
    return t


@wp.func
def solve_in_place(world: int, n: int, factor: wp.array2d(dtype=real), x: wp.array2d(dtype=real)):
    """Solve L L^T y = x, and put y where x was."""
    for i in range(n):
        s = x[world, i]
        for k in range(i):
            s -= factor[world, lower(i, k)] * x[world, k]
        x[world, i] = s / factor[world, lower(i, i)]
    for m in range(n):
        i = n - 1 - m
        s = x[world, i]
        for k in range(i + 1, n):
            s -= factor[world, lower(k, i)] * x[world, k]
        x[world, i] = s / factor[world, lower(i, i)]


@wp.kernel(enable_backward=False)
def newton(
    # Structure:
    max_iterations: int,
    ls_iterations: int,
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
    # Out:
    qacc_out: wp.array2d(dtype=real),
    factor_out: wp.array2d(dtype=real),
    gradient_out: wp.array2d(dtype=real),
    search_out: wp.array2d(dtype=real),
    error_out: wp.array2d(dtype=real),
    change_out: wp.array2d(dtype=real),
    row_force_out: wp.array2d(dtype=real),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
):
    """Solve for the acceleration of every world; leaves the Cholesky factor of H at the solution."""
    world = wp.tid()
    n = force.shape[1]
    rows = weight.shape[1]
    scale = real(1.0) / (meaninertia[world] * real(wp.max(n, 1)))
    for i in range(n):
        qacc_out[world, i] = start[world, i]
    for r in range(rows):
        x = -reference[world, r]
        for i in range(n):
            x += jacobian[world, r, i] * qacc_out[world, i]
        error_out[world, r] = x
    settled = int(0)
    count = int(0)
    residual = real(0.0)
    while settled < 3:
        # gradient and Hessian
        norm = real(0.0)
        for i in range(n):
            g = -force[world, i]
            for j in range(n):
                g += symmetric(matrix, world, i, j) * qacc_out[world, j]
            for r in range(rows):
                if error_out[world, r] < real(0.0):
                    g += weight[world, r] * error_out[world, r] * jacobian[world, r, i]
            gradient_out[world, i] = g
            norm += g * g
            for j in range(i + 1):
                h = matrix[world, lower(i, j)]
                for r in range(rows):
                    if error_out[world, r] < real(0.0):
                        h += weight[world, r] * jacobian[world, r, i] * jacobian[world, r, j]
                factor_out[world, lower(i, j)] = h
        residual = scale * wp.sqrt(norm)
        # Cholesky factor
        for i in range(n):
            for j in range(i + 1):
                s = factor_out[world, lower(i, j)]
                for k in range(j):
                    s -= factor_out[world, lower(i, k)] * factor_out[world, lower(j, k)]
                if i == j:
                    factor_out[world, lower(i, i)] = wp.sqrt(s)
                else:
                    factor_out[world, lower(i, j)] = s / factor_out[world, lower(j, j)]
        if residual <= tolerance[world] or count >= max_iterations or settled == 2:
            break
        count = count + 1
        # search direction: -H^-1 gradient
        for i in range(n):
            search_out[world, i] = -gradient_out[world, i]
        solve_in_place(world, n, factor_out, search_out)
        # exact step along it
        quad = real(0.0)
        lin = real(0.0)
        for i in range(n):
            ms = real(0.0)
            ma = -force[world, i]
            for j in range(n):
                ms += symmetric(matrix, world, i, j) * search_out[world, j]
                ma += symmetric(matrix, world, i, j) * qacc_out[world, j]
            quad += search_out[world, i] * ms
            lin += search_out[world, i] * ma
        for r in range(rows):
            dx = real(0.0)
            for i in range(n):
                dx += jacobian[world, r, i] * search_out[world, i]
            change_out[world, r] = dx
        t = line_search(world, quad, lin, error_out, change_out, weight, ls_iterations)
        changed = int(0)
        for r in range(rows):
            before = error_out[world, r]
            after = before + t * change_out[world, r]
            error_out[world, r] = after
            if (before < real(0.0)) != (after < real(0.0)):
                changed = 1
        for i in range(n):
            qacc_out[world, i] = qacc_out[world, i] + t * search_out[world, i]
        if changed == 0:
            settled = settled + 1
        else:
            settled = 0
    for r in range(rows):
        row_force_out[world, r] = -weight[world, r] * wp.min(error_out[world, r], real(0.0))
    residual_out[world] = residual
    iterations_out[world] = count
    status_out[world] = wp.uint32(0)
    if count >= max_iterations and settled < 2 and residual > tolerance[world]:
        status_out[world] = wp.uint32(UNCONVERGED)


@wp.kernel(enable_backward=False)
def solve_dense(
    # In:
    factor: wp.array2d(dtype=real),
    force: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=real),
):
    """Solve L L^T x = force."""
    world = wp.tid()
    n = force.shape[1]
    for i in range(n):
        x_out[world, i] = force[world, i]
    solve_in_place(world, n, factor, x_out)
