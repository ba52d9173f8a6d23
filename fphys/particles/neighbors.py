"""Neighbours of particles: cells by counting sort, in memory of fixed size."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op
from ..tree import Tree, pytree, static

Array = jax.Array
Periods = tuple[tuple[float, float] | None, ...]

_MARGIN = 1 + 1e-5
"""Cells are larger than the radius by this, so that rounding of a difference cannot reach past the next one."""


ROW_END = 8
"""Columns at the end of a row that hold no neighbour, so that neighbours are read eight at a time."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The cells of space: a torus, which an open axis is wound around and a periodic one fits. Hashable, static."""

    radius: float  # within which particles are neighbours [m]
    counts: tuple[int, int, int]  # cells along each axis; one along the third in a plane
    size: tuple[float, float, float]  # of a cell [m]
    lower: tuple[float, float, float]  # end of the domain [m], 0 along open axes
    period: tuple[float, float, float]  # length of the domain [m], 0 along open axes

    @property
    def cells(self) -> int:
        return math.prod(self.counts)


def make_grid(radius: float, periodic: Periods, extent: Sequence[float], particles: int) -> Grid:
    """Choose the cells.

    Args:
        radius: within which particles are neighbours [m].
        periodic: for each axis its two ends [m], or None where space is open.
        extent: what the particles span along each axis [m], for the number of cells along open axes. It is no
            bound: particles beyond it are found too, only less quickly.
        particles: how many there are; memory for cells is at most about four times that.

    Raises:
        ValueError: a period is shorter than three radii.
    """
    size, counts, lower, period = [], [], [], []
    for axis, ends in enumerate(periodic):
        if ends is None:
            size.append(radius * _MARGIN)
            counts.append(max(3, math.ceil(extent[axis] / size[-1]) + 1))
            lower.append(0.0)
            period.append(0.0)
            continue
        length = ends[1] - ends[0]
        number = math.floor(length / (radius * _MARGIN))
        if number < 3:
            raise ValueError(
                f"axis {axis} has the period {length:g} m, which is less than three times the radius {radius:g} m: a "
                "particle would meet its own image; lengthen the period, or make the spacing smaller"
            )
        size.append(length / number)
        counts.append(number)
        lower.append(float(ends[0]))
        period.append(float(length))
    most = max(4 * particles, 27)
    widest = [c for c, ends in zip(counts, periodic) if ends is None]
    while math.prod(counts) > most and max(widest, default=3) > 3:
        longest = max((i for i, ends in enumerate(periodic) if ends is None), key=lambda i: counts[i])
        counts[longest] = max(3, counts[longest] // 2)
        widest = [c for c, ends in zip(counts, periodic) if ends is None]
    if len(counts) == 2:
        counts, size, lower, period = [*counts, 1], [*size, radius * _MARGIN], [*lower, 0.0], [*period, 0.0]
    shape = (counts[0], counts[1], counts[2])
    return Grid(float(radius), shape, *((float(v[0]), float(v[1]), float(v[2])) for v in (size, lower, period)))


@pytree
class Neighbors(Tree):
    """Neighbours of each particle in rows of fixed length. Particles stand in *slots*, sorted by cell.

    No gradient: which particles are neighbours has none.
    """

    order: Array  # The particle in each slot, int32, shape (world, particle).
    index: Array  # The slots of a slot's neighbours, then its own, int32, shape (world, particle, capacity + 8).
    number: Array  # How many they are, those without room included, int32, shape (world, particle).
    grid: Grid = static()


def build(grid: Grid, x: Array, valid: Array, capacity: int) -> Neighbors:
    """Find all neighbours.

    Args:
        x: positions [m], shape (world, particle, 3), inside the domain along periodic axes.
        valid: which particles take part, int32, shape (world, particle). One that is not finite takes none.
        capacity: most neighbours of a particle for which there is room.
    """
    return Neighbors(*_build(grid, capacity)(jax.lax.stop_gradient(x), valid), grid=grid)


def wrap(periodic: Periods, x: Array) -> Array:
    """Positions moved by whole periods into the domain, shape (world, particle, dim); the derivative is one."""
    for axis, ends in enumerate(periodic):
        if ends is not None:
            turns = jnp.floor((x[..., axis] - ends[0]) / (ends[1] - ends[0]))
            x = x.at[..., axis].add(jax.lax.stop_gradient(-turns * (ends[1] - ends[0])))
    return x


def in_space(x: Array) -> Array:
    """Vectors of a plane or of space as vectors of space, shape (..., 3)."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3 - x.shape[-1])])


def neighbors(grid: Grid, x: Array, capacity: int) -> tuple[Array, Array, Array]:
    """Neighbours of each particle in rows of fixed length.

    Args:
        grid: from :func:`make_grid`.
        x: positions [m], shape (world, particle, dim), inside the domain along periodic axes.
        capacity: most neighbours for which there is room.

    Returns:
        Indices of neighbours, int32, (world, particle, capacity), -1 where there are no more; how many there are,
        (world, particle), those without room included; and the capacity that each world needs, (world,): where it is
        larger than ``capacity``, some are missing. No gradients.
    """
    x = in_space(x)
    found = build(grid, x, jnp.ones(x.shape[:2], jnp.int32), capacity)
    listed = jnp.arange(capacity, dtype=jnp.int32)[None, None] < found.number[..., None]
    index = found.index[..., :capacity]
    rows = jnp.where(listed, index, 0).reshape(len(x), -1)
    particle = jnp.take_along_axis(found.order, rows, axis=1).reshape(index.shape)
    slot = jnp.argsort(found.order, axis=1).astype(jnp.int32)
    index = jnp.take_along_axis(jnp.where(listed, particle, -1), slot[..., None], axis=1)
    return index, jnp.take_along_axis(found.number, slot, axis=1), found.number.max(axis=1)


@functools.cache
def _build(grid: Grid, capacity: int) -> Any:
    def launches(launch: Any, x: Any, valid: Any, order: Any, index: Any, number: Any) -> None:
        k, t = kernels(x.dtype, "particles.neighbors"), kernels(x.dtype, "_precision")
        located, cell, start, gathered = (
            launch.scratch(valid.shape, t.integer),
            launch.scratch(valid.shape, t.integer),
            launch.scratch((launch.worlds, grid.cells + 3), t.integer, zeroed=True),
            launch.scratch((launch.worlds, 3, valid.shape[1] + ROW_END), t.real),
        )
        torus = [grid.counts, grid.size, grid.lower, grid.period]
        launch(k.locate, dim=valid.shape, inputs=[*torus, x, valid], outputs=[located])
        launch(k.counting_sort, dim=launch.worlds, inputs=[grid.cells, located], outputs=[order, cell, start])
        launch(k.gather_positions, dim=valid.shape, inputs=[order, x], outputs=[gathered])
        launch(
            k.list_neighbors,
            dim=valid.shape,
            inputs=[grid.counts, grid.period, grid.radius, cell, start, gathered],
            outputs=[index, number],
        )

    def outputs(x: Any, valid: Any) -> Any:
        shapes = (valid.shape, (*valid.shape, capacity + ROW_END), valid.shape)
        return tuple(jax.ShapeDtypeStruct(shape, np.int32) for shape in shapes)

    return warp_op(launches, outputs, differentiable=False, zeroed=False, name="neighbors")
