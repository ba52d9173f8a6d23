"""``fphys view``: show a model or a run in the browser, to turn around, play and scrub."""

import functools
import math
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .deformables.mesh import Topology
from .errors import ModelError
from .model.structure import GeomType
from .page import color_of, serve, shape, viser_module
from .tree import Tree, pytree, static

MAX_BYTES = 2**32  # largest array to read, and largest array of poses to show
_ARRAYS = ("qpos", "x", "elements", "mocap_pos", "mocap_quat", "time", "color", "radius")
_NONE = np.zeros(0)


@pytree
class Motion(Tree):
    """What to show, as NumPy arrays: poses of geoms and positions of particles at each time."""

    pos: np.ndarray  # Position of each geom [m], shape (time, geom, 3).
    mat: np.ndarray  # Axes of each geom, shape (time, geom, 3, 3).
    particles: np.ndarray  # Position of each particle [m], shape (time, particle, 3).
    timestep: float = static(default=1 / 30)  # Time between two frames [s].
    faces: Any = None  # Triangles between particles that are a mesh's vertices, (face, 3); None if there are none.
    color: Any = None  # Of the particles, 0 to 1, (particle, 3); None for blue.
    radius: float | None = static(default=None)  # Of the particles [m]; None to suit their distances.


def motion(
    model: Any,
    qpos: Any = None,
    particles: Any = None,
    world: int = 0,
    elements: Any = None,
    mocap_pos: Any = None,
    mocap_quat: Any = None,
    time: Any = None,
    color: Any = None,
    radius: Any = None,
) -> Motion:
    """The motion of one world.

    Args:
        model: a fphys.Model, or None if there are only particles.
        qpos: generalised positions, shape (time, nq) or (time, world, nq); the reference position by default.
        particles: positions [m], shape (time, particle, dim) or (time, world, particle, dim). A plane is shown upright.
        elements: of the mesh whose vertices the particles are: triangles or tetrahedra, shape (element, 3 or 4). Its
            surface is shown.
        mocap_pos, mocap_quat: poses of the mocap bodies [m], shapes (time, world, nmocap, 3) and (..., 4); by default
            the model's.
        time: [s], shape (time,); by default a model's time steps, or thirty times a second.
        color: of the particles, red, green and blue from 0 to 1, shape (particle, 3).
        radius: of the particles [m].

    Raises:
        ModelError: shapes do not fit the model or each other, numbers are not finite, or there is no such world.
    """
    x = _one_world("x", particles, 3, world)
    if x is not None and (x.shape[1] == 0 or x.shape[2] not in (2, 3)):
        raise ModelError(f"x has shape {x.shape}, must be (time, particle, dim), with particles of dimension 2 or 3")
    if x is not None and x.shape[-1] == 2:
        x = np.stack([x[..., 0], np.zeros(x.shape[:-1]), x[..., 1]], -1)
    faces = None if elements is None or x is None else _faces(np.asarray(elements), x.shape[1])
    q = _one_world("qpos", qpos, 2, world)
    places, turns = (
        _one_world(name, a, 3, world) for name, a in (("mocap_pos", mocap_pos), ("mocap_quat", mocap_quat))
    )
    times = [len(array) for array in (q, x, places, turns) if array is not None]
    if len(set(times)) > 1:
        raise ModelError(f"the bodies have {times[0]} times, the particles {times[1]}: they must be from one run")
    length = times[0] if times else 1
    x = np.zeros((length, 0, 3)) if x is None else x
    look = {"faces": faces, **_look(color, radius, x.shape[1]), **_pace(time, length)}
    if model is None:
        return Motion(np.zeros((length, 0, 3)), np.zeros((length, 0, 3, 3)), x, **look)
    if length * model.structure.ngeom * 96 > MAX_BYTES:  # twelve numbers of eight bytes
        raise ModelError(f"{length} frames of {model.structure.ngeom} geoms are too many: keep every tenth, qpos[::10]")
    import jax

    import fphys

    state = fphys.init(model, 1)
    q = np.broadcast_to(state.qpos, (length, *state.qpos.shape[1:])) if q is None else q
    if q.shape[1] != model.structure.nq:
        raise ModelError(f"qpos has {q.shape[1]} coordinates, the model {model.structure.nq}: another model's result?")
    held: list[Any] = [state.mocap_pos[0], state.mocap_quat[0]]
    for i, (name, given) in enumerate((("mocap_pos", places), ("mocap_quat", turns))):
        if given is not None and given.shape[1:] != held[i].shape:
            raise ModelError(f"{name} has shape {given.shape}, the model {held[i].shape}: another model's result?")
        held[i] = np.broadcast_to(held[i] if given is None else given, (length, *held[i].shape))

    def posed(*now: Any) -> Any:
        names = ("qpos", "mocap_pos", "mocap_quat")
        return fphys.kinematics(model, state.replace(**{n: v[None] for n, v in zip(names, now)})).geom

    geoms = jax.jit(jax.vmap(posed))(*(np.asarray(value, state.qpos.dtype) for value in (q, *held)))
    look = {"timestep": float(model.opt.timestep[0])} | look
    return Motion(np.asarray(geoms.pos)[:, 0], np.asarray(geoms.mat)[:, 0].reshape(length, -1, 3, 3), x, **look)


