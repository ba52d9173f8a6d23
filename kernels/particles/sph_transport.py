"""Sums of the transport-velocity formulation, for fluid without a free surface (Adami, Hu and Adams 2013).

Density is summed over neighbours instead of integrated, and particles move with a velocity of their own, v + shift,
which a constant background pressure keeps them regular by; what they so carry across is a stress. How the gradients
are made is told in ``sph.py``; what is read of a slot is told there, too, with the shift in the place of the pressure.
"""

import warp as wp

from .._precision import real, vec3, vec4, vec6, vec7
from .neighbors import listed, own_slot, separation
from .sph import kernel_slope, position_of
from .sph_pairs import sum_densities, sum_density_gradients


@wp.func
def pair_transport(d: vec3, a: vec7, b: vec7, h: real, scale: real) -> vec6:
    """Background pressure w grad W and stress w (A_i + A_j) / 2 grad W, antisymmetric.

    w = 1 / rho_i^2 + 1 / rho_j^2, and A = rho v (x) shift.
    """
    weight = (real(1.0) / (a[3] * a[3]) + real(1.0) / (b[3] * b[3])) * kernel_slope(d, h, scale)
    here = real(0.5) * a[3] * wp.dot(vec3(a[4], a[5], a[6]), d)
    there = real(0.5) * b[3] * wp.dot(vec3(b[4], b[5], b[6]), d)
    stress = here * vec3(a[0], a[1], a[2]) + there * vec3(b[0], b[1], b[2])
    return weight * vec6(d[0], d[1], d[2], stress[0], stress[1], stress[2])


@wp.func
def transport_power(d: vec3, a: vec7, b: vec7, h: real, scale: real, l: vec6) -> real:
    """A pair's power; l is the difference of their cotangents."""
    return wp.dot(l, pair_transport(d, a, b, h, scale))


@wp.func
def carrier_of(motion: vec4, shift: vec3) -> vec7:
    """What the stress takes: velocity, density, shift."""
    return vec7(motion[0], motion[1], motion[2], motion[3], shift[0], shift[1], shift[2])


@wp.kernel(enable_backward=False)
def densities(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    shift: wp.array2d(dtype=vec3),
    # Out:
    density_out: wp.array2d(dtype=real),
):
    """Sum of W over all particles, walls and the particle itself included."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    density_out[world, row] = sum_densities(world, row, found, period, h, scale, index, place)


@wp.kernel(enable_backward=False)
def densities_adjoint(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    shift: wp.array2d(dtype=vec3),
    # Cotangents:
    cotangent: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec7),
):
    """Gradients of the densities' power (l_i + l_j) W."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    x_out[world, row] = sum_density_gradients(world, row, found, period, h, scale, index, place, cotangent)
    state_out[world, row] = vec7()


@wp.kernel
def transports(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    shift: wp.array2d(dtype=vec3),
    # Out:
    transport_out: wp.array2d(dtype=vec6),
):
    """Sums of background pressure and of stress; between walls there is none."""
    world, row = wp.tid()
    slot = own_slot(index, world, row)
    total = vec6()
    xi = position_of(place[world, slot])
    a = carrier_of(motion[world, slot], shift[world, slot])
    kind = place[world, slot][3]
    for k in range(listed(index, number, world, row)):
        s = index[world, row, k]
        b = carrier_of(motion[world, s], shift[world, s])
        if kind == real(0.0) or place[world, s][3] == real(0.0):
            total += pair_transport(separation(xi, position_of(place[world, s]), period), a, b, h, scale)
    transport_out[world, row] = total


@wp.kernel(enable_backward=False)
def transports_adjoint(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    shift: wp.array2d(dtype=vec3),
    # Cotangents:
    cotangent: wp.array2d(dtype=vec6),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec7),
):
    """Gradients of the transports' power."""
    world, row = wp.tid()
    slot = own_slot(index, world, row)
    by_x = vec3()
    by_state = vec7()
    xi = position_of(place[world, slot])
    a = carrier_of(motion[world, slot], shift[world, slot])
    kind = place[world, slot][3]
    li = cotangent[world, slot]
    for k in range(listed(index, number, world, row)):
        s = index[world, row, k]
        b = carrier_of(motion[world, s], shift[world, s])
        if kind == real(0.0) or place[world, s][3] == real(0.0):
            d = separation(xi, position_of(place[world, s]), period)
            l = li - cotangent[world, s]
            gd, ga, _b, _h, _s, _l = wp.grad(transport_power)(d, a, b, h, scale, l)
            by_x += gd
            by_state += ga
    x_out[world, row] = by_x
    state_out[world, row] = by_state
