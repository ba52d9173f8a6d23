"""A step of checked arguments: bodies scatter to grids, meet there, and gather from them; its gradient recomputes it.

Only the arguments are kept for the backward pass. A large body is cut into parts for threads to take
(:mod:`fphys.particles.mpm_parts`). Each part scatters its particles to a grid of its own, the grids are added, nodes
move, and each part gathers from what it sees of them. Without contact there is one body: all particles.
"""

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..implicit import recomputed
from ..worlds import Status
from .boundary import Collider
from .mpm_parts import cut, joined, marking, motion
from .mpm_stages import (
    NO_MARKS,
    Answers,
    Between,
    Gathered,
    Layout,
    Pushed,
    Scattered,
    Setting,
    Shapes,
    Stepped,
    carrying,
    collecting,
    filling,
    finding,
    folding,
    gathering,
    keeping,
    meeting,
    moving,
    pushing,
    scattering,
    sharing,
    smoothing,
    stacked,
    unfolding,
    unwalled,
    weighing,
    whole,
)
from .neighbors import wrap
from .response import Response, Tangent, answer, carried, images, taken, tangent

if TYPE_CHECKING:
    from .mpm import State

Array = jax.Array


class Body(NamedTuple):
    """Particles with a grid of their own, in parts."""

    layout: Layout
    setting: Setting
    state: "State"
    spread: Scattered
    marks: Any  # what is the window of each part
    grid: Array  # momentum and mass, (world, node, 4)
    fill: Any = None  # what it fills of the nodes, (world, node, 4); of bodies that meet


def _idle(
    worlds: Array, layout: Layout, setting: Setting, state: "State", empty: Array, force: Array, *rest: Any
) -> tuple[Any, ...]:
    """Arguments for which no particle of these worlds takes part."""
    return layout, setting, state, empty, jnp.where(worlds[:, None, None], jnp.nan, force), *rest


@recomputed(lambda result: None, _idle)
def advance(
    _: None,
    layout: Layout,
    setting: Setting,
    state: "State",
    empty: Array,
    force: Array,
    actuation: Array,
    shapes: Shapes | None,
    keep: Array | None,
    between: Between | None,
) -> tuple[tuple["State", Array, Array], None]:
    """The next state, each world's fault bits, and whether all its particles stand still."""
    if [parts for _, parts in layout.bodies] == [1]:
        after: Stepped = whole(layout, setting, state, force, actuation, shapes)
        if keep is not None:
            brought = carrying(layout, setting.table, state, after.fault, NO_MARKS)
            after = _kept(layout, setting, keep, state, NO_MARKS, after, brought)
        return _together([after], [(layout, state)], empty), None
    bodies = _spread(layout, setting, state, force, actuation, between)
    found = [_gathered(b, shapes) for b in bodies]
    return _moved(bodies, found, keep, between, empty), None


@recomputed(lambda result: None, _idle)
def exchanged(
    _: None,
    layout: Layout,
    setting: Setting,
    state: "State",
    empty: Array,
    force: Array,
    actuation: Array,
    colliders: tuple[Collider, ...],
    response: Response,
    keep: Array | None,
    between: Between | None,
) -> tuple[tuple["State", Array, Array, Array, Tangent], None]:
    """As :func:`advance`; and what the bodies that carry colliders took, and their :func:`~.response.tangent`."""
    bodies = _spread(layout, setting, state, force, actuation, between)
    grids = [folding(layout, b.grid) if layout.around else b.grid for b in bodies]
    nodes = [moving(layout, setting, grid, None, None) for grid in grids]
    still = jax.lax.stop_gradient((grids, stacked(colliders)[1]))
    touched = [finding(layout, grid, still[1]) for grid in still[0]]
    origin, answers = images(colliders, response, layout.periods), Answers(response.answers[b] for b in response.body)

    def slopes(moved: tuple[Collider, ...]) -> tuple[Array, Array]:
        shapes = stacked(moved)[1]
        found = [weighing(layout, answers, t, v, shapes, origin) for t, v in zip(touched, nodes, strict=True)]
        return _sum([slope for slope, _ in found]), _sum([pull for _, pull in found])

    twist = answer(response, colliders, slopes, origin)
    shapes = stacked(carried(colliders, response, twist, origin))[1]
    each = zip(touched, grids, nodes, strict=True)
    pushed: list[Pushed] = [pushing(layout, setting, t, grid, v, shapes, origin) for t, grid, v in each]
    found = [_collected(b, p.velocity) for b, p in zip(bodies, pushed, strict=True)]
    took = taken(response, _sum([p.impulse for p in pushed]))
    along = tangent(response, colliders, slopes, twist, origin)
    return (*_moved(bodies, found, keep, between, empty), took, along), None


