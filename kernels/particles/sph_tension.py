"""Surface tension as the divergence of a stress.

The stress of a surface is tangential, T = sigma delta (I - n n) (Lafaurie et al. 1994). Here n is the gradient of the
share of space that fluid fills, and |n|^2 takes the place of delta: T = |n|^2 I - n n, a polynomial, which fades inside
without a threshold. The force is antisymmetric in the pair, so that momentum is kept to rounding (Hu and Adams 2006).
It is not along the line between the two, and turns them. The force along the line that has the same mean stress, among
neighbours on all sides, is that of T' = ((d + 2) T - tr T) / 2 in d dimensions, and then angular momentum is kept, too.
How gradients are made, and what is read of a slot, is told in ``sph.py``; n is in the place of the velocity here.

Particles under tension clump where a kernel's slope falls with distance, and Wendland's does from 0.5 h on. That of
W = scale (1 - q^2 / 4)^3 does from 0.89 h on, farther than nearest neighbours are.
"""

import warp as wp

from .._precision import real, vec3, vec4, vec5
from .neighbors import listed, own_slot, separation
from .sph import position_of, velocity_of


@wp.func
def tension_slope(d: vec3, h: real, scale: real) -> real:
    """W' / r."""
    u = real(1.0) - wp.dot(d, d) / (real(4.0) * h * h)
    return real(-1.5) * scale / (h * h) * u * u


@wp.func
def tension_bend(d: vec3, h: real, scale: real) -> real:
    """(W' / r)' / r."""
    return real(1.5) * scale / (h * h * h * h) * (real(1.0) - wp.dot(d, d) / (real(4.0) * h * h))


@wp.func
def closeness(d: vec3, h: real) -> real:
    """1 / r^2; a millionth of h is added to r so that it is finite where particles coincide."""
    return real(1.0) / (wp.dot(d, d) + real(1.0e-12) * h * h)


@wp.func
def along_line(d: vec3, m: vec3, n: vec3, h: real, lean: real) -> real:
    """The factor of d in a force along the line: 3/2 (|m|^2 + |n|^2) - lean ((m . d)^2 + (n . d)^2) / r^2."""
    md, nd = wp.dot(m, d), wp.dot(n, d)
    return real(1.5) * (wp.dot(m, m) + wp.dot(n, n)) - lean * (md * md + nd * nd) * closeness(d, h)


@wp.func
def pair_tension(d: vec3, m: vec3, n: vec3, h: real, scale: real, lean: real) -> vec3:
    """Force on a by b, (T_a + T_b) grad W, or the one along the line that has the same stress, if lean is not zero."""
    if lean > real(0.0):
        return tension_slope(d, h, scale) * along_line(d, m, n, h, lean) * d
    stress = (wp.dot(m, m) + wp.dot(n, n)) * d - wp.dot(m, d) * m - wp.dot(n, d) * n
    return tension_slope(d, h, scale) * stress


@wp.func
def tension_gradient(d: vec3, m: vec3, n: vec3, h: real, scale: real, lean: real, l: vec3) -> tuple[vec3, vec3]:
    """Gradient of l . pair_tension by d and by n of a."""
    slope = tension_slope(d, h, scale)
    ld = wp.dot(l, d)
    size = wp.dot(m, m) + wp.dot(n, n)
    md, nd = wp.dot(m, d), wp.dot(n, d)
    power = size * ld - md * wp.dot(m, l) - nd * wp.dot(n, l)
    by_d = slope * (size * l - wp.dot(m, l) * m - wp.dot(n, l) * n)
    by_m = slope * (real(2.0) * ld * m - md * l - wp.dot(m, l) * d)
    if lean > real(0.0):
        near = closeness(d, h)
        factor = along_line(d, m, n, h, lean)
        power = ld * factor
        turned = real(2.0) * lean * near * ((md * md + nd * nd) * near * d - md * m - nd * n)
        by_d = slope * (factor * l + ld * turned)
        by_m = slope * ld * (real(3.0) * m - real(2.0) * lean * near * md * d)
    return by_d + tension_bend(d, h, scale) * power * d, by_m


@wp.kernel(enable_backward=False)
def tensions(
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
    pressure: wp.array2d(dtype=real),
    # Params:
    lean: wp.array(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=vec3),
):
    """Sum of forces between fluid."""
    world, row = wp.tid()
    slot = own_slot(index, world, row)
    total = vec3()
    xi = position_of(place[world, slot])
    m = velocity_of(motion[world, slot])
    kind = place[world, slot][3]
    for k in range(listed(index, number, world, row)):
        s = index[world, row, k]
        if kind + place[world, s][3] == real(0.0):
            d = separation(xi, position_of(place[world, s]), period)
            total += pair_tension(d, m, velocity_of(motion[world, s]), h, scale, lean[world])
    force_out[world, row] = total


@wp.kernel(enable_backward=False)
def tensions_adjoint(
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
    pressure: wp.array2d(dtype=real),
    # Params:
    lean: wp.array(dtype=real),
    # Cotangents:
    cotangent: wp.array2d(dtype=vec3),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec5),
    lean_out: wp.array2d(dtype=real),
):
    """Gradients of the tensions' power."""
    world, row = wp.tid()
    slot = own_slot(index, world, row)
    by_x = vec3()
    by_n = vec3()
    xi = position_of(place[world, slot])
    m = velocity_of(motion[world, slot])
    kind = place[world, slot][3]
    li = cotangent[world, slot]
    for k in range(listed(index, number, world, row)):
        s = index[world, row, k]
        if kind + place[world, s][3] == real(0.0):
            l = li - cotangent[world, s]
            d = separation(xi, position_of(place[world, s]), period)
            gd, gn = tension_gradient(d, m, velocity_of(motion[world, s]), h, scale, lean[world], l)
            by_x += gd
            by_n += gn
    x_out[world, row] = by_x
    state_out[world, row] = vec5(by_n[0], by_n[1], by_n[2], real(0.0), real(0.0))
    lean_out[world, row] = real(0.0)
