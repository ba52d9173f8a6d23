"""Rays against shapes on bodies: which shape a ray hits first, and how far along."""

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
    root: Any  # of a mesh: its first node in model.structure.mesh, int32, (1, shape); else -1
    grid: Any  # of a height field: its row of model.structure.geom.grid, int32, (1, shape, 4); else -1


class Met(NamedTuple):
    """What rays meet first."""

    shape: Array  # int32, (world, ray); -1 where there is none
    part: Array  # the triangle of a mesh, or the part of a height field, int32, (world, ray)
    length: Array  # how far along, (world, ray); without gradients


def shapes(model: Model, kind: np.ndarray, body: np.ndarray, pos: Array, quat: Array, size: Array) -> Shapes:
    """Simple shapes of ``GeomType`` (shape,) that are fixed to bodies (shape,)."""
    kinds, frames = (jnp.asarray(x, jnp.int32)[None] for x in (kind, model.structure.body.frame[body]))
    return Shapes(kinds, frames, pos, quat, size, jnp.full_like(kinds, -1), jnp.full((1, kind.size, 4), -1, jnp.int32))


def geoms(model: Model, which: np.ndarray) -> Shapes:
    """Geoms (shape,) as shapes."""
    s, geom = model.structure, model.geom
    found = shapes(
        model, s.geom.type[which], s.geom.body[which], geom.pos[:, which], geom.quat[:, which], geom.size[:, which]
    )
    root, grid = (jnp.asarray(x[which], jnp.int32)[None] for x in (s.mesh.root, s.geom.grid))
    return found._replace(root=root, grid=grid)


def first_met(model: Model, state: State, found: Shapes, own: np.ndarray, origin: Array, direction: Array) -> Met:
    """Which shape each ray hits first. Without gradients.

    Args:
        own: shapes that a ray does not see, bool, (ray, shape).
        origin, direction: of the rays, world axes [m], (world, ray, 3).
    """
    args = jax.lax.stop_gradient((model, state, found, jnp.asarray(own, jnp.int32)[None], origin, direction))
    length, shape, part = _first(*args)
    return Met(shape, part, length)


def ray_lengths(model: Model, state: State, found: Shapes, met: Met, origin: Array, direction: Array) -> Array:
    """Distance along each ray to the surface of one shape, from outside or inside, (world, ray).

    In units of the direction; -1 if a ray misses, or if its shape is -1. A plane is seen only from its front.
    Gradients flow to the shapes, to heights, to origin and direction, and through the bodies' poses; they jump at the
    rim of a shape, where another surface becomes the first, and at edges of triangles. A ray that lies in a triangle of
    a height field, so that rounding says where it meets it, has none.
    """
    return _lengths(model, state, found, met, origin, direction)


def _surfaces(model: Model, state: State) -> list[Any]:
    """Triangles of meshes, and height fields, in the form that kernels take."""
    mesh = model.structure.mesh
    vectors = {name: getattr(mesh, name).astype(state.qpos.dtype) for name in ("vert", "middle", "half")}
    numbers = {name: getattr(mesh, name) for name in ("corner", "past", "triangle")}
    return [vectors | numbers, model.hfield.size, model.hfield.data]


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
        inputs=[lanes, *found, own, *frames, origin, direction, *_surfaces(model, state)],
        outputs=list(outs),
    )


def _first_shapes(model: Model, state: State, found: Shapes, own: Any, origin: Any, direction: Any) -> tuple[Any, ...]:
    shape = origin.shape[:2]
    of = jax.ShapeDtypeStruct(shape, np.int32)
    return jax.ShapeDtypeStruct(shape, state.qpos.dtype), of, of


def _launch_lengths(
    launch: Any, model: Model, state: State, found: Shapes, met: Met, origin: Any, direction: Any, out: Any
) -> None:
    frames, lanes = stages.frame_poses(launch, model, state), team.lanes(launch, met.shape.shape[1])
    launch(
        kernels(state.qpos.dtype, "rigid.collide.rays").ray_lengths,
        dim=(launch.worlds, lanes),
        inputs=[lanes, *found, *frames, *met, origin, direction, *_surfaces(model, state)],
        outputs=[out],
    )


_first = warp_op(_launch_first, _first_shapes, differentiable=False, zeroed=False, name="first shapes on rays")
_lengths = warp_op(
    _launch_lengths,
    lambda model, state, found, met, origin, direction: jax.ShapeDtypeStruct(met.shape.shape, origin.dtype),
    zeroed=False,
    name="lengths of rays",
)
