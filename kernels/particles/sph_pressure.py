"""Sums of a pressure solve: what pressure does to velocity, and velocity to density.

All but those of the kernel itself are derivatives of one form, L = sum over pairs of (p_i + p_j) grad W . (u_i - u_j),
pairs of walls left out: *squeeze* by u, *rate* by p, *gradient* by places. Squeeze and rate are therefore each other's
transpose. What is read of a slot is told in ``sph.py``.

A product of the matrix is *lend*, *move*, *gain* and *give back*. ``share`` is what walls have of the pressures around
them, and for fluid, whether there are walls. Walls stand still there, so that no kinds have to be looked at.

A thread takes ``each`` so many rows: on a processor, to begin one takes a quarter of a sum's time. Where only some
slots are summed for, a row's slot is counted from the ``first``, because reading it in the row would take as long.
"""

import warp as wp

from .. import _native
from .._precision import real, vec3, vec4
from .neighbors import listed

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
    value: wp.array2d(dtype=real),
) -> vec4:
    """dL/du of a slot, and the sum of W times a value."""
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
def sum_around(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    place: wp.array2d(dtype=vec4),
) -> vec3:
    """Sums of W over fluid and over walls, the slot's own included, and about the matrix's diagonal."""
    sph_pressure_h()


@_native.func_native()
def sum_inner_squeeze(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    record: wp.array2d(dtype=vec4),
) -> vec3:
    """dL/du of a fluid slot; records are (position, pressure)."""
    sph_pressure_h()


@_native.func_native()
def sum_flat_rate(
    world: int,
    row: int,
    found: int,
    period: vec3,
    h: real,
    scale: real,
    index: wp.array3d(dtype=int),
    record: wp.array2d(dtype=vec4),
) -> real:
    """dL/dp of a slot in a plane; records are (two of position, two of velocity)."""
    sph_pressure_h()


@_native.func_native()
def sum_beside(
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
    """Sum of W times a value over walls, for a fluid slot."""
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
    # Rows:
    lanes: int,
    each: int,
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
    value: wp.array2d(dtype=real),
    # Out:
    push_out: wp.array2d(dtype=vec4),
):
    """What pressure does to all slots, walls included, and a value, spread by the kernel."""
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        found = listed(index, number, world, row)
        push_out[world, row] = sum_squeeze(world, row, found, period, h, scale, index, place, pressure, value)


