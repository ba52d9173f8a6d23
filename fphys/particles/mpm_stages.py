"""The launches of a step of the material point method: scatter to the grid, move its nodes, gather from it."""

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op
from .boundary import AT_FACE, Collider, contact_number, shape_number
from .neighbors import Periods, periods

if TYPE_CHECKING:
    from .mpm import State


NO_MARKS = np.zeros((1, 1), np.int32)
"""Of particles that are not cut into parts (:mod:`fphys.particles.mpm_parts`)."""
MOST = 1022
"""Colliders of a step: a node names each in ten bits."""


class Setting(NamedTuple):
    """Parameters in the form that the kernels take, all with the world axis first."""

    table: Any
    timestep: Any
    gravity: Any
    wall_friction: Any
    wall_velocity: Any


class Between(NamedTuple):
    """What is between bodies with grids of their own, with the world axis first."""

    friction: Any
    normal: Any  # share of each body in the normals, (1 | world, body)


class Shapes(NamedTuple):
    """Colliders in the form that the kernels take; what differs in kind is static (:class:`Layout`)."""

    pos: Any  # (1 | world, collider, 3)
    turn: Any
    size: Any
    velocity: Any
    spin: Any
    friction: Any
    width: Any  # zero: none
    samples: Any  # of all fields, one after the other


class Kinds(NamedTuple):
    """What is known of each collider when the step is compiled."""

    kind: int
    contact: int
    count: tuple[int, int, int]
    first: int  # place of its first sample


def stacked(colliders: tuple[Collider, ...]) -> tuple[tuple[Kinds, ...], Shapes]:
    """Colliders as arrays. ValueError: there are more than a node can name."""
    if len(colliders) > MOST:
        raise ValueError(f"there are {len(colliders)} colliders, and {MOST} are possible: join some in one field")
    found, fields, first = [], [c.samples for c in colliders if c.shape == "field"], 0
    for c in colliders:
        found.append(Kinds(shape_number(c.shape), contact_number(c.contact), c.count, first))
        first += c.samples.shape[1] if c.shape == "field" else 0
    wide = lambda arrays: _wide([a[:, None] for a in arrays])  # noqa: E731
    names = "pos", "quat", "size", "velocity", "spin", "friction"
    none = jnp.zeros(1, colliders[0].pos.dtype)
    width = wide([none if c.width is None else c.width for c in colliders])
    samples = _wide(fields) if fields else none[:, None]
    shared = [wide([getattr(c, name) for c in colliders]) for name in names]
    return tuple(found), Shapes(*shared, width=width, samples=samples)


def _wide(arrays: list[Any]) -> Any:
    """Arrays side by side along their second axis; those for all worlds are repeated if others are for each."""
    worlds = max(len(a) for a in arrays)
    return jnp.concatenate([jnp.broadcast_to(a, (worlds, *a.shape[1:])) for a in arrays], 1)


@jax.tree_util.register_static
class Layout(NamedTuple):
    """Everything that is known when the step is compiled."""

    kinds: tuple[int, ...]
    walls: tuple[int, ...]
    cell: float
    shape: tuple[int, ...]
    lower: tuple[float, ...]
    actuated: bool
    bodies: tuple[tuple[int, int], ...] = ()  # particles of each body, and in how many parts
    parts: int = 1  # of the body that is meant
    colliders: tuple[Kinds, ...] = ()
    around: tuple[int, ...] = ()  # periodic axes
    smooth: int = 0  # how often the normals of contact are evened out

    @property
    def periods(self) -> Periods:
        """Both ends of the periodic axes [m]."""
        return periods(self.around, self.lower, self.cell, self.shape)

    @property
    def at(self) -> list[Any]:
        """How kernels find the nodes."""
        return [self.lower, self.cell, self.nodes]

    @property
    def held(self) -> list[int]:
        """Axes with a face that holds the field itself."""
        faces = [contact_number("sticky") == kind or kind >= AT_FACE for kind in self.walls]
        return [axis for axis in range(len(self.shape)) if any(faces[2 * axis : 2 * axis + 2])]

    @property
    def nodes(self) -> tuple[int, int, int]:
        """Nodes per axis, at the centres of cells: two more on each side."""
        x, y, *z = (n + 4 for n in self.shape)
        return (x, y, *(z or [1]))  # type: ignore[return-value]


