"""The back end of Genesis, an engine with its own state: neither pure nor differentiable, and never traced."""

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import MissingDependencyError, StateError, UnsupportedError, install
from .compose import Layout, layout, resolve
from .genesis_faults import require_simulated
from .genesis_particles import particulate
from .genesis_things import lay, sense, things
from .lattice import placed
from .materials import Rigid
from .sensors import IMU, Camera, Contact, JointState, Rays
from .specs import ActionSpec, ObservationSpec
from .support import movable
from .ticket import Engine, State

Array = jax.Array

__all__ = ["World", "start"]


class World(Engine):
    """Many copies of a scene in Genesis. ``scene`` is the ``genesis.Scene``, for what this class does not cover.

    It has the members of :class:`fphys.scene.ticket.Engine`, too: ``step``, ``columns``, ``joints`` and ``controls``.
    Tickets do not notice changes made directly to ``scene``.
    """

    name = "Genesis"

    def __init__(
        self, scene: Any, entities: dict[str, Any], sensors: dict[str, Any], layout: Layout, max_force: float
    ) -> None:
        super().__init__(layout, scene.n_envs, max_force)
        self.scene = scene
        self._entities, self._sensors = entities, sensors
        self._dofs: dict[str, tuple[Any, int]] = {
            joint.name: (entity, joint.dofs_idx_local[0])
            for entity in entities.values()
            if hasattr(entity, "joints")
            for joint in entity.joints
            if joint.name in layout.joints
        }
        self._links = _links(entities)
        self._zero: dict[str, float] = {}  # of joints whose file has a ref: Genesis's coordinates are zero there
        self._begun: dict[str, Any] = {}  # what IMUs and contacts say where a world begins
        self._friction: list[tuple[Any, np.ndarray]] = []  # things whose friction differs from world to world
        self._points: list[tuple[Any, np.ndarray]] = []  # things made of particles, and their initial positions
        self._driven: list[int] = []  # the engine's indices of the dofs that controls drive

    def init(self, positions: Any = None) -> State:
        """Reset the engine to the scene as described, at rest; every earlier state becomes invalid.

        Args:
            positions: of ``joints`` [m or rad], shape (joint,) or (num_worlds, joint); by default those of the
                files. May be a quantity if all joints are hinges, or all slides.

        Genesis knows forces only of a step that it took: if there are IMUs or contact sensors it takes one and goes
        back, and they say what that step would do without a control.

        Raises:
            ValueError: another shape. UnitError: a quantity of another kind.
        """
        given = (
            None if positions is None else self._tensor(self._checked_positions(positions) - self._zeros(self.joints))
        )
        self._begin(given)
        feeling = [name for name, sensor in self.layout.sensors.items() if isinstance(sensor, IMU | Contact)]
        if feeling:  # the engine knows forces only after a step: it takes one, and goes back
            self._advance()
            begun = {name: self._sensor(name) for name in feeling}
            for felt in begun.values():
                felt[:, 3:] = 0.0  # at rest, nothing spins
            self._begin(given)
            self._begun = begun
        if any(isinstance(sensor, Rays) for sensor in self.layout.sensors.values()):
            self.scene.sim._sensor_manager.step()  # Genesis has no public call that reads without a step
        return self._next()

    def _begin(self, given: Any) -> None:
        """Reset everything, and place joints, (world, joint), in Genesis's coordinates."""
        self.scene.reset()
        for entity, ratio in self._friction:  # a reset forgets it
            entity.set_friction_ratio(ratio, range(entity.n_links))
        for entity, points in self._points:
            entity.set_particles_pos(points)
            entity.set_particles_active(True)
        self._release()
        self._unsound = np.zeros(self.num_worlds, bool)
        if given is not None:
            for entity, columns, dofs in self._by_entity(self.joints):
                entity.set_dofs_position(given[:, columns], dofs)

    def _zeros(self, joints: Sequence[str]) -> np.ndarray:
        """Positions of joints where Genesis's coordinates are zero [m or rad], (joint,)."""
        return np.array([self._zero[name] for name in joints], _real())

    def observe(self, state: State, spec: ObservationSpec) -> Array:
        """The observation of a spec, concatenated, shape (num_worlds, len(columns(spec))): a copy, without a gradient.

        Raises:
            StateError: an old state. ModelError: a name does not exist, or is a camera's.
        """
        torch = importlib.import_module("torch")
        self._require_present(state)
        self.layout.require(spec)
        parts = [self._joints(self.layout.pick_joints(spec.joints))]
        parts += [self._link(self.layout.pick_frame(link)) for link in spec.links]
        parts += [self._sensor(resolve("sensor", name, tuple(self.layout.sensors))) for name in spec.sensors]
        return jax.dlpack.from_dlpack(torch.cat(parts, 1).contiguous())  # a fresh tensor, to which nothing else refers

    def particles(self, state: State, name: str) -> Array:
        """Positions of the particles of a thing [m], shape (num_worlds, particle, 3), as a copy.

        Raises:
            StateError: an old state. ModelError: no thing of that name is made of particles.
        """
        self._require_present(state)
        made = {entity.name: entity for entity, _ in self._points}
        name = resolve("thing of particles", name, tuple(made))
        return jax.dlpack.from_dlpack(made[name].get_particles_pos().clone().contiguous())

    def render(self, state: State, camera: str, world: int = 0) -> np.ndarray:
        """What a camera of world 0 sees: uint8, shape (height, width, 3).

        Raises:
            StateError: an old state. ModelError: there is no such camera. UnsupportedError: another world.
        """
        return self._picture(state, camera, world)[0]

    def depth(self, state: State, camera: str, world: int = 0) -> np.ndarray:
        """Depth of each pixel along the camera's axis [m]: float32, shape (height, width).

        It is infinite where there is nothing. Errors are those of :meth:`render`.
        """
        return self._picture(state, camera, world)[1]

    def check(self, state: State) -> None:
        """Raise StateError if a pose, a velocity, a particle, or a control since :meth:`init`, is not finite."""
        self._require_present(state)
        self._require_finite_controls()
        for name, entity in self._entities.items():
            values = np.concatenate([x.cpu().numpy().reshape(self.num_worlds, -1) for x in _motion(entity)], 1)
            bad = np.flatnonzero(~np.isfinite(values).all(1))
            if bad.size:
                raise StateError(f"{name!r} is not finite in worlds {bad[:5].tolist()}: try a smaller timestep")

    def _real(self) -> np.dtype:
        return _real()

    def _tensor(self, value: Any) -> Any:
        torch = importlib.import_module("torch")
        if isinstance(value, jax.Array):
            return torch.from_dlpack(value.block_until_ready())
        return torch.as_tensor(np.ascontiguousarray(value))

    def _release(self) -> None:
        """Release the joints: the engine would hold the last control until it gets another."""
        if self._driven:
            zero = np.zeros((self.num_worlds, len(self._driven)), _real())
            self.scene.rigid_solver.control_dofs_force(zero, self._driven)
        self._held = False

    def _advance(self) -> None:
        self._begun = {}
        self.scene.step()

    def _control(self, control: Any, numbers: np.ndarray) -> None:
        tensor = self._tensor(control)
        if not self._driven:
            return
        solver = self.scene.rigid_solver
        match self.action.mode:
            case "torque":
                solver.control_dofs_force(tensor, self._driven)
            case "position":
                solver.control_dofs_position(tensor - self._tensor(self._zeros(self.controls)), self._driven)
            case _:
                solver.control_dofs_velocity(tensor, self._driven)
        self._held = True

    def set_action(self, action: ActionSpec) -> None:
        """Set the meaning of controls, and the gains and limits of the engine's own PD law.

        Raises:
            ModelError: a joint does not exist, or there are not as many gains. UnitError: a quantity of another kind.
        """
        action = self.layout.settled(action)
        self._release()
        self.action = action
        pairs = [self._dofs[name] for name in self.controls]
        self._driven = [entity.dof_start + dof for entity, dof in pairs]
        rows = [np.broadcast_to(np.asarray(x, float), len(self.controls)) for x in (action.kp, action.kd)]
        kp, kd = (np.minimum(row, 1e12) for row in rows)
        low, high = np.clip(self.layout.ends(self.controls, action.limit), -1e12, 1e12)
        for entity, columns, dofs in self._by_entity(self.controls):
            entity.set_dofs_kp(kp[columns], dofs)
            entity.set_dofs_kv(kd[columns], dofs)
            entity.set_dofs_force_range(low[columns], high[columns], dofs)

    def _by_entity(self, joints: Sequence[str]) -> list[tuple[Any, list[int], list[int]]]:
        """Entities with the columns and the dofs of joints."""
        found: dict[int, tuple[Any, list[int], list[int]]] = {}
        for column, name in enumerate(joints):
            entity, dof = self._dofs[name]
            _, columns, dofs = found.setdefault(entity.idx, (entity, [], []))
            columns.append(column)
            dofs.append(dof)
        return list(found.values())

    def _joints(self, joints: Sequence[str]) -> Any:
        torch = importlib.import_module("torch")
        out = torch.empty(self.num_worlds, 2 * len(joints), dtype=_gs().tc_float, device=_gs().device)
        for entity, columns, dofs in self._by_entity(joints):
            zero = self._tensor(self._zeros([joints[c] for c in columns])).to(out.device)
            out[:, columns] = entity.get_dofs_position(dofs) + zero
            out[:, [len(joints) + c for c in columns]] = entity.get_dofs_velocity(dofs)
        return out

    def _link(self, frame: str) -> Any:
        torch, geom = importlib.import_module("torch"), importlib.import_module("genesis.utils.geom")
        body, offset, turn = self.layout.frames[frame]
        if body == "world":
            at = [*offset, *turn, *[0.0] * 6]
            return torch.tensor(at, dtype=_gs().tc_float, device=_gs().device).expand(self.num_worlds, -1)
        link = self._links[body]
        pos, quat, vel, spin = link.get_pos(), link.get_quat(), link.get_vel(), link.get_ang()
        offset, turn = (torch.as_tensor(x, dtype=pos.dtype).expand(self.num_worlds, -1) for x in (offset, turn))
        arm = geom.transform_by_quat(offset, quat)
        turned = geom.transform_quat_by_quat(turn, quat)
        return torch.cat([pos + arm, turned, vel + torch.cross(spin, arm, dim=-1), spin], 1)

    def _sensor(self, name: str) -> Any:
        torch, geom = importlib.import_module("torch"), importlib.import_module("genesis.utils.geom")
        if name in self._begun:
            return self._begun[name]
        match self.layout.sensors[name]:
            case JointState() as sensor:
                return self._joints(self.layout.joints_of(sensor))
            case IMU(quat=quat):
                found = [x.reshape(self.num_worlds, 3) for x in self._sensors[name].read()[:2]]
                back = np.array([1, -1, -1, -1]) * quat / np.linalg.norm(quat)  # Genesis turns in another order
                turn = torch.as_tensor(back, dtype=found[0].dtype, device=found[0].device).expand(self.num_worlds, -1)
                return torch.cat([geom.transform_by_quat(x, turn) for x in found], 1)
            case Contact(link=link):
                own = self._links[self.layout.pick_body(link)]
                return own.entity.get_links_net_contact_force()[:, own.idx_local]
            case Rays():
                return self._sensors[name].read().distances.reshape(self.num_worlds, -1)
        raise AssertionError(name)

    def _picture(self, state: State, camera: str, world: int) -> tuple[np.ndarray, np.ndarray]:
        self._require_present(state)
        cameras = {name: s for name, s in self._sensors.items() if isinstance(self.layout.sensors[name], Camera)}
        name = resolve("camera", camera, tuple(cameras))
        if world != 0:
            raise UnsupportedError(
                f"world is {world}: in Genesis, cameras see world 0 only; backend='native' draws any"
            )
        device = cameras[name]
        if self.layout.sensors[name].link is not None:
            device.move_to_attach()
        image, depth, *_ = device.render(rgb=True, depth=True)
        depth = np.asarray(depth, np.float32)
        return np.asarray(image)[..., :3].astype(np.uint8), np.where(depth < 0.999 * device.far, depth, np.inf)


