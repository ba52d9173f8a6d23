"""Friction without slip: sweeps that move friction forces to where they would be without their regularisation R.

The soft constraints of ``constraint.py`` let a body creep under a steady load. MuJoCo's no-slip pass starts from the
solver's forces f and holds the normal ones. It goes over dry frictions and the tangents of contacts in order, and gives
each block the force of least cost 1/2 f . A f + f . (J a - a_ref), A = J M^-1 J^T, within its bounds: the friction
loss, mu times the two edges' force of a pyramid, or the ellipse |f_i / mu_i| <= f_normal (``mj_solNoSlip``).

The acceleration a is carried along. With T the rows of a block, W = M^-1 T^T, and df the change of its force,

    f' = argmin 1/2 df . T W df + df . (T a - a_ref),  a' = a + W df.
"""

import warp as wp

from ..._precision import mat55, real, tolerance, vec5, vec6
from ...math import lower
from .constraint import TINY, Rows
from .newton import Cones

FREE = wp.constant(real(0.0))
HIGH = wp.constant(real(-1.0))
LOW = wp.constant(real(-2.0))
HELD = wp.constant(real(-3.0))
ZERO = wp.constant(real(-4.0))
"""What bounds a block: nothing, its limit, minus its limit, it was not moved, it has no force. An ellipse's is its
multiplier, if positive."""
SINGULAR = wp.constant(real(1.0e-10))
"""Least determinant, or pivot of a large block, of an ellipse with friction; MuJoCo's."""
WORSE = wp.constant(real(1.0e-10))
"""A move that raises the cost by more is not made; MuJoCo's."""
ROOT = wp.constant(tolerance(1.0e-15, 1.0e-6))
ROOTS = wp.constant(30)
"""Most steps of Newton's method for an ellipse's multiplier, which needs about five."""


@wp.struct
class Slips:
    """The rows of friction: dry frictions, then ``width`` tangents of each contact."""

    first: int  # row of the first dry friction
    dry: int  # number of dry frictions
    width: int


@wp.struct
class Tangents:
    """Rows of friction."""

    direction: wp.array3d(dtype=real)  # T, (world, slip, dof)
    response: wp.array3d(dtype=real)  # M^-1 T^T, (world, slip, dof)
    reference: wp.array2d(dtype=real)
    force: wp.array2d(dtype=real)  # at the start
    limit: wp.array2d(dtype=real)  # of the force; of an ellipse its normal force; negative: no such row


@wp.struct
class Sweeps:
    """What the sweeps did."""

    force: wp.array3d(dtype=real)  # before each sweep and after the last, (world, sweep + 1, slip)
    mark: wp.array3d(dtype=real)  # what bounded each row, or a multiplier at the first row of an ellipse
    count: wp.array(dtype=int)
    island: wp.array2d(dtype=int)  # of every dof
    inertia: wp.array2d(dtype=real)  # of every island, the trace of M
    improvement: wp.array2d(dtype=real)  # of its cost in a sweep
    ended: wp.array2d(dtype=int)  # islands that have converged


@wp.func
def solve_row(world: int, k: int, n: int, factor: wp.array2d(dtype=real), x: wp.array3d(dtype=real)):
    """Solve L^T L y = x[k] in place."""
    for j in range(n):
        i = n - 1 - j
        s = x[world, k, i]
        for m in range(i + 1, n):
            s -= factor[world, lower(m, i)] * x[world, k, m]
        x[world, k, i] = s / factor[world, lower(i, i)]
    for i in range(n):
        s = x[world, k, i]
        for m in range(i):
            s -= factor[world, lower(i, m)] * x[world, k, m]
        x[world, k, i] = s / factor[world, lower(i, i)]


