"""Sums over pairs of particles: density and its rate, forces, what walls feel of the fluid.

A sum is a gather: the thread of particle i runs over its neighbours j and writes i's value, in a fixed order. So is
its gradient. With cotangents l the sums have the *power* L = sum_i l_i . sum_j f(i, j). A pair's share of it,
l_i . f(i, j) + l_j . f(j, i), is differentiated by what i is, and the thread of i adds that up. Nothing is stored per
pair, and no two threads write to one place. The two sums that take the time have their gradients written out; those
of the others are ``wp.grad`` of the pair's power. For these the kernel of the sum is built with an adjoint although
nobody calls it: Warp 1.19 gives a function that ``wp.grad`` reaches through another one an empty adjoint otherwise.

Kernel: Wendland C2 (Wendland 1995), W = a (1 - q/2)^4 (2 q + 1) with q = r / h; grad_i W = F (x_i - x_j) with
F = W'/r, which is finite where particles coincide.

``state`` of a particle is (velocity, density, pressure, kind): kind 0 fluid, 1 wall, 2 wall without friction.
"""

import warp as wp

from .._precision import real, vec2, vec3, vec5, vec6
from .neighbors import separation


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
def velocity_of(state: vec6) -> vec3:
    """The velocity in a particle's state."""
    return vec3(state[0], state[1], state[2])


@wp.func
def pair_force(d: vec3, a: vec6, b: vec6, viscosity: vec2, h: real, scale: real) -> vec3:
    """Force on a for unit mass of both, antisymmetric in them.

    Pressure -(p_i + p_j) grad W / (rho_i rho_j); viscosity 2 mu F (v_i - v_j) / (rho_i rho_j) (Morris 1997); and the
    artificial one, along the line between them, without a switch (Marrone 2011).
    """
    u = velocity_of(a) - velocity_of(b)
    soft = wp.dot(d, d) + real(0.01) * h * h
    slope = kernel_slope(d, h, scale) / (a[3] * b[3] * soft)
    rough = wp.where(a[5] < real(1.5) and b[5] < real(1.5), real(1.0), real(0.0))
    radial = rough * viscosity[1] * wp.dot(u, d) - (a[4] + b[4]) * soft
    return slope * (radial * d + rough * real(2.0) * viscosity[0] * soft * u)


@wp.func
def force_gradient(
    d: vec3, a: vec6, b: vec6, viscosity: vec2, h: real, scale: real, l: vec3
) -> tuple[vec3, vec6, vec2]:
    """Gradient of l . pair_force by d, by the state of a and by the viscosity."""
    u = velocity_of(a) - velocity_of(b)
    along = wp.dot(u, d)
    soft = real(1.0) / (wp.dot(d, d) + real(0.01) * h * h)
    rough = wp.where(a[5] < real(1.5) and b[5] < real(1.5), real(1.0), real(0.0))
    art = rough * viscosity[1]
    drag = real(2.0) * rough * viscosity[0]
    radial = art * along * soft - a[4] - b[4]
    weight = real(1.0) / (a[3] * b[3])
    slope = weight * kernel_slope(d, h, scale)
    ld = wp.dot(l, d)
    lu = wp.dot(l, u)
    power = radial * ld + drag * lu
    bend = weight * kernel_bend(d, h, scale) * power - slope * real(2.0) * ld * art * along * soft * soft
    by_d = bend * d + slope * (radial * l + ld * art * soft * u)
    by_v = slope * (ld * art * soft * d + drag * l)
    by_state = vec6(by_v[0], by_v[1], by_v[2], -slope * power / a[3], -slope * ld, real(0.0))
    return by_d, by_state, slope * rough * vec2(real(2.0) * lu, ld * along * soft)


@wp.func
def pair_rate(d: vec3, a: vec6, b: vec6, diffusion: real, stratification: vec3, h: real, scale: real) -> real:
    """Rate of the density of a for unit mass: rho_i / rho_j (v_i - v_j) . grad W, and diffusion between fluid.

    The diffusion -(rho_j - rho_i) F / rho_j (Molteni and Colagrossi 2009) leaves out the difference of density at
    rest under gravity (Fourtakas 2019), ``-stratification . d``.
    """
    slope = kernel_slope(d, h, scale)
    both_fluid = wp.where(a[5] + b[5] < real(0.5), real(1.0), real(0.0))
    spread = both_fluid * diffusion * (b[3] - a[3] + wp.dot(stratification, d))
    return slope / b[3] * (a[3] * wp.dot(velocity_of(a) - velocity_of(b), d) - spread)


