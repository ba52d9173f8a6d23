"""The launches of a step of the material point method: scatter to the grid, move its nodes, gather from it."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ..bridge import kernels, warp_op
from .boundary import Collider, contact_number, shape_number

if TYPE_CHECKING:
    from .mpm import State


class Setting(NamedTuple):
    """Parameters in the form that the kernels take, all with the world axis first."""

    table: Any
    timestep: Any
    gravity: Any
    wall_friction: Any
    wall_velocity: Any


@jax.tree_util.register_static
class Layout(NamedTuple):
    """Everything that is known when the step is compiled."""

    kinds: tuple[int, ...]
    walls: tuple[int, ...]
    cell: float
    shape: tuple[int, ...]
    lower: tuple[float, ...]
    actuated: bool
    parts: int = 1

    @property
    def at(self) -> list[Any]:
        """How kernels find the nodes."""
        return [self.lower, self.cell, self.nodes]

    @property
    def held(self) -> list[int]:
        """Axes with a sticky face."""
        faces = [contact_number("sticky") == kind for kind in self.walls]
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
    launch: Any, layout: Layout, setting: Setting, state: "State", force: Any, actuation: Any, out: Scattered
) -> None:
    dim = _batches(state)
    inputs = [*layout.at, dim[1], np.array(layout.kinds, np.int32), setting.table, setting.timestep]
    inputs += [state.x, state.v, state.material, state.C, state.F, state.history, state.volume]
    inputs += [force, int(force.shape[1] > 1), actuation, int(actuation.shape[1] > 1), int(layout.actuated)]
    launch(kernels(state.x.dtype, "particles.mpm").scatter, dim=dim, inputs=inputs, outputs=list(out))


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
    colliders: tuple[Collider, ...],
    momentum: Any,
    out: Gathered,
) -> None:
    velocity = _moved(launch, layout, setting, momentum)
    for c in colliders:
        before, velocity = velocity, _nodal(launch, layout, state.x.dtype)
        _collide(launch, layout, c, before, velocity)
    _collect(launch, layout, setting, state, fault, velocity, out)


def _moved(launch: Any, layout: Layout, setting: Setting, momentum: Any, out: Any = None) -> Any:
    """Launch what moves the nodes, walls included; their velocities and masses."""
    dtype, walls = setting.timestep.dtype, np.array(layout.walls, np.int32)
    k, cells = kernels(dtype, "particles.grid"), (launch.worlds, math.prod(layout.nodes))
    for axis in layout.held:
        before, momentum = momentum, _nodal(launch, layout, dtype)
        inputs = [layout.nodes, len(layout.shape), axis, walls, setting.wall_velocity, setting.gravity]
        launch(k.hold, dim=cells, inputs=[*inputs, setting.timestep, before], outputs=[momentum])
    velocity = _nodal(launch, layout, dtype) if out is None else out
    lanes = -(-cells[1] // 16)
    inputs = [layout.nodes, lanes, len(layout.shape), walls, setting.wall_friction]
    inputs += [setting.wall_velocity, setting.gravity, setting.timestep, momentum]
    launch(k.move, dim=(cells[0], lanes), inputs=inputs, outputs=[velocity])
    return velocity


def _nodal(launch: Any, layout: Layout, dtype: Any) -> Any:
    return launch.scratch((launch.worlds, math.prod(layout.nodes)), kernels(dtype, "_precision").vec4)


def _collide(launch: Any, layout: Layout, c: Collider, before: Any, after: Any) -> None:
    """Launch what a collider does to the nodes."""
    kernel = kernels(c.pos.dtype, "particles.collider").collide
    launch(
        kernel,
        dim=(launch.worlds, math.prod(layout.nodes)),
        inputs=[*_shape(layout, c), *_motion(c), before],
        outputs=[after],
    )


def _shape(layout: Layout, c: Collider) -> list[Any]:
    return [*layout.at, shape_number(c.shape), contact_number(c.contact), c.count]


def _motion(c: Collider) -> list[Any]:
    return [c.pos, c.quat, c.size, c.velocity, c.spin, c.friction, c.samples]


def _collect(
    launch: Any, layout: Layout, setting: Setting, state: "State", fault: Any, velocity: Any, out: Gathered
) -> None:
    """Launch what gives the particles the nodes' motion."""
    dim = _batches(state)
    inputs = [*layout.at, dim[1], setting.timestep, state.x, state.v, state.C, fault, velocity]
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
    colliders: tuple[Collider, ...],
    out: Stepped,
) -> None:
    t = kernels(state.x.dtype, "_precision")
    size = state.x.shape[:2]
    fault, left = launch.scratch(size, t.integer), launch.scratch(_batches(state), t.integer)
    momentum = launch.scratch((size[0], math.prod(layout.nodes)), t.vec4, zeroed=True)
    scattered = Scattered(out.F, out.history, fault, left, momentum)
    _scatter(launch, layout, setting, state, force, actuation, scattered)
    _gather(launch, layout, setting, state, fault, colliders, momentum, Gathered(out.x, out.v, out.C, out.fault))


