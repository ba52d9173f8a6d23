"""Where bodies, sites and geoms are, how they move, and their Jacobians."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import warp_op, worldwise
from ...errors import ModelError
from ...math import quat_mul, quat_unit, rotate, rotation
from ...model import Model, State
from ...model.arguments import expect, whole_number
from .. import stages

Array = jax.Array


class BodyPoses(NamedTuple):
    pos: Array  # Position of the body's frame [m], shape (world, body, 3).
    quat: Array  # Orientation (w, x, y, z), shape (world, body, 4).
    vel: (
        Array  # Velocity of the body's origin [m/s], then angular velocity [rad/s], world axes, shape (world, body, 6).
    )


class Poses(NamedTuple):
    pos: Array  # Position [m], shape (world, n, 3).
    mat: Array  # Orientation, shape (world, n, 3, 3).


class Kinematics(NamedTuple):
    """Where everything is, in world axes: what :func:`fphys.kinematics` gives. Gradients flow to every field."""

    body: BodyPoses  # .pos [m], shape (world, body, 3); .quat (w, x, y, z); .vel, linear then angular [m/s, rad/s]
    site: Poses  # .pos [m], shape (world, site, 3); .mat, orientation (world, site, 3, 3)
    geom: Poses  # .pos [m], shape (world, geom, 3); .mat, orientation (world, geom, 3, 3)


class _Poses(NamedTuple):
    """What :func:`_poses` gives, (world, frame or body, 3 or 4)."""

    frame_pos: Any
    frame_quat: Any
    pos: Any
    quat: Any


def _poses(launch: Any, model: Model, state: State, out: _Poses) -> None:
    frames = stages.frame_poses(launch, model, state, stages.Frames(out.frame_pos, out.frame_quat))
    kernel = stages.modules(out.pos).kinematics.body_poses
    inputs = [model.structure.body.frame, *frames]
    launch(kernel, dim=launch.worlds, inputs=inputs, outputs=[out.pos, out.quat])


def _pose_shapes(model: Model, state: State) -> _Poses:
    s, (worlds, _), real = model.structure, state.qpos.shape, state.qpos.dtype
    sizes = _Poses((s.frame.parent.size, 3), (s.frame.parent.size, 4), (s.nbody, 3), (s.nbody, 4))
    return _Poses(*(jax.ShapeDtypeStruct((worlds, *n), real) for n in sizes))


def _motions(
    launch: Any, model: Model, state: State, frame_pos: Any, frame_quat: Any, axes: Any, velocity: Any
) -> None:
    stages.dof_axes(launch, model, stages.Frames(frame_pos, frame_quat), axes)
    each = stages.frame_motion(launch, model, axes, state.qvel)
    kernel = stages.modules(axes).kinematics.body_motion
    launch(kernel, dim=launch.worlds, inputs=[model.structure.body.frame, each], outputs=[velocity])


def _motion_shapes(model: Model, state: State, frame_pos: Array, frame_quat: Array) -> tuple[Any, ...]:
    s, worlds = model.structure, frame_pos.shape[0]
    return tuple(jax.ShapeDtypeStruct((worlds, n, 6), frame_pos.dtype) for n in (s.nv, s.nbody))


_pose_operation = warp_op(_poses, _pose_shapes, zeroed=False, name="kinematics")
_motion_operation = warp_op(_motions, _motion_shapes, zeroed=False, name="motions")


class Motions(NamedTuple):
    """Poses, dof axes and velocities; spatial vectors are (angular, linear) about ``origin`` of each body."""

    pos: Array  # (world, body, 3)
    quat: Array  # (world, body, 4)
    origin: Array  # reference point of the body's tree, (world, body, 3)
    axes: Array  # motion of each dof, (world, nv, 6)
    velocity: Array  # (world, body, 6)


def motions(model: Model, state: State) -> Motions:
    """The quantities that all kinematics is computed from. Gradients flow to positions, velocities and geometry."""
    s = model.structure
    poses = _pose_operation(model, state)  # by itself: XLA drops the motions where only poses are used
    axes, velocity = _motion_operation(model, state, poses.frame_pos, poses.frame_quat)
    return Motions(poses.pos, poses.quat, poses.pos[:, s.body.root], axes, velocity)


@worldwise
def kinematics(model: Model, state: State) -> Kinematics:
    """Poses and velocities of bodies, poses of sites and geoms, in world axes.

    Returns:
        Kinematics with fields body (pos, quat, vel), site (pos, mat), geom (pos, mat). Gradients flow
        to qpos, qvel, mocap poses and the model's geometry.
    """
    expect(model, state)
    return _kinematics(model, state)


@jax.jit
def _kinematics(model: Model, state: State) -> Kinematics:
    m, s = motions(model, state), model.structure
    angular, linear = m.velocity[..., :3], m.velocity[..., 3:]
    linear = linear + jnp.cross(angular, m.pos - m.origin)
    body = BodyPoses(m.pos, m.quat, jnp.concatenate([linear, angular], -1))
    place = functools.partial(_place, m)
    return Kinematics(
        body, place(s.site.body, model.site.pos, model.site.quat), place(s.geom.body, model.geom.pos, model.geom.quat)
    )


def _place(m: Motions, body: np.ndarray, pos: Array, quat: Array) -> Poses:
    pose = m.quat[:, body]
    pos = jnp.broadcast_to(pos, (pose.shape[0], *pos.shape[1:]))
    quat = jnp.broadcast_to(quat_unit(quat), pose.shape)
    return Poses(m.pos[:, body] + rotate(pose, pos), rotation(quat_mul(pose, quat)))


@worldwise
def jacobian(model: Model, state: State, kind: str, name: str | int) -> Array:
    """Jacobian of a body's, site's or geom's origin: velocity = J qvel.

    Args:
        kind: "body", "site" or "geom".
        name: its name, or its index.

    Returns:
        Shape (world, 6, nv): linear [m/s], then angular velocity [rad/s], in world axes, per unit
        velocity of each dof (MuJoCo's ``mj_jac`` family). Gradients flow as in :func:`kinematics`.

    Raises:
        ModelError: there is no such element. ValueError: there is no such kind.
    """
    expect(model, state)
    if kind not in ("body", "site", "geom"):
        raise ValueError(f'kind is {kind!r}, must be "body", "site" or "geom"')
    index = model.id(kind, name) if isinstance(name, str) else whole_number("name", name)
    count = len(model.names(kind))
    if not 0 <= index < count:
        raise ModelError(f"the model has no {kind} {index}: it has {count}, numbered from 0")
    return _jacobian(model, state, kind, index)


@functools.partial(jax.jit, static_argnames=("kind", "index"))
def _jacobian(model: Model, state: State, kind: str, index: int) -> Array:
    s = model.structure
    body = index if kind == "body" else int(getattr(s, kind).body[index])
    m = motions(model, state)
    point = m.pos[:, body]
    if kind != "body":
        group = getattr(model, kind)
        point = point + rotate(m.quat[:, body], jnp.broadcast_to(group.pos[:, index], point.shape))
    angular, linear = m.axes[..., :3], m.axes[..., 3:]
    linear = linear + jnp.cross(angular, (point - m.origin[:, body])[:, None])
    moved = ancestry(model)[body]
    return jnp.concatenate([linear, angular], -1).swapaxes(1, 2) * moved[None, None].astype(linear.dtype)


def ancestry(model: Model) -> np.ndarray:
    """Which dofs move which bodies, bool, shape (body, nv)."""
    s = model.structure
    out = np.zeros((s.nbody, s.nv), bool)
    for b in range(1, s.nbody):
        out[b] = out[s.body.parent[b]]
        out[b, s.dof.body == b] = True
    return out
