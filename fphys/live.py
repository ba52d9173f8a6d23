"""``fphys view MODEL --live``: the simulation itself in the browser. It can be pushed, driven, slowed down and reset.

fphys takes every step. The page only shows states and sends what the user does: a body that is dragged is pulled by a
damped spring between the point that was grabbed and the mouse.
"""

import functools
import math
import threading
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys

from .deformables.mesh import Topology
from .errors import StateError
from .model.pairs import capacity
from .model.structure import GeomType
from .page import color_of, serve, shape, viser_module

Array = jax.Array

__all__ = ["Live", "live"]

FPS = 30.0  # pictures a second
PULL = 60.0  # stiffness of the mouse's spring over the mass that hangs on the body [1/s^2]
BEHIND = 0.2  # a picture's steps are at most those of this time [s]
TOLD = 0.2  # the text changes no more often [s]
SHARE = 0.6  # of the time of a picture that its steps may take; if the machine is slower, so is the motion
BLUE, RED = (42, 109, 181), (194, 59, 75)


class Pull(NamedTuple):
    """What the mouse does to a body."""

    world: Array  # int32, shape ().
    body: Array  # int32, shape ().
    grip: Array  # The point grabbed, in the body's frame [m], shape (3,).
    target: Array  # Where the mouse is [m], shape (3,).
    stiffness: Array  # [N/m], shape (); zero without a pull.
    damping: Array  # [N s/m], shape ().


def pulled(model: fphys.Model, state: fphys.State, pull: Pull) -> Array:
    """The wrench of a pull, shape (world, nbody, 6): force [N], and torque about the body's centre of mass [N m]."""
    body = fphys.kinematics(model, state).body
    at = (pull.world, pull.body)
    turn = fphys.math.rotation(body.quat[at])
    arm, spin = turn @ pull.grip, body.vel[at][3:]
    speed = body.vel[at][:3] + jnp.cross(spin, arm)
    force = pull.stiffness * (pull.target - body.pos[at] - arm) - pull.damping * speed
    ipos = model.body.ipos[jnp.minimum(pull.world, len(model.body.ipos) - 1), pull.body]
    torque = jnp.cross(arm - turn @ ipos, force)
    wrench = jnp.zeros((len(state.qpos), model.structure.nbody, 6), state.qpos.dtype)
    return wrench.at[at].set(jnp.concatenate([force, torque]))


class Bodies:
    """Copies of a model, for :class:`Live`. Another class with these members can be shown, too: a scene is."""

    can_be_pulled = True

    def __init__(self, model: fphys.Model, num_worlds: int = 1) -> None:
        self.model, self.num_worlds = model, num_worlds
        limited = model.structure.actuator.ctrllimited[:, None]
        self.ranges = np.where(limited, np.asarray(model.actuator.ctrlrange[0]), [-1.0, 1.0])
        self.controls = [name or f"actuator {i}" for i, name in enumerate(model.names("actuator"))]
        self.surfaces: dict[str, Any] = {}
        self.sizes: dict[str, float] = {}  # of points as they are drawn [m]; by default from how many there are
        self.room = np.zeros((0, 3))  # corners of what the camera sees besides what is there at the start [m]
        self.timestep = float(model.opt.timestep[0])  # of a step [s]

    def init(self, key: int | None) -> Any:
        """At the reference position, or at a keyframe."""
        state = fphys.init(self.model, self.num_worlds)
        if key is None:
            return state
        names = ("qpos", "qvel", "act", "mocap_pos", "mocap_quat")
        start = {n: jnp.broadcast_to(getattr(self.model.key, n)[key], getattr(state, n).shape) for n in names}
        return state.replace(**start)

    def step(self, state: Any, ctrl: Array, pull: Pull) -> Any:
        return fphys.step(self.model, state, ctrl, pulled(self.model, state, pull))

    def rigid(self, state: Any) -> fphys.State:
        return state

    def points(self, state: Any) -> dict[str, Array]:
        """Positions of particles and vertices by name [m], shape (world, n, 3); NaN where there is no particle."""
        return {}

    def check(self, state: Any) -> None:
        fphys.check(state)


