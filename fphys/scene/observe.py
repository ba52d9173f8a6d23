"""Observations of the native back end: joints, links and sensors as one array."""

import jax
import jax.numpy as jnp
import numpy as np

from ..math import quat_unit, rotate
from ..model import Model, State
from ..rigid.forward import check_inputs, screen
from ..rigid.measure import Scene as Measured
from ..rigid.sensor import sensors
from ..rigid.stages import Loads
from ..rigid.tree.chain import places
from ..worlds import choose, idle
from .compose import Layout, resolve
from .ranges import Balls, Triangles, nearest
from .sensors import IMU, Contact, JointState, Rays
from .specs import LINK, ObservationSpec

Array = jax.Array


def addresses(model: Model, joints: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The indices of positions and velocities of hinges and slides in qpos and qvel, each (joint,)."""
    which = np.array([model.id("joint", name) for name in joints], int)
    return model.structure.joint.qpos[which], model.structure.joint.dof[which]


def columns(layout: Layout, spec: ObservationSpec) -> tuple[str, ...]:
    """The name of each column of an observation."""
    layout.require(spec)
    names = list(_joint_columns(layout.pick_joints(spec.joints)))
    names += [f"{layout.pick_frame(link)}:{axis}" for link in spec.links for axis in LINK]
    for given in spec.sensors:
        name = resolve("sensor", given, tuple(layout.sensors))
        match layout.sensors[name]:
            case JointState() as sensor:
                names += [f"{name}:{column}" for column in _joint_columns(layout.joints_of(sensor))]
            case IMU():
                names += [f"{name}:{part}.{axis}" for part in ("acceleration", "spin") for axis in "xyz"]
            case Contact():
                names += [f"{name}:force.{axis}" for axis in "xyz"]
            case Rays() as sensor:
                names += [f"{name}:{i}" for i in range(len(sensor.directions))]
    return tuple(names)


def _joint_columns(joints: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{joint}:{what}" for what in ("position", "velocity") for joint in joints)


def observe(
    model: Model,
    layout: Layout,
    state: State,
    loads: Loads,
    wrench: Array | None,
    spec: ObservationSpec,
    seen: list[Balls | Triangles],
) -> Array:
    """The observation, shape (world, column).

    Args:
        loads: those that the mechanism is under.
        wrench: of matter on bodies [N, N m], shape (world, nbody, 6), also on those that it does not push.
        seen: what rays see beside rigid things.
    """
    layout.require(spec)
    parts = [_joints(model, state, layout.pick_joints(spec.joints))]
    if spec.links:
        parts.append(_links(model, state, layout, [layout.pick_frame(link) for link in spec.links]))
    for given in spec.sensors:
        name = resolve("sensor", given, tuple(layout.sensors))
        parts.append(_sensor(model, layout, state, loads, wrench, name, seen))
    return jnp.concatenate(parts, 1)


def _joints(model: Model, state: State, joints: tuple[str, ...]) -> Array:
    at, dof = addresses(model, joints)
    return jnp.concatenate([state.qpos[:, at], state.qvel[:, dof]], 1)


def _links(model: Model, state: State, layout: Layout, names: list[str]) -> Array:
    """Poses and velocities of bodies and of sites, which are fixed to bodies, shape (world, 13 names)."""
    owners = [layout.frames[name][0] for name in names]
    body = [0 if owner == "world" else model.id("body", owner) for owner in owners]
    site = [None if name == owner else model.id("site", name) for name, owner in zip(names, owners, strict=True)]
    real = state.qpos.dtype
    offset = [jnp.zeros((1, 3), real) if s is None else model.site.pos[:, s] for s in site]
    turn = [jnp.eye(1, 4, dtype=real) if s is None else quat_unit(model.site.quat[:, s]) for s in site]
    offsets, turns = (jnp.stack(jnp.broadcast_arrays(*each), 1) for each in (offset, turn))
    return jnp.concatenate(places(model, state, body, offsets, turns)[:4], -1).reshape(state.qpos.shape[0], -1)


def _sensor(
    model: Model,
    layout: Layout,
    state: State,
    loads: Loads,
    wrench: Array | None,
    name: str,
    seen: list[Balls | Triangles],
) -> Array:
    match layout.sensors[name]:
        case JointState() as sensor:
            return _joints(model, state, layout.joints_of(sensor))
        case IMU():
            return sensors(model, state, *loads, names=[f"{name}:accelerometer", f"{name}:gyro"])
        case Rays() as sensor:
            names = [f"{name}:{i}" for i in range(len(sensor.directions))]
            found = sensors(model, state, names=names)
            found = jnp.where(found < 0, sensor.max_range, jnp.minimum(found, sensor.max_range))
            return jnp.minimum(found, nearest(seen, *_rays(model, state, layout, sensor))) if seen else found
        case Contact(link=link):
            return _contact(model, state, loads, wrench, model.id("body", layout.pick_body(link)))
    raise AssertionError(name)


def _rays(model: Model, state: State, layout: Layout, sensor: Rays) -> tuple[Array, Array]:
    """Origins [m] and directions of rays, world axes, both of shape (world, ray, 3)."""
    real, shape = state.qpos.dtype, (state.qpos.shape[0], len(sensor.directions), 3)
    origin, direction = (jnp.broadcast_to(jnp.asarray(a, real), shape) for a in (sensor.origins, sensor.directions))
    if sensor.link in (None, "world"):
        return origin, direction
    body = model.id("body", layout.pick_body(sensor.link))
    at = places(model, state, [body], jnp.zeros((1, 1, 3), real), jnp.eye(1, 4, dtype=real)[None])
    quat = jnp.broadcast_to(at[1], (*shape[:2], 4))
    return at[0] + rotate(quat, origin), rotate(quat, direction)


def _contact(model: Model, state: State, loads: Loads, wrench: Array | None, body: int) -> Array:
    """The net force of contacts and matter on a body [N], world axes, shape (world, 3)."""
    model, state, loads, bits = screen(model, state, check_inputs(model, state, loads))
    c = Measured(model, state, loads, np.zeros(0, int)).contacts
    force = jnp.zeros((state.qpos.shape[0], 3), state.qpos.dtype)
    if c is not None:
        sign = (c.body[..., 1] == body).astype(c.force.dtype) - (c.body[..., 0] == body).astype(c.force.dtype)
        force = (sign[..., None] * c.force).sum(1)
    return force if wrench is None else force + choose(idle(bits), 0, wrench[:, body, :3])
