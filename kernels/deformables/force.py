"""Forces of elements on their corners, and their sums at vertices, for explicit steps."""

import warp as wp

from .._precision import mat33, real, vec3
from .element import across, edges, slope, volume_of
from .laws import moduli, pressure_of, stress


@wp.kernel
def element_force(
    # Structure:
    law: int,
    elements: wp.array2d(dtype=int),
    # Model:
    rest: wp.array2d(dtype=vec3),
    mu: wp.array2d(dtype=real),
    lam: wp.array2d(dtype=real),
    muscle: wp.array2d(dtype=mat33),
    # In:
    x: wp.array2d(dtype=vec3),
    # Out:
    force_out: wp.array3d(dtype=vec3),
):
    """-V P g on each corner [N], P being the first Piola-Kirchhoff stress and g the slope of a shape function."""
    world, e = wp.tid()
    corners = elements.shape[1]
    at_rest = across(edges(elements, e, rest, world), corners, 0)
    inverse = wp.inverse(at_rest)
    f = across(edges(elements, e, x, world), corners, 0) * inverse
    k = moduli(law, mu[world, e], lam[world, e])
    p = stress(law, f, k, pressure_of(f, k)) + f * muscle[world, e]
    p = volume_of(at_rest, corners, real(1.0)) * p
    for a in range(4):
        if a < corners:
            force_out[world, e, a] = -(p * slope(inverse, a, corners))


@wp.func
def share_of(world: int, e: int, i: int, elements: wp.array2d(dtype=int), force: wp.array3d(dtype=vec3)) -> vec3:
    """What an element gives a vertex."""
    corners = elements.shape[1]
    if elements[e, 0] == i:
        return force[world, e, 0]
    if elements[e, 1] == i:
        return force[world, e, 1]
    if elements[e, 2] == i:
        return force[world, e, 2]
    return force[world, e, corners - 1]


@wp.kernel
def vertex_force(
    # Structure:
    elements: wp.array2d(dtype=int),
    first: wp.array(dtype=int),
    element: wp.array(dtype=int),
    # In:
    force: wp.array3d(dtype=vec3),
    # Out:
    total_out: wp.array2d(dtype=vec3),
):
    """The sum of the elements around a vertex."""
    world, i = wp.tid()
    total = vec3()
    for t in range(first[i], first[i + 1]):
        total += share_of(world, element[t], i, elements, force)
    total_out[world, i] = total
