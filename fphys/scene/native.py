"""The native back end: fphys's own solvers, pure and differentiable."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..bridge import worldwise
from ..bridge.spread import alongside
from ..control import pd
from ..coupling.exchange import held_step
from ..errors import ModelError, UnsupportedError
from ..model import Model, check, init, load, reset
from ..model import State as RigidState
from ..model.model import world_counts
from ..particles.arguments import kind_of
from ..render import sight
from ..rigid.stages import Loads
from ..rigid.step import step
from ..tree import Tree, pytree, static
from ..worlds import choose
from . import observe
from .compose import Layout, Part, layout, resolve
from .fluid import pour
from .materials import Rigid
from .mixture import mixed
from .particles import SOLVERS, Filling, Particles, fill, holding, warn_of_overlaps
from .sensors import Camera
from .soft import soften
from .specs import GAINS, ActionSpec, ObservationSpec

Array = jax.Array


@pytree
class State(Tree):
    """Everything that changes. Make one with :meth:`World.init`."""

    rigid: RigidState  # Bodies, as :func:`fphys.init` makes them.
    force: Array  # Force of the last step's control [N or N m], shape (world, nv); accelerometers measure its effect.
    mpm: Any = None  # Particles, as :func:`fphys.particles.mpm.init` makes them.
    sph: Any = None  # A fluid, as :func:`fphys.particles.sph.init` makes it.
    fem: tuple[Any, ...] = ()  # Soft bodies, as :func:`fphys.deformables.fem.init` makes them, one for each thing.
    pbd: tuple[Any, ...] = ()  # Cloth, ropes and solids, as :func:`fphys.deformables.pbd.init` makes them.
    flow: Any = None  # What sources gave and drains took, as :func:`fphys.particles.flow.init` makes it.
    wrench: Any = None  # What matter did to bodies in the last step, on average [N, N m], shape (world, nbody, 6).


@pytree
class Gains(Tree):
    """Of the PD law, for each of :attr:`World.controls`, shape (control,): the same in all worlds."""

    has_no_worlds = True  # fphys.distributed copies them to every device

    kp: Array  # Stiffness [N/m or N m/rad].
    kd: Array  # Damping [N s/m or N m s/rad].
    limit: Array  # Largest force or torque [N or N m], infinite if there is no limit.
    ends: Array  # Smallest and largest force in parts of the limit, shape (2, control): -1 and 1, or as in the file.


@pytree
class World(Tree):
    """Many copies of a scene. It is itself a pytree: gradients flow to its leaves as to states and controls.

    ``world.replace(model=world.model.replace({...}))`` changes the model that :func:`fphys.load` gave. Matter has the
    model's gravity and time step, not those of its own parameters.
    """

    model: Model  # The rigid part.
    filling: Filling | None  # The matter, as described in the scene.
    gains: Gains  # Those of :class:`ActionSpec`.
    rows: Array  # Nothing for each world, shape (num_worlds, 0): :mod:`fphys.distributed` gives each device its rows.
    max_force: float = static()  # Largest force or torque that a control may ask for [N or N m].
    action: ActionSpec = static()
    layout: Layout = static()
    unmoved: tuple[int, ...] = static(default=())  # Bodies that matter does not push.

    @property
    def num_worlds(self) -> int:
        """How many copies there are; on a device that has only some of them, how many it has."""
        return self.rows.shape[0]

    @property
    def kp(self) -> Array:
        """Stiffness of the PD law [N/m or N m/rad], shape (control,)."""
        return self.gains.kp

    @property
    def kd(self) -> Array:
        """Damping of the PD law [N s/m or N m s/rad], shape (control,)."""
        return self.gains.kd

    @property
    def limit(self) -> Array:
        """Largest force or torque [N or N m], shape (control,), infinite if there is no limit.

        If a file's two ends differ, as in ``actuatorfrcrange="-1 5"``, it is the larger one, 5, and both hold. One that
        :meth:`replace` sets holds in both directions.
        """
        return self.gains.limit

    @property
    def joints(self) -> tuple[str, ...]:
        """Hinges and slides: the columns of ``positions`` in :meth:`init`."""
        return self.layout.joints

    @property
    def controls(self) -> tuple[str, ...]:
        """The joints that controls drive, in the order of their columns."""
        return self.layout.pick_joints(self.action.joints)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; traceable and differentiable.

        Args:
            changes: by field, or ``num_worlds``. ``kp``, ``kd`` and ``limit`` are one number, or one for each of
                :attr:`controls`, shape (control,); they may be quantities if all of these are hinges, or all slides.

        Raises:
            ValueError: another shape. TypeError: another dtype. UnitError: a quantity of another kind.
        """
        given, real = {name: changes.pop(name) for name in GAINS if name in changes}, self.kp.dtype
        if "num_worlds" in changes:
            changes["rows"] = _rows(changes.pop("num_worlds"), real)
        new = super().replace(**changes)
        gains = {name: _row(name, value, new.layout, new.controls, real) for name, value in given.items()}
        if "limit" in gains:
            gains["ends"] = _even(len(new.controls), real)
        return dataclasses.replace(new, gains=new.gains.replace(**gains))

    @worldwise
    def init(self, positions: Any = None, max_contacts: int | None = None, max_constraints: int | None = None) -> State:
        """The scene as described, at rest; traceable.

        Args:
            positions: of :attr:`joints` [m or rad], shape (joint,) or (num_worlds, joint); by default those of the
                files. May be a quantity if all joints are hinges, or all slides.
            max_contacts, max_constraints: capacities of a world, as in :func:`fphys.init`.

        Raises:
            ValueError: another shape. UnitError: a quantity of another kind.
        """
        rigid = init(self.model, self.num_worlds, max_contacts=max_contacts, max_constraints=max_constraints)
        if positions is not None:
            n = len(self.joints)
            positions = units.si(positions, self.layout.kinds("position", self.joints), "positions")
            given = jnp.asarray(positions, rigid.qpos.dtype)
            if given.shape not in ((n,), (1, n), (self.num_worlds, n)):
                raise ValueError(f"positions have shape {given.shape}, need ({n},) or ({self.num_worlds}, {n})")
            at = observe.addresses(self.model, self.joints)[0]
            rigid = rigid.replace(qpos=rigid.qpos.at[:, at].set(jnp.broadcast_to(given, (self.num_worlds, n))))
        force, filling = jnp.zeros_like(rigid.qvel), self.filling
        if filling is None:
            return alongside(State(rigid, force), self.rows)
        matter = filling.start(self.model, rigid)
        wrench = jnp.zeros((self.num_worlds, self.model.structure.nbody, 6), force.dtype)
        fields = filling.fields(matter) | {"flow": filling.tally(matter), "wrench": wrench}
        return alongside(State(rigid, force, **fields), self.rows)

    @worldwise
    def step(self, state: State, control: Array | None = None) -> State:
        """Advance every world by one time step. Pure; composes with jit, grad, vmap, scan and checkpoint.

        Args:
            control: shape (num_worlds, len(controls)): forces [N or N m], positions [m or rad] or velocities
                [m/s or rad/s], as the :class:`ActionSpec` says; None for no force.

        Returns:
            The next state; a faulty world is held, as in :func:`fphys.step`. Gradients flow to the world, the state
            and the control, but not where a limit is active.

        Raises:
            ValueError: a shape does not fit, or a force is above the scene's ``max_force``. TypeError: a dtype does
                not fit; UnitError: a kind.
        """
        self._require_own(state)
        model, held, force = self._driven(state.rigid, control)
        if self.filling is None:
            return State(step(model, state.rigid, None, force=held), force)
        matter, tally = self.filling.matter(state), state.flow
        if tally is not None:
            matter, tally = self.filling.flowed(matter, tally, self.model.opt.timestep)
        media, loads, substeps = self.filling.media_in(model), Loads(None, None, held), self.filling.substeps
        borders = self.filling.surfaces
        rigid, matter, stop, wrench = held_step(
            model, state.rigid, media, matter, substeps, loads, self.unmoved, borders
        )
        wrench = choose(stop, jax.lax.stop_gradient(state.wrench), wrench)
        after = State(rigid, force, **self.filling.fields(matter), flow=tally, wrench=wrench)
        return after if tally is None else self._held(stop, state, after)

    def _held(self, stop: Array, state: State, after: State) -> State:
        """Nothing flows in the worlds that are held: their last state, and the status of the new one."""
        filling = self.filling
        assert filling is not None

        def kept(old: Any, new: Any) -> Any:
            return jax.tree.map(lambda o, n: choose(stop, o, n), jax.lax.stop_gradient(old), new)

        each = zip(filling.matter(state), filling.matter(after), strict=True)
        matter = filling.fields(kept(old, new).replace(status=new.status) for old, new in each)
        return after.replace(**matter, flow=kept(state.flow, after.flow))

    def alive(self, state: State, name: str) -> Array:
        """Which particles of a thing are there, bool, shape (num_worlds, particle).

        Those of a source are there once they have entered. Drains take particles of all things.

        Raises:
            ModelError: no thing of that name is made of particles.
        """
        if self.filling is None:
            raise ModelError(f"there is no thing of particles {name!r}: the scene has none")
        return self.filling.alive(state, name)

    def particles(self, state: State, name: str) -> Array:
        """Positions of the particles of a thing [m], shape (num_worlds, particle, 3); of a source, of all its slots.

        Raises:
            ModelError: no thing of that name is made of particles.
        """
        if self.filling is None:
            raise ModelError(f"there is no thing of particles {name!r}: the scene has none")
        return self.filling.particles(state, name)

    def vertices(self, state: State, name: str) -> Array:
        """Positions of the vertices of a deformable thing [m], shape (num_worlds, vertex, 3).

        Raises:
            ModelError: no thing of that name deforms.
        """
        if self.filling is None:
            raise ModelError(f"the scene has no deformable thing {name!r}: it has none")
        return self.filling.vertices(state, name)

    @worldwise
    def observe(self, state: State, spec: ObservationSpec) -> Array:
        """The observation of a spec, concatenated, shape (num_worlds, len(columns(spec))); pure.

        Positions and orientations are those after the step; IMUs and contacts read as if the last control were still
        held, and matter pushed as in the last step. Gradients flow to world and state, for sensors as in
        :func:`fphys.sensors`.

        Raises:
            ModelError: a name does not exist, or is a camera's. ValueError: the state has another number of worlds.
        """
        self._require_own(state)
        seen = [] if self.filling is None else self.filling.seen(state)
        wrench = state.wrench
        push = None if wrench is None else wrench.at[:, np.array(self.unmoved, int)].set(0)
        loads = Loads(None, push, state.force)
        return observe.observe(self.model, self.layout, state.rigid, loads, wrench, spec, seen)

    def columns(self, spec: ObservationSpec) -> tuple[str, ...]:
        """The name of each column of an observation.

        Raises:
            ModelError: a name does not exist, or is a camera's.
        """
        return observe.columns(self.layout, spec)

    def render(self, state: State, camera: str, world: int = 0) -> np.ndarray:
        """What a camera of one world sees: uint8, shape (height, width, 3).

        Drawn by mujoco on the host: neither traceable nor differentiable.

        Raises:
            ModelError: there is no such camera. ValueError: there is no such world. MissingDependencyError: no OpenGL.
        """
        return self._picture(state, camera, world)[0]

    def depth(self, state: State, camera: str, world: int = 0) -> np.ndarray:
        """Depth of each pixel along the camera's axis [m]: float32, shape (height, width).

        It is infinite where there is nothing. Drawn on the host, like :meth:`render`, with the same errors.
        """
        return self._picture(state, camera, world)[1]

    def check(self, state: State) -> None:
        """Raise StateError on the host if a world is faulty: see :func:`fphys.check` and the particles' ``check``."""
        check(state.rigid)
        if self.filling is not None:
            self.filling.check(state)

    def reset(self, state: State, mask: Array, start: State | None = None) -> State:
        """Reset the worlds where ``mask`` (num_worlds,) is true to ``start``, by default that of :meth:`init`.

        Bodies and particles alike; their time [s] as well, and fault bits are cleared. Gradients flow as in
        :func:`fphys.reset`.

        Raises:
            ValueError: the mask is not bool of that shape, or ``start`` does not fit.
        """
        self._require_own(state)
        rigid, matter, filling = state.rigid, {}, self.filling
        if start is None:
            own = self.replace(num_worlds=len(rigid.qpos))
            start = own.init(max_contacts=rigid.max_contacts, max_constraints=rigid.max_constraints)
        rigid = reset(self.model, rigid, mask, start.rigid)
        if filling is not None:
            matter = filling.reset(state, mask, start)

        def put(old: Any, new: Any) -> Any:
            across = lambda o, n: jnp.where(jnp.asarray(mask).reshape(-1, *[1] * (o.ndim - 1)), n, o)  # noqa: E731
            return jax.tree.map(across, old, new)

        own = {name: put(getattr(state, name), getattr(start, name)) for name in ("force", "flow", "wrench")}
        return State(rigid, **own, **matter)

    def _require_own(self, state: State) -> None:
        """Refuse a state of other worlds, or of another scene as far as its shapes tell.

        On a device that has only some of the worlds, the whole world fits if all worlds share what it has.

        Raises:
            ValueError: it is. TypeError: it is no state.
        """
        if not isinstance(state, State):
            raise TypeError(f"state is a {kind_of(state)}: make one with world.init()")
        worlds = state.rigid.qpos.shape[0]
        if jax.sharding.get_abstract_mesh().manual_axes:
            if others := set(world_counts(self.model).values()) - {1, worlds}:
                raise ValueError(
                    f"this device has {worlds} of the worlds, world.model has numbers for {max(others)}: pass the "
                    "world in `args` of fphys.distributed.gradient, or split it as the state is"
                )
        elif worlds != self.num_worlds:
            raise ValueError(f"state has {worlds} worlds, this world has {self.num_worlds}: make one with world.init()")
        own = {"qpos": self.model.qpos0.shape[-1:], "qvel": self.model.dof.damping.shape[-1:]}
        own |= {} if self.filling is None else self.filling.counts()
        if own != (given := _counts(state)):
            raise ValueError(
                f"state is of another scene: it has {_words(given)}, this world {_words(own)}; make one with "
                "world.init()"
            )

    def _driven(self, rigid: RigidState, control: Array | None) -> tuple[Model, Array, Array]:
        """The model and the generalised force (world, nv) for a step, and the force of the control at present.

        If no limit is active, the PD law's damping is added to the joint's, which the step integrates implicitly: a
        stiff law on a light link stays stable.
        """
        v = rigid.qvel
        if control is None:
            return self.model, jnp.zeros_like(v), jnp.zeros_like(v)
        at, dof = observe.addresses(self.model, self.controls)
        wanted = (v.shape[0], len(dof))
        control = units.si(control, self.layout.kinds(self.action.mode, self.controls), "control")
        if not isinstance(control, jax.Array):
            control = jnp.asarray(control, v.dtype)
        if control.shape != wanted:
            raise ValueError(f"control has shape {control.shape}, needs (num_worlds, joints) = {wanted}")
        if control.dtype != v.dtype:
            raise TypeError(f"control is {control.dtype}, the world is {v.dtype}: cast it")
        kp, kd = self.kp[None], self.kd[None]
        low, high = jax.lax.stop_gradient(self.gains.ends)[:, None] * self.limit[None, None]
        if self.action.mode == "torque":
            kind = next(iter(self.layout.kinds("torque", self.controls)), units.force)
            control = kind(control).within(kind(-self.max_force), kind(self.max_force)).value
            force = jnp.zeros_like(v).at[:, dof].set(jnp.clip(control, low, high))
            return self.model, force, force
        finite = [jnp.isfinite(a).all(1) for a in (control, rigid.qpos, v)]
        spoilt = ~(finite[0] & finite[1] & finite[2])  # these worlds get a force that is not finite, and no gradient
        target, q, speed = (choose(spoilt, 0, a) for a in (control, rigid.qpos[:, at], v[:, dof]))
        if self.action.mode == "position":
            pull, drag = pd(target, q, speed, kp, 0.0), kd
        else:
            pull, drag = pd(target, jnp.zeros_like(target), speed, kd, 0.0), kd
        u = pull - drag * speed
        free = (low <= u) & (u <= high)
        u = jnp.clip(u, low, high)
        damping = jnp.broadcast_to(self.model.dof.damping, v.shape).at[:, dof].add(jnp.where(free, kd, 0.0))
        model = dataclasses.replace(self.model, dof=self.model.dof.replace(damping=damping))
        held = choose(spoilt, jnp.nan, jnp.zeros_like(v).at[:, dof].set(jnp.where(free, pull, u)))
        return model, held, choose(spoilt, jnp.nan, jnp.zeros_like(v).at[:, dof].set(u))

    def _picture(self, state: State, camera: str, world: int) -> tuple[np.ndarray, np.ndarray]:
        cameras = {name: s for name, s in self.layout.sensors.items() if isinstance(s, Camera)}
        name = resolve("camera", camera, tuple(cameras))
        flexes = [] if self.filling is None else self.filling.flexes(state, world)
        return sight(self.model, state.rigid, name, cameras[name].height, cameras[name].width, world, flexes)


