"""The no-slip pass backward: its sweeps are undone one by one, last first.

So the gradient is that of the sweeps as taken, converged or not. With l the cotangent of a', g of a block's force, and
K the matrix of its equations (that of an ellipse includes the bound), p solves K p = g + W^T l. Then T gets -p a'^T,
a_ref gets p, l loses T^T p, W gets df l^T, and the cotangent of the force before is -W^T l. At the bound of a single
force p is zero.
"""

import warp as wp

from ..._precision import real, vec5
from .newton import Cones
from .noslip import (
    FREE,
    HELD,
    HIGH,
    LOW,
    Slips,
    Sweeps,
    Tangents,
    along,
    between,
    block,
    pivoted,
    push,
    solve_row,
    solved,
)


@wp.struct
class Pulls:
    """Cotangents."""

    direction: wp.array3d(dtype=real)
    response: wp.array3d(dtype=real)
    reference: wp.array2d(dtype=real)
    force: wp.array2d(dtype=real)
    limit: wp.array2d(dtype=real)
    friction: wp.array2d(dtype=real)  # of an ellipse
    acceleration: wp.array2d(dtype=real)


@wp.func
def undo(
    world: int,
    k: int,
    p: real,
    tangents: Tangents,
    acceleration: wp.array2d(dtype=real),
    pulls_out: Pulls,
):
    """What a row's equation pulls at: T, a_ref and the acceleration."""
    pulls_out.reference[world, k] = pulls_out.reference[world, k] + p
    for i in range(acceleration.shape[1]):
        pulls_out.direction[world, k, i] = pulls_out.direction[world, k, i] - p * acceleration[world, i]
    push(world, k, -p, tangents.direction, pulls_out.acceleration)


@wp.func
def restart(
    world: int, k: int, df: real, tangents: Tangents, acceleration_out: wp.array2d(dtype=real), pulls_out: Pulls
):
    """Take a row's move back: W, the force before, and the acceleration before."""
    for i in range(acceleration_out.shape[1]):
        pulls_out.response[world, k, i] = pulls_out.response[world, k, i] + df * pulls_out.acceleration[world, i]
    pulls_out.force[world, k] = -along(world, k, tangents.response, pulls_out.acceleration)
    push(world, k, -df, tangents.response, acceleration_out)


@wp.func
def pull_one(
    world: int,
    done: int,
    k: int,
    tangents: Tangents,
    sweeps: Sweeps,
    acceleration_out: wp.array2d(dtype=real),
    pulls_out: Pulls,
):
    """Undo :func:`move_one`."""
    mark = sweeps.mark[world, done, k]
    df = sweeps.force[world, done + 1, k] - sweeps.force[world, done, k]
    g = pulls_out.force[world, k] + along(world, k, tangents.response, pulls_out.acceleration)
    if mark == HIGH:
        pulls_out.limit[world, k] = pulls_out.limit[world, k] + g
    elif mark == LOW:
        pulls_out.limit[world, k] = pulls_out.limit[world, k] - g
    elif mark == FREE:
        undo(world, k, g / between(world, k, k, tangents), tangents, acceleration_out, pulls_out)
    restart(world, k, df, tangents, acceleration_out, pulls_out)


@wp.func
def pull_ellipse(
    world: int,
    done: int,
    k: int,
    size: int,
    mu: vec5,
    tangents: Tangents,
    sweeps: Sweeps,
    acceleration_out: wp.array2d(dtype=real),
    pulls_out: Pulls,
):
    """Undo :func:`move_ellipse`."""
    mark = sweeps.mark[world, done, k]
    if mark >= real(0.0):
        factor = pivoted(block(world, k, size, mu, mark, tangents))
        g = vec5()
        y = vec5()
        for i in range(5):
            if i < size:
                own = along(world, k + i, tangents.response, pulls_out.acceleration)
                g[i] = mu[i] * (pulls_out.force[world, k + i] + own)
                y[i] = sweeps.force[world, done + 1, k + i] / mu[i]
        p = solved(factor, g)
        if mark > real(0.0):
            w = solved(factor, y)
            q = wp.dot(y, p) / wp.dot(y, w)
            p = p - q * w
            pulls_out.limit[world, k] = pulls_out.limit[world, k] + q * tangents.limit[world, k]
            for i in range(5):
                if i < size:
                    pulls_out.friction[world, k + i] = pulls_out.friction[world, k + i] + y[i] / mu[i] * (
                        real(2.0) * mark * p[i] + q * y[i]
                    )
        for i in range(5):
            if i < size:
                undo(world, k + i, mu[i] * p[i], tangents, acceleration_out, pulls_out)
    for i in range(5):
        if i < size:
            df = sweeps.force[world, done + 1, k + i] - sweeps.force[world, done, k + i]
            restart(world, k + i, df, tangents, acceleration_out, pulls_out)


@wp.kernel(enable_backward=False)
def pull(
    # Structure:
    slips: Slips,
    # In:
    cones: Cones,
    tangents: Tangents,
    sweeps: Sweeps,
    acceleration: wp.array2d(dtype=real),
    acceleration_cotangent: wp.array2d(dtype=real),
    force_cotangent: wp.array2d(dtype=real),
    # Out:
    acceleration_out: wp.array2d(dtype=real),
    pulls_out: Pulls,
):
    """Undo the sweeps, last first, from the ``acceleration`` that they found to that from which they started."""
    world = wp.tid()
    count = tangents.limit.shape[1]
    for i in range(acceleration_out.shape[1]):
        acceleration_out[world, i] = acceleration[world, i]
        pulls_out.acceleration[world, i] = acceleration_cotangent[world, i]
    for k in range(count):
        pulls_out.force[world, k] = force_cotangent[world, k]
    for s in range(sweeps.count[world]):
        done = sweeps.count[world] - 1 - s
        for j in range(count):
            k = count - 1 - j
            if tangents.limit[world, k] >= real(0.0) and sweeps.mark[world, done, k] != HELD:
                if cones.elliptic != 0 and k >= slips.dry:
                    if (k - slips.dry) % slips.width == 0:
                        p = cones.pair[world, (k - slips.dry) // slips.width]
                        mu = cones.friction[world, p]
                        size = cones.dim[p] - 1
                        pull_ellipse(world, done, k, size, mu, tangents, sweeps, acceleration_out, pulls_out)
                else:
                    pull_one(world, done, k, tangents, sweeps, acceleration_out, pulls_out)


@wp.kernel(enable_backward=False)
def pull_response(
    # In:
    factor: wp.array2d(dtype=real),
    tangents: Tangents,
    # Out:
    pulls_out: Pulls,
):
    """W = M^-1 T^T: T gets Y = M^-1 times W's cotangent, which takes that one's place."""
    world, k = wp.tid()
    if tangents.limit[world, k] >= real(0.0):
        n = tangents.direction.shape[2]
        solve_row(world, k, n, factor, pulls_out.response)
        for i in range(n):
            pulls_out.direction[world, k, i] = pulls_out.direction[world, k, i] + pulls_out.response[world, k, i]


@wp.kernel(enable_backward=False)
def pull_mass(
    # In:
    tangents: Tangents,
    response: wp.array3d(dtype=real),
    # Out:
    matrix_out: wp.array3d(dtype=real),
):
    """Minus the cotangent of M: sum of Y W^T over the rows."""
    world, i, j = wp.tid()
    s = real(0.0)
    for k in range(tangents.limit.shape[1]):
        if tangents.limit[world, k] >= real(0.0):
            s += response[world, k, i] * tangents.response[world, k, j]
    matrix_out[world, i, j] = s