def _stepped(layout: Layout, setting: Setting, state: "State", *_: Any) -> Stepped:
    fault = jax.ShapeDtypeStruct(state.x.shape[:2], np.int32)
    return Stepped(state.x, state.v, state.C, state.F, state.history, fault)


whole = warp_op(_step, _stepped, zeroed=False, name="mpm.step")
scattering = warp_op(_scatter, _scattered, zeroed=(Scattered._fields.index("momentum"),), name="mpm.step: scatter")
gathering = warp_op(_gather, _gathered, zeroed=False, name="mpm.step: gather")


def _nodes(layout: Layout, setting: Setting, momentum: Any) -> Any:
    return momentum


def _weigh(
    launch: Any, layout: Layout, velocity: Any, colliders: tuple[Collider, ...], origins: tuple[Any, ...], *out: Any
) -> None:
    slopes, pulls = out[: len(colliders)], out[len(colliders) :]
    for c, origin, slope, pull in zip(colliders, origins, slopes, pulls, strict=True):
        kernel = kernels(c.pos.dtype, "particles.collider").weigh
        inputs = [*_shape(layout, c), origin, *_motion(c), velocity]
        launch(kernel, dim=(launch.worlds, math.prod(layout.nodes)), inputs=inputs, outputs=[slope, pull])


def _weighed(layout: Layout, velocity: Any, colliders: tuple[Collider, ...], origins: tuple[Any, ...]) -> Any:
    sizes = [(6, 6)] * len(colliders) + [(6,)] * len(colliders)
    return tuple(jax.ShapeDtypeStruct((velocity.shape[0], *size), velocity.dtype) for size in sizes)


def _push(
    launch: Any, layout: Layout, velocity: Any, colliders: tuple[Collider, ...], origins: tuple[Any, ...], *out: Any
) -> None:
    cells = (launch.worlds, math.prod(layout.nodes))
    for i, (c, origin) in enumerate(zip(colliders, origins, strict=True)):
        before = velocity
        velocity = out[-1] if i + 1 == len(colliders) else _nodal(launch, layout, c.pos.dtype)
        _collide(launch, layout, c, before, velocity)
        kernel = kernels(c.pos.dtype, "particles.collider").give
        launch(kernel, dim=cells, inputs=[*layout.at, origin, before, velocity], outputs=[out[i]])


def _pushed(layout: Layout, velocity: Any, colliders: tuple[Collider, ...], origins: tuple[Any, ...]) -> Any:
    impulse = jax.ShapeDtypeStruct((velocity.shape[0], 6), velocity.dtype)
    return *[impulse] * len(colliders), velocity


def _reached(layout: Layout, setting: Setting, state: "State", fault: Any, velocity: Any) -> Gathered:
    return Gathered(state.x, state.v, state.C, fault)


moving = warp_op(_moved, _nodes, zeroed=False, name="mpm.exchange: move")
weighing = warp_op(_weigh, _weighed, name="mpm.exchange: weigh")
pushing = warp_op(_push, _pushed, name="mpm.exchange: push")
collecting = warp_op(_collect, _reached, zeroed=False, name="mpm.exchange: gather")
