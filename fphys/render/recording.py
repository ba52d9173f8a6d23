"""What a recording shows. :meth:`fphys.runs.Run.motion` checks it as ``fphys view`` does: what is saved can be seen."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..deformables.mesh import Topology
from ..errors import ModelError
from ..tree import Tree, pytree, static

MAX_BYTES = 2**32  # largest array to read, and largest array of poses to show
MOVING = {"qpos": 3, "x": 4, "mocap_pos": 4, "mocap_quat": 4}  # number of axes, of which the first are (time, world)
NAMES = (*MOVING, "elements", "time", "color", "radius")


@pytree
class Motion(Tree):
    """What to show, as NumPy arrays: poses of geoms and positions of particles at each time."""

    pos: np.ndarray  # Position of each geom [m], shape (time, geom, 3).
    mat: np.ndarray  # Axes of each geom, shape (time, geom, 3, 3).
    particles: np.ndarray  # Position of each particle [m], shape (time, particle, 3); NaN where there is none.
    timestep: float = static(default=1 / 30)  # Mean time between two frames [s].
    faces: Any = None  # Triangles between particles that are a mesh's vertices, (face, 3); None if there are none.
    vertices: Any = None  # Which particles they are, in rising order, (vertex,); None if there are none.
    color: Any = None  # Of the particles, 0 to 1, (particle, 3); None for blue.
    radius: float | None = static(default=None)  # Of the particles [m]; None to suit their distances.
    time: Any = None  # Of each frame [s], shape (time,); None if they are a time step apart.

    @property
    def times(self) -> np.ndarray:
        """Time of each frame since the first [s], shape (time,)."""
        return self.timestep * np.arange(len(self.pos)) if self.time is None else self.time - self.time[0]


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
            Those that are not finite are not shown.
        elements: of the mesh whose vertices particles are: triangles or tetrahedra, shape (element, 3 or 4). Its
            surface is shown, and the particles that no element names.
        mocap_pos, mocap_quat: poses of the mocap bodies [m], shapes (time, world, nmocap, 3) and (..., 4); by default
            the model's.
        time: [s], shape (time,); by default a model's time steps, or thirty times a second.
        color: of the particles, red, green and blue from 0 to 1, shape (particle, 3).
        radius: of the particles [m].

    Raises:
        ModelError: shapes do not fit the model or each other, times fall, numbers of bodies or of a mesh are not
            finite, or there is no such world.
    """
    given = dict(zip(NAMES, (qpos, particles, mocap_pos, mocap_quat, elements, time, color, radius), strict=True))
    given = {name: np.asarray(array) for name, array in given.items() if array is not None}
    given |= {name: _one_world(name, given[name], world) for name in MOVING if name in given}
    _expect_fitting(model, given)
    length = next((len(given[name]) for name in MOVING if name in given), 1)
    x = given.get("x", np.zeros((length, 0, 3)))
    if x.shape[-1] == 2:
        x = np.stack([x[..., 0], np.zeros(x.shape[:-1]), x[..., 1]], -1)
    look: dict[str, Any] = {name: given.get(name) for name in ("color", "time")}
    look["radius"] = None if radius is None else float(radius)
    if "elements" in given and x.shape[1] and (corners := given["elements"].shape[1]) > 2:  # edges: by their vertices
        look["faces"] = given["elements"] if corners == 3 else Topology(given["elements"], x.shape[1]).surface
        look["vertices"] = np.unique(given["elements"])
    if time is not None and np.ptp(given["time"]):
        look["timestep"] = float(np.ptp(given["time"])) / (length - 1)
    if model is None:
        return Motion(np.zeros((length, 0, 3)), np.zeros((length, 0, 3, 3)), x, **look)
    import jax

    from ..model.init import init
    from ..rigid.tree.kinematics import kinematics

    state, names = init(model, 1), ("qpos", "mocap_pos", "mocap_quat")
    poses = [given.get(n, np.broadcast_to(getattr(state, n)[0], (length, *getattr(state, n).shape[1:]))) for n in names]

    def posed(*now: Any) -> Any:
        return kinematics(model, state.replace(**{n: v[None] for n, v in zip(names, now, strict=True)})).geom

    geoms = jax.jit(jax.vmap(posed))(*(np.asarray(pose, state.qpos.dtype) for pose in poses))
    look = {"timestep": float(model.opt.timestep[0])} | look
    return Motion(np.asarray(geoms.pos)[:, 0], np.asarray(geoms.mat)[:, 0].reshape(length, -1, 3, 3), x, **look)