def _sum(arrays: list[Array]) -> Array:
    return functools.reduce(jnp.add, arrays)


def _spread(
    layout: Layout, setting: Setting, state: "State", force: Array, actuation: Array, between: Between | None
) -> list[Body]:
    """What the particles of each body give to its grid, summed over its parts; and what bodies then give each other."""
    bodies, first = [], 0
    for size, parts in layout.bodies:
        here, own = layout._replace(bodies=(), parts=parts), slice(first, first + size)
        bodies.append(_body(here, setting, (state, force, actuation), own))
        first += size
    return bodies if len(bodies) == 1 else _met(bodies, between)


def _body(layout: Layout, setting: Setting, given: Any, own: slice) -> Body:
    """The particles ``own`` and their grid."""
    n, size, kinds = given[0].x.shape[1], own.stop - own.start, len(layout.kinds)
    if size < n:
        given = jax.tree.map(lambda a: a[:, own] if a.shape[1] == n else a, given)
        table = setting.table
        if table.shape[1] > kinds:
            table = jnp.concatenate([table[:, :kinds], table[:, kinds:][:, own]], 1)
        setting = setting._replace(table=table)
    setting, given = _parted(layout, setting, size), jax.tree.map(lambda a: _cut(a, size, layout.parts), given)
    marks = marking(layout, given[0].x) if layout.parts > 1 else NO_MARKS
    spread: Scattered = scattering(layout, setting, *given, marks)
    return Body(layout, setting, given[0], spread, marks, _joined(layout, marks, spread.momentum))


def _gathered(body: Body, shapes: Shapes | None) -> Gathered:
    """What a body's grid makes of its particles."""
    layout, setting, fault = body.layout, body.setting, body.spread.fault
    if layout.parts == 1:
        return gathering(layout, setting, body.state, fault, shapes, body.grid)
    (grid,) = _folded(layout, [body.grid])
    return _collected(body, motion(layout, setting, grid, shapes))


def _collected(body: Body, velocity: Array) -> Gathered:
    """What the nodes' motion makes of a body's particles."""
    seen = _seen(body.layout, body.marks, velocity)
    return collecting(body.layout, body.setting, body.state, body.spread.fault, body.marks, seen)


def _seen(layout: Layout, marks: Any, velocity: Array) -> Array:
    """What particles see of the nodes: their images, too, and of each part its window."""
    velocity = unfolding(layout, velocity) if layout.around else velocity
    return velocity if layout.parts == 1 else cut(layout, marks, velocity)


def _met(bodies: list[Body], between: Any) -> list[Body]:
    """Bodies with what they fill, and what they give each other."""
    layout = bodies[0].layout
    fills = [_joined(b.layout, b.marks, filling(b.layout, b.state, b.spread.fault, b.marks)) for b in bodies]
    fills = [smoothing(layout, fill) for fill in fills] if layout.smooth else _folded(layout, fills)
    bodies = [b._replace(fill=fill) for b, fill in zip(bodies, fills, strict=True)]
    grids = _meet(bodies, [b.grid for b in bodies], between)
    return [b._replace(grid=grid) for b, grid in zip(bodies, grids, strict=True)]


def _meet(bodies: list[Body], grids: list[Array], between: Any) -> list[Array]:
    """Grids of bodies, after these met."""
    fills, grids = [b.fill for b in bodies], _folded(bodies[0].layout, grids)
    met = meeting(between, jnp.stack(fills, 1), jnp.stack(grids, 1))
    return [met[:, i] for i in range(len(bodies))]