@wp.kernel(enable_backward=False)
def tangents(
    # Structure:
    slips: Slips,
    # In:
    rows: Rows,
    cones: Cones,
    force: wp.array2d(dtype=real),
    factor: wp.array2d(dtype=real),
    # Out:
    tangents_out: Tangents,
):
    """The rows of friction, from those of the solve and their forces; ``factor`` is that of M."""
    world, k = wp.tid()
    n = rows.jacobian.shape[2]
    up = int(-1)
    down = int(-1)  # the other edge of a pyramid
    mu = real(1.0)
    own = real(0.0)
    limit = real(-1.0)
    if k < slips.dry:
        r = slips.first + k
        if rows.weight[world, r] > real(0.0):
            up = r
            own = force[world, r]
            limit = rows.bound[world, r][1]
    else:
        c = (k - slips.dry) // slips.width
        j = (k - slips.dry) % slips.width
        p = cones.pair[world, c]
        if p >= 0:
            start = cones.first + cones.row[world, c]
            if j < cones.dim[p] - 1 and rows.weight[world, start] > real(0.0):
                if cones.elliptic != 0:
                    up = start + 1 + j
                    own = force[world, up]
                    limit = force[world, start]
                else:
                    mu = cones.friction[world, p][j]
                    up = start + 2 * j
                    down = up + 1
                    own = mu * (force[world, up] - force[world, down])
                    limit = mu * (force[world, up] + force[world, down])
    tangents_out.force[world, k] = own
    tangents_out.limit[world, k] = limit
    if up >= 0:
        reference = rows.reference[world, up]
        if down >= 0:
            reference = real(0.5) / mu * (reference - rows.reference[world, down])
        tangents_out.reference[world, k] = reference
        for i in range(n):
            x = rows.jacobian[world, up, i]
            if down >= 0:
                x = real(0.5) / mu * (x - rows.jacobian[world, down, i])
            tangents_out.direction[world, k, i] = x
            tangents_out.response[world, k, i] = x
        solve_row(world, k, n, factor, tangents_out.response)


@wp.func
def along(world: int, k: int, direction: wp.array3d(dtype=real), x: wp.array2d(dtype=real)) -> real:
    """A row times a vector."""
    s = real(0.0)
    for i in range(x.shape[1]):
        s += direction[world, k, i] * x[world, i]
    return s


@wp.func
def between(world: int, k: int, m: int, t: Tangents) -> real:
    """A's entry of two rows."""
    s = real(0.0)
    for i in range(t.direction.shape[2]):
        s += t.direction[world, k, i] * t.response[world, m, i]
    return s


@wp.func
def push(world: int, k: int, scale: real, direction: wp.array3d(dtype=real), x: wp.array2d(dtype=real)):
    """x += scale times a row."""
    if scale != real(0.0):
        for i in range(x.shape[1]):
            x[world, i] = x[world, i] + scale * direction[world, k, i]


@wp.func
def label(
    world: int,
    matrix: wp.array2d(dtype=real),
    rows: Rows,
    force: wp.array2d(dtype=real),
    tree: wp.array(dtype=int),
    sweeps_out: Sweeps,
):
    """Islands, the trees that rows connect; their inertia, and the cost of R that each of them loses."""
    n = rows.jacobian.shape[2]
    for i in range(n):
        sweeps_out.island[world, i] = tree[i]
        sweeps_out.improvement[world, i] = real(0.0)
        sweeps_out.inertia[world, i] = real(0.0)
        sweeps_out.ended[world, i] = 1
    for r in range(rows.weight.shape[1]):
        if rows.weight[world, r] > real(0.0):
            least = island(world, r, rows.jacobian, sweeps_out.island)
            for i in range(n):
                old = sweeps_out.island[world, i]
                if rows.jacobian[world, r, i] != real(0.0) and old != least:
                    for m in range(n):
                        if sweeps_out.island[world, m] == old:
                            sweeps_out.island[world, m] = least
    for i in range(n):
        b = sweeps_out.island[world, i]
        sweeps_out.inertia[world, b] = sweeps_out.inertia[world, b] + matrix[world, lower(i, i)]
    for r in range(rows.weight.shape[1]):
        if rows.weight[world, r] > real(0.0):
            b = island(world, r, rows.jacobian, sweeps_out.island)
            cost = real(0.5) * force[world, r] * force[world, r] / rows.weight[world, r]
            sweeps_out.improvement[world, b] = sweeps_out.improvement[world, b] + cost
            sweeps_out.ended[world, b] = 0