@wp.func
def rate_gradient(
    d: vec3, a: vec6, b: vec6, diffusion: real, stratification: vec3, h: real, scale: real, la: real, lb: real
) -> tuple[vec3, vec6, real, vec3]:
    """Gradient of both rates' power by d, by the state of a, by the diffusion and by the stratification."""
    slope = kernel_slope(d, h, scale)
    u = velocity_of(a) - velocity_of(b)
    along = wp.dot(u, d)
    both_fluid = wp.where(a[5] + b[5] < real(0.5), real(1.0), real(0.0))
    excess = both_fluid * (b[3] - a[3] + wp.dot(stratification, d))
    here = la / b[3]
    there = lb / a[3]
    squeeze = here * a[3] + there * b[3]
    spread = here - there
    power = along * squeeze - diffusion * excess * spread
    by_d = kernel_bend(d, h, scale) * power * d
    by_d += slope * (squeeze * u - both_fluid * spread * diffusion * stratification)
    by_rho = along * (here - there * b[3] / a[3]) + diffusion * (both_fluid * spread - excess * there / a[3])
    by_v = slope * squeeze * d
    by_state = vec6(by_v[0], by_v[1], by_v[2], slope * by_rho, real(0.0), real(0.0))
    return by_d, by_state, -slope * spread * excess, -slope * spread * diffusion * both_fluid * d


@wp.func
def pair_extension(d: vec3, fluid: vec6, gravity: vec3, h: real, scale: real) -> vec5:
    """What a wall particle at distance d from a fluid one takes over (Adami 2012): W, W (p + rho g . d), W v."""
    w = kernel_value(d, h, scale)
    p = fluid[4] + fluid[3] * wp.dot(gravity, d)
    return vec5(w, w * p, w * fluid[0], w * fluid[1], w * fluid[2])


@wp.func
def extension_power(d: vec3, fluid: vec6, gravity: vec3, h: real, scale: real, l: vec5) -> real:
    """A pair's power; only the wall particle has a cotangent."""
    return wp.dot(l, pair_extension(d, fluid, gravity, h, scale))


@wp.kernel(enable_backward=False)
def gather_states(
    # Neighbors:
    order: wp.array2d(dtype=int),
    # State in:
    x: wp.array2d(dtype=vec3),
    v: wp.array2d(dtype=vec3),
    rho: wp.array2d(dtype=real),
    p: wp.array2d(dtype=real),
    kind: wp.array2d(dtype=int),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec6),
):
    """Positions and states in the order of slots."""
    world, slot = wp.tid()
    i = order[world, slot]
    x_out[world, slot] = x[world, i]
    u = v[world, i]
    state_out[world, slot] = vec6(u[0], u[1], u[2], rho[world, i], p[world, i], real(kind[world, i]))


@wp.kernel(enable_backward=False)
def forces(
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
    # Params:
    viscosity: wp.array(dtype=vec2),
    # Out:
    force_out: wp.array2d(dtype=vec3),
):
    """Sum of forces; between walls there is none."""
    world, slot = wp.tid()
    total = vec3()
    xi = x[world, slot]
    a = state[world, slot]
    for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
        s = index[world, slot, k]
        d = separation(xi, x[world, s], period)
        b = state[world, s]
        if a[5] == real(0.0) or b[5] == real(0.0):
            total += pair_force(d, a, b, viscosity[world], h, scale)
    force_out[world, order[world, slot]] = total


@wp.kernel(enable_backward=False)
def forces_adjoint(
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
    # Params:
    viscosity: wp.array(dtype=vec2),
    # Cotangents:
    cotangent: wp.array2d(dtype=vec3),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec6),
    viscosity_out: wp.array2d(dtype=vec2),
):
    """Gradients of the forces' power."""
    world, slot = wp.tid()
    by_x = vec3()
    by_state = vec6()
    by_viscosity = vec2()
    i = order[world, slot]
    xi = x[world, slot]
    a = state[world, slot]
    li = cotangent[world, i]
    for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
        s = index[world, slot, k]
        d = separation(xi, x[world, s], period)
        b = state[world, s]
        if a[5] == real(0.0) or b[5] == real(0.0):
            l = li - cotangent[world, order[world, s]]
            gd, ga, gv = force_gradient(d, a, b, viscosity[world], h, scale, l)
            by_x += gd
            by_state += ga
            by_viscosity += gv
    x_out[world, i] = by_x
    state_out[world, i] = by_state
    viscosity_out[world, i] = real(0.5) * by_viscosity


