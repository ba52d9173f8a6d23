"""Sums of the transport-velocity formulation, for fluid without a free surface (Adami, Hu and Adams 2013).

Density is summed over neighbours instead of integrated, and particles move with a velocity of their own, v + shift,
which a constant background pressure keeps them regular by; what they so carry across is a stress. How the gradients
are made is told in ``sph.py``. ``state`` of a particle is (velocity, density, shift, kind).
"""

import warp as wp

from .._precision import real, vec3, vec6, vec8
from .neighbors import separation
from .sph import kernel_slope, kernel_value


@wp.func
def pair_transport(d: vec3, a: vec8, b: vec8, h: real, scale: real) -> vec6:
    """Background pressure w grad W and stress w (A_i + A_j) / 2 grad W, antisymmetric.

    w = 1 / rho_i^2 + 1 / rho_j^2, and A = rho v (x) shift.
    """
    weight = (real(1.0) / (a[3] * a[3]) + real(1.0) / (b[3] * b[3])) * kernel_slope(d, h, scale)
    here = real(0.5) * a[3] * wp.dot(vec3(a[4], a[5], a[6]), d)
    there = real(0.5) * b[3] * wp.dot(vec3(b[4], b[5], b[6]), d)
    stress = here * vec3(a[0], a[1], a[2]) + there * vec3(b[0], b[1], b[2])
    return weight * vec6(d[0], d[1], d[2], stress[0], stress[1], stress[2])


@wp.func
def transport_power(d: vec3, a: vec8, b: vec8, h: real, scale: real, l: vec6) -> real:
    """A pair's power; l is the difference of their cotangents."""
    return wp.dot(l, pair_transport(d, a, b, h, scale))


@wp.kernel(enable_backward=False)
def gather_states(
    # Neighbors:
    order: wp.array2d(dtype=int),
    # State in:
    x: wp.array2d(dtype=vec3),
    v: wp.array2d(dtype=vec3),
    rho: wp.array2d(dtype=real),
    shift: wp.array2d(dtype=vec3),
    kind: wp.array2d(dtype=int),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec8),
):
    """Positions and states in the order of slots."""
    world, slot = wp.tid()
    i = order[world, slot]
    x_out[world, slot] = x[world, i]
    v_i = v[world, i]
    u = shift[world, i]
    state_out[world, slot] = vec8(v_i[0], v_i[1], v_i[2], rho[world, i], u[0], u[1], u[2], real(kind[world, i]))


@wp.kernel
def densities(
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
    state: wp.array2d(dtype=vec8),
    # Out:
    density_out: wp.array2d(dtype=real),
):
    """Sum of W over all particles, walls and the particle itself included."""
    world, slot = wp.tid()
    total = kernel_value(vec3(), h, scale)
    for k in range(wp.min(number[world, slot], index.shape[2] - 8)):
        d = separation(x[world, slot], x[world, index[world, slot, k]], period)
        total += kernel_value(d, h, scale)
    density_out[world, order[world, slot]] = total


@wp.kernel(enable_backward=False)
def densities_adjoint(
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
    state: wp.array2d(dtype=vec8),
    # Cotangents:
    cotangent: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec8),
):
    """Gradients of the densities' power (l_i + l_j) W."""
    world, slot = wp.tid()
    by_x = vec3()
    i = order[world, slot]
    for k in range(wp.min(number[world, slot], index.shape[2] - 8)):
        s = index[world, slot, k]
        d = separation(x[world, slot], x[world, s], period)
        by_x += (cotangent[world, i] + cotangent[world, order[world, s]]) * kernel_slope(d, h, scale) * d
    x_out[world, i] = by_x
    state_out[world, i] = vec8()


@wp.kernel
def transports(
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
    state: wp.array2d(dtype=vec8),
    # Out:
    transport_out: wp.array2d(dtype=vec6),
):
    """Sums of background pressure and of stress; between walls there is none."""
    world, slot = wp.tid()
    total = vec6()
    xi = x[world, slot]
    a = state[world, slot]
    for k in range(wp.min(number[world, slot], index.shape[2] - 8)):
        s = index[world, slot, k]
        b = state[world, s]
        if a[7] == real(0.0) or b[7] == real(0.0):
            total += pair_transport(separation(xi, x[world, s], period), a, b, h, scale)
    transport_out[world, order[world, slot]] = total


@wp.kernel(enable_backward=False)
def transports_adjoint(
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
    state: wp.array2d(dtype=vec8),
    # Cotangents:
    cotangent: wp.array2d(dtype=vec6),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec8),
):
    """Gradients of the transports' power."""
    world, slot = wp.tid()
    by_x = vec3()
    by_state = vec8()
    i = order[world, slot]
    xi = x[world, slot]
    a = state[world, slot]
    li = cotangent[world, i]
    for k in range(wp.min(number[world, slot], index.shape[2] - 8)):
        s = index[world, slot, k]
        b = state[world, s]
        if a[7] == real(0.0) or b[7] == real(0.0):
            d = separation(xi, x[world, s], period)
            l = li - cotangent[world, order[world, s]]
            gd, ga, _b, _h, _s, _l = wp.grad(transport_power)(d, a, b, h, scale, l)
            by_x += gd
            by_state += ga
    x_out[world, i] = by_x
    state_out[world, i] = by_state
