"""The back end of PhysX by ovphysx, an engine with its own state: neither pure nor differentiable, and never traced."""

import functools
import importlib
import itertools
import os
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge.start import start_warp
from ..bridge.workers import num_threads
from ..errors import MissingDependencyError, StateError, UnsupportedError, install
from ..model.structure import GeomType, JointType
from .compose import Layout, layout, resolve
from .materials import Rigid
from .physx_faults import require_simulated
from .physx_group import NUMBERS, Group
from .physx_stage import EVERY, ORDINAL, Author, Tree, pose, poses, quat
from .sensors import IMU, Contact, JointState
from .specs import ActionSpec, ObservationSpec
from .support import movable
from .ticket import Engine, State

Array = jax.Array

__all__ = ["APART", "VERSION", "World"]

VERSION = "0.7.0.74035321"
"""The version of ovphysx that this is written for: its interface changes from one to the next."""

APART = 10.0
"""Distance between the edges of neighbouring worlds, which share one space [m]."""

_QUIET = {"/ovphysx/schemas/warnMissingNewtonSchema": False}  # the stage has no attributes of that schema
_BEYOND = 1e-6  # beyond a limit [m or rad]
_COUNT = itertools.count()  # of stages


class World(Engine):
    """Many copies of a scene in PhysX. ``engine`` is the ``ovphysx.PhysX``, for what this class does not cover.

    It has the members of :class:`fphys.scene.ticket.Engine`, too: ``step``, ``columns``, ``joints`` and ``controls``.
    ``groups`` holds PhysX's arrays of each thing that moves by itself.

    Tickets do not notice changes made directly to ``engine``. :meth:`close` frees it, as does dropping the world.
    """

    name = "PhysX"

    def __init__(
        self, engine: Any, stage: Any, m: Any, found: Layout, moving: list[Tree], places: np.ndarray, max_force: float
    ) -> None:
        super().__init__(found, len(places), max_force)
        self.engine = engine
        self._timestep, self._gravity = float(m.opt.timestep), np.array(m.opt.gravity, NUMBERS)
        self.groups = [Group(engine, tree, m, places) for tree in moving]
        at = {j: (group, k) for group in self.groups for k, j in enumerate(group.joints)}
        single = [j for j in range(m.njnt) if m.jnt_type[j] in (JointType.SLIDE, JointType.HINGE)]
        self._dofs = {name: at[j] for name, j in zip(found.joints, single, strict=True)}
        self._frames = _frames(m, found, self.groups)
        self._felt = _feelers(engine, m, found, moving)
        self._begun: dict[str, np.ndarray] = {}  # what IMUs and contacts say where a world begins
        self._driven: list[tuple[Group, Any, Any]] = []  # with the columns of controls, and their dofs
        self._ends = np.zeros((2, 0), NUMBERS)  # smallest and largest force of each control [N or N m]
        self._free = weakref.finalize(self, _free, engine, stage)

    def close(self) -> None:
        """Free the engine; the world cannot be used afterwards."""
        self._free()

    def init(self, positions: Any = None) -> State:
        """Reset the engine to the scene as described, at rest; every earlier state becomes invalid.

        Args:
            positions: of ``joints`` [m or rad], shape (joint,) or (num_worlds, joint); by default those of the
                files. May be a quantity if all joints are hinges, or all slides.

        PhysX knows forces only of a step that it took: if there are IMUs or contact sensors it takes one and goes back,
        and they say what that step would do without a control.

        PhysX throws a joint that begins beyond its limits back within a step, so it begins at the limit, and a warning
        names it.

        Raises:
            ValueError: another shape. UnitError: a quantity of another kind. StateError: the world is closed.
        """
        self._require_open()
        given = None if positions is None else self._checked_positions(positions)
        beyond = self._begin(given)
        if beyond:
            warnings.warn(
                f"PhysX: {', '.join(beyond)}: init positions are beyond the limits, so these joints begin at them. "
                "PhysX would throw them back within a step: give positions within the limits",
                UserWarning,
                stacklevel=2,
            )
        return self._state

    def _begin(self, positions: np.ndarray | None) -> list[str]:
        """Reset everything; returns the joints that would begin beyond their limits."""
        beyond = []
        for k, (name, (group, dof)) in enumerate(self._dofs.items()):
            wanted = np.zeros(self.num_worlds) if positions is None else positions[:, k] - group.zero[dof]
            group.start[:, dof] = np.clip(wanted, *group.range[dof])
            if np.abs(group.start[:, dof] - wanted).max() > _BEYOND:
                beyond.append(name)
        self._place()
        feeling = [name for name, sensor in self.layout.sensors.items() if isinstance(sensor, IMU | Contact)]
        if feeling:  # the engine knows forces only after a step: it takes one, and goes back
            self._advance()
            rates = [(group, group.read("LINK_ACCELERATION")) for group in self.groups]
            self._place()
            for group, rate in rates:
                group.keep("LINK_ACCELERATION", rate)
            self._begun = {name: self._sensor(name) for name in feeling}
        self._held, self._unsound = False, np.zeros(self.num_worlds, bool)
        self._next()
        return beyond

    def _place(self) -> None:
        for group in self.groups:
            group.let_go()
            group.place()

    def observe(self, state: State, spec: ObservationSpec) -> Array:
        """The observation of a spec, shape (num_worlds, len(columns(spec))), float32, without a gradient.

        PhysX's numbers are copied out of the engine once a step, and once more into the observation.

        Raises:
            StateError: an old state. ModelError: a name does not exist.
        """
        self._require_present(state)
        self.layout.require(spec)
        parts = [self._joints(self.layout.pick_joints(spec.joints))]
        parts += [self._link(self.layout.pick_frame(link)) for link in spec.links]
        parts += [self._sensor(resolve("sensor", name, tuple(self.layout.sensors))) for name in spec.sensors]
        return jnp.asarray(np.concatenate(parts, 1, dtype=NUMBERS))

    def check(self, state: State) -> None:
        """Raise StateError if a pose, a velocity or a control since :meth:`init` is not finite, or a thing went astray.

        The worlds stand in one space, :data:`APART` metres from one another.
        """
        self._require_present(state)
        self._require_finite_controls()
        for group in self.groups:
            at, speed = group.read("LINK_POSE"), group.read("LINK_VELOCITY")
            wrong = ~(np.isfinite(at).all((1, 2)) & np.isfinite(speed).all((1, 2)))
            if wrong.any():
                bad = np.flatnonzero(wrong)[:5].tolist()
                raise StateError(f"{group.name!r} is not finite in worlds {bad}: try a smaller timestep")
            astray = np.abs(at[:, :, :3] - group.home).max((1, 2)) > APART / 2
            if self.num_worlds > 1 and astray.any():
                bad = np.flatnonzero(astray)[:5].tolist()
                raise StateError(
                    f"{group.name!r} is more than {APART / 2:g} m from where it began in worlds {bad}: in PhysX the "
                    "worlds stand beside one another, and it may touch the next one"
                )

    def set_action(self, action: ActionSpec) -> None:
        """Set the meaning of controls, and the gains and limits of the engine's own PD law.

        Raises:
            UnsupportedError: a joint that has a spring gets targets with a limit: both are one drive of PhysX. Or
                targets with a limit whose ends differ: a drive has one.
            ModelError: a joint does not exist, or there are not as many gains. UnitError: a quantity of another kind.
            StateError: the world is closed.
        """
        self._require_open()
        action = self.layout.settled(action)
        names = self.layout.pick_joints(action.joints)
        kp, kd = (np.broadcast_to(np.asarray(x, float), len(names)) for x in (action.kp, action.kd))
        ends = self.layout.ends(names, action.limit)
        bound = np.abs(ends).max(0)
        torque = action.mode == "torque"
        for k, (group, dof) in enumerate(self._dofs[name] for name in names):
            if not torque and group.spring[dof] and np.isfinite(bound[k]):
                raise UnsupportedError(
                    f"PhysX: {names[k]!r} has a spring, and its targets a limit of {bound[k]:g}: both are one drive "
                    "with one limit. Take ActionSpec(limit=inf), or torques"
                )
            if not torque and ends[0, k] != -ends[1, k]:
                raise UnsupportedError(
                    f"PhysX: targets of {names[k]!r}, whose force the file limits to {ends[0, k]:g} to {ends[1, k]:g}: "
                    "a drive has one limit for both directions. Take ActionSpec(limit=...), or torques"
                )
        self.action, self._ends, self._driven = action, ends.astype(NUMBERS), []
        for group in self.groups:
            columns = [k for k, name in enumerate(names) if self._dofs[name][0] is group]
            dofs = np.array([self._dofs[names[k]][1] for k in columns], int)
            gains = np.zeros((2, len(group.joints)))
            most = np.full(len(group.joints), np.inf)
            if columns and not torque:
                gains[0, dofs] = kp[columns] if action.mode == "position" else 0.0
                gains[1, dofs], most[dofs] = kd[columns], bound[columns]
            group.drive(gains[0], gains[1], most)
            if columns:
                self._driven.append((group, _span(columns), _span(dofs.tolist())))
        self._held = False

    def _real(self) -> np.dtype:
        return NUMBERS

    def _require_open(self) -> None:
        if not self._free.alive:
            raise StateError("this world is closed: build the scene again")

    def _require_present(self, state: State) -> None:
        self._require_open()
        super()._require_present(state)

    def _advance(self) -> None:
        self._begun = {}
        self.engine.step_sync(self._timestep)
        for group in self.groups:
            group.forget()

    def _control(self, control: Any, numbers: np.ndarray) -> None:
        for group, columns, dofs in self._driven:
            own = numbers[:, columns]
            if self.action.mode == "torque":
                group.force[:, dofs] = np.clip(own, self._ends[0, columns], self._ends[1, columns])
                group.write("DOF_ACTUATION_FORCE", group.force)
                continue
            if not self._held:
                group.hold()
            if self.action.mode == "position":
                group.aim(dofs, own)
            else:
                group.velocity[:, dofs] = own
                group.write("DOF_VELOCITY_TARGET", group.velocity)
        self._held = True

    def _release(self) -> None:
        for group, _, _ in self._driven:
            group.let_go()
        self._held = False

    def _joints(self, joints: Sequence[str]) -> np.ndarray:
        out = np.empty((self.num_worlds, 2 * len(joints)), NUMBERS)
        for k, (group, dof) in enumerate(self._dofs[name] for name in joints):
            out[:, k] = group.read("DOF_POSITION")[:, dof] + group.zero[dof]
            out[:, len(joints) + k] = group.read("DOF_VELOCITY")[:, dof]
        return out

    def _motion(self, frame: str) -> tuple[np.ndarray, ...]:
        """Position, quaternion (x, y, z, w), velocity, angular velocity, and arm from the link's centre of mass."""
        group, link, offset, turn = self._frames[frame]
        if group is None:
            still = np.zeros((self.num_worlds, 3), NUMBERS)
            return still + offset, np.tile(turn, (self.num_worlds, 1)), still, still, still
        at, speed = group.read("LINK_POSE")[:, link], group.read("LINK_VELOCITY")[:, link]
        arm = _turned(at[:, 3:], offset - group.centre[link])
        velocity = speed[:, :3] + np.cross(speed[:, 3:], arm)
        return at[:, :3] + _turned(at[:, 3:], offset), _times(at[:, 3:], turn), velocity, speed[:, 3:], arm

    def _link(self, frame: str) -> np.ndarray:
        where, turned, velocity, spin, _ = self._motion(frame)
        return np.concatenate([where, np.roll(turned, 1, 1), velocity, spin], 1)

    def _sensor(self, name: str) -> np.ndarray:
        if name in self._begun:
            return self._begun[name]
        match self.layout.sensors[name]:
            case JointState() as sensor:
                return self._joints(self.layout.joints_of(sensor))
            case IMU():
                return self._imu(name)
            case Contact():
                return self._touch(name)
        raise AssertionError(name)

    def _imu(self, name: str) -> np.ndarray:
        """The acceleration of the last step at a site, less gravity's, and its spin, both in the site's axes."""
        group, link, *_ = self._frames[name]
        _, turned, _, spin, arm = self._motion(name)
        rate = np.zeros((self.num_worlds, 6), NUMBERS) if group is None else group.read("LINK_ACCELERATION")[:, link]
        pull = rate[:, :3] + np.cross(rate[:, 3:], arm) + np.cross(spin, np.cross(spin, arm)) - self._gravity
        back = turned * np.array([-1, -1, -1, 1], NUMBERS)
        return np.concatenate([_turned(back, pull), _turned(back, spin)], 1)

    def _touch(self, name: str) -> np.ndarray:
        pressed, rubbed = (np.empty((self.num_worlds, 3), NUMBERS) for _ in range(2))
        self._felt[name].read_net_normal_forces(pressed)
        self._felt[name].read_net_friction_forces(rubbed)
        return pressed + rubbed