def _look(color: Any, radius: Any, count: int) -> dict[str, Any]:
    if color is not None and (np.shape(color) != (count, 3) or not np.all((0 <= np.asarray(color)) & (color <= 1))):
        raise ModelError(f"color has shape {np.shape(color)}, must be ({count}, 3), numbers from 0 to 1")
    if radius is not None and (np.shape(radius) or not 0 < float(radius) < math.inf):
        raise ModelError(f"radius is {radius}, must be a positive number [m]")
    return {"color": color, "radius": None if radius is None else float(radius)}


def _pace(time: Any, length: int) -> dict[str, float]:
    """The time step of equally spaced times; that of the model if they are not given."""
    if time is None or length < 2:
        return {}
    step = float(np.ptp(time)) / (length - 1) if np.shape(time) == (length,) else math.nan
    if not 0 < step < math.inf or not (np.diff(time) > 0).all():
        raise ModelError(f"time has shape {np.shape(time)}, must be {length} rising numbers [s]")
    return {"timestep": step}


class Viewer:
    """A running page. ``show(frame)`` shows a frame, ``play(seconds)`` plays, ``stop()`` closes the page."""

    def __init__(
        self, model: Any, shown: Motion, port: int, host: str, worlds: Sequence[Any] = (), world: int = 0
    ) -> None:
        """``worlds`` are functions that give the motion of each world, for a page on which one can be chosen."""
        viser = viser_module()
        self.motion, self._stopped, self._viser = shown, threading.Event(), viser
        self.server = serve(viser, host, port)
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{self.server.get_port()}"
        scene, gui, count = self.server.scene, self.server.gui, len(shown.pos)
        scene.set_up_direction("+z")
        self._geoms = {} if model is None else _geoms(scene, model)
        self._cloud: Any = None
        self._surface: Any = None
        if shown.faces is not None:
            begin = np.asarray(shown.particles[0], np.float32)
            self._surface = scene.add_mesh_simple("surface", begin, shown.faces, color=(42, 109, 181), side="double")
        elif shown.particles.shape[1]:
            size = np.ptp(shown.particles[0], axis=0).max() / max(len(shown.particles[0]) ** 0.5, 2)
            cloud = np.asarray(shown.particles[0], np.float32)
            color = (42, 109, 181) if shown.color is None else (255 * np.asarray(shown.color)).astype(np.uint8)
            self._cloud = scene.add_point_cloud(
                "particles",
                cloud,
                color,
                point_size=float(2 * shown.radius if shown.radius else size),
                point_shape="circle",
                precision="float32",
            )
        points = np.concatenate([shown.pos, shown.particles], 1).reshape(-1, 3)
        low, high = points.min(0, initial=np.inf), points.max(0, initial=-np.inf)
        middle, reach = (low + high) / 2, max(1.2 * float(np.linalg.norm(high - low)), 1.5)
        self.server.initial_camera.position = tuple(middle + reach * np.array([0.6, -0.9, 0.45]))
        self.server.initial_camera.look_at = tuple(middle)
        self.playing: Any = gui.add_checkbox("play", count > 1)
        self.time: Any = gui.add_slider("picture", 0, max(count - 1, 1), 1, 0, disabled=count == 1)
        self.speed: Any = gui.add_slider("speed", 0.05, 4.0, 0.05, 1.0)
        self.time.on_update(lambda event: self._draw(int(self.time.value)))
        self.world: Any = gui.add_slider("world", 0, max(len(worlds) - 1, 1), 1, world, disabled=len(worlds) < 2)
        self.world.on_update(lambda event: self._turn_to(worlds[int(self.world.value)]()))
        self._turn_to(shown)

    def _turn_to(self, shown: Motion) -> None:
        """Show another motion of the same scene."""
        self.motion = shown
        mat = np.asarray(shown.mat, float)
        self._quat = self._viser.transforms.SO3.from_matrix(mat).wxyz if mat.size else None
        self._draw(int(self.time.value))

    def show(self, frame: int) -> None:
        """Show a frame, as the slider does."""
        self.time.value = int(frame) % len(self.motion.pos)

    def play(self, seconds: float | None = None, fps: float = 30.0) -> None:
        """Play until :meth:`stop`, or for some seconds. Frames are skipped if time steps are short."""
        at, pause, left = float(self.time.value), 1 / fps, np.inf if seconds is None else seconds
        while left > 0 and not self._stopped.wait(pause):
            left -= pause
            if self.playing.value:
                at = at if int(at) == int(self.time.value) else float(self.time.value)
                at = (at + pause * self.speed.value / self.motion.timestep) % len(self.motion.pos)
                self.show(int(at))

    def stop(self) -> None:
        """Close the page and free the port."""
        self._stopped.set()
        self.server.stop()

    def _draw(self, frame: int) -> None:
        with self.server.atomic():
            for index, handle in self._geoms.items():
                handle.position = self.motion.pos[frame, index]
                handle.wxyz = self._quat[frame, index]  # type: ignore[index]
            if self._cloud is not None:
                self._cloud.points = np.asarray(self.motion.particles[frame], np.float32)
            if self._surface is not None:
                self._surface.vertices = np.asarray(self.motion.particles[frame], np.float32)