class Things(Bodies):
    """A scene's world: bodies, particles and deformables. The mouse pulls nothing in it."""

    can_be_pulled = False

    def __init__(self, world: Any) -> None:
        super().__init__(world.model, world.num_worlds)
        self.world, self.controls = world, list(world.controls)
        limit = np.broadcast_to(np.asarray(world.limit), len(self.controls))
        self.ranges = np.where(np.isfinite(limit), limit, 1.0)[:, None] * [-1.0, 1.0]
        self.particles, self.meshes = [], []
        for filling in () if world.filling is None else world.filling.parts:
            if hasattr(filling, "radius"):
                self.particles += filling.names
                self.sizes |= dict.fromkeys(filling.names, 2 * filling.radius)
                self.room = np.array(filling.domain) if filling.sources else self.room
                continue
            self.meshes += filling.names
            elements = {n: medium.params.mesh.elements for n, medium in zip(filling.names, filling.media)}
            self.surfaces |= {name: each for name, each in elements.items() if each.shape[1] > 2}

    def init(self, key: int | None) -> Any:
        return self.world.init()

    def step(self, state: Any, ctrl: Array, pull: Pull) -> Any:
        return self.world.step(state, ctrl if self.controls else None)

    def rigid(self, state: Any) -> fphys.State:
        return state.rigid

    def points(self, state: Any) -> dict[str, Array]:
        there = {name: self.world.alive(state, name)[..., None] for name in self.particles}
        x = {name: jnp.where(there[name], self.world.particles(state, name), jnp.nan) for name in there}
        return x | {name: self.world.vertices(state, name) for name in self.meshes}

    def check(self, state: Any) -> None:
        self.world.check(state)


class Agent(Bodies):
    """A policy that acts in an environment, episode after episode. Each reset begins from other starts."""

    can_be_pulled = False

    def __init__(self, env: Any, policy: Any, seed: int = 0) -> None:
        super().__init__(env.model, env.num_envs)
        self.env, self.policy, self.controls, self.ranges = env, policy, [], np.zeros((0, 2))
        self.timestep, self._key = float(env.dt[0]), jax.random.key(seed)
        names = jax.eval_shape(lambda: env.points(env.reset(self._key)[0]))
        self.sizes = {name: 2 * float(env.grain) for name in names}

    def init(self, key: int | None) -> Any:
        self._key, now = jax.random.split(self._key)
        return self.env.reset(now)[:2]

    def step(self, state: Any, ctrl: Array, pull: Pull) -> Any:
        physics, observation = state
        return self.env.step(physics, self.policy(observation))[:2]

    def rigid(self, state: Any) -> fphys.State:
        return state[0].physics

    def points(self, state: Any) -> dict[str, Array]:
        return self.env.points(state[0])

    def check(self, state: Any) -> None:
        fphys.check(state[0].physics)


def live(what: Any, num_worlds: int = 1, port: int = 8080, host: str = "127.0.0.1") -> "Live":
    """Serve a running simulation of a model, or of a scene's world.

    Args:
        what: a fphys.Model, or what :meth:`fphys.Scene.build` gives on the native back end.
        num_worlds: copies of a model side by side; a scene has its own number.
        port, host: as for ``fphys.view.view``.

    Raises:
        ModelError: the address cannot be served. MissingDependencyError: viser is not installed.
    """
    return Live(Bodies(what, num_worlds) if isinstance(what, fphys.Model) else Things(what), port, host)


