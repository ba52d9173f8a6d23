"""Eight fixed-corotated particles at once, with their adjoint by hand: what ``deform_one`` does with one.

On a processor the vector instructions take one number of each of eight particles, which stand in its lanes. What does
not go so, particles of another material, with faults, actuated or turned inside out, is left to the general code.
"""

import warp as wp

from .. import _native
from .._precision import mat33, real, vec3, vec4

lanes_h = _native.header("particles/native/lanes.h")
stencil_h = _native.header("particles/native/stencil.h")


@_native.func_native("return *fphys::part(left_out, world, batch) = 255;")
def deform_lanes(
    world: int,
    batch: int,
    corotated: int,
    half_the_digits: real,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuated: int,
    gradient_out: wp.array2d(dtype=mat33),
    history_out: wp.array2d(dtype=real),
    fault_out: wp.array2d(dtype=int),
    left_out: wp.array2d(dtype=int),
    grid_out: wp.array2d(dtype=vec4),
) -> int:
    """Which of eight particles, as bits, are left to the general code; the others are done."""
    lanes_h()


@_native.func_native("")
def pull_lanes(
    world: int,
    batch: int,
    corotated: int,
    half_the_digits: real,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    kind: wp.array(dtype=int),
    table: wp.array3d(dtype=real),
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    material: wp.array2d(dtype=int),
    rate: wp.array2d(dtype=mat33),
    gradient: wp.array2d(dtype=mat33),
    history: wp.array2d(dtype=real),
    volume: wp.array2d(dtype=real),
    force: wp.array3d(dtype=real),
    each_force: int,
    actuated: int,
    left_out: wp.array2d(dtype=int),
    gradient_out_bar: wp.array2d(dtype=mat33),
    history_out_bar: wp.array2d(dtype=real),
    grid_out_bar: wp.array2d(dtype=vec4),
    table_bar: wp.array3d(dtype=real),
    timestep_bar: wp.array(dtype=real),
    x_bar: wp.array3d(dtype=real),
    v_bar: wp.array3d(dtype=real),
    rate_bar: wp.array2d(dtype=mat33),
    gradient_bar: wp.array2d(dtype=mat33),
    history_bar: wp.array2d(dtype=real),
    volume_bar: wp.array2d(dtype=real),
    force_bar: wp.array3d(dtype=real),
):
    """The adjoint of the eight particles that were done at once: materials.adj_corotated says how."""
    lanes_h()


@_native.func_native()
def member(batch: int, k: int, x: wp.array3d(dtype=real), world: int) -> int:
    """The k-th particle of a batch; -1 where it has not so many."""
    stencil_h()
