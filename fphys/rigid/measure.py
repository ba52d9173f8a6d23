"""The quantities that sensors are computed from: frames and their motion, bodies' momenta, forces and contacts."""

import dataclasses
import functools
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import warp_op
from ..math import einsum, quat_unit, rotate
from ..model import Model, State
from ..model.sensors import APART, SensorType
from ..model.structure import Structure
from . import stages
from .collide import collision
from .collide.apart import Apart, apart
from .collide.pairs import geoms_of
from .forces.actuation import Transmissions, actuator_force, transmissions
from .forces.tendon import segments
from .forward import Info, forward
from .inverse import energy
from .solve.equality import weld_pulls
from .solve.limit import Measured, limit_readings
from .tension import tensions, wrenches
from .tree.chain import places
from .tree.kinematics import motions

Array = jax.Array

BODY, XBODY, GEOM, SITE, CAMERA = 1, 2, 5, 6, 7  # mjtObj: a body's inertial frame, its frame, a geom, ...
ACCELERATED = (SensorType.ACCELEROMETER, SensorType.FRAMELINACC, SensorType.FRAMEANGACC)
WEIGHED = (SensorType.FORCE, SensorType.TORQUE)


class Placed(NamedTuple):
    """Poses and motion of frames that are fixed to bodies, world axes."""

    body: np.ndarray  # the body that each is fixed to, (k,)
    pos: Array  # (world, k, 3)
    quat: Array  # (world, k, 4)
    velocity: Array  # (world, k, 3)
    spin: Array  # angular velocity, (world, k, 3)
    acceleration: Array | None  # gravity included, as an upward one, (world, k, 3); None if no sensor needs it
    spin_rate: Array | None  # angular acceleration, (world, k, 3)

    def __getitem__(self, rows: np.ndarray | slice) -> Self:  # type: ignore[override]
        body, *arrays = self
        return type(self)(body[rows], *(None if x is None else x[:, rows] for x in arrays))  # pyright: ignore[reportArgumentType]

    def local(self, vectors: Array) -> Array:
        """Vectors of shape (world, k, ..., 3), from world axes to the frames' own axes."""
        turn = self.conjugate.reshape(*self.pos.shape[:2], *[1] * (vectors.ndim - 3), 4)
        return rotate(jnp.broadcast_to(turn, (*self.pos.shape[:2], *vectors.shape[2:-1], 4)), vectors)

    @property
    def conjugate(self) -> Array:
        return jnp.concatenate([self.quat[..., :1], -self.quat[..., 1:]], -1)


class Bodies(NamedTuple):
    """Inertial frames and momenta of all bodies, world axes."""

    frame: Placed
    mass: Array  # (world, body)
    turning: Array  # angular momentum about the centre of mass [kg m^2/s], (world, body, 3)


class Contacts(NamedTuple):
    """What the second body of each contact feels from the first, world axes; zero in empty slots."""

    body: Array  # (world, contact, 2)
    pos: Array  # (world, contact, 3)
    normal: Array  # from the first to the second, (world, contact, 3)
    pressing: Array  # force along the normal [N], (world, contact)
    force: Array  # [N], (world, contact, 3)
    torque: Array  # about the point of contact [N m], (world, contact, 3)


class Pulls(NamedTuple):
    """Forces and torques on bodies at points, world axes."""

    body: np.ndarray  # (k,)
    pos: Array  # (world, k, 3)
    force: Array  # [N], (world, k, 3)
    torque: Array  # about the point [N m], (world, k, 3)


def hanging(structure: Structure, body: np.ndarray) -> np.ndarray:
    """The bodies in each subtree, the root included, bool, shape (k, body)."""
    parent = structure.body.parent
    member = np.eye(parent.size, dtype=bool)
    for b in range(parent.size - 1, 0, -1):
        member[parent[b]] |= member[b]
    return member[body]


