"""Forces and rates of density over the neighbours of a slot, eight at a time, with their gradients written out.

Warp has no vectors over pairs: one pair after another took four times as long. A slot's row of neighbours ends in its
own number, and a particle does nothing to itself, so that whole eights are read; the eight sums are added in a fixed
order. A GPU, whose threads are its lanes, reads one neighbour at a time by the same text.
"""

import warp as wp

from .. import _native
from .._precision import real, vec3, vec4, vec11

sph_pairs_h = _native.header("particles/native/sph_pairs.h")


@_native.func_native()
def sum_forces(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
    coefficients: vec4,
) -> vec3:
    """Force for unit masses, antisymmetric in a pair.

    Pressure -(p_i + p_j) grad W / (rho_i rho_j); viscosity 2 mu F (v_i - v_j) / (rho_i rho_j) (Morris 1997); and the
    artificial one, along the line between them, without a switch (Marrone 2011). Between fluid and wall the pressures
    get coefficients[2] max(0, 1 - coefficients[3] r^2)^2 more.
    """
    sph_pairs_h()


@_native.func_native()
def sum_force_gradients(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
    coefficients: vec4,
    pull: wp.array2d(dtype=vec4),
) -> vec11:
    """Gradient of the forces' power by a slot's position, velocity, density, pressure, and by three coefficients."""
    sph_pairs_h()


@_native.func_native()
def sum_rates(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    diffusion: real,
    stratification: vec3,
) -> real:
    """Rate of density for unit mass: rho_i / rho_j (v_i - v_j) . grad W, and diffusion between fluid.

    The diffusion -(rho_j - rho_i) F / rho_j (Molteni and Colagrossi 2009) leaves out the difference of density at
    rest under gravity (Fourtakas 2019), ``-stratification . d``.
    """
    sph_pairs_h()


@_native.func_native()
def sum_rate_gradients(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    motion: wp.array2d(dtype=vec4),
    diffusion: real,
    stratification: vec3,
    pull: wp.array2d(dtype=real),
) -> vec11:
    """Gradient of both rates' power by a slot's position, velocity, density, by diffusion and stratification.

    Walls' cotangents do not count.
    """
    sph_pairs_h()


@_native.func_native()
def sum_densities(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
) -> real:
    """Sum of W over all particles, walls and the particle itself included."""
    sph_pairs_h()


@_native.func_native()
def sum_density_gradients(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    pull: wp.array2d(dtype=real),
) -> vec3:
    """Gradient of the power of both densities, (l_i + l_j) W, by a slot's position."""
    sph_pairs_h()
