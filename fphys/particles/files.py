"""States of particles in files that ParaView and Houdini read, by meshio."""

import dataclasses
import os
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from ..errors import MissingDependencyError, install

__all__ = ["load", "save"]

State = TypeVar("State")


def save(path: str | os.PathLike[str], state: Any, world: int = 0) -> Path:
    """Write the particles of one world, with everything that their state has of them, one number a column.

    Args:
        path: ends in .vtu (ParaView) or .ply (ParaView, Houdini); meshio's other formats of points may do.
        state: of :mod:`.mpm` or :mod:`.sph`, its world axis first.

    Columns are named by field and component, ``v_0``; what a world has, such as its time [s], stands at each particle.
    Numbers keep their precision. For a motion, write a file for each picture, ``water.0001.vtu``.

    Raises:
        ValueError: there is no such world. MissingDependencyError: meshio is not installed.
    """
    path, meshio = Path(path), _meshio()
    if not 0 <= world < len(state.x):
        raise ValueError(f"world is {world}, the state has {len(state.x)}: count from zero")
    n, dim = state.x.shape[1:]
    columns = {}
    for name, value in _fields(state).items():
        rows = np.broadcast_to(np.asarray(value[world]), (n, *value.shape[2:])).reshape(n, -1)
        many = rows.shape[1] > 1
        columns |= {f"{name}_{i}" if many else name: np.ascontiguousarray(a) for i, a in enumerate(rows.T)}
    points = np.pad(np.asarray(state.x[world]), ((0, 0), (0, 3 - dim)))
    vertices = [("vertex", np.arange(n, dtype=np.int32)[:, None])]
    meshio.write_points_cells(path, points, vertices if path.suffix.lower() != ".ply" else [], point_data=columns)
    return path


def load(path: str | os.PathLike[str], like: State, world: int = 0) -> State:
    """A state with the particles of a file in one of its worlds, as :func:`save` wrote them.

    Args:
        like: a state of as many particles, for example of ``init``; its dtypes and other worlds stay.

    Raises:
        ValueError: the file cannot be read, has another number of particles, or lacks a field; or there is no such
            world.
        TypeError: the file has float64, the state float32: nothing is rounded silently.
        FileNotFoundError: there is no such file. MissingDependencyError: meshio is not installed.
    """
    path, meshio = Path(path), _meshio()
    state: Any = like
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    if not 0 <= world < len(state.x):
        raise ValueError(f"world is {world}, the state has {len(state.x)}: count from zero")
    found, (n, dim) = _read(path, meshio), state.x.shape[1:]
    if len(found.points) != n:
        raise ValueError(f"{path} has {len(found.points)} particles, the state {n}: begin with one of as many")
    rows = {"x": found.points[:, :dim]}
    for name, value in _fields(state).items():
        size = int(np.prod(value.shape[2:]))
        names = [f"{name}_{i}" for i in range(size)] if size > 1 else [name]
        if lost := [column for column in names if column not in found.point_data]:
            raise ValueError(f"{path} has no {lost[0]}: it is not a file of {type(state).__module__}")
        rows[name] = np.stack([found.point_data[column] for column in names], -1)
    changes = {}
    for name, read in rows.items():
        value = getattr(state, name)
        if read.dtype == np.float64 and value.dtype == np.float32:
            raise TypeError(
                f"{path} has {name} in float64, the state in float32: begin with a state of float64 "
                "(JAX_ENABLE_X64=1), for nothing is cast silently"
            )
        one = read.reshape(n, *value.shape[2:]) if value.ndim > 1 else read[0, 0]
        changes[name] = value.at[world].set(jnp.asarray(one, value.dtype))
    return state.replace(**changes)


def _fields(state: Any) -> dict[str, Any]:
    """What a state has of each particle or of each world, but for the positions."""
    values = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    arrays = {name: value for name, value in values.items() if hasattr(value, "ndim") and name != "x"}
    size = state.x.shape[:2]
    return {name: value for name, value in arrays.items() if value.shape[:2] in (size, size[:1])}


def _read(path: Path, meshio: Any) -> Any:
    """What meshio finds in a file; ValueError if it is damaged."""
    try:
        with path.open("rb") as file:  # of a .ply without an end meshio would look for it for ever
            if path.suffix.lower() == ".ply" and b"end_header" not in file.read(1 << 16):
                raise ValueError("its header has no end")
        return meshio.read(path)
    except (Exception, SystemExit) as error:  # meshio ends Python where it knows no format
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error}): write it again") from error


def _meshio() -> Any:
    try:
        import meshio
    except ImportError as error:
        raise MissingDependencyError(f"meshio writes and reads these files: {install('meshes')}") from error
    return meshio
