"""Neighbours of particles: cells by counting sort, in memory of fixed size."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import by_platform, custom_vjp, kernels, num_parts, warp_op
from ..tree import Tree, pytree, static

Array = jax.Array
Periods = tuple[tuple[float, float] | None, ...]

_MARGIN = 1 + 1e-5
"""Factor by which cells are larger than the radius, so that rounding cannot reach past the next cell."""


ROW_END = 8
"""Columns at the end of a row that hold no neighbours, so that neighbours can be read eight at a time."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The cells of space, as a torus: open axes wrap around it, and periodic axes fit it exactly. Hashable, static."""

    radius: float  # particles within it are neighbours [m]
    counts: tuple[int, int, int]  # cells along each axis; in two dimensions one along the third
    size: tuple[float, float, float]  # of a cell [m]
    lower: tuple[float, float, float]  # end of the domain [m], 0 along open axes
    period: tuple[float, float, float]  # length of the domain [m], 0 along open axes

    @property
    def cells(self) -> int:
        return math.prod(self.counts)


def make_grid(radius: float, periodic: Periods, extent: Sequence[float], particles: int) -> Grid:
    """Choose the cells.

    Args:
        radius: particles within it are neighbours [m].
        periodic: for each axis its two ends [m], or None if space is open.
        extent: range of the particles along each axis [m], for the number of cells along open axes. It is not a
            bound: particles beyond it are found too, only more slowly.
        particles: their number; memory for cells is at most about four times that.

    Raises:
        ValueError: a period is shorter than three radii, or the radius is not positive.
    """
    if not radius > 0:
        raise ValueError(f"radius is {radius}: within which particles are neighbours [m] must be positive")
    size, counts = [], []
    for axis, ends in enumerate(periodic):
        if ends is None:
            size.append(radius * _MARGIN)
            counts.append(max(3, math.ceil(extent[axis] / size[-1]) + 1))
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
    most = max(4 * particles, 27)
    widest = [c for c, ends in zip(counts, periodic) if ends is None]
    while math.prod(counts) > most and max(widest, default=3) > 3:
        longest = max((i for i, ends in enumerate(periodic) if ends is None), key=lambda i: counts[i])
        counts[longest] = max(3, counts[longest] // 2)
        widest = [c for c, ends in zip(counts, periodic) if ends is None]
    if len(counts) == 2:
        counts, size = [*counts, 1], [*size, radius * _MARGIN]
    shape, cell = (counts[0], counts[1], counts[2]), (float(size[0]), float(size[1]), float(size[2]))
    return Grid(float(radius), shape, cell, *ends_of(periodic))


def ends_of(periodic: Periods) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Lower ends and lengths of the periodic axes [m]; zero along the others."""
    x, y, z = (*((0.0, 0.0) if ends is None else ends for ends in periodic), (0.0, 0.0))[:3]
    return (float(x[0]), float(y[0]), float(z[0])), (float(x[1] - x[0]), float(y[1] - y[0]), float(z[1] - z[0]))


@pytree
class Neighbors(Tree):
    """Neighbours of each particle in rows of fixed length. Particles are in *slots*, sorted by cell.

    There are no gradients: the choice of neighbours has none.
    """

    order: Array  # The particle in each slot, int32, shape (world, particle).
    slot: Array  # The slot of each particle, int32, shape (world, particle).
    index: Array  # The slots of a slot's neighbours, then its own, int32, shape (world, particle, capacity + 8).
    number: Array  # How many neighbours there are, including those without room, int32, shape (world, particle).
    grid: Grid = static()

    def to_slots(self, *values: Array) -> list[Array]:
        """Arrays of one dtype, shape (world, particle, ...), permuted from particles to slots, with gradients."""
        return _moved(self.order, self.slot, values)

    def to_particles(self, *values: Array) -> list[Array]:
        """The inverse permutation, from slots to particles."""
        return _moved(self.slot, self.order, values)


def build(grid: Grid, x: Array, valid: Array, capacity: int) -> Neighbors:
    """Find all neighbours.

    Args:
        x: positions [m], shape (world, particle, 3), inside the domain along periodic axes.
        valid: which particles take part, int32, shape (world, particle). One that is not finite never does.
        capacity: most neighbours of a particle that there is room for.
    """
    order, slot, cell, start, places = _cells(grid)(jax.lax.stop_gradient(x), valid)
    cell = parted(cell)
    first = jnp.arange(len(cell), dtype=jnp.int32) * (cell.shape[1] if len(order) < len(cell) else 0)
    index, number = _lists(grid, capacity)(first, cell, start, places)
    return Neighbors(order, slot, whole(index, len(order)), whole(number, len(order)), grid=grid)


def parted(rows: Array) -> Array:
    """The rows of one large world, as those of several worlds with one thread each; shape (part, rows, ...)."""
    parts = num_parts(*rows.shape[:2])
    return rows.reshape(parts * len(rows), rows.shape[1] // parts, *rows.shape[2:])


def whole(rows: Array, worlds: int) -> Array:
    """The inverse: rows of parts, as those of their worlds."""
    return rows.reshape(worlds, -1, *rows.shape[2:])


def _moved(to: Array, back: Array, values: Sequence[Array]) -> list[Array]:
    """Values in another order, gathered as one record per particle."""
    flat = [v.reshape(*v.shape[:2], -1) for v in values]
    record = _permute(to, back, jnp.concatenate(flat, axis=-1))
    ends = np.cumsum([v.shape[-1] for v in flat])[:-1]
    return [v.reshape(old.shape) for v, old in zip(jnp.split(record, ends, axis=-1), values, strict=True)]


@custom_vjp
def _permute(to: Array, back: Array, record: Array) -> Array:
    """record[w, to[w, i]]; its gradient is gathered with ``back``."""
    return whole(_gather(parted(to), record), len(to))


_permute.defvjp(
    lambda to, back, record: (_permute(to, back, record), (to, back)),
    lambda saved, cotangent: (None, None, _permute(*saved[::-1], cotangent)),
)


def periods(axes: Sequence[int], lower: Sequence[float], cell: float, shape: Sequence[int]) -> Periods:
    """Both ends of the periodic ``axes`` of a domain of cells [m], None for the others."""
    ends = [(low, low + n * cell) for low, n in zip(lower, shape, strict=False)]
    return tuple(e if axis in axes else None for axis, e in enumerate(ends))


def wrap(periodic: Periods, x: Array, where: Any = True) -> Array:
    """Positions moved by whole periods into the domain, shape (world, particle, dim); the derivative is one.

    Args:
        where: which of them, bool, shape (world, particle). A gradient does not ask.
    """
    for axis, ends in enumerate(periodic):
        if ends is not None:
            turns = jnp.where(where, jnp.floor((x[..., axis] - ends[0]) / (ends[1] - ends[0])), 0)
            x = x.at[..., axis].add(jax.lax.stop_gradient(-turns * (ends[1] - ends[0])))
    return x


def in_space(x: Array) -> Array:
    """Vectors in two or three dimensions as vectors in three, shape (..., 3)."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3 - x.shape[-1])])


def neighbors(grid: Grid, x: Array, capacity: int) -> tuple[Array, Array, Array]:
    """Neighbours of each particle in rows of fixed length.

    Args:
        grid: from :func:`make_grid`.
        x: positions [m], shape (world, particle, dim), inside the domain along periodic axes.
        capacity: most neighbours that there is room for.

    Returns:
        Indices of neighbours, int32, (world, particle, capacity), -1 after the last one; their numbers,
        (world, particle), including those without room; and the capacity that each world needs, (world,): if it is
        larger than ``capacity``, some neighbours are missing. No gradients.
    """
    x = in_space(x)
    found = build(grid, x, jnp.ones(x.shape[:2], jnp.int32), capacity)
    listed = jnp.arange(capacity, dtype=jnp.int32)[None, None] < found.number[..., None]
    index = found.index[..., :capacity]
    rows = jnp.where(listed, index, 0).reshape(len(x), -1)
    particle = jnp.take_along_axis(found.order, rows, axis=1).reshape(index.shape)
    index = jnp.take_along_axis(jnp.where(listed, particle, -1), found.slot[..., None], axis=1)
    return index, jnp.take_along_axis(found.number, found.slot, axis=1), found.number.max(axis=1)


@functools.lru_cache
def _cells(grid: Grid) -> Any:
    """Particles by cell: order, slot, the cell of each slot, where cells begin, and positions in the order of slots.

    On a CPU one thread sorts a world's particles. On a GPU that would take seconds for a million, and XLA sorts them.
    """

    def locate(launch: Any, x: Any, valid: Any, located: Any) -> None:
        torus = [grid.counts, grid.size, grid.lower, grid.period]
        kernel = kernels(x.dtype, "particles.neighbors").locate
        launch(kernel, dim=valid.shape, inputs=[*torus, x, valid], outputs=[located])

    def launches(launch: Any, x: Any, valid: Any, order: Any, slot: Any, cell: Any, start: Any, places: Any) -> None:
        k, t = kernels(x.dtype, "particles.neighbors"), kernels(x.dtype, "_precision")
        located = launch.scratch(valid.shape, t.integer)
        locate(launch, x, valid, located)
        launch(k.counting_sort, dim=launch.worlds, inputs=[grid.cells, located], outputs=[order, slot, cell, start])
        launch(k.gather_positions, dim=valid.shape, inputs=[order, x], outputs=[places])

    def outputs(x: Any, valid: Any) -> Any:
        shapes = (valid.shape, valid.shape, valid.shape, (valid.shape[0], grid.cells + 3))
        integers = tuple(jax.ShapeDtypeStruct(shape, np.int32) for shape in shapes)
        return *integers, jax.ShapeDtypeStruct((valid.shape[0], 3, valid.shape[1] + ROW_END), x.dtype)

    def cells(x: Any, valid: Any) -> Any:
        return jax.ShapeDtypeStruct(valid.shape, np.int32)

    locating = warp_op(locate, cells, differentiable=False, zeroed=False, name="cells")

    def sorting(x: Array, valid: Array) -> tuple[Array, ...]:
        cell = locating(x, valid)
        order = jnp.argsort(cell, axis=1, stable=True).astype(jnp.int32)
        slot = jnp.argsort(order, axis=1).astype(jnp.int32)
        cell, places = jnp.take_along_axis(cell, order, 1), jnp.take_along_axis(x, order[..., None], 1)
        begins = jnp.arange(grid.cells + 3, dtype=jnp.int32)
        start = jax.vmap(lambda cell: jnp.searchsorted(cell, begins))(cell).astype(jnp.int32)
        places = jnp.pad(places.swapaxes(1, 2), ((0, 0), (0, 0), (0, ROW_END)))
        return order, slot, jnp.where(cell < grid.cells, cell, -1), start, places

    counting = warp_op(launches, outputs, differentiable=False, zeroed=False, name="cells")
    return by_platform(counting, sorting)


@functools.lru_cache
def _lists(grid: Grid, capacity: int) -> Any:
    """The rows of neighbours, starting at the first slot of each part."""

    def launches(launch: Any, first: Any, cell: Any, start: Any, places: Any, index: Any, number: Any) -> None:
        inputs = [grid.counts, grid.period, grid.radius, first, cell, start, places]
        kernel = kernels(places.dtype, "particles.neighbors").list_neighbors
        launch(kernel, dim=cell.shape, inputs=inputs, outputs=[index, number])

    def outputs(first: Any, cell: Any, start: Any, places: Any) -> Any:
        shapes = ((*cell.shape, capacity + ROW_END), cell.shape)
        return tuple(jax.ShapeDtypeStruct(shape, np.int32) for shape in shapes)

    return warp_op(launches, outputs, differentiable=False, zeroed=False, name="neighbors")


def _gather_launches(launch: Any, order: Any, record: Any, out: Any) -> None:
    kernel = kernels(record.dtype, "particles.neighbors").gather_rows
    launch(kernel, dim=order.shape, inputs=[order, record], outputs=[out])


_gather = warp_op(
    _gather_launches,
    lambda order, record: jax.ShapeDtypeStruct((*order.shape, record.shape[2]), record.dtype),
    differentiable=False,
    zeroed=False,
    name="gather",
)