@wp.func
def island(world: int, k: int, direction: wp.array3d(dtype=real), islands: wp.array2d(dtype=int)) -> int:
    """The least island of the dofs of a row; 0 if it has none."""
    n = islands.shape[1]
    least = int(n)
    for i in range(n):
        if direction[world, k, i] != real(0.0):
            least = wp.min(least, islands[world, i])
    return least % n


@wp.func
def move_one(
    world: int, sweep: int, k: int, t: Tangents, acceleration_out: wp.array2d(dtype=real), sweeps_out: Sweeps
) -> real:
    """Move the force of a row by itself; returns the change of the cost."""
    own = between(world, k, k, t)
    error = along(world, k, t.direction, acceleration_out) - t.reference[world, k]
    old = sweeps_out.force[world, sweep + 1, k]
    limit = t.limit[world, k]
    new = real(0.0)
    mark = ZERO
    if own > TINY:
        new = old - error / own
        mark = FREE
        if new < -limit:
            new = -limit
            mark = LOW
        elif new > limit:
            new = limit
            mark = HIGH
    change = (new - old) * (real(0.5) * (new - old) * own + error)
    if change > WORSE:
        new = old
        mark = HELD
        change = real(0.0)
    sweeps_out.force[world, sweep + 1, k] = new
    sweeps_out.mark[world, sweep, k] = mark
    push(world, k, new - old, t.response, acceleration_out)
    return change


@wp.func
def block(world: int, k: int, size: int, mu: vec5, multiplier: real, t: Tangents) -> mat55:
    """A's block of an ellipse, scaled so that the ellipse is a ball, plus the multiplier; the identity beyond."""
    out = mat55()
    for i in range(5):
        if i < size:
            for j in range(size):
                out[i, j] = mu[i] * mu[j] * between(world, k + i, k + j, t)
            out[i, i] = out[i, i] + multiplier
        else:
            out[i, i] = real(1.0)
    return out


@wp.func
def pivoted(matrix: mat55) -> mat55:
    """L D L^T of a symmetric matrix: L below the diagonal, D on it."""
    out = mat55()
    for i in range(5):
        for j in range(i + 1):
            s = matrix[i, j]
            for m in range(j):
                s -= out[i, m] * out[j, m] * out[m, m]
            if i == j:
                out[i, i] = s
            else:
                out[i, j] = s / out[j, j]
    return out


@wp.func
def sound(factor: mat55, size: int) -> bool:
    """Whether a block has a solution: MuJoCo's thresholds."""
    product = real(1.0)
    least = factor[0, 0]
    for i in range(5):
        if i < size:
            product *= factor[i, i]
            least = wp.min(least, factor[i, i])
    return least > real(0.0) and wp.where(size < 4, product, least) >= SINGULAR


@wp.func
def solved(factor: mat55, b: vec5) -> vec5:
    """Solve L D L^T x = b."""
    x = vec5()
    for i in range(5):
        s = b[i]
        for m in range(i):
            s -= factor[i, m] * x[m]
        x[i] = s
    y = vec5()
    for j in range(5):
        i = 4 - j
        s = x[i] / factor[i, i]
        for m in range(i + 1, 5):
            s -= factor[m, i] * y[m]
        y[i] = s
    return y


@wp.func
def in_ball(matrix: mat55, b: vec5, size: int, radius: real) -> vec6:
    """argmin 1/2 y . A y + b . y in a ball, and its multiplier, or ZERO if A is singular.

    (A + multiplier) y = -b, |y| = radius: Newton's method for 1 / |y|, which is monotone (Moré and Sorensen 1983).
    """
    multiplier = real(0.0)
    y = vec5()
    for _i in range(ROOTS):
        m = matrix
        for i in range(5):
            if i < size:
                m[i, i] = m[i, i] + multiplier
        factor = pivoted(m)
        if not sound(factor, size):
            return vec6(real(0.0), real(0.0), real(0.0), real(0.0), real(0.0), ZERO)
        y = -solved(factor, b)
        length = wp.length(y)
        if length <= radius * (real(1.0) + ROOT):
            break
        before = multiplier
        multiplier += length * length / wp.dot(y, solved(factor, y)) * (length - radius) / radius
        if multiplier == before:
            break
    if multiplier > real(0.0):
        y = y * (radius / wp.length(y))
    return vec6(y[0], y[1], y[2], y[3], y[4], multiplier)


