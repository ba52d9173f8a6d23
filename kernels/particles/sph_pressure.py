"""Sums of a pressure solve: what pressure does to velocity, and velocity to density.

All but blur are derivatives of one form, L = sum over pairs of (p_i + p_j) grad W . (u_i - u_j), pairs of walls left
out: *squeeze* by u, *rate* by p, *gradient* by places. Squeeze and rate are therefore each other's transpose. What is
read of a slot is told in ``sph.py``.
"""

import warp as wp

from .. import _native
from .._precision import real, vec3, vec4
from .neighbors import listed, own_slot

sph_pressure_h = _native.header("particles/native/sph_pressure.h")


@_native.func_native()
def sum_squeeze(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
) -> vec4:
    """dL/du of a slot; the last number is zero."""
    sph_pressure_h()


@_native.func_native()
def sum_squeeze_rate(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    velocity: wp.array2d(dtype=vec4),
) -> real:
    """dL/dp of a slot."""
    sph_pressure_h()


@_native.func_native()
def sum_squeeze_gradient(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=vec4),
) -> vec3:
    """dL/dx of a slot."""
    sph_pressure_h()


@_native.func_native()
def sum_squeeze_squares(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
) -> real:
    """About |dL/du|^2 over the fluid, for a pressure of one at a slot, and at the walls around it."""
    sph_pressure_h()


@_native.func_native()
def sum_blur(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    value: wp.array2d(dtype=real),
) -> real:
    """Sum of W times a value, the slot's own included."""
    sph_pressure_h()


@_native.func_native()
def sum_blur_gradient(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
    value: wp.array2d(dtype=real),
    pull: wp.array2d(dtype=real),
) -> vec3:
    """Gradient of the blurs' power by a slot's position."""
    sph_pressure_h()


@wp.kernel(enable_backward=False)
def squeeze(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
    # Out:
    push_out: wp.array2d(dtype=vec4),
):
    """What pressure does to all slots, walls included."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    push_out[world, row] = sum_squeeze(world, row, found, period, h, scale, index, place, pressure)


@wp.kernel(enable_backward=False)
def rate(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    velocity: wp.array2d(dtype=vec4),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """What velocity does to the density of all slots; on walls, what that of the fluid does."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    rate_out[world, row] = sum_squeeze_rate(world, row, found, period, h, scale, index, place, velocity)


@wp.kernel(enable_backward=False)
def gradient(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    pressure: wp.array2d(dtype=real),
    velocity: wp.array2d(dtype=vec4),
    # Out:
    x_out: wp.array2d(dtype=vec3),
):
    """What places do to L."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    x_out[world, row] = sum_squeeze_gradient(world, row, found, period, h, scale, index, place, pressure, velocity)


@wp.kernel(enable_backward=False)
def squares(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    # Out:
    square_out: wp.array2d(dtype=real),
):
    """About the diagonal of the matrix that is solved with; zero for walls."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    total = real(0.0)
    if place[world, own_slot(index, world, row)][3] == real(0.0):
        total = sum_squeeze_squares(world, row, found, period, h, scale, index, place)
    square_out[world, row] = total


@wp.kernel(enable_backward=False)
def blur(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    value: wp.array2d(dtype=real),
    wanted: wp.array2d(dtype=real),
    # Out:
    blur_out: wp.array2d(dtype=real),
):
    """A value, spread by the kernel; zero where it is not wanted."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    total = real(0.0)
    if wanted[world, own_slot(index, world, row)] != real(0.0):
        total = sum_blur(world, row, found, period, h, scale, index, place, value)
    blur_out[world, row] = total


@wp.kernel(enable_backward=False)
def blur_gradient(
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    value: wp.array2d(dtype=real),
    pull: wp.array2d(dtype=real),
    # Out:
    x_out: wp.array2d(dtype=vec3),
):
    """What places do to the power of blurs."""
    world, row = wp.tid()
    found = listed(index, number, world, row)
    x_out[world, row] = sum_blur_gradient(world, row, found, period, h, scale, index, place, value, pull)
