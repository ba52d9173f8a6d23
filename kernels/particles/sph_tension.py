"""Curvature of a free surface, for surface tension as a force on it (Brackbill 1992; Morris 2000).

The divergence of the unit normals, kappa_i = sum_j w_j (u_j - u_i) . grad W / sum_j w_j W, over those neighbours that
have a normal: w is one at the surface and zero inside. Divided by the same sum, it is right along a surface that has
neighbours on one side only. How gradients are made is told in ``sph.py``, whose ``state`` this is too, with the normal
u in the place of the velocity and w in that of the density.
"""

import warp as wp

from .._precision import real, vec2, vec3, vec6
from .neighbors import separation
from .sph import gather_states, kernel_slope, kernel_value, velocity_of

__all__ = ["curvatures", "curvatures_adjoint", "gather_states"]


@wp.func
def pair_curvature(d: vec3, a: vec6, b: vec6, h: real, scale: real) -> vec2:
    """What b gives to a: numerator and denominator."""
    turn = wp.dot(velocity_of(b) - velocity_of(a), d)
    return b[3] * vec2(kernel_slope(d, h, scale) * turn, kernel_value(d, h, scale))


@wp.func
def curvature_power(d: vec3, a: vec6, b: vec6, h: real, scale: real, la: vec2, lb: vec2) -> real:
    """A pair's power."""
    return wp.dot(la, pair_curvature(d, a, b, h, scale)) + wp.dot(lb, pair_curvature(-d, b, a, h, scale))


@wp.kernel
def curvatures(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    order: wp.array2d(dtype=int),
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    x: wp.array2d(dtype=vec3),
    state: wp.array2d(dtype=vec6),
    # Out:
    sum_out: wp.array2d(dtype=vec2),
):
    """Both sums, without the particle's own share."""
    world, slot = wp.tid()
    total = vec2()
    a = state[world, slot]
    for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
        s = index[world, slot, k]
        total += pair_curvature(separation(x[world, slot], x[world, s], period), a, state[world, s], h, scale)
    sum_out[world, order[world, slot]] = total


@wp.kernel(enable_backward=False)
def curvatures_adjoint(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    order: wp.array2d(dtype=int),
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    x: wp.array2d(dtype=vec3),
    state: wp.array2d(dtype=vec6),
    # Cotangents:
    cotangent: wp.array2d(dtype=vec2),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec6),
):
    """Gradients of the curvatures' power."""
    world, slot = wp.tid()
    by_x = vec3()
    by_state = vec6()
    i = order[world, slot]
    xi = x[world, slot]
    a = state[world, slot]
    li = cotangent[world, i]
    for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
        s = index[world, slot, k]
        d = separation(xi, x[world, s], period)
        lj = cotangent[world, order[world, s]]
        gd, ga, _b, _h, _s, _la, _lb = wp.grad(curvature_power)(d, a, state[world, s], h, scale, li, lj)
        by_x += gd
        by_state += ga
    x_out[world, i] = by_x
    state_out[world, i] = by_state