def _counts(state: State) -> dict[str, Any]:
    """What a state is made of, as :meth:`.particles.Filling.counts`."""
    found: dict[str, Any] = {"qpos": state.rigid.qpos.shape[1:], "qvel": state.rigid.qvel.shape[1:]}
    for kind in SOLVERS:
        matter = getattr(state, kind)
        each = matter if isinstance(matter, tuple) else () if matter is None else (matter,)
        found |= {kind: tuple(one.x.shape[1] for one in each)} if each else {}
    flow = state.flow
    return found | ({} if flow is None else {"sources and drains": (flow.born.shape[1], flow.removed.shape[1])})


def _words(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {' + '.join(map(str, each))}" for name, each in counts.items())


def build(scene: Any, spec: Any, num_worlds: int, action: ActionSpec, dtype: Any) -> World:
    """The world of a composed scene."""
    model = _individual(load(spec, dtype=dtype), scene.parts, num_worlds)
    found = layout(model.structure.source, dict(scene.sensors))
    action = found.settled(action)
    unread = [
        f"  {name!r}: {why}"
        for name, why in zip(model.names("sensor"), model.structure.sensor.missing, strict=True)
        if why and name.partition(":")[0] in found.sensors
    ]
    if unread:
        raise UnsupportedError("the back end 'native' cannot read these sensors:\n" + "\n".join(unread))
    real = model.qpos0.dtype
    joints = found.pick_joints(action.joints)
    ends = found.ends(joints, action.limit)
    limit = np.abs(ends).max(0)
    held = np.isfinite(limit) & (limit > 0)
    parts = jnp.where(held, ends / np.where(held, limit, 1.0), _even(len(joints), real)).astype(real)
    row = lambda name, value: _row(name, value, found, joints, real)  # noqa: E731
    gains = Gains(row("kp", action.kp), row("kd", action.kd), row("limit", limit), parts)
    geoms = () if all(isinstance(part.material, Rigid) for part in scene.parts) else holding(model)
    found_matter = fill(scene, model, geoms), pour(scene, model, geoms, num_worlds), soften(scene, model, geoms)
    fillings = [filling for filling in found_matter if filling is not None]
    for filling in fillings:
        if isinstance(filling, Particles):
            warn_of_overlaps(model, geoms, num_worlds, filling)
    unmoved = [
        body
        for body, name in enumerate(model.names("body"))
        for part in scene.parts
        if isinstance(part.material, Rigid) and not part.material.pushed and name.split("/")[0] == part.name
    ]
    return World(model, mixed(fillings), gains, _rows(num_worlds, real), scene.max_force, action, found, tuple(unmoved))


def _rows(num_worlds: int, real: Any) -> Array:
    return jnp.zeros((num_worlds, 0), real)


def _even(joints: int, real: Any) -> Array:
    """The ends of limits that hold in both directions."""
    return jnp.broadcast_to(jnp.array([[-1.0], [1.0]], real), (2, joints))


def _row(name: str, value: Any, layout: Layout, joints: tuple[str, ...], real: Any) -> Array:
    """Gains or limits of joints, shape (control,), from one number or one per joint, possibly a quantity."""
    value = units.si(value, layout.kinds(name, joints), f"world.{name}")
    if isinstance(value, jax.Array) and value.dtype != real:
        raise TypeError(f"world.{name} is {value.dtype}, the world is {real}: cast it")
    row = jnp.asarray(value, real)
    if row.shape not in ((), (1,), (len(joints),)):
        raise ValueError(f"world.{name} has shape {row.shape}, needs (joints,) = ({len(joints)},), or a number")
    return jnp.broadcast_to(row, (len(joints),))


def _individual(model: Model, parts: list[Part], num_worlds: int) -> Model:
    """Apply masses and friction given by materials, world by world where they differ."""
    bodies = model.names("body")
    mass, inertia, friction = (np.array(x) for x in (model.body.mass, model.body.inertia, model.geom.friction))
    if any(isinstance(getattr(p.material, f, None), tuple) for p in parts for f in ("mass", "friction")):
        mass, inertia, friction = (np.repeat(x, num_worlds, 0) for x in (mass, inertia, friction))
    for part in parts:
        own = [b for b, name in enumerate(bodies) if name == part.name or name.startswith(f"{part.name}/")]
        geoms = np.flatnonzero(np.isin(model.structure.geom.body, own))
        if getattr(part.material, "friction", None) is not None:
            friction[:, geoms, 0] = np.reshape(part.material.friction, (-1, 1))
        if isinstance(getattr(part.material, "mass", None), tuple):
            ratio = np.reshape(part.material.mass, (-1, 1)) / mass[:, own]
            mass[:, own] *= ratio
            inertia[:, own] *= ratio[..., None]
    changes = {"body.mass": (mass, model.body.mass), "body.inertia": (inertia, model.body.inertia)}
    changes["geom.friction"] = (friction, model.geom.friction)
    changed = {path: new for path, (new, old) in changes.items() if not np.array_equal(new, old)}
    try:
        return model.replace(changed) if changed else model
    except ValueError as error:
        raise ModelError(str(error)) from error
