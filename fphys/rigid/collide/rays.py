"""Rays against simple shapes on bodies: which shape a ray hits first, and how far along."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import kernels, warp_op
from ...model import Model, State
from ...model.structure import GeomType
from .. import stages, team

Array = jax.Array


class Shapes(NamedTuple):
    """Shapes that are fixed to bodies."""

    kind: Any  # GeomType, int32, (1, shape)
    frame: Any  # the body's, int32, (1, shape)
    pos: Any  # in the body's frame [m], (1 | world, shape, 3)
    quat: Any  # in the body's frame, (1 | world, shape, 4)
    size: Any  # MuJoCo's size parameters [m], (1 | world, shape, 3)


def shapes(model: Model, kind: np.ndarray, body: np.ndarray, pos: Array, quat: Array, size: Array) -> Shapes:
    """Shapes of ``GeomType`` (shape,) that are fixed to bodies (shape,)."""
    kinds, frames = (jnp.asarray(x, jnp.int32)[None] for x in (kind, model.structure.body.frame[body]))
    return Shapes(kinds, frames, pos, quat, size)


def first_met(model: Model, state: State, found: Shapes, own: np.ndarray, origin: Array, direction: Array) -> Array:
    """Which shape each ray hits first, int32, (world, ray); -1 if it hits none. Without gradients.

    Args:
        own: shapes that a ray does not see, bool, (ray, shape).
        origin, direction: of the rays, world axes [m], (world, ray, 3).
    """
    args = jax.lax.stop_gradient((model, state, found, jnp.asarray(own, jnp.int32)[None], origin, direction))
    return _first(*args)[1]


def ray_lengths(model: Model, state: State, found: Shapes, which: Array, origin: Array, direction: Array) -> Array:
    """Distance along each ray to the surface of one shape, from outside or inside, (world, ray).

    In units of the direction; -1 if a ray misses, or if ``which``, int32, (world, ray), is -1. A plane is seen
    only from its front. Gradients flow to the shapes, to origin and direction, and through the bodies' poses; they jump
    at the rim of a shape, where another surface becomes the first.
    """
    return _lengths(model, state, found, which, origin, direction)


def inside(shape: int, size: Array, point: Array) -> Array:
    """Whether points in the shape's frame lie inside it; bool, shape (...)."""
    radius, half = size[..., 0], size[..., 1]
    across = jnp.hypot(point[..., 0], point[..., 1])
    if shape == GeomType.BOX:
        return (jnp.abs(point) <= size).all(-1)
    if shape == GeomType.CYLINDER:
        return (across <= radius) & (jnp.abs(point[..., 2]) <= half)
    if shape == GeomType.CAPSULE:
        beyond = jnp.maximum(jnp.abs(point[..., 2]) - half, 0.0)
        return jnp.hypot(across, beyond) <= radius
    scale = size if shape == GeomType.ELLIPSOID else radius[..., None]
    return ((point / scale) ** 2).sum(-1) <= 1.0


def _launch_first(
    launch: Any, model: Model, state: State, found: Shapes, own: Any, origin: Any, direction: Any, *outs: Any
) -> None:
    frames, lanes = stages.frame_poses(launch, model, state), team.lanes(launch, own.shape[1])
    launch(
        kernels(state.qpos.dtype, "rigid.collide.rays").first_shapes,
        dim=(launch.worlds, lanes),
        inputs=[lanes, *found, own, *frames, origin, direction],
        outputs=list(outs),
    )


def _first_shapes(model: Model, state: State, found: Shapes, own: Any, origin: Any, direction: Any) -> tuple[Any, ...]:
    shape = origin.shape[:2]
    return jax.ShapeDtypeStruct(shape, state.qpos.dtype), jax.ShapeDtypeStruct(shape, np.int32)


def _launch_lengths(
    launch: Any, model: Model, state: State, found: Shapes, which: Any, origin: Any, direction: Any, out: Any
) -> None:
    frames = stages.frame_poses(launch, model, state)
    launch(
        kernels(state.qpos.dtype, "rigid.collide.rays").ray_lengths,
        dim=launch.worlds,
        inputs=[*found, *frames, which, origin, direction],
        outputs=[out],
    )


_first = warp_op(_launch_first, _first_shapes, differentiable=False, zeroed=False, name="first shapes on rays")
_lengths = warp_op(
    _launch_lengths,
    lambda model, state, found, which, origin, direction: jax.ShapeDtypeStruct(which.shape, origin.dtype),
    zeroed=False,
    name="lengths of rays",
)