def build(scene: Any, spec: Any, num_worlds: int, action: ActionSpec, dtype: Any) -> World:
    """The world of a scene."""
    if dtype is not None:
        raise UnsupportedError("dtype is for the native back end: Genesis runs in the precision of gs.init")
    m = spec.compile()
    found = layout(m, dict(scene.sensors))
    action = found.settled(action)
    require_simulated(m, [part.name for part in scene.parts if isinstance(part.material, Rigid)])
    start()
    with tempfile.TemporaryDirectory() as folder:
        stage = lay(scene, m)
        entities = things(stage, scene, m, Path(folder))
        links = _links(entities)
        named = {name: links[found.pick_body(s.link)] for name, s in scene.sensors.items() if getattr(s, "link", None)}
        sensors = {name: sense(stage, named.get(name), s) for name, s in scene.sensors.items()}
        stage.build(n_envs=num_worlds)
    for part in scene.parts:
        if movable(part) and part.material.mass is not None:
            entities[part.name].set_mass(np.asarray(part.material.mass))
    world = World(stage, entities, sensors, found, scene.max_force)
    world._friction = [
        (entities[part.name], np.repeat(np.reshape(part.material.friction, (-1, 1)), entities[part.name].n_links, 1))
        for part in scene.parts
        if isinstance(part.material, Rigid) and isinstance(part.material.friction, tuple)
    ]
    world._points = [
        (entities[part.name], placed(part.morph, scene.domain.spacing).astype(_real())) for part in particulate(scene)
    ]
    world._zero = {name: float(m.qpos0[m.jnt_qposadr[m.joint(name).id]]) for name in found.joints}
    world.set_action(action)
    world.init()
    return world


