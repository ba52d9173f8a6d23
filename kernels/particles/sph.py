"""Sums over pairs of particles: density and its rate, forces, what walls feel of the fluid.

Particles stand in slots. A sum is a gather: the thread of i's row runs over its neighbours j and writes i's value, in a
fixed order. So is its gradient. With cotangents l the sums have the *power* L = sum_i l_i . sum_j f(i, j). A pair's
share of it, l_i . f(i, j) + l_j . f(j, i), is differentiated by what i is, and the thread of i adds that up. Nothing is
stored per pair, and no two threads write to one place; a row names its own slot, so that the rows of one world may be
cut into parts. The two sums that take the time stand in ``sph_pairs.py``, with their gradients written out; those of
the others are ``wp.grad`` of the pair's power. For these the kernel of the sum is built with an adjoint although nobody
calls it: Warp 1.19 gives a function that ``wp.grad`` reaches through another one an empty adjoint otherwise.

Kernel: Wendland C2 (Wendland 1995), W = a (1 - q/2)^4 (2 q + 1) with q = r / h; grad_i W = F (x_i - x_j) with
F = W'/r, which is finite where particles coincide.

A slot's particle is read as ``place``, (position, kind), ``motion``, (velocity, density), and ``pressure``: kind 0
fluid, 1 wall, 2 wall without friction. The gradient of its state is (by velocity, density,
pressure).
"""

import warp as wp

from .._precision import real, vec3, vec4, vec5
from .neighbors import listed, own_slot, separation
from .sph_pairs import sum_force_gradients, sum_forces, sum_rate_gradients, sum_rates


@wp.func
def distance_ratio(d: vec3, h: real) -> real:
    """q = r / h; a millionth is added so that the root has a derivative where particles coincide."""
    return wp.sqrt(wp.dot(d, d) * (real(1.0) / (h * h)) + real(1.0e-12))


@wp.func
def kernel_value(d: vec3, h: real, scale: real) -> real:
    """W."""
    q = distance_ratio(d, h)
    u = real(1.0) - real(0.5) * q
    return scale * u * u * u * u * (real(2.0) * q + real(1.0))


@wp.func
def kernel_slope(d: vec3, h: real, scale: real) -> real:
    """F = W' / r."""
    u = real(1.0) - real(0.5) * distance_ratio(d, h)
    return real(-5.0) * scale / (h * h) * u * u * u


@wp.func
def kernel_bend(d: vec3, h: real, scale: real) -> real:
    """F' / r, so that the gradient of F by d is this times d."""
    q = distance_ratio(d, h)
    u = real(1.0) - real(0.5) * q
    return real(7.5) * scale / (h * h * h * h * q) * u * u


@wp.func
def position_of(place: vec4) -> vec3:
    """Where a particle is."""
    return vec3(place[0], place[1], place[2])


@wp.func
def velocity_of(motion: vec4) -> vec3:
    """How fast it is."""
    return vec3(motion[0], motion[1], motion[2])


@wp.func
def state_of(motion: vec4, pressure: real) -> vec5:
    """What a wall takes over of it: velocity, density, pressure."""
    return vec5(motion[0], motion[1], motion[2], motion[3], pressure)


@wp.func
def pair_extension(d: vec3, fluid: vec5, gravity: vec3, h: real, scale: real) -> vec5:
    """What a wall particle at distance d from a fluid one takes over (Adami 2012): W, W (p + rho g . d), W v."""
    w = kernel_value(d, h, scale)
    p = fluid[4] + fluid[3] * wp.dot(gravity, d)
    return vec5(w, w * p, w * fluid[0], w * fluid[1], w * fluid[2])


@wp.func
def extension_power(d: vec3, fluid: vec5, gravity: vec3, h: real, scale: real, l: vec5) -> real:
    """A pair's power; only the wall particle has a cotangent."""
    return wp.dot(l, pair_extension(d, fluid, gravity, h, scale))


@wp.kernel(enable_backward=False)
def forces(
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
    coefficients: wp.array(dtype=vec4),
    # Out:
    force_out: wp.array2d(dtype=vec3),
):
    """Sum of forces; between walls there is none."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    force_out[world, row] = sum_forces(
        world, row, found, period, h, scale, index, place, motion, pressure, coefficients[world]
    )


@wp.kernel(enable_backward=False)
def forces_adjoint(
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
    coefficients: wp.array(dtype=vec4),
    # Cotangents:
    pull: wp.array2d(dtype=vec4),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec5),
    coefficients_out: wp.array2d(dtype=vec4),
):
    """Gradients of the forces' power."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    by = sum_force_gradients(
        world, row, found, period, h, scale, index, place, motion, pressure, coefficients[world], pull
    )
    x_out[world, row] = vec3(by[0], by[1], by[2])
    state_out[world, row] = vec5(by[3], by[4], by[5], by[6], by[7])
    coefficients_out[world, row] = real(0.5) * vec4(by[8], by[9], by[10], real(0.0))