def view(source: str, result: Path | None = None, port: int = 8080, host: str = "127.0.0.1", world: int = 0) -> Viewer:
    """Serve a model, and optionally a run's ``result.npz``.

    Args:
        source: the folder of a run, or of runs, whose newest is shown; or path of a model, an asset's name, or
            path of a result that holds only particles, or that :meth:`fphys.runs.Run.motion` saved.
        result: a file with arrays ``qpos`` (time, [world,] nq), ``x`` (time, [world,] particle, dim), or both.
            By default the model falls for three seconds with its actuators at zero. With ``elements``, triangles or
            tetrahedra between the points, their surface is shown.
        port: of the page. If it is in use, the next free one is taken.
        host: the address to serve, by default this machine only. Requests must name it: ``localhost`` and loopback
            addresses if it is local; otherwise any numeric address, this host or the machine's name.

    Raises:
        ModelError: the file is damaged, holds neither array, or is another model's; or the address cannot be served.
        MissingDependencyError: viser is not installed, or its version cannot be guarded.
    """
    viser_module()
    import fphys

    folder = result is None and Path(source).is_dir()
    file = _newest(Path(source)) if folder else Path(source) if Path(source).suffix == ".npz" else None
    if result is None and file is not None:
        found, scene = _arrays(file), file.with_name("scene.xml")
        if not scene.is_file() and "x" not in found:
            raise ModelError(f"{source} holds the qpos of a model: use fphys view MODEL {file}")
        model = fphys.load(scene) if scene.is_file() else None
    else:
        model = fphys.load(source)
        found = {"qpos": _fallen(model)} if result is None else _arrays(result)
    show = functools.partial(_motion, model, found)
    count = next((found[name].shape[1] for name, n in (("qpos", 3), ("x", 4)) if found.get(name, _NONE).ndim == n), 1)
    return Viewer(model, show(world), port, host, [functools.partial(show, k) for k in range(count)], world)


def _motion(model: Any, found: dict[str, np.ndarray], world: int) -> Motion:
    names = {"x": "particles"}
    return motion(model, world=world, **{names.get(name, name): array for name, array in found.items()})


