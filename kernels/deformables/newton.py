"""Implicit Euler as optimisation: Newton's method on the incremental potential, and the solve of the backward pass.

Far from the solution the Hessian is projected, element by element, so that every step goes downhill. Near it the true
one is tried first: without it convergence is only linear where an element's curvature is negative in some direction,
which is common if nu is near 0.5.

One thread takes a world: it runs all iterations, so that worlds stop one by one.
"""

import warp as wp

from .._precision import real, tolerance, vec2, vec3
from .bend import add_fold_force, fold_work, set_up_folds
from .carried import add_body_force, body_imbalance, carry
from .hessian import Matrix, hessian, multiply
from .potential import (
    NONE,
    ROUNDING,
    Body,
    Setting,
    Work,
    deformation,
    gradient,
    inertia,
    move,
    potential,
    pull,
    set_up,
)
from .self_contact import add_self_force, look_ahead, self_work, set_out

UNCONVERGED = wp.constant(4)
CONTACT_OVERFLOW = wp.constant(8)
INVERTED = wp.constant(256)

STILL = wp.constant(tolerance(1.0e-9, 1.0e-4))
"""After a whole step shorter than this fraction of the mean edge only rounding changes: Newton doubles the digits."""
CLOSER = wp.constant(tolerance(1.0e-13, 1.0e-5))
"""The same among bodies that answer: the Hessian leaves out how forces turn with them, so digits do not double."""
ENOUGH = wp.constant(tolerance(1.0e-12, 1.0e-6))
"""Imbalance among such bodies that is rounding if no step lowers it."""
NEAR = wp.constant(real(0.3))
"""After a step shorter than this part of the mean edge the next tries the true Hessian, with which it is quadratic."""
SHORT = wp.constant(real(0.1))
"""After a smaller part of a step the projected Hessian is tried: the true one leads too far."""
LOOSE = wp.constant(real(1.0e-2))
"""Part of the gradient that conjugate gradients may leave in the first step; later ones follow the step's length."""
TIGHT = wp.constant(tolerance(1.0e-8, 1.0e-4))
"""The smallest such part."""
DESCENT = wp.constant(real(1.0e-4))
"""Part of the decrease that the slope promises, with which the line search is content (Armijo 1966)."""
HALVED = wp.constant(real(0.5))
"""Part of the imbalance that a step may leave if it does not lower the potential."""
SHARP = wp.constant(int(tolerance(1.0, 0.0)))
"""Whether W alone tells good steps from bad ones; in float32 it is blurred far from its least value."""
CLOSE = wp.constant(tolerance(0.0, 3.0))
"""Two imbalances within this factor may differ by rounding alone; in float64 no guess is needed to keep momentum."""
FAR = wp.constant(real(1.0e30))
"""More than any imbalance."""
BLUR = wp.constant(tolerance(1.0e-14, 1.0e-6))
"""Part of the potential's terms that its rounding may be."""
EXACT = wp.constant(tolerance(1.0e-13, 1.0e-6))
"""Part of the cotangent that the backward pass may leave."""


@wp.struct
class Descent:
    """Vectors of the solves, one for each vertex."""

    gradient: wp.array2d(dtype=vec3)
    search: wp.array2d(dtype=vec3)
    residual: wp.array2d(dtype=vec3)
    direction: wp.array2d(dtype=vec3)
    product: wp.array2d(dtype=vec3)
    trial: wp.array2d(dtype=vec3)


@wp.struct
class Krylov:
    """Vectors of MINRES."""

    older: wp.array2d(dtype=vec3)
    old: wp.array2d(dtype=vec3)
    lanczos: wp.array2d(dtype=vec3)
    z: wp.array2d(dtype=vec3)
    w_older: wp.array2d(dtype=vec3)
    w_old: wp.array2d(dtype=vec3)


@wp.func
def conjugate_gradients(
    world: int, body: Body, setting: Setting, work: Work, matrix: Matrix, part: real, most: int, descent_out: Descent
) -> int:
    """Solve H search = -gradient until this part of the residual is left; returns whether all curvature was positive.

    Where it is not it stops, with what it has: a direction of descent.
    """
    n = descent_out.gradient.shape[1]
    rz = real(0.0)
    for i in range(n):
        r = -descent_out.gradient[world, i]
        z = matrix.diagonal[world, i] * r
        descent_out.search[world, i] = vec3()
        descent_out.residual[world, i] = r
        descent_out.direction[world, i] = z
        rz += wp.dot(r, z)
    goal = part * part * rz
    positive = int(1)
    for k in range(most):
        curvature = multiply(world, body, setting, work, matrix, descent_out.direction, descent_out.product)
        if curvature <= real(0.0):
            positive = 0
            if k == 0:
                for i in range(n):
                    descent_out.search[world, i] = descent_out.direction[world, i]
            break
        alpha = rz / curvature
        new = real(0.0)
        for i in range(n):
            r = descent_out.residual[world, i] - alpha * descent_out.product[world, i]
            descent_out.search[world, i] = descent_out.search[world, i] + alpha * descent_out.direction[world, i]
            descent_out.residual[world, i] = r
            new += wp.dot(r, matrix.diagonal[world, i] * r)
        if new <= goal:
            break
        beta = new / rz
        rz = new
        for i in range(n):
            z = matrix.diagonal[world, i] * descent_out.residual[world, i]
            descent_out.direction[world, i] = z + beta * descent_out.direction[world, i]
    return positive