class Scattered(NamedTuple):
    """What the particles become before they move, and what they give to the grid."""

    F: Any
    history: Any
    fault: Any  # bits of every particle
    left: Any  # of a batch: how many of its particles the general code takes
    momentum: Any  # of every node, and its mass, (world, node, 4)


def _scatter(
    launch: Any,
    layout: Layout,
    setting: Setting,
    state: "State",
    force: Any,
    actuation: Any,
    marks: Any,
    out: Scattered,
) -> None:
    if layout.parts > 1:
        launch.clears(out.momentum)
    dim = _batches(state)
    inputs = [*layout.at, dim[1], np.array(layout.kinds, np.int32), setting.table, setting.timestep]
    inputs += [state.x, state.v, state.material, state.C, state.F, state.history, state.volume]
    inputs += [force, int(force.shape[1] > 1), actuation, int(actuation.shape[1] > 1), int(layout.actuated)]
    inputs += [marks]
    launch(kernels(state.x.dtype, "particles.mpm").scatter, dim=dim, inputs=inputs, outputs=list(out), adds=True)


def _scattered(layout: Layout, setting: Setting, state: "State", *_: Any) -> Scattered:
    size = state.x.shape[:2]
    momentum = jax.ShapeDtypeStruct((size[0], math.prod(layout.nodes), 4), state.x.dtype)
    fault, left = (jax.ShapeDtypeStruct(shape, np.int32) for shape in (size, _batches(state)))
    return Scattered(state.F, state.history, fault, left, momentum)