@wp.func
def move_ellipse(
    world: int,
    sweep: int,
    k: int,
    size: int,
    mu: vec5,
    t: Tangents,
    acceleration_out: wp.array2d(dtype=real),
    sweeps_out: Sweeps,
) -> real:
    """Move the tangential force of an elliptic contact; returns the change of the cost."""
    matrix = block(world, k, size, mu, real(0.0), t)
    error = vec5()
    old = vec5()
    for i in range(5):
        if i < size:
            error[i] = mu[i] * (along(world, k + i, t.direction, acceleration_out) - t.reference[world, k + i])
            old[i] = sweeps_out.force[world, sweep + 1, k + i] / mu[i]
    new = vec6(real(0.0), real(0.0), real(0.0), real(0.0), real(0.0), ZERO)
    if t.limit[world, k] >= TINY:
        new = in_ball(matrix, error - matrix * old, size, t.limit[world, k])
    delta = vec5(new[0], new[1], new[2], new[3], new[4]) - old
    change = real(0.5) * wp.dot(delta, matrix * delta) + wp.dot(delta, error)
    mark = new[5]
    if change > WORSE:
        delta = vec5()
        mark = HELD
        change = real(0.0)
    for i in range(5):
        if i < size:
            sweeps_out.force[world, sweep + 1, k + i] = mu[i] * (old[i] + delta[i])
            sweeps_out.mark[world, sweep, k + i] = mark
            push(world, k + i, mu[i] * delta[i], t.response, acceleration_out)
    return change


@wp.kernel(enable_backward=False)
def sweep(
    # Structure:
    slips: Slips,
    most: int,
    tolerance: real,
    tree: wp.array(dtype=int),
    # In:
    matrix: wp.array2d(dtype=real),
    rows: Rows,
    cones: Cones,
    tangents: Tangents,
    row_force: wp.array2d(dtype=real),
    qacc: wp.array2d(dtype=real),
    # Out:
    acceleration_out: wp.array2d(dtype=real),
    force_out: wp.array2d(dtype=real),
    sweeps_out: Sweeps,
):
    """Sweep over the rows of friction until no island's cost improves, or ``most`` times."""
    world = wp.tid()
    n = qacc.shape[1]
    count = tangents.limit.shape[1]
    for i in range(n):
        acceleration_out[world, i] = qacc[world, i]
    for k in range(count):
        sweeps_out.force[world, 0, k] = tangents.force[world, k]
    label(world, matrix, rows, row_force, tree, sweeps_out)
    done = int(0)
    going = int(1)
    while done < most and going == 1:
        going = int(0)
        for k in range(count):
            sweeps_out.force[world, done + 1, k] = sweeps_out.force[world, done, k]
            sweeps_out.mark[world, done, k] = HELD
        for k in range(count):
            if tangents.limit[world, k] >= real(0.0):
                b = island(world, k, tangents.direction, sweeps_out.island)
                size = int(1)
                if sweeps_out.ended[world, b] == 0:
                    change = real(0.0)
                    if cones.elliptic != 0 and k >= slips.dry:
                        size = 0  # but for the first row of an ellipse, which moves all of its rows
                        if (k - slips.dry) % slips.width == 0:
                            p = cones.pair[world, (k - slips.dry) // slips.width]
                            size = cones.dim[p] - 1
                            mu = cones.friction[world, p]
                            change = move_ellipse(world, done, k, size, mu, tangents, acceleration_out, sweeps_out)
                    else:
                        change = move_one(world, done, k, tangents, acceleration_out, sweeps_out)
                    sweeps_out.improvement[world, b] = sweeps_out.improvement[world, b] - change
        for i in range(n):
            if sweeps_out.improvement[world, i] < tolerance * sweeps_out.inertia[world, i]:
                sweeps_out.ended[world, i] = 1
            if sweeps_out.ended[world, i] == 0:
                going = 1
            sweeps_out.improvement[world, i] = real(0.0)
        done += 1
    sweeps_out.count[world] = done
    for k in range(count):
        force_out[world, k] = sweeps_out.force[world, done, k]