@wp.kernel(enable_backward=False)
def rates(
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
    # Params:
    diffusion: wp.array(dtype=real),
    stratification: wp.array(dtype=vec3),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """Sum of rates of density; that of a wall is zero."""
    world, slot = wp.tid()
    total = real(0.0)
    a = state[world, slot]
    if a[5] == real(0.0):
        xi = x[world, slot]
        for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
            s = index[world, slot, k]
            d = separation(xi, x[world, s], period)
            total += pair_rate(d, a, state[world, s], diffusion[world], stratification[world], h, scale)
    rate_out[world, order[world, slot]] = total


@wp.kernel(enable_backward=False)
def rates_adjoint(
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
    # Params:
    diffusion: wp.array(dtype=real),
    stratification: wp.array(dtype=vec3),
    # Cotangents:
    cotangent: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec6),
    diffusion_out: wp.array2d(dtype=real),
    stratification_out: wp.array2d(dtype=vec3),
):
    """Gradients of the rates' power; walls' cotangents do not count."""
    world, slot = wp.tid()
    by_x = vec3()
    by_state = vec6()
    by_diffusion = real(0.0)
    by_stratification = vec3()
    i = order[world, slot]
    xi = x[world, slot]
    a = state[world, slot]
    li = wp.where(a[5] == real(0.0), cotangent[world, i], real(0.0))
    for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
        s = index[world, slot, k]
        d = separation(xi, x[world, s], period)
        b = state[world, s]
        if a[5] == real(0.0) or b[5] == real(0.0):
            lj = wp.where(b[5] == real(0.0), cotangent[world, order[world, s]], real(0.0))
            gd, ga, gf, gs = rate_gradient(d, a, b, diffusion[world], stratification[world], h, scale, li, lj)
            by_x += gd
            by_state += ga
            by_diffusion += gf
            by_stratification += gs
    x_out[world, i] = by_x
    state_out[world, i] = by_state
    diffusion_out[world, i] = real(0.5) * by_diffusion
    stratification_out[world, i] = real(0.5) * by_stratification


@wp.kernel
def extensions(
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
    # Params:
    gravity: wp.array(dtype=vec3),
    # Out:
    sum_out: wp.array2d(dtype=vec5),
):
    """Sums over the fluid around each wall particle, zero for the fluid itself."""
    world, slot = wp.tid()
    total = vec5()
    if state[world, slot][5] > real(0.0):
        xi = x[world, slot]
        for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
            s = index[world, slot, k]
            d = separation(xi, x[world, s], period)
            b = state[world, s]
            if b[5] == real(0.0):
                total += pair_extension(d, b, gravity[world], h, scale)
    sum_out[world, order[world, slot]] = total


@wp.kernel(enable_backward=False)
def extensions_adjoint(
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
    # Params:
    gravity: wp.array(dtype=vec3),
    # Cotangents:
    cotangent: wp.array2d(dtype=vec5),
    # Out:
    x_out: wp.array2d(dtype=vec3),
    state_out: wp.array2d(dtype=vec6),
    gravity_out: wp.array2d(dtype=vec3),
):
    """Gradients of the extensions' power: by a wall particle's place, and by all of a fluid one."""
    world, slot = wp.tid()
    by_x = vec3()
    by_state = vec6()
    by_gravity = vec3()
    i = order[world, slot]
    xi = x[world, slot]
    a = state[world, slot]
    for k in range(wp.min(number[world, slot], index.shape[2] - 1)):
        s = index[world, slot, k]
        d = separation(xi, x[world, s], period)
        b = state[world, s]
        if (a[5] == real(0.0)) != (b[5] == real(0.0)):
            if a[5] > real(0.0):
                gd, _a, _g, _h, _s, _l = wp.grad(extension_power)(d, b, gravity[world], h, scale, cotangent[world, i])
                by_x += gd
            else:
                fd, fa, fg, _fh, _fs, _fl = wp.grad(extension_power)(
                    -d, a, gravity[world], h, scale, cotangent[world, order[world, s]]
                )
                by_x += -fd
                by_state += fa
                by_gravity += fg
    x_out[world, i] = by_x
    state_out[world, i] = by_state
    gravity_out[world, i] = by_gravity
