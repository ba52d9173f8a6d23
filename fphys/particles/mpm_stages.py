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
    dtype, cells = state.x.dtype, (state.x.shape[0], math.prod(layout.nodes))
    vec4 = kernels(dtype, "_precision").vec4
    walls = np.array(layout.walls, np.int32)
    for axis in layout.held:
        before, momentum = momentum, launch.scratch(cells, vec4)
        inputs = [layout.nodes, len(layout.shape), axis, walls, setting.wall_velocity, setting.gravity]
        inputs += [setting.timestep, before]
        launch(kernels(dtype, "particles.grid").hold, dim=cells, inputs=inputs, outputs=[momentum])
    velocity = launch.scratch(cells, vec4)
    lanes = -(-cells[1] // 16)
    inputs = [layout.nodes, lanes, len(layout.shape), walls, setting.wall_friction]
    inputs += [setting.wall_velocity, setting.gravity, setting.timestep, momentum]
    launch(kernels(dtype, "particles.grid").move, dim=(cells[0], lanes), inputs=inputs, outputs=[velocity])
    for c in colliders:
        before, velocity = velocity, launch.scratch(cells, vec4)
        inputs = [*layout.at, shape_number(c.shape), contact_number(c.contact), c.count]
        inputs += [c.pos, c.quat, c.size, c.velocity, c.spin, c.friction, c.samples, before]
        launch(kernels(dtype, "particles.collider").collide, dim=cells, inputs=inputs, outputs=[velocity])
    dim = _batches(state)
    inputs = [*layout.at, dim[1], setting.timestep, state.x, state.v, state.C, fault, velocity]
    launch(kernels(dtype, "particles.mpm").gather, dim=dim, inputs=inputs, outputs=list(out))


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
