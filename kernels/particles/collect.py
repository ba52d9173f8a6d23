"""From nodes to particles: how a batch of particles moves, and its adjoint by hand."""

import warp as wp

from .. import _native
from .._precision import mat33, real, vec3, vec4
from .screen import INVERTED, NONFINITE

collect_h = _native.header("particles/native/collect.h")


@_native.func_native()
def collect_batch(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    nonfinite: int,
    inverted: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """v = sum(w v_i), C = 4 / dx^2 sum(w v_i (x_i - x)^T), x + h v, of eight particles. In a plane C is 2 x 2."""
    collect_h()


@_native.func_native()
def pull_collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    inverted: int,
    timestep: wp.array(dtype=real),
    x: wp.array3d(dtype=real),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out_bar: wp.array3d(dtype=real),
    v_out_bar: wp.array3d(dtype=real),
    rate_out_bar: wp.array2d(dtype=mat33),
    timestep_bar: wp.array(dtype=real),
    x_bar: wp.array3d(dtype=real),
    v_bar: wp.array3d(dtype=real),
    rate_bar: wp.array2d(dtype=mat33),
    grid_bar: wp.array2d(dtype=vec4),
):
    """What is collected is spread; moving the particle turns the weights, and shifts the first moments."""
    collect_h()


@wp.func
def collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """Where a batch of particles is after the step, and how it moves."""
    collect_batch(
        world,
        batch,
        lower,
        dx,
        nodes,
        timestep,
        too_far,
        NONFINITE,
        INVERTED,
        x,
        v,
        rate,
        fault,
        grid,
        x_out,
        v_out,
        rate_out,
        fault_out,
    )


@_native.func_replay(collect)
def no_replay_of_collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """A backward pass has no use for the moments: what becomes of them is linear."""


@wp.func_grad(collect)
def adj_collect(
    world: int,
    batch: int,
    lower: vec3,
    dx: real,
    nodes: wp.vec3i,
    timestep: wp.array(dtype=real),
    too_far: int,
    x: wp.array3d(dtype=real),
    v: wp.array3d(dtype=real),
    rate: wp.array2d(dtype=mat33),
    fault: wp.array2d(dtype=int),
    grid: wp.array2d(dtype=vec4),
    x_out: wp.array3d(dtype=real),
    v_out: wp.array3d(dtype=real),
    rate_out: wp.array2d(dtype=mat33),
    fault_out: wp.array2d(dtype=int),
):
    """By hand, in one pass."""
    pull_collect(
        world,
        batch,
        lower,
        dx,
        nodes,
        INVERTED,
        timestep,
        x,
        fault,
        grid,
        wp.adjoint[x_out],
        wp.adjoint[v_out],
        wp.adjoint[rate_out],
        wp.adjoint[timestep],
        wp.adjoint[x],
        wp.adjoint[v],
        wp.adjoint[rate],
        wp.adjoint[grid],
    )
