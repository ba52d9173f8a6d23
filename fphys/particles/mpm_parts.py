"""One large world in parts, which threads take in turns: consecutive particles, each part with a grid of its own.

Of its grid a part uses its *window*, the nodes that its particles reach: a grid is as large as the domain, but only
the window is cleared, added to and read. The windows are added in the parts' order, plane by plane. Into how many parts
a world is cut follows from its particles alone, so the sums are the same, bit for bit, on any number of threads.
Particles that are neighbours in memory should be neighbours in space: windows of particles in random order overlap.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap

from ..bridge import custom_vjp, kernels, warp_op
from .mpm_stages import Layout, Setting, Shapes, moving

Array = jax.Array
Nodes = tuple[int, int, int]

FEWEST = 8192
"""Fewest particles worth a part: a thread's start, and what windows have in common, cost as much as some hundreds."""
NUMBERS = (4, 3, 2, 5, 7)
"""Numbers of parts, the best first: with more, windows of particles in random order cost more than they save."""


def number(n: int) -> int:
    """Into how many equal parts ``n`` particles of one world are cut; one on a GPU, whose threads share a world."""
    if jax.default_backend() != "cpu":
        return 1
    return next((parts for parts in NUMBERS if n % parts == 0 and n >= parts * FEWEST), 1)


def _mark(launch: Any, layout: Layout, x: Any, out: Any) -> None:
    launch(kernels(x.dtype, "particles.windows").mark, dim=x.shape[0], inputs=[*layout.at, x], outputs=[out])


def _marked(layout: Layout, x: Any) -> Any:
    planes, lines, length = layout.nodes if layout.nodes[2] > 1 else (layout.nodes[0], 1, layout.nodes[1])
    return jax.ShapeDtypeStruct((x.shape[0], -(-planes // 4) * -(-lines // 4) * -(-length // 128)), np.int32)


_marking = warp_op(_mark, _marked, differentiable=False, name="mpm.step: mark")


def marking(layout: Layout, x: Array) -> Array:
    """What the particles of each part reach: bits, int32, shape (part, words). No gradient.

    Args:
        x: positions [m], shape (part, particle, dim).
    """
    return _marking(layout, jax.lax.stop_gradient(x))


def joined(layout: Layout, marks: Array, windows: Array) -> Array:
    """The sum of all windows, shape (1, node, 4), from grids of shape (part, node, 4). Gradients flow to them."""
    return _transposes(layout.nodes)[0](marks, windows)


def cut(layout: Layout, marks: Array, grid: Array) -> Array:
    """The transpose: of a grid, shape (1, node, 4), each part's window. What is outside is not written.

    Read it once: the gradient of a window is defined in the window alone, and cannot be added to another.
    """
    return _transposes(layout.nodes)[1](marks, grid)


def motion(layout: Layout, setting: Setting, grid: Array, shapes: Shapes | None) -> Array:
    """How the nodes of a grid move, shape (1, node, 4): a plane of them a thread, but among what reaches farther."""
    if shapes is not None or layout.held:
        return moving(layout, setting, grid, shapes, None)
    planes = layout.nodes[0]
    rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (planes, *a.shape[1:])), setting._replace(table=None))
    first = jnp.arange(planes, dtype=jnp.int32) * (layout.nodes[1] * layout.nodes[2])
    return moving(layout, rows, grid.reshape(planes, -1, 4), None, first).reshape(grid.shape)


@functools.lru_cache
def _transposes(nodes: Nodes) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Adding windows and cutting them out, as functions of marks and grids; each is the other's gradient."""

    def join(launch: Any, plane: Any, marks: Any, windows: Any, out: Any) -> None:
        kernel = kernels(windows.dtype, "particles.windows").join
        launch(kernel, dim=launch.worlds, inputs=[nodes, plane, marks, windows], outputs=[out])

    def sums(plane: Any, marks: Any, windows: Any) -> Any:
        return jax.ShapeDtypeStruct((nodes[0], nodes[1] * nodes[2], 4), windows.dtype)

    def copy(launch: Any, marks: Any, grid: Any, out: Any) -> None:
        kernel = kernels(grid.dtype, "particles.windows").cut
        launch(kernel, dim=launch.worlds, inputs=[nodes, marks, grid], outputs=[out])

    def windows(marks: Any, grid: Any) -> Any:
        return jax.ShapeDtypeStruct((marks.shape[0], *grid.shape[1:]), grid.dtype)

    adding = warp_op(join, sums, differentiable=False, zeroed=False, name="mpm.step: join windows")
    cutting = warp_op(copy, windows, differentiable=False, zeroed=False, name="mpm.step: cut windows")

    @sequential_vmap  # planes take the place of worlds: mapped, each would get windows of its own
    def add(marks: Array, windows: Array) -> Array:
        planes = jnp.arange(nodes[0], dtype=jnp.int32)
        return adding(planes, marks[None], windows[None]).reshape(1, -1, 4)

    joining, parting = custom_vjp(add), custom_vjp(cutting)
    joining.defvjp(lambda marks, g: (add(marks, g), marks), lambda marks, bar: (None, cutting(marks, bar)))
    parting.defvjp(lambda marks, g: (cutting(marks, g), marks), lambda marks, bar: (None, add(marks, bar)))
    return joining, parting