class Live:
    """A running page of a running simulation. ``play(seconds)`` runs it, ``stop()`` closes the page.

    :func:`live` makes one. ``address`` is the page's, ``state`` the simulation's present state.
    """

    def __init__(self, shown: Bodies, port: int = 8080, host: str = "127.0.0.1") -> None:
        self.shown, self.model = shown, shown.model
        self._stopped, self._lock = threading.Event(), threading.Lock()
        m = self.model.structure.source
        self._mass = np.maximum(np.asarray(m.body_subtreemass, float), 1e-6)
        self._advance, self._look = jax.jit(self._steps), jax.jit(self._seen)
        self._touches = jax.jit(self._contacts)
        self._viser = viser_module()
        self.server = serve(self._viser, host, port)
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{self.server.get_port()}"
        scene = self.server.scene
        scene.set_up_direction("+z")
        self._add_panel()
        self.reset()
        middle, extent = self._extent()
        self._apart = np.array([0.0, 2.0 * extent, 0.0]) * np.arange(shown.num_worlds)[:, None]
        self._add_things()
        self.advance(0.0)  # compiles
        middle = middle + self._apart.mean(0)
        reach = 1.5 * extent * max(1.0, 0.7 * shown.num_worlds)
        self.server.initial_camera.position = tuple(middle + reach * np.array([0.9, -0.9, 0.6]))
        self.server.initial_camera.look_at = tuple(middle)
        self.draw()

    def _extent(self) -> tuple[np.ndarray, float]:
        """The middle of a world, and how large it is [m]: of its bodies, and of its particles and vertices.

        Where matter comes from a source, also of the domain. What is as small as a point is as large as the model says.
        """
        m, points = self.model.structure.source, [_finite(x[0]) for x in self._now["points"].values()]
        points = [x for x in (*points, self.shown.room) if len(x)]
        bodies = [np.asarray(m.stat.center) + side * float(m.stat.extent) / 2 for side in (-1, 1)]
        moving = bool((self.model.structure.body.weld > 0).any())
        corners = np.concatenate([*points, bodies] if moving or not points else points)
        low, high = corners.min(0), corners.max(0)
        return (low + high) / 2, float((high - low).max()) or float(m.stat.extent)

    # What the user sees and sets

    def _add_panel(self) -> None:
        gui, m = self.server.gui, self.model
        touching = self.shown.can_be_pulled and capacity(m.structure)[0]
        self.status: Any = gui.add_markdown("")
        self.running: Any = gui.add_checkbox("run", True)
        self.speed: Any = gui.add_slider("speed", 0.25, 4.0, 0.25, 1.0)
        self.start: Any = gui.add_dropdown("start", ("default", *(name for name in m.names("key") if name)))
        again = gui.add_button("reset")
        self.contacts: Any = gui.add_checkbox("contacts", False, disabled=not touching)
        self.follow: Any = gui.add_checkbox("follow", False)
        self.shadows: Any = gui.add_checkbox("shadows", False)  # without a graphics card, they cost as much as the rest
        again.on_click(lambda event: self.reset())
        self.start.on_update(lambda event: self.reset())
        lit = self.server.scene.configure_default_lights
        lit(cast_shadow=False)
        self.shadows.on_update(lambda event: lit(cast_shadow=self.shadows.value))
        self.sliders: list[Any] = []
        if self.shown.controls:
            with gui.add_folder("actuators"):
                for name, (low, high) in zip(self.shown.controls, self.shown.ranges, strict=True):
                    first = float(np.clip(0.0, low, high))
                    step = float(high - low) / 200
                    self.sliders.append(gui.add_slider(name, float(low), float(high), step, first))

    def _add_things(self) -> None:
        scene, m, worlds = self.server.scene, self.model, self.shown.num_worlds
        source, sizes = m.structure.source, np.asarray(m.geom.size)[0]
        self._geoms: dict[int, Any] = {}
        for i, kind in enumerate(m.structure.geom.type):
            if (color := color_of(source, i)) is None:
                continue
            if kind == GeomType.PLANE:
                width, height = (float(2 * s) if s > 0 else 20.0 for s in sizes[i, :2])
                pose = self._poses(i)
                grid = scene.add_grid(f"geom{i}", width, height, plane="xy", plane_opacity=0.4)
                grid.position, grid.wxyz = pose[0][0], pose[1][0]
            elif (drawn := shape(int(kind), sizes[i], source, int(source.geom_dataid[i]))) is not None:
                pos, wxyz = self._poses(i)
                self._geoms[i] = handle = scene.add_batched_meshes_simple(
                    f"geom{i}",
                    np.asarray(drawn[0], np.float32),
                    np.asarray(drawn[1], np.uint32),
                    wxyz,
                    pos,
                    batched_colors=np.tile((255 * color[:3]).astype(np.uint8), (worlds, 1)),
                    opacity=None if color[3] == 1 else float(color[3]),
                    flat_shading=kind in (GeomType.BOX, GeomType.MESH),
                )
                body = int(m.structure.geom.body[i])
                if self.shown.can_be_pulled and m.structure.body.weld[body] > 0:
                    handle.on_drag("left", modifier="shift")(functools.partial(self._dragged, body))
        none = np.zeros((1, 2, 3), np.float32)
        self._arrows: Any = scene.add_arrows("contacts", none, RED, visible=False)
        self._string: Any = scene.add_line_segments("pull", none, RED, thickness=0.005, visible=False)
        self._matter = {}
        for name, x in self._now["points"].items():
            flat = self._flat(name)
            if (elements := self.shown.surfaces.get(name)) is not None:
                faces = elements if elements.shape[1] == 3 else Topology(elements, x.shape[1]).surface
                faces = np.concatenate([faces + k * x.shape[1] for k in range(worlds)])
                self._matter[name] = scene.add_mesh_simple(name, flat, faces, color=BLUE, side="double")
            else:
                size = self.shown.sizes.get(name) or float(np.ptp(x[0], axis=0).max() / max(x.shape[1] ** (1 / 3), 2))
                self._matter[name] = scene.add_point_cloud(
                    name, flat, BLUE, point_size=size, point_shape="circle", precision="float32"
                )

    async def _dragged(self, body: int, event: Any) -> None:
        # A coroutine, because viser runs plain functions in threads, in any order.
        if event.phase == "end":
            self.release()
        elif event.phase == "start":
            self.grab(event.instance_index or 0, body, event.start_position, event.end_position)
        else:
            self.drag(event.end_position)

    # What the user does

    def grab(self, world: int, body: int, point: Any, target: Any) -> None:
        """Begin to pull a body at a point of it towards a target.

        Args:
            world, body: their numbers.
            point, target: on the page [m], shape (3,): where worlds stand side by side.
        """
        pos, turn = (np.asarray(x[world, body]) for x in (self._now["body_pos"], self._now["body_mat"]))
        grip = turn.T @ (np.asarray(point, float) - self._apart[world] - pos)
        mass = self._mass[body]
        with self._lock:
            self._pull = self._numbers(world, body, grip, np.zeros(3), PULL * mass, 2 * math.sqrt(PULL) * mass)
        self.drag(target)

    def drag(self, target: Any) -> None:
        """Pull towards a point on the page [m], shape (3,)."""
        with self._lock:
            there = np.asarray(target, float) - self._apart[int(self._pull.world)]
            self._pull = self._pull._replace(target=jnp.asarray(there, self.model.qpos0.dtype))

    def release(self) -> None:
        """Pull no more."""
        with self._lock:
            self._pull = self._numbers(0, 0, np.zeros(3), np.zeros(3), 0.0, 0.0)

    def reset(self) -> None:
        """All worlds back to the start that is chosen; sliders stay."""
        key = self.start.value
        state = self.shown.init(None if key == "default" else self.model.id("key", key))
        self.release()
        with self._lock:
            self.state, self._owed = state, 0.0
        self._now = self._looked()

    def _numbers(self, world: int, body: int, grip: Any, target: Any, stiffness: float, damping: float) -> Pull:
        real = [jnp.asarray(x, self.model.qpos0.dtype) for x in (grip, target, stiffness, damping)]
        return Pull(jnp.int32(world), jnp.int32(body), *real)

    # What fphys computes

    def _steps(self, state: Any, ctrl: Array, pull: Pull, count: Array) -> Any:
        return jax.lax.fori_loop(0, count, lambda _, now: self.shown.step(now, ctrl, pull), state)

    def _seen(self, state: Any) -> dict[str, Any]:
        rigid = self.shown.rigid(state)
        where = fphys.kinematics(self.model, rigid)
        turns = jax.vmap(jax.vmap(fphys.math.rotation))(where.body.quat)
        return {
            "pos": where.geom.pos,
            "mat": where.geom.mat.reshape(*where.geom.pos.shape, 3),
            "body_pos": where.body.pos,
            "body_mat": turns,
            "time": rigid.time,
            "status": rigid.status,
            "points": self.shown.points(state),
        }

    def _contacts(self, state: Any, ctrl: Array, pull: Pull) -> tuple[Array, Array]:
        """Where bodies touch [m] and with which force [N], both (world, contact, 3)."""
        rigid = self.shown.rigid(state)
        _, info = fphys.forward(self.model, rigid, ctrl, pulled(self.model, rigid, pull))
        force = jnp.einsum("wcji,wcj->wci", info.contacts.frame, info.force[..., :3])
        return info.contacts.pos, jnp.where((info.contacts.pair >= 0)[..., None], force, 0.0)

    def control(self) -> Array:
        """The sliders' values [the controls' units], the same in every world, shape (world, nu)."""
        values = jnp.asarray([slider.value for slider in self.sliders], self.model.qpos0.dtype)
        return jnp.broadcast_to(values, (self.shown.num_worlds, len(self.sliders)))

    def advance(self, seconds: float) -> int:
        """Simulate some time, times the speed. Returns the number of steps; what is less than one is kept for later."""
        with self._lock:
            self._owed += seconds * float(self.speed.value) / self.shown.timestep
            count, before, pull = int(self._owed), self.state, self._pull
            self._owed -= count
        after = jax.block_until_ready(self._advance(before, self.control(), pull, jnp.int32(count)))
        with self._lock:
            if self.state is before:  # else it was reset meanwhile
                self.state = after
        return count

    def draw(self) -> None:
        """Send the state to the page."""
        self._now = self._looked()
        with self.server.atomic():
            for i, handle in self._geoms.items():
                handle.batched_positions, handle.batched_wxyzs = self._poses(i)
            for name, handle in self._matter.items():
                setattr(handle, "vertices" if name in self.shown.surfaces else "points", self._flat(name))
            self._draw_forces()
        self._follow()

    def _flat(self, name: str) -> np.ndarray:
        """Points of all worlds, each in its place, shape (world * n, 3); of particles, those that are there."""
        flat = (self._now["points"][name] + self._apart[:, None]).reshape(-1, 3).astype(np.float32)
        return flat if name in self.shown.surfaces else _finite(flat)

    def _looked(self) -> dict[str, Any]:
        return jax.tree.map(np.asarray, self._look(self.state))

    def _poses(self, geom: int) -> tuple[np.ndarray, np.ndarray]:
        mat = np.asarray(self._now["mat"][:, geom], float)
        pos = self._now["pos"][:, geom] + self._apart
        return pos.astype(np.float32), self._viser.transforms.SO3.from_matrix(mat).wxyz.astype(np.float32)

    def _draw_forces(self) -> None:
        pull = self._pull
        self._string.visible = pulls = bool(pull.stiffness > 0)
        if pulls:
            at = (int(pull.world), int(pull.body))
            grip = self._now["body_pos"][at] + self._now["body_mat"][at] @ np.asarray(pull.grip)
            ends = np.stack([grip, np.asarray(pull.target)]) + self._apart[at[0]]
            self._string.points = ends[None].astype(np.float32)
        force = np.zeros((0, 3))
        if self.contacts.value:
            pos, force = (np.asarray(x) for x in self._touches(self.state, self.control(), pull))
            felt = np.linalg.norm(force, axis=-1) > 1e-9
            pos, force = (pos + self._apart[:, None])[felt], force[felt]
            weight = 9.81 * float(self._mass[0])  # a force as large as the weight of all is half as long as the scene
            ends = pos + force * (0.5 * float(self.model.structure.source.stat.extent) / weight)
            if len(force):
                self._arrows.points = np.stack([pos, ends], 1).astype(np.float32)
        self._arrows.visible = len(force) > 0

    def _follow(self) -> None:
        moving = np.flatnonzero(self.model.structure.body.weld > 0)
        middle = self._now["body_pos"][0, moving].mean(0) if len(moving) else np.zeros(3)
        moved = middle - getattr(self, "_middle", middle)
        self._middle = middle
        if self.follow.value and np.isfinite(moved).all():
            for client in self.server.get_clients().values():
                with client.atomic():
                    client.camera.position = client.camera.position + moved
                    client.camera.look_at = client.camera.look_at + moved

    def play(self, seconds: float | None = None, fps: float = FPS) -> None:
        """Run until :meth:`stop`, or for some seconds. On a slow machine, motion is slow rather than jerky.

        ``fps`` is the number of pictures a second.
        """
        begun = last = due = time.perf_counter()  # `due`: when the next picture should be there
        told, simulated = -math.inf, 0.0  # when the text changed, and the time simulated since [s]
        most = BEHIND  # seconds to simulate for a picture
        while not self._stopped.is_set() and (seconds is None or time.perf_counter() - begun < seconds):
            now = time.perf_counter()
            if self.running.value:
                count = self.advance(min(max(now - last, 1 / fps), most))
                simulated += count * self.shown.timestep
                most = min(1.25 * most, BEHIND)
                if count:
                    step = (time.perf_counter() - now) / count
                    most = min(SHARE / fps / step * self.shown.timestep / float(self.speed.value), most)
            self.draw()
            if now - told > TOLD:
                self.status.content = self._said(simulated / (now - told))
                told, simulated = now, 0.0
            last, due = now, max(due, time.perf_counter() - 1 / fps) + 1 / fps  # a late one is made up for, two are not
            self._stopped.wait(due - time.perf_counter())

    def _said(self, rate: float) -> str:
        lines = [f"{float(self._now['time'][0]):.2f} s, {rate:.2f} × real time"]
        if self._now["status"].any():
            try:
                self.shown.check(self.state)
            except StateError as error:
                lines.append(f"**{error}**")
        if self.shown.can_be_pulled:
            lines.append("Shift and drag: pull a body")
        return "  \n".join(lines)

    def stop(self) -> None:
        """Close the page and free the port."""
        self._stopped.set()
        self.server.stop()


def _finite(x: np.ndarray) -> np.ndarray:
    return x[np.isfinite(x).all(-1)]