def _newest(folder: Path) -> Path:
    """The result of a run's folder, or of the newest run in it."""
    found = [*folder.glob("result.npz"), *sorted(folder.glob("*/result.npz"), reverse=True)]
    if not found:
        raise ModelError(f"{folder} has no result.npz, nor has a folder in it: give the folder of a run")
    return found[0]


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a result to show. Only numbers are read, and none larger than its header says or than allowed."""
    try:
        if not path.is_file():
            raise FileNotFoundError("there is no such file")
        with zipfile.ZipFile(path) as archive:
            names = [name for name in _ARRAYS if f"{name}.npy" in archive.namelist()]
            found = {name: _array(archive, f"{name}.npy") for name in names}
            held = ", ".join(name.removesuffix(".npy") for name in archive.namelist())
    except ModelError as cause:
        raise ModelError(f"{path}: {cause}") from cause
    except Exception as cause:  # whatever the archive and header readers raise
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        raise ModelError(
            f"{path} cannot be read as a result ({reason[:200]}): absent, damaged, or not a NumPy .npz; give a run's "
            "result.npz, or run it again"
        ) from cause
    if not found.keys() & {"qpos", "x"}:
        raise ModelError(f"{path} holds {held[:200]!r}, must hold qpos or x to be shown")
    return found


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of a .npz file that numpy wrote. Its size and type are checked before it is read."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ModelError(f"{name} uses a compression that numpy never writes; write it with numpy.savez")
    if info.file_size > MAX_BYTES:
        raise ModelError(f"{name} has {info.file_size} bytes, at most {MAX_BYTES} can be shown; keep a tenth, [::10]")
    with archive.open(info) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ModelError(f"{name} is not a plain array; write it with numpy.savez")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        held = info.file_size - file.tell()
    if dtype.kind not in "fiu":
        raise ModelError(
            f"{name} has dtype {str(dtype)[:80]}, must hold real numbers; write it with numpy.savez from float arrays"
        )
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != held:
        raise ModelError(f"{name} claims shape {shape} of {dtype}, but holds {held} bytes: damaged; run it again")
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _fallen(model: Any, seconds: float = 3.0) -> np.ndarray:
    import jax

    import fphys

    steps = max(int(seconds / float(model.opt.timestep[0])), 1)
    advance = lambda s, _: ((after := fphys.step(model, s, jax.numpy.zeros((1, model.structure.nu)))), after.qpos[0])  # noqa: E731
    return np.asarray(jax.jit(lambda s: jax.lax.scan(advance, s, length=steps)[1])(fphys.init(model, 1)))


def _one_world(name: str, value: Any, ndim: int, world: int) -> np.ndarray | None:
    if value is None:
        return None
    value = np.asarray(value)
    if value.ndim == ndim + 1:
        if not 0 <= world < value.shape[1]:
            raise ModelError(f"world is {world}, {name} has worlds 0 to {value.shape[1] - 1}")
        value = value[:, world]
    if value.ndim != ndim or not len(value):
        raise ModelError(f"{name} has shape {value.shape}, must have a time axis first, then perhaps a world axis")
    if len(bad := np.argwhere(~np.isfinite(value))):
        raise ModelError(f"{name} is not finite from frame {bad[0, 0]} on: keep those before, {name}[:{bad[0, 0]}]")
    return value


def _faces(elements: np.ndarray, count: int) -> np.ndarray | None:
    """The triangles of a mesh's surface; None for edges, which are shown by their vertices."""
    if elements.ndim != 2 or elements.shape[1] not in (2, 3, 4) or elements.dtype.kind not in "iu" or not len(elements):
        raise ModelError(f"elements have shape {elements.shape}, must be whole numbers (element, 2, 3 or 4)")
    if not 0 <= elements.min() <= elements.max() < count:
        raise ModelError(
            f"elements name vertices {elements.min()} to {elements.max()}, x has {count}: from another run?"
        )
    if elements.shape[1] == 2:
        return None
    return elements if elements.shape[1] == 3 else Topology(elements, count).surface


def _geoms(scene: Any, model: Any) -> dict[int, Any]:
    """The handles of the visible geoms, by index."""
    source, sizes = model.structure.source, np.asarray(model.geom.size)[0]
    handles = {}
    for i, kind in enumerate(model.structure.geom.type):
        if (color := color_of(source, i)) is None:
            continue
        name, size, rgb = f"geom{i}", sizes[i], tuple(int(255 * c) for c in color[:3])
        if kind == GeomType.PLANE:
            width, height = (float(2 * s) if s > 0 else 20.0 for s in size[:2])
            handles[i] = scene.add_grid(name, width, height, plane="xy", plane_opacity=0.4)
        elif (drawn := shape(int(kind), size, source, int(source.geom_dataid[i]))) is not None:
            opacity = None if color[3] == 1 else float(color[3])
            handles[i] = scene.add_mesh_simple(
                name, *drawn, color=rgb, opacity=opacity, flat_shading=kind in (GeomType.BOX, GeomType.MESH)
            )
    return handles