@wp.func(inline=False)
def whole_potential(
    world: int, body: Body, setting: Setting, u: wp.array2d(dtype=vec3), work: Work, matrix: Matrix
) -> vec2:
    """W with hinges and contact of the body with itself, and what its rounding is relative to."""
    value = potential(world, body, setting, u, work)
    if body.sheet != 0:
        value += fold_work(world, body, setting, work)
    if body.skin.room > 0:
        value += self_work(world, body, setting, work, matrix.pairs, matrix.grid)
    return value


@wp.func
def move_all(world: int, body: Body, setting: Setting, u: wp.array2d(dtype=vec3), work_out: Work):
    """Move the vertices, and the bodies that answer to contact."""
    move(world, body, setting, u, work_out)
    if setting.free.shape[1] > 0:
        carry(world, body, setting, u, work_out)


@wp.func(inline=False)
def imbalance(
    world: int,
    body: Body,
    setting: Setting,
    u: wp.array2d(dtype=vec3),
    work: Work,
    matrix: Matrix,
    descent_out: Descent,
) -> real:
    """The gradient, and its norm over that of the forces that it is the sum of: of vertices or bodies, the larger."""
    size = gradient(world, body, setting, u, work, descent_out.gradient)
    if body.sheet != 0:
        size += add_fold_force(world, body, setting, work, descent_out.gradient)
    if body.skin.room > 0:
        size += add_self_force(world, body, setting, work, matrix.pairs, matrix.grid, descent_out.gradient)
    of_bodies = real(0.0)
    if setting.free.shape[1] > 0:
        of_bodies = add_body_force(world, body, setting, work, descent_out.gradient)
    left = real(0.0)
    for i in range(setting.v.shape[1]):
        left += wp.dot(descent_out.gradient[world, i], descent_out.gradient[world, i])
    ratio = left / wp.max(size, NONE)
    if setting.free.shape[1] > 0:  # light bodies have far smaller forces
        ratio = wp.max(ratio, body_imbalance(world, of_bodies, setting, u, descent_out.gradient))
    return wp.sqrt(ratio)


@wp.func
def mean_edge(body: Body, setting: Setting, work: Work, world: int) -> real:
    """A length that elements have, from their mean volume or area."""
    total = real(0.0)
    for e in range(body.elements.shape[0]):
        total += work.volume[world, e] / setting.thick[world, e]
    mean = total / real(body.elements.shape[0])
    if body.elements.shape[1] == 4:
        return wp.pow(real(6.0) * mean, real(1.0) / real(3.0))
    return wp.sqrt(real(2.0) * mean)


@wp.func
def begin(
    world: int,
    body: Body,
    setting: Setting,
    work_out: Work,
    matrix: Matrix,
    descent_out: Descent,
    u_out: wp.array2d(dtype=vec3),
) -> real:
    """The imbalance at a first guess: u as it is, or vertices that fly without feeling each other, nearer to balance.

    Flight keeps all momentum, which a solve loses to rounding where elements are stiff.
    """
    n = u_out.shape[1]
    c = inertia(setting, world)
    flown = FAR
    if CLOSE > real(0.0) and body.skin.room == 0 and c > real(0.0):
        for i in range(n):
            descent_out.trial[world, i] = u_out[world, i]
            if i < setting.v.shape[1] and body.pinned[i] == 0:
                push = pull(setting, world, i) + setting.force[world, i] / work_out.mass[world, i]
                descent_out.trial[world, i] = push / c
        move_all(world, body, setting, descent_out.trial, work_out)
        flown = imbalance(world, body, setting, descent_out.trial, work_out, matrix, descent_out)
    move_all(world, body, setting, u_out, work_out)
    ratio = imbalance(world, body, setting, u_out, work_out, matrix, descent_out)
    if flown < CLOSE * ratio:
        for i in range(n):
            u_out[world, i] = descent_out.trial[world, i]
        move_all(world, body, setting, u_out, work_out)
        ratio = imbalance(world, body, setting, u_out, work_out, matrix, descent_out)
    return ratio