@wp.kernel(enable_backward=False)
def rate(
    # Rows:
    lanes: int,
    each: int,
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    first: wp.array(dtype=int),
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    velocity: wp.array2d(dtype=vec4),
    wanted: wp.array2d(dtype=real),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """What velocity does to density; on walls, what that of the fluid does. Zero where it is not wanted."""
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        total = real(0.0)
        if wanted[world, first[world] + row] != real(0.0):
            found = listed(index, number, world, row)
            total = sum_squeeze_rate(world, row, found, period, h, scale, index, place, velocity)
        rate_out[world, row] = total


@wp.kernel(enable_backward=False)
def gradient(
    # Rows:
    lanes: int,
    each: int,
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
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        found = listed(index, number, world, row)
        x_out[world, row] = sum_squeeze_gradient(world, row, found, period, h, scale, index, place, pressure, velocity)


@wp.kernel(enable_backward=False)
def surroundings(
    # Rows:
    lanes: int,
    each: int,
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
    fluid_out: wp.array2d(dtype=real),
    wall_out: wp.array2d(dtype=real),
    square_out: wp.array2d(dtype=real),
):
    """The kernel's sums over fluid and over walls, and about the diagonal of the matrix; that is zero for walls."""
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        found = listed(index, number, world, row)
        total = sum_around(world, row, found, period, h, scale, index, place)
        fluid_out[world, row] = total[0]
        wall_out[world, row] = total[1]
        square_out[world, row] = total[2]


@wp.kernel(enable_backward=False)
def blur(
    # Rows:
    lanes: int,
    each: int,
    # Grid:
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    first: wp.array(dtype=int),
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
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        found = listed(index, number, world, row)
        total = real(0.0)
        if wanted[world, first[world] + row] != real(0.0):
            total = sum_blur(world, row, found, period, h, scale, index, place, value)
        blur_out[world, row] = total


@wp.kernel(enable_backward=False)
def blur_gradient(
    # Rows:
    lanes: int,
    each: int,
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
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        found = listed(index, number, world, row)
        x_out[world, row] = sum_blur_gradient(world, row, found, period, h, scale, index, place, value, pull)


@wp.kernel(enable_backward=False)
def lend(
    # Rows:
    lanes: int,
    each: int,
    # Grid:
    flat: int,
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    first: wp.array(dtype=int),
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    share: wp.array2d(dtype=real),
    pressure: wp.array2d(dtype=real),
    # Out:
    record_out: wp.array2d(dtype=vec4),
):
    """Position and pressure, which walls take over from the fluid; ``pressure`` is zero there."""
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        slot = first[world] + row
        at = place[world, slot]
        p = pressure[world, slot]
        if at[3] != real(0.0) and share[world, slot] != real(0.0):
            found = listed(index, number, world, row)
            p = share[world, slot] * sum_blur(world, row, found, period, h, scale, index, place, pressure)
        record_out[world, row] = vec4(at[0], at[1], at[2], p)


@wp.kernel(enable_backward=False)
def move(
    # Rows:
    lanes: int,
    each: int,
    # Grid:
    flat: int,
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    first: wp.array(dtype=int),
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    share: wp.array2d(dtype=real),
    record: wp.array2d(dtype=vec4),
    # Out:
    motion_out: wp.array2d(dtype=vec4),
):
    """What pressure does to the fluid's velocity, walls stand still; in a plane, position and velocity."""
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        slot = first[world] + row
        u = vec3()
        if place[world, slot][3] == real(0.0):
            found = listed(index, number, world, row)
            u = sum_inner_squeeze(world, row, found, period, h, scale, index, record)
        motion = vec4(u[0], u[1], u[2], real(0.0))
        if flat != 0:
            motion = vec4(place[world, slot][0], place[world, slot][1], u[0], u[1])
        motion_out[world, row] = motion


@wp.kernel(enable_backward=False)
def gain(
    # Rows:
    lanes: int,
    each: int,
    # Grid:
    flat: int,
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    first: wp.array(dtype=int),
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    share: wp.array2d(dtype=real),
    motion: wp.array2d(dtype=vec4),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """What that velocity does to density, and a share of it at walls."""
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        slot = first[world] + row
        found = listed(index, number, world, row)
        part = real(1.0)
        if place[world, slot][3] != real(0.0):
            part = share[world, slot]
        total = real(0.0)
        if part != real(0.0):
            if flat != 0:
                total = part * sum_flat_rate(world, row, found, period, h, scale, index, motion)
            else:
                total = part * sum_squeeze_rate(world, row, found, period, h, scale, index, place, motion)
        rate_out[world, row] = total


@wp.kernel(enable_backward=False)
def give_back(
    # Rows:
    lanes: int,
    each: int,
    # Grid:
    flat: int,
    period: vec3,
    h: real,
    scale: real,
    # Neighbors:
    first: wp.array(dtype=int),
    index: wp.array3d(dtype=int),
    number: wp.array2d(dtype=int),
    # Slots in:
    place: wp.array2d(dtype=vec4),
    share: wp.array2d(dtype=real),
    rate: wp.array2d(dtype=real),
    # Out:
    rate_out: wp.array2d(dtype=real),
):
    """The rate of the fluid, with what walls give back to it."""
    world, lane = wp.tid()
    for row in range(lane * each, wp.min(lane * each + each, number.shape[1])):
        slot = first[world] + row
        total = real(0.0)
        if place[world, slot][3] == real(0.0):
            total = rate[world, slot]
            if share[world, slot] != real(0.0):
                found = listed(index, number, world, row)
                total = total + sum_beside(world, row, found, period, h, scale, index, place, rate)
        rate_out[world, row] = total
