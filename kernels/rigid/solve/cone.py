"""The cost of an elliptic contact: its zones, and what it adds to the solver's slope, gradient and Hessian."""

import warp as wp

from ..._precision import real, vec2, vec5
from ..dense import add_outer, add_scaled
from ..team import wait
from .constraint import Rows

TOP = wp.constant(0)
MIDDLE = wp.constant(1)
BOTTOM = wp.constant(2)


@wp.func
def cone_zone(n: real, t: real, mu: real) -> int:
    """Where scaled errors, n along the normal and t across, lie: outside, on the cone's side, or below it."""
    zone = MIDDLE
    if n >= mu * t:
        zone = TOP
    elif mu * n + t <= real(0.0):
        zone = BOTTOM
    return zone


@wp.func
def cone_slope(
    world: int,
    start: int,
    dim: int,
    mu: real,
    friction: vec5,
    s: real,
    error: wp.array2d(dtype=real),
    change: wp.array2d(dtype=real),
    weight: wp.array2d(dtype=real),
) -> vec2:
    """First and second derivative of a cone's cost along the errors' change, at step s."""
    x = error[world, start] + s * change[world, start]
    dx = change[world, start]
    uu = real(0.0)
    ud = real(0.0)
    dd = real(0.0)
    straight = weight[world, start] * vec2(x * dx, dx * dx)
    for i in range(1, dim):
        d = change[world, start + i]
        y = error[world, start + i] + s * d
        f = friction[i - 1] * friction[i - 1]
        uu += f * y * y
        ud += f * y * d
        dd += f * d * d
        straight += weight[world, start + i] * vec2(y * d, d * d)
    t = wp.sqrt(uu)
    zone = cone_zone(mu * x, t, mu)
    out = vec2()
    if zone == BOTTOM:
        out = straight
    elif zone == MIDDLE:
        stiff = weight[world, start] / (mu * mu * (real(1.0) + mu * mu))
        dt = ud / t
        rate = mu * (dx - dt)
        height = mu * (x - t)
        out = stiff * vec2(height * rate, rate * rate - height * mu * (dd - dt * dt) / t)
    return out


@wp.func
def add_cone(
    world: int,
    lane: int,
    lanes: int,
    start: int,
    dim: int,
    mu: real,
    friction: vec5,
    error: wp.array2d(dtype=real),
    rows: Rows,
    gradient_out: wp.array2d(dtype=real),
    hessian_out: wp.array2d(dtype=real),
    force_out: wp.array2d(dtype=real),
    work_out: wp.array3d(dtype=real),
):
    """A cone's force, and what it adds to the gradient and the Hessian.

    On the side, with u_i = mu_i x_i, t = |u| and c the derivative of mu (x_0 - t) by the errors, the Hessian is
    D c c^T - mu d Hess(t); c and grad(t) are projected on the dofs once, in ``work``. Each thread has dofs of its own.
    """
    n = rows.jacobian.shape[2]
    uu = real(0.0)
    for i in range(1, dim):
        u = friction[i - 1] * error[world, start + i]
        uu += u * u
    t = wp.sqrt(uu)
    zone = cone_zone(mu * error[world, start], t, mu)
    stiff = rows.weight[world, start] / (mu * mu * (real(1.0) + mu * mu))
    height = mu * (error[world, start] - t)
    if zone == MIDDLE:
        for k in range(lane, n, lanes):
            work_out[world, 0, k] = mu * rows.jacobian[world, start, k]
            work_out[world, 1, k] = real(0.0)
    for i in range(dim):
        s = real(0.0)
        if zone == BOTTOM:
            s = rows.weight[world, start + i] * error[world, start + i]
            add_outer(world, lane, lanes, start + i, n, rows.weight[world, start + i], rows.jacobian, hessian_out)
        elif zone == MIDDLE and i == 0:
            s = stiff * height * mu
        elif zone == MIDDLE:
            f = friction[i - 1] * friction[i - 1]
            q = f * error[world, start + i] / t
            s = -stiff * height * mu * q
            for k in range(lane, n, lanes):
                work_out[world, 0, k] = work_out[world, 0, k] - mu * q * rows.jacobian[world, start + i, k]
                work_out[world, 1, k] = work_out[world, 1, k] + q * rows.jacobian[world, start + i, k]
            add_outer(world, lane, lanes, start + i, n, -mu * stiff * height / t * f, rows.jacobian, hessian_out)
        if lane == 0:
            force_out[world, start + i] = -s
        if s != real(0.0):
            add_scaled(world, lane, lanes, start + i, n, s, rows.jacobian, gradient_out)
    if zone == MIDDLE:
        wait(lanes)
        add_outer(world, lane, lanes, 0, n, stiff, work_out, hessian_out)
        add_outer(world, lane, lanes, 1, n, mu * stiff * height / t, work_out, hessian_out)
        wait(lanes)