def _folded(layout: Layout, grids: list[Array]) -> list[Array]:
    """Grids with the images of nodes added to them."""
    return [folding(layout, grid) for grid in grids] if layout.around else grids


def _joined(layout: Layout, marks: Any, grid: Array) -> Array:
    """The sum of the grids of all parts."""
    return grid if layout.parts == 1 else joined(layout, marks, grid)


def _moved(
    bodies: list[Body], found: list[Gathered], keep: Array | None, between: Any, empty: Array
) -> tuple["State", Array, Array]:
    """The next state from what each body's grid makes of it."""
    after = [Stepped(f.x, f.v, f.C, b.spread.F, b.spread.history, f.fault) for b, f in zip(bodies, found, strict=True)]
    if keep is not None:
        grids = _brought(bodies, after, between)
        each = zip(bodies, after, grids, strict=True)
        after = [_kept(b.layout, b.setting, keep, b.state, b.marks, a, grid) for b, a, grid in each]
    return _together(after, [(b.layout, b.state) for b in bodies], empty)


def _brought(bodies: list[Body], after: list[Stepped], between: Any) -> list[Array]:
    """What particles bring to the nodes without any force; bodies meet there, too.

    So what stops bodies that approach is no motion of the nodes: a particle keeps it, as on one grid, and gives it up
    as the stress that follows from it grows. It would be lost at once otherwise.
    """
    grids = [
        _joined(b.layout, b.marks, carrying(b.layout, b.setting.table, b.state, a.fault, b.marks))
        for b, a in zip(bodies, after, strict=True)
    ]
    return grids if len(bodies) == 1 else _meet(bodies, grids, between)


def _kept(
    layout: Layout, setting: Setting, keep: Array, state: "State", marks: Any, after: Stepped, brought: Array
) -> Stepped:
    """The particles after the step, with a share of the velocity that the grid does not represent."""
    alone = setting._replace(gravity=jnp.zeros_like(setting.gravity))
    if layout.parts == 1:
        return after._replace(v=keeping(layout, alone, keep, state, after.fault, brought, after.v))
    (grid,) = _folded(layout, [brought])
    velocity = _seen(layout, marks, motion(unwalled(layout), alone, grid, None))
    return after._replace(v=sharing(layout, keep, state, after.fault, marks, velocity, after.v))


def _together(after: list[Stepped], before: list[tuple[Layout, "State"]], empty: Array) -> tuple["State", Array, Array]:
    """The next state, bodies and parts joined, each world's fault bits, and whether all its particles stand still.

    Empty slots have no faults; a world without particles does not stand still.
    """
    moved = []
    for a, (layout, state) in zip(after, before, strict=True):
        stays = a.fault & np.int32(Status.NONFINITE | Status.BADCTRL | Status.OOB) != 0
        one = state.replace(x=wrap(layout.periods, a.x, ~stays), v=a.v, C=a.C, F=a.F, history=a.history), a.fault, stays
        if layout.parts > 1:
            one = jax.tree.map(lambda a: a.reshape(1, -1, *a.shape[2:]), one)
        moved.append(one)
    if len(moved) > 1:
        moved = [jax.tree.map(lambda *parts: jnp.concatenate(parts, 1), *moved)]
    ((state, fault, stays),) = moved
    bits = jax.lax.reduce(jnp.where(empty, 0, fault), np.int32(0), jax.lax.bitwise_or, (1,)).astype(jnp.uint32)
    return state, bits, stays.all(1) & ~empty.all(1)


def _parted(layout: Layout, setting: Setting, n: int) -> Setting:
    """Each part with the numbers of its own particles, if they have some."""
    table, kinds = setting.table, len(layout.kinds)
    if layout.parts == 1 or table.shape[1] == kinds:
        return setting
    shared = jnp.broadcast_to(table[:, :kinds], (layout.parts, *table[0, :kinds].shape))
    return setting._replace(table=jnp.concatenate([shared, _cut(table[:, kinds:], n, layout.parts)], 1))


def _cut(a: Array, n: int, parts: int) -> Array:
    """The particles of one world, as those of ``parts`` worlds."""
    return a.reshape(parts, n // parts, *a.shape[2:]) if parts > 1 and a.shape[1] == n else a
