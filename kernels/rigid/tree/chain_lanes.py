"""Places on eight mechanisms side by side (``lanes.py``): what :func:`chain.chain_places` does for each of them."""

import warp as wp

from ... import _native
from ..._precision import quat, real, vec3

chain_lanes_h = _native.header("rigid/native/chain_lanes.h")


@_native.func_native("return false;")
def has_room(numbers: int, tiny: real) -> bool:
    """Whether a processor's thread has room on its stack for so many numbers of eight worlds; never on a GPU."""
    chain_lanes_h()


@wp.func
def side_by_side(numbers: int, tiny: real):
    """Whether eight worlds go together."""
    return has_room(numbers, tiny)


@_native.func_replay(side_by_side)
def one_by_one(numbers: int, tiny: real):
    """A backward pass goes through the general code, which has an adjoint."""
    return False


@wp.func_grad(side_by_side)
def no_slope_of_side_by_side(numbers: int, tiny: real, adj_ret: bool):
    """None."""


@_native.func_native("")
def places_of_eight(
    world: int,
    free: int,
    ball: int,
    slide: int,
    tiny: real,
    link_parent: wp.array(dtype=int),
    link_joint: wp.array(dtype=int),
    joint_type: wp.array(dtype=int),
    joint_qpos: wp.array(dtype=int),
    joint_dof: wp.array(dtype=int),
    offset: wp.array2d(dtype=vec3),
    turn: wp.array2d(dtype=quat),
    joint_pos: wp.array2d(dtype=vec3),
    joint_axis: wp.array2d(dtype=vec3),
    qpos0: wp.array2d(dtype=real),
    qpos: wp.array2d(dtype=real),
    qvel: wp.array2d(dtype=real),
    link_pos_out: wp.array2d(dtype=vec3),
    link_quat_out: wp.array2d(dtype=quat),
    link_linear_out: wp.array2d(dtype=vec3),
    link_angular_out: wp.array2d(dtype=vec3),
    pos_out: wp.array2d(dtype=vec3),
    quat_out: wp.array2d(dtype=quat),
    linear_out: wp.array2d(dtype=vec3),
    angular_out: wp.array2d(dtype=vec3),
):
    """Poses and velocities in the worlds from ``world`` on, eight of them or as many as there are."""
    chain_lanes_h()