def check(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ModelError unless :func:`motion` can show every world of what a run saves: arrays by their ``NAMES``."""
    for name, array in arrays.items():
        expect_size(name, array.nbytes)
        expect_numbers(name, array.dtype)
    shapes = {name: arrays[name].shape for name in MOVING if name in arrays}
    if model is None and "x" not in shapes:
        raise ModelError(f"{sorted(shapes)} are of bodies, and there is no scene: pass their model as scene")
    if any(len(shape) != MOVING[name] or shape[1] != next(iter(shapes.values()))[1] for name, shape in shapes.items()):
        raise ModelError(f"what moves has shapes {shapes}: must be (time, world, ...), with as many worlds")
    _expect_fitting(model, arrays)


def expect_size(name: str, size: int) -> None:
    """Raise ModelError if an array has more bytes than can be shown."""
    if size > MAX_BYTES:
        raise ModelError(f"{name} has {size} bytes, at most {MAX_BYTES} can be shown; keep a tenth, [::10]")


def expect_numbers(name: str, dtype: np.dtype) -> None:
    """Raise ModelError if an array's numbers are not real."""
    if dtype.kind not in "fiu":
        raise ModelError(
            f"{name} has dtype {str(dtype)[:80]}, must hold real numbers; write it with numpy.savez from float arrays"
        )


def _expect_fitting(model: Any, given: Mapping[str, np.ndarray]) -> None:
    """Raise ModelError unless arrays, of one world or of all with a second axis, fit each other and the model."""
    moving = {name: given[name] for name in MOVING if name in given}
    length = next((len(array) for array in moving.values()), 1)
    if any(len(array) != length for array in moving.values()):
        times = {name: len(array) for name, array in moving.items()}
        raise ModelError(f"there are {times} times: must be as many, from one run")
    x, count = given.get("x"), 0
    if x is not None:
        if (count := x.shape[-2]) == 0 or x.shape[-1] not in (2, 3):
            raise ModelError(
                f"x has shape {x.shape}, must be (time, particle, dim), with particles of dimension 2 or 3"
            )
        moving["x"] = x[..., _vertices(given["elements"], count) if "elements" in given else [], :]
    for name, array in moving.items():
        finite = np.isfinite(array).all(tuple(range(1, array.ndim)))
        if not finite.all():
            k = int(finite.argmin())
            raise ModelError(f"{name} is not finite from frame {k} on: keep those before, {name}[:{k}]")
    if model is not None:
        s = model.structure
        for name, shape in {"qpos": (s.nq,), "mocap_pos": (s.nmocap, 3), "mocap_quat": (s.nmocap, 4)}.items():
            if name in given and given[name].shape[-len(shape) :] != shape:
                raise ModelError(f"{name} has shape {given[name].shape}, the model {shape}: another model's result?")
        if length * s.ngeom * 96 > MAX_BYTES:  # twelve numbers of eight bytes
            raise ModelError(f"{length} frames of {s.ngeom} geoms are too many: keep every tenth, qpos[::10]")
    _expect_look(given, length, count)


def _expect_look(given: Mapping[str, np.ndarray], length: int, count: int) -> None:
    time, color, radius = (given.get(name) for name in ("time", "color", "radius"))
    if time is not None and (time.shape != (length,) or not np.isfinite(time).all() or (np.diff(time) < 0).any()):
        raise ModelError(f"time has shape {time.shape}, must be {length} numbers [s] that never fall")
    if color is not None and (color.shape != (count, 3) or not np.all((color >= 0) & (color <= 1))):
        raise ModelError(f"color has shape {color.shape}, must be ({count}, 3), numbers from 0 to 1")
    if radius is not None and (radius.shape or not 0 < radius < math.inf):
        raise ModelError(f"radius is {radius}, must be a positive number [m]")


def _one_world(name: str, value: np.ndarray, world: int) -> np.ndarray:
    ndim = MOVING[name] - 1
    if value.ndim == ndim + 1:
        if not 0 <= world < value.shape[1]:
            raise ModelError(f"world is {world}, {name} has worlds 0 to {value.shape[1] - 1}")
        value = value[:, world]
    if value.ndim != ndim or not len(value):
        raise ModelError(f"{name} has shape {value.shape}, must have a time axis first, then perhaps a world axis")
    return value


def _vertices(elements: np.ndarray, count: int) -> np.ndarray:
    """Which of ``count`` particles a mesh's elements name. Raises ModelError if they cannot be elements of them."""
    if elements.ndim != 2 or elements.shape[1] not in (2, 3, 4) or elements.dtype.kind not in "iu" or not len(elements):
        raise ModelError(f"elements have shape {elements.shape}, must be whole numbers (element, 2, 3 or 4)")
    if not 0 <= elements.min() <= elements.max() < count:
        raise ModelError(
            f"elements name vertices {elements.min()} to {elements.max()}, x has {count}: from another run?"
        )
    return np.unique(elements)