@wp.kernel(enable_backward=False)
def newton(
    # Structure:
    max_iterations: int,
    max_solve: int,
    # Model:
    body: Body,
    setting: Setting,
    # In:
    start: wp.array2d(dtype=vec3),
    # Out:
    work_out: Work,
    matrix_out: Matrix,
    descent_out: Descent,
    u_out: wp.array2d(dtype=vec3),
    residual_out: wp.array(dtype=real),
    iterations_out: wp.array(dtype=int),
    status_out: wp.array(dtype=wp.uint32),
    pair_out: wp.array2d(dtype=wp.vec3i),
):
    """The displacement that minimises the potential; ``start`` holds that of pinned vertices, and a guess elsewhere."""
    world = wp.tid()
    n = start.shape[1]
    set_up(world, body, setting, work_out)
    set_up_folds(world, body, setting, work_out)
    length = mean_edge(body, setting, work_out, world)
    stuck = int(0)
    still = STILL
    sharp = SHARP
    enough = ROUNDING  # what is left may be rounding if no step lowers it
    if setting.free.shape[1] > 0:
        enough = ENOUGH
        still = CLOSER
        sharp = 0
    if body.skin.room > 0:
        stuck = set_out(
            world,
            body,
            setting,
            length,
            start,
            work_out,
            matrix_out.grid,
            matrix_out.pairs,
            descent_out.search,
            u_out,
        )
    else:
        for i in range(n):
            u_out[world, i] = start[world, i]
    ratio = begin(world, body, setting, work_out, matrix_out, descent_out, u_out)
    value = whole_potential(world, body, setting, u_out, work_out, matrix_out)
    part = LOOSE
    solved_to = real(1.0)  # the part that the last solve left
    done = int(0)
    count = int(0)
    near = int(0)
    while done == 0 and stuck == 0:
        if ratio <= ROUNDING and solved_to <= TIGHT:
            done = 1
        elif count == max_iterations:
            if ratio <= enough:
                done = 1
            else:
                stuck = 1
        else:
            count = count + 1
            if ratio <= ROUNDING:  # of what elements can bear: a load that is small beside it moves them all the same
                part = TIGHT
            solved = int(0)
            kinds = int(2)  # not a constant: the loop is not to be unrolled
            for projected in range(kinds):
                if solved == 0 and (near != 0 or projected == 1):
                    hessian(world, body, setting, work_out, projected, projected, matrix_out)
                    solved = conjugate_gradients(
                        world, body, setting, work_out, matrix_out, part, max_solve, descent_out
                    )
            solved_to = part
            decrease = real(0.0)
            longest = real(0.0)
            for i in range(n):
                decrease += wp.dot(descent_out.gradient[world, i], descent_out.search[world, i])
                longest = wp.max(longest, wp.length(descent_out.search[world, i]))
            longest = longest / length
            step = real(1.0)
            if body.skin.room > 0:
                step = look_ahead(
                    world, body, setting, work_out, length, descent_out.search, matrix_out.grid, matrix_out.pairs
                )
            found = int(0)
            for _k in range(40):
                if found == 0:
                    for i in range(n):
                        descent_out.trial[world, i] = u_out[world, i] + step * descent_out.search[world, i]
                    move_all(world, body, setting, descent_out.trial, work_out)
                    after = whole_potential(world, body, setting, descent_out.trial, work_out, matrix_out)
                    rise = after[0] - value[0]
                    blur = BLUR * value[1]
                    if sharp != 0:
                        if rise <= DESCENT * step * decrease + blur:
                            found = 1
                    elif rise <= DESCENT * step * decrease - blur or longest <= still:
                        found = 1
                    elif ratio <= ROUNDING and rise <= blur:  # neither W nor the imbalance can tell
                        found = 1
                    else:  # W is blurred; or bodies turn as they move, so that it is only nearly what the forces lower
                        left = imbalance(world, body, setting, descent_out.trial, work_out, matrix_out, descent_out)
                        most = ratio
                        if rise > blur:
                            most = HALVED * ratio
                        if left < most:
                            found = 1
                    if found != 0:
                        value = after
                    else:
                        step = real(0.5) * step
            if found == 0:
                move_all(world, body, setting, u_out, work_out)
                ratio = imbalance(world, body, setting, u_out, work_out, matrix_out, descent_out)
                if near == 0 and ratio <= enough:
                    done = 1
                elif near == 0:
                    stuck = 1
                near = 0
            else:
                for i in range(n):
                    u_out[world, i] = descent_out.trial[world, i]
                if longest <= still and step == real(1.0) and part * longest <= TIGHT * still:
                    done = 1
                near = 0
                if longest <= NEAR and step > SHORT:
                    near = 1
                part = wp.clamp(longest, TIGHT, LOOSE)
                ratio = imbalance(world, body, setting, u_out, work_out, matrix_out, descent_out)
    bits = wp.uint32(0)
    if done == 0:
        bits = wp.uint32(UNCONVERGED)
    for e in range(body.elements.shape[0]):
        if wp.determinant(deformation(world, e, body, work_out)) <= real(0.0):
            bits = bits | wp.uint32(INVERTED)
    if body.skin.room > 0:
        if matrix_out.grid.count[world, 2] > body.skin.room:
            bits = bits | wp.uint32(CONTACT_OVERFLOW)
        for m in range(pair_out.shape[1]):
            pair_out[world, m] = matrix_out.pairs.pair[world, m]
    residual_out[world] = ratio
    iterations_out[world] = count
    status_out[world] = bits


