"""Which shape each ray meets first, and how far along."""

import warp as wp

from ..._precision import quat, real, tolerance, vec3, vec4
from ...math import quat_mul, quat_unit, rotate, rotate_back
from .ray_field import field_length, field_met
from .ray_mesh import Meshes, mesh_met, triangle_length
from .ray_shapes import ray_length
from .shapes import HFIELD, MESH, bounding_radius

GRAZING = wp.constant(tolerance(1.0e-6, 1.0e-3))
"""Relative difference of distances to a plane that a ray lies in, but for rounding."""


@wp.func
def row_of(grid: wp.array3d(dtype=int), world: int, shape: int) -> wp.vec4i:
    """How a height field lies in the arrays of all."""
    return wp.vec4i(grid[world, shape, 0], grid[world, shape, 1], grid[world, shape, 2], grid[world, shape, 3])


@wp.kernel(enable_backward=False)
def first_shapes(
    # Structure:
    lanes: int,
    # In:
    kind: wp.array2d(dtype=int),
    frame: wp.array2d(dtype=int),
    pos: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=quat),
    size: wp.array2d(dtype=vec3),
    root: wp.array2d(dtype=int),
    grid: wp.array3d(dtype=int),
    own: wp.array3d(dtype=int),
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    origin: wp.array2d(dtype=vec3),
    direction: wp.array2d(dtype=vec3),
    meshes: Meshes,
    hfield_size: wp.array2d(dtype=vec4),
    hfield_data: wp.array2d(dtype=real),
    # Out:
    length_out: wp.array2d(dtype=real),
    shape_out: wp.array2d(dtype=int),
    part_out: wp.array2d(dtype=int),
):
    """The shape that each ray meets first, or -1, and which part of it; its own (ray, shape) a ray does not see."""
    world, lane = wp.tid()
    for r in range(lane, own.shape[1], lanes):
        length_out[world, r] = real(-1.0)
        shape_out[world, r] = -1
        part_out[world, r] = 0
    for i in range(kind.shape[1]):
        at = frame_quat[world, frame[world, i]]
        centre = frame_pos[world, frame[world, i]] + rotate(at, pos[world, i])
        rot = quat_mul(at, quat_unit(turn[world, i]))
        radius = bounding_radius(kind[world, i], size[world, i])
        for r in range(lane, own.shape[1], lanes):
            arm = origin[world, r] - centre
            d = direction[world, r]
            dd = wp.dot(d, d)
            along = wp.dot(arm, d)
            best = length_out[world, r]
            # the ball about the shape: is it missed, behind, or beyond what was met already?
            passes = radius == real(0.0) or (
                along * along >= dd * (wp.dot(arm, arm) - real(1.001) * radius * radius)
                and (along <= real(0.0) or wp.dot(arm, arm) <= real(1.001) * radius * radius)
            )
            if passes and own[world, r, i] == 0:
                p = rotate_back(rot, arm)
                v = rotate_back(rot, d)
                length = real(-1.0)
                part = int(0)
                if kind[world, i] == MESH:
                    length, part = mesh_met(root[world, i], meshes, p, v)
                elif kind[world, i] == HFIELD:
                    field = row_of(grid, world, i)
                    length, part = field_met(field, hfield_size[world, field[0]], hfield_data, world, p, v)
                else:
                    length = ray_length(kind[world, i], size[world, i], p, v)
                if length >= real(0.0) and (best < real(0.0) or length < best):
                    length_out[world, r] = length
                    shape_out[world, r] = i
                    part_out[world, r] = part


@wp.kernel
def ray_lengths(
    # Structure:
    lanes: int,
    # In:
    kind: wp.array2d(dtype=int),
    frame: wp.array2d(dtype=int),
    pos: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=quat),
    size: wp.array2d(dtype=vec3),
    root: wp.array2d(dtype=int),
    grid: wp.array3d(dtype=int),
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    shape: wp.array2d(dtype=int),
    part: wp.array2d(dtype=int),
    found: wp.array2d(dtype=real),
    origin: wp.array2d(dtype=vec3),
    direction: wp.array2d(dtype=vec3),
    meshes: Meshes,
    hfield_size: wp.array2d(dtype=vec4),
    hfield_data: wp.array2d(dtype=real),
    # Out:
    length_out: wp.array2d(dtype=real),
):
    """How far along each ray meets one shape, of meshes and fields one part; -1: it does not, or the shape is -1."""
    world, lane = wp.tid()
    for r in range(lane, shape.shape[1], lanes):
        length = real(-1.0)
        i = shape[world, r]
        if i >= 0:
            at = frame_quat[world, frame[world, i]]
            rot = quat_mul(at, quat_unit(turn[world, i]))
            arm = origin[world, r] - frame_pos[world, frame[world, i]] - rotate(at, pos[world, i])
            p = rotate_back(rot, arm)
            d = rotate_back(rot, direction[world, r])
            if kind[world, i] == MESH:
                length = triangle_length(part[world, r], meshes, p, d)
            elif kind[world, i] == HFIELD:
                field = row_of(grid, world, i)
                length = field_length(field, hfield_size[world, field[0]], hfield_data, world, part[world, r], p, d)
                if not wp.abs(length - found[world, r]) <= GRAZING * (real(1.0) + found[world, r]):
                    length = found[world, r]
            else:
                length = ray_length(kind[world, i], size[world, i], p, d)
        length_out[world, r] = length