def build(scene: Any, spec: Any, num_worlds: int, action: ActionSpec, dtype: Any) -> World:
    """The world of a scene."""
    if dtype is not None:
        raise UnsupportedError("dtype is for the native back end: PhysX runs in float32")
    m = spec.compile()
    found = layout(m, dict(scene.sensors))
    action = found.settled(action)
    felt = {name: found.pick_body(s.link) for name, s in scene.sensors.items() if isinstance(s, Contact)}
    require_simulated(m, felt)
    library, stages = modules()
    places = _places(m, num_worlds)
    friction, mass = {}, {}
    for part in scene.parts:
        if isinstance(part.material, Rigid):
            for b in _bodies_of(m, part.name):
                if isinstance(part.material.friction, tuple):
                    friction[b] = np.array(part.material.friction)
                elif part.material.friction is not None:
                    friction[b] = np.full(num_worlds, part.material.friction)
            if movable(part) and isinstance(part.material.mass, tuple):
                mass[m.body(part.name).id] = np.array(part.material.mass)
    stage = stages.Stage(f"fphys{next(_COUNT)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of ``config``, which has no other way
        engine = library.PhysX(config=library.PhysXConfig(carbonite_overrides=_QUIET))
    try:
        touched = {int(m.body_weldid[m.body(body).id]) for body in felt.values()}
        moving = Author(stage, m, places, friction, mass, touched).write()
        engine.wait_task(engine.attach_ovstage(stage, read_ordinal=ORDINAL))
        engine.warmup()
        world = World(engine, stage, m, found, moving, places, scene.max_force)
    except BaseException:
        _free(engine, stage)
        raise
    world.set_action(action)
    world._begin(None)
    return world


def modules() -> tuple[Any, Any]:
    """The modules ``ovphysx`` and ``ovstage``.

    Raises:
        MissingDependencyError: they are not installed, or in another version.
    """
    start_warp()
    try:
        library, stages = importlib.import_module("ovphysx"), importlib.import_module("ovstage")
    except ImportError as error:
        raise MissingDependencyError(
            f"backend='physx' needs ovphysx {VERSION}: {install('physx')} ({type(error).__name__}: {error})"
        ) from error
    if library.__version__ != VERSION:
        raise MissingDependencyError(
            f"backend='physx' is written for ovphysx {VERSION}, not for {library.__version__}: {install('physx')}"
        )
    _start(library)
    return library, stages


@functools.cache
def _start(library: Any) -> None:
    """Have it run on the CPU, silently; ``ovphysx.set_log_level`` has it speak.

    It runs in the thread that calls it, because handing small steps to others takes longer than the steps.
    ``FPHYS_THREADS`` gives it threads.
    """
    threads = num_threads() if "FPHYS_THREADS" in os.environ else 0
    library.set_global_config(library.GlobalConfigKey.NUM_THREADS, threads)
    library.PhysX.set_cpu_mode(True)
    library.set_log_level(library.LogLevel.ERROR)


def _free(engine: Any, stage: Any) -> None:
    if engine.is_stage_attached():
        engine.wait_task(engine.detach_ovstage())
    engine.destroy()
    stage.destroy()


def _bodies_of(m: Any, name: str) -> list[int]:
    return [b for b in range(1, m.nbody) if m.body(b).name == name or m.body(b).name.startswith(f"{name}/")]


def _places(m: Any, num_worlds: int) -> np.ndarray:
    """Where the worlds stand [m], (world, 3): in a square or a row, along all planes of the scene.

    Raises:
        UnsupportedError: planes that every direction crosses.
    """
    planes = np.flatnonzero((m.geom_type == GeomType.PLANE) & ((m.geom_contype != 0) | (m.geom_conaffinity != 0)))
    at = poses(m)
    normals = [(at[m.geom_bodyid[g]] @ pose(m.geom_pos[g], m.geom_quat[g]))[:3, 2] for g in planes]
    _, size, axes = np.linalg.svd(np.array([*normals, np.zeros(3), np.zeros(3), np.zeros(3)]))
    along = axes[size < 1e-6]
    if num_worlds > 1 and not len(along):
        raise UnsupportedError(
            "PhysX: worlds stand beside one another, and the planes of this scene leave no room for that"
        )
    if not normals:
        along = np.eye(3)[:2]
    side = num_worlds if len(along) == 1 else int(np.ceil(np.sqrt(num_worlds)))
    step = APART + 2 * float(m.stat.extent)
    k = np.arange(num_worlds)
    grid = np.stack([k % side, k // side], 1)[:, : len(along)] * step
    return grid @ along[:2]


def _frames(m: Any, found: Layout, groups: list[Group]) -> dict[str, tuple[Any, int, np.ndarray, np.ndarray]]:
    """Bodies, sites and sensors by name: group, link, and position and quaternion (x, y, z, w) in the link."""
    at, owners = poses(m), {b: (group, k) for group in groups for b, k in group.links.items()}
    made = {}
    for name, (owner, pos, turn) in found.frames.items():
        if not name:  # a body without a name cannot be asked for
            continue
        body = m.body(owner).id
        link = int(m.body_weldid[body])
        own = np.linalg.inv(at[link]) @ at[body] @ pose(pos, turn)
        group, k = owners.get(link, (None, 0))
        made[name] = (group, k, own[:3, 3].astype(NUMBERS), np.array(quat(own[:3, :3]), NUMBERS))
    return made


def _feelers(engine: Any, m: Any, found: Layout, moving: list[Tree]) -> dict[str, Any]:
    """PhysX's contact sensors by the names of ours."""
    made = {}
    for name, sensor in found.sensors.items():
        if isinstance(sensor, Contact):
            link = int(m.body_weldid[m.body(found.pick_body(sensor.link)).id])
            folder = next(tree.folder for tree in moving if link in tree.links)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                made[name] = engine.create_contact_binding([f"{EVERY}/{folder}/b{link}"])
            assert made[name].sensor_paths == sorted(made[name].sensor_paths)
    return made


def _span(numbers: list[int]) -> slice | list[int]:
    """A slice if the numbers follow one another, which takes no copies."""
    first = numbers[0]
    return slice(first, first + len(numbers)) if numbers == list(range(first, first + len(numbers))) else numbers


def _turned(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Vectors turned by quaternions (x, y, z, w), (world, 3)."""
    axis, w = quat[:, :3], quat[:, 3:]
    twice = 2 * np.cross(axis, vector)
    return vector + w * twice + np.cross(axis, twice)


def _times(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Products of quaternions (x, y, z, w), (world, 4)."""
    a, b, v, w = first[:, :3], second[:3], first[:, 3:], second[3]
    whole = v * b + w * a + np.cross(a, b)
    return np.concatenate([whole, v * w - (a * b).sum(1, keepdims=True)], 1)