@wp.kernel(enable_backward=False)
def solve(
    # Structure:
    max_solve: int,
    # Model:
    body: Body,
    setting: Setting,
    # In:
    u: wp.array2d(dtype=vec3),
    pair: wp.array2d(dtype=wp.vec3i),
    cotangent: wp.array2d(dtype=vec3),
    # Out:
    work_out: Work,
    matrix_out: Matrix,
    krylov_out: Krylov,
    trial_out: wp.array2d(dtype=vec3),
):
    """H l = cotangent with the true Hessian, which need not be positive definite: MINRES (Paige and Saunders 1975).

    Preconditioned by the diagonal blocks of the projected Hessian. Where l is pinned it is zero.
    """
    world = wp.tid()
    n = u.shape[1]
    set_up(world, body, setting, work_out)
    set_up_folds(world, body, setting, work_out)
    move_all(world, body, setting, u, work_out)
    if body.skin.room > 0:
        for half in range(2):
            number = int(0)
            for m in range(half * body.skin.room, (half + 1) * body.skin.room):
                matrix_out.pairs.pair[world, m] = pair[world, m]
                if pair[world, m][0] >= 0:
                    number = number + 1
            matrix_out.grid.count[world, half] = number
    beta = real(0.0)
    for i in range(n):
        trial_out[world, i] = vec3()
        krylov_out.w_older[world, i] = vec3()
        krylov_out.w_old[world, i] = vec3()
        b = cotangent[world, i]
        if body.pinned[i] != 0:
            b = vec3()
        krylov_out.old[world, i] = b
        beta += wp.dot(b, b)
    if beta > real(0.0):
        kinds = int(2)  # not a constant: the loop is not to be unrolled
        for true in range(kinds):  # the projected one, for its diagonal, then the true one
            hessian(world, body, setting, work_out, 1 - true, 1 - true, matrix_out)
        beta = real(0.0)
        for i in range(n):
            r = krylov_out.old[world, i]
            z = matrix_out.diagonal[world, i] * r
            krylov_out.older[world, i] = vec3()
            krylov_out.z[world, i] = z
            beta += wp.dot(r, z)
        beta = wp.sqrt(beta)
        goal = EXACT * beta
        remaining = beta
        old_beta = real(0.0)
        cosine = real(-1.0)
        sine = real(0.0)
        bar = real(0.0)
        epsilon = real(0.0)
        for k in range(max_solve):
            if remaining > goal and beta > real(0.0):
                for i in range(n):
                    krylov_out.z[world, i] = krylov_out.z[world, i] / beta
                alpha = multiply(world, body, setting, work_out, matrix_out, krylov_out.z, krylov_out.lanczos)
                new_beta = real(0.0)
                # the rotation that takes this column of the tridiagonal matrix to upper triangular form
                old_epsilon = epsilon
                delta = cosine * bar + sine * alpha
                gamma_bar = sine * bar - cosine * alpha
                for i in range(n):
                    r = krylov_out.lanczos[world, i] - (alpha / beta) * krylov_out.old[world, i]
                    if k > 0:
                        r = r - (beta / old_beta) * krylov_out.older[world, i]
                    krylov_out.older[world, i] = krylov_out.old[world, i]
                    krylov_out.old[world, i] = r
                    z = matrix_out.diagonal[world, i] * r
                    krylov_out.lanczos[world, i] = z
                    new_beta += wp.dot(r, z)
                new_beta = wp.sqrt(wp.max(new_beta, real(0.0)))
                epsilon = sine * new_beta
                bar = -cosine * new_beta
                gamma = wp.max(wp.sqrt(gamma_bar * gamma_bar + new_beta * new_beta), NONE)
                cosine = gamma_bar / gamma
                sine = new_beta / gamma
                share = cosine * remaining
                remaining = sine * remaining
                for i in range(n):
                    w = krylov_out.z[world, i] - old_epsilon * krylov_out.w_older[world, i]
                    w = (w - delta * krylov_out.w_old[world, i]) / gamma
                    krylov_out.w_older[world, i] = krylov_out.w_old[world, i]
                    krylov_out.w_old[world, i] = w
                    trial_out[world, i] = trial_out[world, i] + share * w
                    krylov_out.z[world, i] = krylov_out.lanczos[world, i]
                old_beta = beta
                beta = new_beta
