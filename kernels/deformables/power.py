"""The power of a step's residual along a trial direction: its adjoint, by Warp, is the step's gradient.

P = l . (M ((u / h - v) / h + a u / h - g) - f + dPsi/dx), in parts of elements and of vertices.
"""

import warp as wp

from .._precision import mat33, real, vec3, vec5
from .bend import angle, moment_of, slopes
from .element import across, edges, volume_of
from .laws import cofactor, moduli, pressure_of, second_stress, stress


@wp.kernel
def element_power(
    # Structure:
    law: int,
    mean: int,
    sheet: int,
    elements: wp.array2d(dtype=int),
    # Model:
    rest: wp.array2d(dtype=vec3),
    density: wp.array2d(dtype=real),
    mu: wp.array2d(dtype=real),
    lam: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    gravity: wp.array(dtype=vec3),
    damping: wp.array(dtype=real),
    viscous: wp.array(dtype=real),
    muscle: wp.array2d(dtype=mat33),
    thick: wp.array2d(dtype=real),
    # State in:
    x: wp.array2d(dtype=vec3),
    v: wp.array2d(dtype=vec3),
    # In:
    u: wp.array2d(dtype=vec3),
    trial: wp.array2d(dtype=vec3),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Of stress, P : dF V, and of the inertia and weight of the element's part of its vertices' mass."""
    world, e = wp.tid()
    corners = elements.shape[1]
    at_rest = across(edges(elements, e, rest, world), corners, sheet)
    volume = volume_of(at_rest, corners, thick[world, e])
    inverse = wp.inverse(at_rest)
    f = across(edges(elements, e, x, world) + edges(elements, e, u, world), corners, sheet) * inverse
    change = edges(elements, e, trial, world) * inverse
    rate = real(1.0) / timestep[world]
    share = viscous[world] * rate
    before = across(edges(elements, e, x, world), corners, sheet) * inverse
    pulls = second_stress(f, before, share * mu[world, e], share * lam[world, e], muscle[world, e])
    k = moduli(law, mu[world, e], lam[world, e])
    pressure = real(0.0)
    if mean == 0:
        pressure = pressure_of(f, k)
    elastic = volume * wp.ddot(stress(law, f, k, pressure) + f * pulls, change)
    share = density[world, e] * volume / real(corners)
    moved = real(0.0)
    for a in range(corners):
        i = elements[e, a]
        force = rate * (rate + damping[world]) * u[world, i] - rate * v[world, i] - gravity[world]
        moved += share * wp.dot(trial[world, i], force)
    power_out[world, e] = elastic + moved


@wp.kernel
def dilate(
    # Structure:
    law: int,
    elements: wp.array2d(dtype=int),
    # Model:
    rest: wp.array2d(dtype=vec3),
    mu: wp.array2d(dtype=real),
    lam: wp.array2d(dtype=real),
    # In:
    x: wp.array2d(dtype=vec3),
    u: wp.array2d(dtype=vec3),
    trial: wp.array2d(dtype=vec3),
    # Out:
    part_out: wp.array2d(dtype=vec5),
):
    """What an element gives each of its vertices: volume, times J, times the change of J, times l, times l a."""
    world, e = wp.tid()
    corners = elements.shape[1]
    at_rest = across(edges(elements, e, rest, world), corners, 0)
    inverse = wp.inverse(at_rest)
    f = across(edges(elements, e, x, world) + edges(elements, e, u, world), corners, 0) * inverse
    change = wp.ddot(cofactor(f), edges(elements, e, trial, world) * inverse)
    k = moduli(law, mu[world, e], lam[world, e])
    v = volume_of(at_rest, corners, real(1.0)) / real(corners)
    part_out[world, e] = vec5(v, v * wp.determinant(f), v * change, v * k[1], v * k[1] * k[2])


@wp.kernel
def gather(
    # Structure:
    first: wp.array(dtype=int),
    element: wp.array(dtype=int),
    # In:
    part: wp.array2d(dtype=vec5),
    # Out:
    total_out: wp.array2d(dtype=vec5),
):
    """The sum of the elements around a vertex."""
    world, i = wp.tid()
    total = vec5()
    for t in range(first[i], first[i + 1]):
        total += part[world, element[t]]
    total_out[world, i] = total


@wp.kernel
def dilatation_power(
    # In:
    total: wp.array2d(dtype=vec5),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Of the pressure at a vertex: (l J - l a) dJ, J and dJ being means."""
    world, i = wp.tid()
    t = total[world, i]
    power_out[world, i] = (t[3] * t[1] / t[0] - t[4]) * t[2] / t[0]


@wp.kernel
def vertex_power(
    # In:
    force: wp.array2d(dtype=vec3),
    trial: wp.array2d(dtype=vec3),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Of the force from outside."""
    world, i = wp.tid()
    power_out[world, i] = -wp.dot(force[world, i], trial[world, i])


@wp.kernel
def bend_power(
    # Structure:
    hinge: wp.array2d(dtype=int),
    # Model:
    rest: wp.array2d(dtype=vec3),
    bend: wp.array2d(dtype=real),
    viscous: wp.array(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    x: wp.array2d(dtype=vec3),
    u: wp.array2d(dtype=vec3),
    trial: wp.array2d(dtype=vec3),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Of the moment at a hinge."""
    world, m = wp.tid()
    i = hinge[m, 0]
    j = hinge[m, 1]
    k = hinge[m, 2]
    l = hinge[m, 3]
    p0 = x[world, i] + u[world, i]
    p1 = x[world, j] + u[world, j]
    p2 = x[world, k] + u[world, k]
    p3 = x[world, l] + u[world, l]
    g0, g1, g2, g3 = slopes(p0, p1, p2, p3)
    at_rest = angle(rest[world, i], rest[world, j], rest[world, k], rest[world, l])
    before = angle(x[world, i], x[world, j], x[world, k], x[world, l])
    share = viscous[world] / timestep[world]
    moment = moment_of(angle(p0, p1, p2, p3), at_rest, before, bend[world, m], share)
    change = wp.dot(g0, trial[world, i]) + wp.dot(g1, trial[world, j])
    change += wp.dot(g2, trial[world, k]) + wp.dot(g3, trial[world, l])
    power_out[world, m] = moment * change