def start() -> None:
    """Initialise Genesis unless this is done: on the CPU, or on the GPU if JAX uses one. No seed: it would be global.

    Raises:
        MissingDependencyError: Genesis is not installed.
    """
    gs = _gs()
    if not getattr(gs, "_initialized", False):
        gs.init(backend=gs.gpu if jax.default_backend() == "gpu" else gs.cpu, logging_level="warning")


def _gs() -> Any:
    try:
        return importlib.import_module("genesis")
    except ImportError as error:
        raise MissingDependencyError(
            f"backend='genesis' needs Genesis: {install('genesis')} ({type(error).__name__}: {error})"
        ) from error


def _real() -> np.dtype:
    return np.dtype(_gs().np_float)


def _links(entities: dict[str, Any]) -> dict[str, Any]:
    """Links by our names: the link of a thing with one body has the thing's name."""
    rigid = {name: entity for name, entity in entities.items() if hasattr(entity, "links")}
    return {link.name: link for e in rigid.values() for link in e.links} | {n: e.links[0] for n, e in rigid.items()}


def _motion(entity: Any) -> list[Any]:
    if not hasattr(entity, "links"):
        return [entity.get_particles_pos(), entity.get_particles_vel()]
    return [entity.get_links_pos(), entity.get_links_quat(), entity.get_links_vel(), entity.get_links_ang()]