@wp.kernel(enable_backward=False)
def rates(
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
    diffusion: wp.array(dtype=real),
    stratification: wp.array(dtype=vec3),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """Sum of rates of density; that of a wall is zero."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    total = real(0.0)
    if place[world, own_slot(index, world, row)][3] == real(0.0):
        total = sum_rates(
            world, row, found, period, h, scale, index, place, motion, diffusion[world], stratification[world]
        )
    rate_out[world, row] = total


@wp.kernel(enable_backward=False)
def rates_adjoint(
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
    diffusion: wp.array(dtype=real),
    stratification: wp.array(dtype=vec3),
    # Cotangents:
    pull: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec5),
    diffusion_out: wp.array2d(dtype=real),
    stratification_out: wp.array2d(dtype=vec3),
):
    """Gradients of the rates' power; walls' cotangents do not count."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    by = sum_rate_gradients(
        world,
        row,
        found,
        period,
        h,
        scale,
        index,
        place,
        motion,
        diffusion[world],
        stratification[world],
        pull,
    )
    x_out[world, row] = vec3(by[0], by[1], by[2])
    state_out[world, row] = vec5(by[3], by[4], by[5], by[6], real(0.0))
    diffusion_out[world, row] = real(0.5) * by[7]
    stratification_out[world, row] = real(0.5) * vec3(by[8], by[9], by[10])


@wp.kernel
def extensions(
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
    gravity: wp.array(dtype=vec3),
    # Out:
    sum_out: wp.array2d(dtype=vec5),
):
    """Sums over the fluid around each wall particle, zero for the fluid itself."""
    world, row = wp.tid()
    slot = own_slot(index, world, row)
    total = vec5()
    if place[world, slot][3] > real(0.0):
        xi = position_of(place[world, slot])
        for k in range(listed(index, number, world, row)):
            s = index[world, row, k]
            if place[world, s][3] == real(0.0):
                d = separation(xi, position_of(place[world, s]), period)
                total += pair_extension(d, state_of(motion[world, s], pressure[world, s]), gravity[world], h, scale)
    sum_out[world, row] = total


@wp.kernel(enable_backward=False)
def extensions_adjoint(
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
    gravity: wp.array(dtype=vec3),
    # Cotangents:
    cotangent: wp.array2d(dtype=vec5),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec5),
    gravity_out: wp.array2d(dtype=vec3),
):
    """Gradients of the extensions' power: by a wall particle's place, and by all of a fluid one."""
    world, row = wp.tid()
    slot = own_slot(index, world, row)
    by_x = vec3()
    by_state = vec5()
    by_gravity = vec3()
    xi = position_of(place[world, slot])
    a = state_of(motion[world, slot], pressure[world, slot])
    wall = place[world, slot][3] > real(0.0)
    for k in range(listed(index, number, world, row)):
        s = index[world, row, k]
        d = separation(xi, position_of(place[world, s]), period)
        b = state_of(motion[world, s], pressure[world, s])
        if wall != (place[world, s][3] > real(0.0)):
            if wall:
                gd, _a, _g, _h, _s, _l = wp.grad(extension_power)(
                    d, b, gravity[world], h, scale, cotangent[world, slot]
                )
                by_x += gd
            else:
                fd, fa, fg, _fh, _fs, _fl = wp.grad(extension_power)(
                    -d, a, gravity[world], h, scale, cotangent[world, s]
                )
                by_x += -fd
                by_state += fa
                by_gravity += fg
    x_out[world, row] = by_x
    state_out[world, row] = by_state
    gravity_out[world, row] = by_gravity


@wp.kernel(enable_backward=False)
def buried(
    # Grid:
    period: vec3,
    reach: real,
    share: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    # Out:
    buried_out: wp.array2d(dtype=int),
):
    """1 for fluid on its way through a wall: crowded by particles of it, midway among all of them that it feels.

    Those nearer than the reach crowd it if vectors from them cancel by half (from all three walls of a corner they
    cancel by less), and shares of the reach by which they are within it add up to 0.8: in a hole of a layer they do to
    0.95, in a gap between two layers when it is as narrow as a spacing. One nearer than a quarter of the reach crowds
    it, too, if there is another; it may be as near to one alone, if it is hit head on. Fluid is midway if vectors from
    all walls cancel but for a share: in a layer alone, or between the first and the last of several.
    """
    world, row = wp.tid()
    slot = own_slot(index, world, row)
    total = vec3()
    length = real(0.0)
    pressed = vec3()
    room = real(0.0)
    crowd = real(0.0)
    nearest = reach
    if place[world, slot][3] == real(0.0):
        xi = position_of(place[world, slot])
        for k in range(listed(index, number, world, row)):
            s = index[world, row, k]
            if place[world, s][3] > real(0.0):
                d = separation(xi, position_of(place[world, s]), period)
                r = wp.length(d)
                total += d
                length += r
                if r < reach:
                    pressed += d
                    room += r
                    crowd += real(1.0) - r / reach
                    nearest = wp.min(nearest, r)
    between = crowd > real(0.8) and wp.length(pressed) < real(0.5) * room
    beside = nearest < real(0.25) * reach and wp.length(pressed) < real(0.95) * room
    midway = wp.length(total) < share * length
    buried_out[world, row] = wp.where(midway and (between or beside), 1, 0)
