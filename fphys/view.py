"""``fphys view``: show a model or a run in the browser, to turn around, play and scrub."""

import functools
import math
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelError
from .model.structure import GeomType
from .page import color_of, serve, shape, viser_module
from .render.recording import MOVING, NAMES, Motion, expect_numbers, expect_size, motion

BLUE = (42, 109, 181)


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
        self._meshed = np.zeros(0, int) if shown.vertices is None else shown.vertices
        if shown.faces is not None:
            corners = np.searchsorted(self._meshed, shown.faces)
            begin = np.asarray(shown.particles[0, self._meshed], np.float32)
            self._surface = scene.add_mesh_simple("surface", begin, corners, color=BLUE, side="double")
        if shown.particles.shape[1] > len(self._meshed):
            begin, colors = max((self._points(k) for k in range(count)), key=lambda cloud: len(cloud[0]))
            size = 2 * shown.radius if shown.radius else _spacing(begin)
            self._cloud = scene.add_point_cloud(
                "particles", begin, colors, point_size=size, point_shape="circle", precision="float32"
            )
        points = np.concatenate([shown.pos, shown.particles], 1).reshape(-1, 3)
        points = points[np.isfinite(points).all(-1)]
        points = points if len(points) else np.zeros((1, 3))
        low, high = points.min(0), points.max(0)
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
        at, clock, pause, left = -1, 0.0, 1 / fps, np.inf if seconds is None else seconds
        times = self.motion.times
        while left > 0 and not self._stopped.wait(pause):
            left -= pause
            if self.playing.value:
                clock = clock if at == int(self.time.value) else times[int(self.time.value)]
                clock = (clock + pause * self.speed.value) % (times[-1] + self.motion.timestep)
                at = int(np.searchsorted(times, clock, "right")) - 1
                self.show(at)

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
                self._cloud.points, self._cloud.colors = self._points(frame)
            if self._surface is not None:
                self._surface.vertices = np.asarray(self.motion.particles[frame, self._meshed], np.float32)

    def _points(self, frame: int) -> tuple[np.ndarray, np.ndarray]:
        """Particles of a frame that are there and no vertices of a mesh: float32 (n, 3), and uint8 colours."""
        x, color = self.motion.particles[frame], self.motion.color
        there = np.isfinite(x).all(-1)
        there[self._meshed] = False
        return x[there].astype(np.float32), np.array(BLUE if color is None else 255 * color[there], np.uint8)


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
    count = next((found[name].shape[1] for name, n in MOVING.items() if name in found and found[name].ndim == n), 1)
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
            names = [name for name in NAMES if f"{name}.npy" in archive.namelist()]
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
    if not found.keys() & MOVING.keys():
        raise ModelError(f"{path} holds {held[:200]!r}, must hold qpos, x or mocap_pos to be shown")
    return found


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of a .npz file that numpy wrote. Its size and type are checked before it is read."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ModelError(f"{name} uses a compression that numpy never writes; write it with numpy.savez")
    expect_size(name, info.file_size)
    with archive.open(info) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ModelError(f"{name} is not a plain array; write it with numpy.savez")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        held = info.file_size - file.tell()
    expect_numbers(name, dtype)
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


def _spacing(x: np.ndarray) -> float:
    """About the distance between points [m], shape (n, 3)."""
    return float(np.ptp(x, axis=0).max() / max(len(x) ** 0.5, 2)) if len(x) > 1 else 0.05


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