def _batches(state: "State") -> tuple[int, int]:
    """Worlds, and batches of particles: each thread takes eight particles."""
    return state.x.shape[0], -(-state.x.shape[1] // 8)


class Gathered(NamedTuple):
    """What the grid makes of the particles."""

    x: Any
    v: Any
    C: Any
    fault: Any


def _gather(
    launch: Any,
    layout: Layout,
    setting: Setting,
    state: "State",
    fault: Any,
    shapes: Shapes | None,
    momentum: Any,
    out: Gathered,
) -> None:
    momentum = _around(launch, "fold", layout, momentum)
    among = shapes and (_touched(launch, layout, shapes, momentum), shapes)
    velocity = _around(launch, "unfold", layout, _moved(launch, layout, setting, momentum, among))
    _collect(launch, layout, setting, state, fault, NO_MARKS, velocity, out)


def _around(launch: Any, name: str, layout: Layout, grid: Any, out: Any = None) -> Any:
    """Launch what adds the images of nodes to them, or what moves the images, along each periodic axis."""
    for axis in layout.around:
        last = out is not None and axis == layout.around[-1]
        before, grid = grid, out if last else _nodal(launch, layout, grid.dtype)
        kernel = getattr(kernels(grid.dtype, "particles.around"), name)
        launch(
            kernel, dim=(launch.worlds, math.prod(layout.nodes)), inputs=[layout.nodes, axis, before], outputs=[grid]
        )
    return grid


def _touched(launch: Any, layout: Layout, shapes: Shapes, grid: Any, out: Any = None) -> Any:
    """Launch what finds the colliders that touch each node."""
    k, cells = kernels(shapes.pos.dtype, "particles.collider"), (launch.worlds, math.prod(layout.nodes))
    touched = (
        launch.scratch(cells, kernels(shapes.pos.dtype, "_precision").integer, zeroed=True) if out is None else out
    )
    inputs = [*layout.at, layout.nodes[0], _colliders(layout, shapes), grid]
    launch(k.near, dim=(launch.worlds, layout.nodes[0]), inputs=inputs, outputs=[touched])
    return touched


def _colliders(layout: Layout, shapes: Shapes) -> dict[str, Any]:
    """The structure of all colliders."""
    kinds = zip(Kinds._fields, zip(*layout.colliders, strict=True), strict=True)
    return {name: np.array(values, np.int32) for name, values in kinds} | shapes._asdict()


def _moved(
    launch: Any, layout: Layout, setting: Setting, momentum: Any, among: Any, out: Any = None, first: Any = None
) -> Any:
    """Launch what moves the nodes, walls and colliders included; their velocities and masses. Walls hold last.

    Args:
        among: which colliders touch each node, and the colliders; or None.
        first: the first node of each plane, where planes of nodes take the place of worlds.
    """
    dtype, walls = setting.timestep.dtype, np.array(layout.walls, np.int32)
    k, cells = kernels(dtype, "particles.grid"), (launch.worlds, momentum.shape[1])
    own = [walls, setting.wall_friction, setting.wall_velocity]
    fall, lanes, before = [setting.gravity, setting.timestep], -(-cells[1] // 16), []
    for axis in layout.held:
        before.append(momentum)
        momentum = _nodal(launch, layout, dtype)
        inputs = [layout.nodes, len(layout.shape), axis, *own, *fall, before[-1]]
        launch(k.hold, dim=cells, inputs=inputs, outputs=[momentum])
    last = among is None or not layout.held
    velocity = out if last and out is not None else _nodal(launch, layout, dtype)
    first = np.zeros(0, np.int32) if first is None else first
    inputs, dim = [layout.nodes, lanes, len(layout.shape), first, *own, *fall], (cells[0], lanes)
    if among is None:
        launch(k.move, dim=dim, inputs=[*inputs, np.zeros((1, 1), np.int32), momentum], outputs=[velocity])
        return velocity
    inputs = [*layout.at[:2], *inputs, among[0], _colliders(layout, among[1]), momentum]
    launch(kernels(dtype, "particles.collider").move_among, dim=dim, inputs=inputs, outputs=[velocity])
    for axis, grid in zip(layout.held, before, strict=True):
        inputs = [layout.nodes, axis, *own, among[0], grid, velocity]
        last = axis == layout.held[-1]
        velocity = out if last and out is not None else _nodal(launch, layout, dtype)
        launch(k.hold_again, dim=cells, inputs=inputs, outputs=[velocity])
    return velocity


def _nodal(launch: Any, layout: Layout, dtype: Any) -> Any:
    return launch.scratch((launch.worlds, math.prod(layout.nodes)), kernels(dtype, "_precision").vec4)


def _collect(
    launch: Any, layout: Layout, setting: Setting, state: "State", fault: Any, marks: Any, velocity: Any, out: Gathered
) -> None:
    """Launch what gives the particles the nodes' motion."""
    if layout.parts > 1:
        launch.clears(velocity)
    dim = _batches(state)
    inputs = [*layout.at, dim[1], setting.timestep, state.x, state.v, state.C, fault, marks, velocity]
    launch(kernels(state.x.dtype, "particles.mpm").gather, dim=dim, inputs=inputs, outputs=list(out))


def _gathered(layout: Layout, setting: Setting, state: "State", fault: Any, *_: Any) -> Gathered:
    return Gathered(state.x, state.v, state.C, fault)


class Stepped(NamedTuple):
    """The particles after a step."""

    x: Any
    v: Any
    C: Any
    F: Any
    history: Any
    fault: Any


def _step(
    launch: Any,
    layout: Layout,
    setting: Setting,
    state: "State",
    force: Any,
    actuation: Any,
    shapes: Shapes | None,
    out: Stepped,
) -> None:
    t = kernels(state.x.dtype, "_precision")
    size = state.x.shape[:2]
    fault, left = launch.scratch(size, t.integer), launch.scratch(_batches(state), t.integer)
    momentum = launch.scratch((size[0], math.prod(layout.nodes)), t.vec4, zeroed=True)
    scattered = Scattered(out.F, out.history, fault, left, momentum)
    _scatter(launch, layout, setting, state, force, actuation, NO_MARKS, scattered)
    _gather(launch, layout, setting, state, fault, shapes, momentum, Gathered(out.x, out.v, out.C, out.fault))


def _stepped(layout: Layout, setting: Setting, state: "State", *_: Any) -> Stepped:
    fault = jax.ShapeDtypeStruct(state.x.shape[:2], np.int32)
    return Stepped(state.x, state.v, state.C, state.F, state.history, fault)


whole = warp_op(_step, _stepped, zeroed=False, name="mpm.step")
scattering = warp_op(_scatter, _scattered, zeroed=(4,), known=(2, 3), name="mpm.step: scatter")
gathering = warp_op(_gather, _gathered, zeroed=False, name="mpm.step: gather")


def _find(launch: Any, layout: Layout, momentum: Any, shapes: Shapes, out: Any) -> None:
    _touched(launch, layout, shapes, momentum, out)


def _found(layout: Layout, momentum: Any, shapes: Shapes) -> Any:
    return jax.ShapeDtypeStruct(momentum.shape[:2], np.int32)


def _move(
    launch: Any, layout: Layout, setting: Setting, momentum: Any, shapes: Shapes | None, first: Any, out: Any
) -> None:
    among = shapes and (_touched(launch, layout, shapes, momentum), shapes)
    _moved(launch, layout, setting, momentum, among, out, first)


def _weigh(
    launch: Any, layout: Layout, answers: "Answers", touched: Any, velocity: Any, shapes: Shapes, origin: Any, *out: Any
) -> None:
    kernel = kernels(velocity.dtype, "particles.collider").weigh
    inputs = [
        *layout.at,
        layout.nodes[0],
        np.array(answers, np.int32),
        touched,
        _colliders(layout, shapes),
        origin,
        velocity,
    ]
    launch(kernel, dim=(launch.worlds, len(answers), layout.nodes[0]), inputs=inputs, outputs=list(out))


def _weighed(
    layout: Layout, answers: "Answers", touched: Any, velocity: Any, shapes: Shapes, origin: Any
) -> tuple[Any, Any]:
    size = touched.shape[0], len(answers)
    return tuple(jax.ShapeDtypeStruct((*size, *tail), velocity.dtype) for tail in ((6, 6), (6,)))  # type: ignore[return-value]


class Pushed(NamedTuple):
    """What colliders make of a grid."""

    impulse: Any  # what each gives, about its origin, (world, collider, 6)
    velocity: Any  # of the nodes


def _push(
    launch: Any,
    layout: Layout,
    setting: Setting,
    touched: Any,
    momentum: Any,
    velocity: Any,
    shapes: Shapes,
    origin: Any,
    out: Pushed,
) -> None:
    kernel = kernels(velocity.dtype, "particles.collider").give
    inputs = [*layout.at, layout.nodes[0], touched, _colliders(layout, shapes), origin, velocity]
    dim = launch.worlds, len(layout.colliders), layout.nodes[0]
    launch(kernel, dim=dim, inputs=inputs, outputs=[out.impulse])
    _moved(launch, layout, setting, momentum, (touched, shapes), out.velocity)


def _pushed(
    layout: Layout, setting: Setting, touched: Any, momentum: Any, velocity: Any, shapes: Shapes, origin: Any
) -> Pushed:
    impulse = jax.ShapeDtypeStruct((momentum.shape[0], len(layout.colliders), 6), velocity.dtype)
    return Pushed(impulse, momentum)


def _reached(layout: Layout, setting: Setting, state: "State", fault: Any, *_: Any) -> Gathered:
    return Gathered(state.x, state.v, state.C, fault)


@jax.tree_util.register_static
class Answers(tuple[bool, ...]):
    """Whether the body of each collider answers."""


def _fold(launch: Any, layout: Layout, momentum: Any, out: Any) -> None:
    _around(launch, "fold", layout, momentum, out)


def _unfold(launch: Any, layout: Layout, velocity: Any, out: Any) -> None:
    _around(launch, "unfold", layout, velocity, out)


folding = warp_op(_fold, lambda layout, momentum: momentum, zeroed=False, name="mpm.exchange: fold")
unfolding = warp_op(_unfold, lambda layout, velocity: velocity, zeroed=False, name="mpm.exchange: unfold")
finding = warp_op(_find, _found, differentiable=False, name="mpm.exchange: find")
moving = warp_op(_move, lambda layout, setting, momentum, *_: momentum, zeroed=False, name="mpm.exchange: move")
weighing = warp_op(_weigh, _weighed, name="mpm.exchange: weigh")
pushing = warp_op(_push, _pushed, zeroed=(0,), name="mpm.exchange: push")
collecting = warp_op(_collect, _reached, zeroed=False, name="mpm.exchange: gather")


def _carry(launch: Any, layout: Layout, table: Any, state: "State", fault: Any, marks: Any, out: Any) -> None:
    if layout.parts > 1:
        launch.clears(out)
    inputs = [*layout.at, len(layout.kinds), table, state.x, state.v, state.material, state.C, state.volume, fault]
    inputs += [marks]
    kernel = kernels(state.x.dtype, "particles.keep").carry
    launch(kernel, dim=state.x.shape[:2], inputs=inputs, outputs=[out], adds=True)


def _carried(layout: Layout, table: Any, state: "State", *_: Any) -> Any:
    return jax.ShapeDtypeStruct((state.x.shape[0], math.prod(layout.nodes), 4), state.x.dtype)


def _keep(
    launch: Any,
    layout: Layout,
    setting: Setting,
    share: Any,
    state: "State",
    fault: Any,
    momentum: Any,
    v: Any,
    out: Any,
) -> None:
    """Launch what moves nodes without walls, and what gives particles a share of the difference."""
    velocity = _moved(launch, unwalled(layout), setting, _around(launch, "fold", layout, momentum), None)
    _share(launch, layout, share, state, fault, NO_MARKS, _around(launch, "unfold", layout, velocity), v, out)


def unwalled(layout: Layout) -> Layout:
    """The same domain without walls."""
    return layout._replace(walls=(contact_number("open"),) * len(layout.walls))


def _share(
    launch: Any, layout: Layout, share: Any, state: "State", fault: Any, marks: Any, velocity: Any, v: Any, out: Any
) -> None:
    if layout.parts > 1:
        launch.clears(velocity)
    inputs = [*layout.at, share, state.x, state.v, fault, marks, velocity, v]
    launch(kernels(state.x.dtype, "particles.keep").keep, dim=state.x.shape[:2], inputs=inputs, outputs=[out])


def _kept(*given: Any) -> Any:
    return given[-1]


carrying = warp_op(_carry, _carried, name="mpm.step: carry")
keeping = warp_op(_keep, _kept, zeroed=False, name="mpm.step: keep")
sharing = warp_op(_share, _kept, zeroed=False, name="mpm.step: keep, in parts")


def _fill(launch: Any, layout: Layout, state: "State", fault: Any, marks: Any, out: Any) -> None:
    if layout.parts > 1:
        launch.clears(out)
    inputs = [*layout.at, state.x, state.volume, fault, marks]
    kernel = kernels(state.x.dtype, "particles.meet").fill
    launch(kernel, dim=state.x.shape[:2], inputs=inputs, outputs=[out], adds=True)


def _filled(layout: Layout, state: "State", *_: Any) -> Any:
    return jax.ShapeDtypeStruct((state.x.shape[0], math.prod(layout.nodes), 4), state.x.dtype)


def _smooth(launch: Any, layout: Layout, fill: Any, out: Any) -> None:
    """Launch what evens out the slopes of a body's fill, as often as is asked for; at the images of nodes, too."""
    size, last = (launch.worlds, math.prod(layout.nodes)), (layout.smooth - 1, len(layout.shape) - 1)
    fill = _around(launch, "fold", layout, fill)
    for time, axis in itertools.product(range(layout.smooth), range(len(layout.shape))):
        before = fill if axis else _around(launch, "unfold", layout, fill)
        fill = out if (time, axis) == last else _nodal(launch, layout, fill.dtype)
        kernel = kernels(fill.dtype, "particles.meet").smooth
        launch(kernel, dim=size, inputs=[layout.nodes, axis, before], outputs=[fill])


def _meet(launch: Any, between: Between, fill: Any, momentum: Any, out: Any) -> None:
    """Launch what makes bodies meet, a pair after the other."""
    size, (*others, last) = (launch.worlds, *fill.shape[1:3]), itertools.combinations(range(fill.shape[1]), 2)
    for pair in (*others, last):
        before, momentum = momentum, out
        if pair != last:
            momentum = launch.scratch(size, kernels(fill.dtype, "_precision").vec4)
        inputs = [*pair, *between, fill, before]
        launch(kernels(fill.dtype, "particles.meet").meet, dim=size, inputs=inputs, outputs=[momentum])


filling = warp_op(_fill, _filled, name="mpm.step: fill")
smoothing = warp_op(_smooth, lambda layout, fill: fill, zeroed=False, name="mpm.step: smooth")
meeting = warp_op(_meet, lambda between, fill, momentum: momentum, zeroed=False, name="mpm.step: meet")
