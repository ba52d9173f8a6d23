"""Arguments that all solvers of deformables take: pins, and the motion to begin with."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..model.arguments import whole_number
from ..particles.arguments import array, expect_real, known
from .mesh import Mesh

Array = jax.Array
T = TypeVar("T")


def vertex_numbers(given: Any, kind: str = "vertices") -> tuple[int, ...]:
    """Numbers of vertices in order, each once, from anything that holds whole numbers; TypeError for others.

    Args:
        kind: what they number, for errors.
    """
    if np.ndim(given) == 0:
        raise TypeError(f"{kind} are given as {given!r}: give their numbers, (3,) for the one of number 3")
    found = np.ravel(np.asarray(given, object)).tolist()
    for i in found:
        if isinstance(i, bool | np.bool_ | str) or int(i) != i:
            raise TypeError(f"one of the {kind} is given as {i!r}: give their numbers, of a mask np.flatnonzero(mask)")
    return tuple(sorted({int(i) for i in found}))


def expect_pins(pinned: tuple[int, ...], n: int) -> None:
    """Refuse pins that are not vertices; ValueError."""
    if pinned and not 0 <= pinned[0] <= pinned[-1] < n:
        wrong = pinned[0] if pinned[0] < 0 else pinned[-1]
        raise ValueError(f"params.pinned has {wrong}: the mesh has {n} vertices, 0 to {n - 1}")


def for_worlds(params: T, count: int, of: str = "params.") -> T:
    """The parameters, if each has one row for all worlds or ``count`` for each; ValueError."""
    for path, value in jax.tree_util.tree_leaves_with_path(params):
        if len(value) not in (1, count):
            name = of + jax.tree_util.keystr(path, simple=True, separator=".")
            raise ValueError(
                f"{name} is given for {len(value)} worlds, there are {count}: give one for all, or one for each"
            )
    return params


def expect_lines(name: str, points: Any, edges: np.ndarray) -> None:
    """Refuse edges whose ends coincide, if that is known on the host; ValueError."""
    if (given := known(points)) is None:
        return
    ends = np.asarray(given[0])[..., edges, :]
    if (none := (ends[..., 0, :] == ends[..., 1, :]).all(-1)).any():
        i, j = edges[np.argwhere(none)[0][-1]]
        raise ValueError(f"the vertices {i} and {j} of {name} are in one place: an edge needs a direction")


def expect_finite(name: str, value: Any) -> None:
    """Refuse what is not finite, if that is known on the host; ValueError."""
    if (given := known(*jax.tree.leaves(value))) is not None and not all(np.isfinite(part).all() for part in given):
        raise ValueError(f"{name} is {np.asarray(value).tolist()}: it must be finite")


def motion(mesh: Mesh, positions: Any, velocities: Any, num_worlds: int) -> tuple[Array, Array]:
    """Positions and velocities, shape (world, vertex, dim); by default the mesh's shape, at rest.

    Raises:
        ValueError: a shape; or a vertex that is not finite, if that is known on the host. TypeError: a dtype.
        UnitError: a quantity is of another kind.
    """
    vertices = mesh.vertices
    n, dim = np.shape(vertices)[-2:]
    positions = units.si(positions, units.length, "positions")
    velocities = units.si(velocities, units.velocity, "velocities")
    if whole_number("num_worlds", num_worlds) < 1:
        raise ValueError(f"num_worlds is {num_worlds}: give one at least")
    if positions is None:
        x = jnp.asarray(vertices).reshape(-1, n, dim)
        x = jnp.broadcast_to(x, (max(num_worlds, len(x)), n, dim))
    else:
        x = array("positions", positions)
    if x.ndim != 3 or x.shape[1:] != (n, dim) or 0 in x.shape:
        raise ValueError(f"positions have shape {x.shape}, must be (num_worlds, {n}, {dim}): the mesh's vertices")
    expect_real("positions", x)
    v = jnp.zeros_like(x) if velocities is None else array("velocities", velocities, x.dtype)
    if v.shape != x.shape:
        raise ValueError(f"velocities have shape {v.shape}, positions {x.shape}: both need one row for each vertex")
    for name, value in {"positions": x, "velocities": v}.items():
        if (given := known(value)) is not None and not (finite := np.isfinite(given[0]).all(-1)).all():
            world, i = np.argwhere(~finite)[0]
            raise ValueError(f"{name} of vertex {i} in world {world} are {given[0][world, i]}: give finite numbers")
    return x, v


def places(pins: Any, now: Array) -> Array:
    """Positions of pinned vertices, shape (world, pinned, dim), those of now if none are given.

    Raises:
        ValueError: a shape. TypeError: a dtype.
    """
    if pins is None:
        return now
    at = array("pins", pins, now.dtype)
    at = at[None] if at.ndim == 2 else at
    if at.ndim != 3 or len(at) not in (1, len(now)) or at.shape[1:] != now.shape[1:]:
        raise ValueError(
            f"pins have shape {at.shape}, must be {now.shape[1:]} or (1 | {now.shape[0]}, ...): one row for each of "
            "params.pinned"
        )
    return jnp.broadcast_to(at, now.shape)


def anywhere(n: int, dim: int) -> np.ndarray:
    """Points of which no four are in a plane, and no three on a line: a shape for a world that stands still."""
    return np.random.default_rng(0).random((n, dim))