class Scene:
    """The quantities that the sensors of a state are computed from; each is computed on first use."""

    def __init__(self, model: Model, state: State, loads: stages.Loads, wanted: np.ndarray):
        self.model, self.state, self.loads = model, state, loads
        self.worlds, self.real = state.qpos.shape[0], state.qpos.dtype
        sensor = model.structure.sensor
        self._spatial = np.unique(wanted[np.isin(sensor.kind[wanted], (BODY, XBODY, GEOM, SITE, CAMERA))])
        self._apart = np.unique(wanted[np.isin(sensor.type[wanted], APART)])
        self._felt = bool(np.isin(sensor.type[wanted], ACCELERATED).any())
        self._weighed = bool(np.isin(sensor.type[wanted], WEIGHED).any())

    def rows(self, which: np.ndarray) -> np.ndarray:
        """Indices of sensors in ``attached``, ``reference`` and their motions."""
        return np.searchsorted(self._spatial, which)

    def leaf(self, values: Array) -> Array:
        """A leaf of the model, with one row for every world."""
        return jnp.broadcast_to(values, (self.worlds, *values.shape[1:]))

    def constant(self, values: np.ndarray) -> Array:
        return jnp.asarray(values, self.real)

    def place(self, kind: np.ndarray, index: np.ndarray, accelerated: bool) -> Placed:
        """Poses and motion of bodies, geoms, sites and cameras; each is computed once."""
        s, model = self.model.structure, self.model
        every = np.arange(s.nbody)
        none = self.constant(np.zeros((1, s.nbody, 3))), self.constant(np.tile(np.eye(4)[0], (1, s.nbody, 1)))
        tables = {
            BODY: (every, model.body.ipos, model.body.iquat),
            XBODY: (every, *none),
            GEOM: (s.geom.body, model.geom.pos, model.geom.quat),
            SITE: (s.site.body, model.site.pos, model.site.quat),
            CAMERA: (s.camera.body, self.constant(s.camera.pos[None]), self.constant(s.camera.quat[None])),
        }
        pairs, back = np.unique(np.stack([kind, index], 1), axis=0, return_inverse=True)
        groups = [(tables[k], pairs[pairs[:, 0] == k, 1]) for k in np.unique(pairs[:, 0])]  # in the order of the pairs
        body = np.concatenate([table[0][i] for table, i in groups]).astype(np.int32)
        leaves = [[table[n][:, i] for table, i in groups] for n in (1, 2)]
        rows = max(leaf.shape[0] for leaf in leaves[0] + leaves[1])
        pos, quat = (jnp.concatenate([jnp.broadcast_to(x, (rows, *x.shape[1:])) for x in part], 1) for part in leaves)
        qacc = self._solution[0] if accelerated else None
        found = places(model, self.state, body.tolist(), pos, quat_unit(quat), qacc)
        return Placed(body, *found)[back.reshape(-1)]

    def turn_inertia(self, frame: Placed, vectors: Array) -> Array:
        """The bodies' inertia about their centres of mass times vectors, world axes."""
        return rotate(frame.quat, self.leaf(self.model.body.inertia) * frame.local(vectors))

    @functools.cached_property
    def _sensed(self) -> Placed:
        """The frames that sensors are attached to, then their reference frames (the world if there is none)."""
        s, own = self.model.structure.sensor, self._spatial
        given = s.reference[own] >= 0
        kind = np.where(given, s.reference_kind[own], XBODY), np.where(given, s.reference[own], 0)
        kind, index = (np.concatenate(x) for x in zip((s.kind[own], s.target[own]), kind))
        return self.place(kind, index, self._felt)

    @functools.cached_property
    def attached(self) -> Placed:
        """The frames that sensors are attached to."""
        return self._sensed[: self._spatial.size]

    @functools.cached_property
    def reference(self) -> Placed:
        """Their reference frames."""
        return self._sensed[self._spatial.size :]

    @functools.cached_property
    def apart(self) -> tuple[dict[int, np.ndarray], Apart]:
        """Distances of the geoms that sensors measure, each pair once, and which of them are those of a sensor."""
        s = self.model.structure.sensor
        rows = {int(i): np.arange(*s.pair_adr[i : i + 2].tolist()) for i in self._apart}
        asked = [np.column_stack([s.pair[own], np.full(own.size, s.within[i])]) for i, own in rows.items()]
        pairs, back = np.unique(np.concatenate(asked), axis=0, return_inverse=True)
        ends = np.cumsum([own.size for own in rows.values()])
        which = dict(zip(rows, np.split(back.reshape(-1), ends[:-1]), strict=True))
        return which, apart(self.model, self.state, pairs[:, :2].astype(int), pairs[:, 2])

    @functools.cached_property
    def _solution(self) -> tuple[Array, Info]:
        return forward(self.model, self.state, *self.loads)

    @functools.cached_property
    def _solved(self) -> Array:
        """Accelerations that the solver found: a no-slip pass after it leaves forces of limits and bonds alone."""
        s = self.model.structure
        if not s.noslip_iterations:
            return self._solution[0]
        before = dataclasses.replace(self.model, structure=dataclasses.replace(s, noslip_iterations=0))
        return forward(before, self.state, *self.loads)[0]

    @functools.cached_property
    def bodies(self) -> Bodies:
        every = np.arange(self.model.structure.nbody)
        frame = self.place(np.full(every.size, BODY), every, self._weighed)
        return Bodies(frame, self.leaf(self.model.body.mass), self.turn_inertia(frame, frame.spin))

    @functools.cached_property
    def transmissions(self) -> Transmissions:
        return transmissions(self.model, self.state)

    @functools.cached_property
    def limits(self) -> Measured:
        """Readings of the limits of joints and of tendons, at the solution."""
        moved, qacc = self.transmissions, self._solved
        velocity, rate = (einsum("wij,wj->wi", moved.tendon_jacobian, x) for x in (self.state.qvel, qacc))
        return limit_readings(self.model, self.state, (moved.tendon_length, velocity, rate), qacc)

    @functools.cached_property
    def actuator_force(self) -> Array:
        if self.loads.ctrl is None or not stages.actuated(self.model, self.loads):
            return jnp.zeros((self.worlds, self.model.structure.nu), self.real)
        return actuator_force(self.model, self.state, self.loads.ctrl)

    @functools.cached_property
    def energy(self) -> tuple[Array, Array]:
        return energy(self.model, self.state)

    @functools.cached_property
    def touching(self) -> tuple[collision.Contacts, Array] | None:
        """The contacts and their forces in their own frames, zero in empty slots; None if model or state have none."""
        found, force = self._solution[1].contacts, self._solution[1].force
        if found is None or not found.pair.shape[1]:
            return None
        return found, jnp.where((found.pair >= 0)[..., None], force, 0.0)

    @functools.cached_property
    def contacts(self) -> Contacts | None:
        """The active contacts, or None if model or state have none."""
        if self.touching is None:
            return None
        found, parts = self.touching
        body = jnp.asarray(self.model.structure.geom.body)[geoms_of(self.model.structure, found.pair)]
        turn = parts[..., 3:] if parts.shape[-1] > 3 else jnp.zeros_like(parts)
        force, torque = (einsum("wcij,wci->wcj", found.frame, part) for part in (parts[..., :3], turn))
        return Contacts(body, found.pos, found.frame[..., 0, :], parts[..., 0], force, torque)

    @functools.cached_property
    def bonds(self) -> Pulls | None:
        """Forces of connections, welds and spatial tendons on their bodies, or None if the model has none."""
        found = [pulls for pulls in (self._welds, self._tendons) if pulls is not None]
        if len(found) < 2:
            return found[0] if found else None
        body, *arrays = zip(*found, strict=True)
        return Pulls(np.concatenate(body), *(jnp.concatenate(each, 1) for each in arrays))

    @property
    def _tendons(self) -> Pulls | None:
        """Forces of spatial tendons, about the origins of the bodies' trees."""
        if not segments(self.model.structure).geom.size:
            return None
        rate = einsum("wij,wj->wi", self.transmissions.tendon_jacobian, self._solved)
        tension = tensions(self.model, self.state, self._solved, rate, self.actuator_force)
        body, torque, force = wrenches(self.model, self.state, tension)
        return Pulls(body, motions(self.model, self.state).origin[:, body], force, torque)

    @property
    def _welds(self) -> Pulls | None:
        """Forces of connections and welds on both of their bodies."""
        found = weld_pulls(self.model, self.state, _accelerations(self.model, self.state, self._solved))
        if found is None:
            return None
        body, m = np.concatenate(list(found.body.T)), motions(self.model, self.state)
        arm = jnp.concatenate([self.leaf(anchor) for anchor in found.anchor], 1)
        force, torque = (jnp.concatenate([x, -x], 1) for x in (found.force, found.torque))
        return Pulls(body, m.pos[:, body] + rotate(m.quat[:, body], arm), force, torque)


def _accelerate(launch: Any, model: Model, state: State, qacc: Any, out: Any) -> None:
    s, t = model.structure, stages.types(state.qpos)
    axes = stages.dof_axes(launch, model, stages.frame_poses(launch, model, state))
    velocity, linear = (stages.frame_motion(launch, model, axes, rate) for rate in (state.qvel, qacc))
    launch(
        stages.modules(state.qpos).kinematics.frame_acceleration,
        dim=launch.worlds,
        inputs=[s.frame.parent, s.frame.joint, s.joint.type, s.joint.dof]
        + [stages.gravity(launch, model, state), axes, state.qvel, velocity, linear],
        outputs=[launch.scratch(velocity.shape[:2], t.motion), out],
    )


def _frame_shape(model: Model, state: State, qacc: Any) -> Any:
    return jax.ShapeDtypeStruct((state.qpos.shape[0], model.structure.frame.parent.size, 6), state.qpos.dtype)


_accelerations = warp_op(_accelerate, _frame_shape, zeroed=False, name="accelerations")
