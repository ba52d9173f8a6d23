"""Extended position-based dynamics: cloth, rope and soft solids, by small steps.

A step is made of substeps (Macklin et al. 2019, "Small steps in physics simulation"). Each moves the vertices freely,

    x* = x + h v + h^2 (g + f / m)

lets every constraint C of compliance alpha move its vertices once (Macklin et al. 2016, "XPBD"),

    x_i += w_i grad_i C lambda,   lambda = -C / (sum_i w_i |grad_i C|^2 + alpha / h^2)

pushes vertices out of the colliders, and sets v = (x' - x) / h. Edges resist stretching, elements the change of their
area or volume, and sheets and ropes bending. Masses are lumped. Substeps count positions from those at the start of the
step, so float32 rounds what has moved, not where it is. The gradient is that of the substeps as taken: each is
replayed, with what every constraint found, and run backwards.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units, worlds
from ..bridge import worldwise
from ..implicit import recomputed
from ..particles.arguments import expect_fields, expect_kinds, load
from ..particles.boundary import Collider
from ..particles.neighbors import in_space
from ..particles.response import DISAGREED, Response, Tangent, answer, answering, carried, taken, tangent
from ..tree import Tree, pytree, static
from ..worlds import Status, choose, flag, freeze, sound
from . import constraints, contact
from .arguments import for_worlds, motion, places, vertex_numbers
from .constraints import Group, Values, project
from .mesh import Mesh, measures, shared
from .pbd_arguments import bare, expect, refuse, rows, screen

__all__ = [
    "Params",
    "State",
    "Status",
    "bends",
    "check",
    "edges",
    "exchange",
    "init",
    "masses",
    "reactions",
    "reset",
    "step",
]

Array = jax.Array


@pytree
class Params(Tree):
    """A body, what it is made of, and the time step.

    Leaves may be numbers, or arrays with or without a world axis; the mesh's vertices, time step, gravity, damping and
    thickness also quantities of either (:mod:`fphys.units`). An edge of a rope of axial stiffness EA [N] and length l
    has the compliance l / EA.
    """

    mesh: Mesh  # edges (a rope), triangles (cloth), tetrahedra (a solid); its vertices are the shape at rest
    density: Any  # [kg/m], [kg/m^2] or [kg/m^3], shape (), (element,) or (1 | world, element)
    timestep: Any  # of a whole step [s], shape () or (1 | world,)
    stretch: Any = 0.0  # compliance of edges [m/N], shape (), (edge,) or (1 | world, edge), in the order of ``edges``
    squeeze: Any = None  # 1 / bulk modulus of elements [m/N] or [m^2/N], shape (), (element,) or (1 | world, element)
    bend: Any = None  # stiffness of a rope [N m^2] or cloth [N m], shape (), (bend,), (1 | world, bend): see ``bends``
    gravity: Any = 0.0  # [m/s^2], shape (), (dim,) or (1 | world, dim)
    damping: Any = 0.0  # c [1/s]: velocities decay by exp(-c t), shape () or (1 | world,)
    thickness: Any = 0.0  # how near vertices may come to colliders [m], shape () or (1 | world,)
    pinned: tuple[int, ...] = static(default=())  # numbers of the vertices whose positions are given
    substeps: int = static(default=20)
    apart: float = static(default=0.0)  # distance that vertices keep from each other [m]; 0: they do not meet
    friction: Any = 0.0  # of vertices with each other, shape () or (1 | world,)
    neighbors: int = static(default=24)  # room for those of a vertex that are nearer than ``apart``
    curved: bool = static(default=False)  # cloth bends from its angles at rest, instead of from flat

    def __post_init__(self) -> None:
        object.__setattr__(self, "pinned", vertex_numbers(self.pinned))
        expect(self)


@pytree
class State(Tree):
    """A body in motion. Make it with :func:`init`."""

    x: Array  # Position [m], shape (world, vertex, dim).
    v: Array  # Velocity [m/s], shape (world, vertex, dim).
    status: Array  # Fault bits (Status), uint32, shape (world,); no gradient.


def edges(mesh: Mesh) -> np.ndarray:
    """The vertices of every edge, int32, shape (edge, 2), in the order of ``Params.stretch``."""
    return constraints.edges(mesh.topology)


def bends(mesh: Mesh) -> np.ndarray:
    """Where a rope or cloth bends, in the order of ``Params.bend``: int32, shape (bend, 3): three vertices in a row; or
    (bend, 4): the edge of two triangles, and the vertices opposite."""
    return constraints.bends(mesh.topology)


def masses(params: Params, dtype: Any = None) -> Array:
    """Of the vertices [kg], shape (1 | world, vertex): each element gives its corners equal parts."""
    dtype = jnp.zeros(()).dtype if dtype is None else dtype
    params = rows(bare(params), dtype)
    return _masses(params)


def init(params: Params, positions: Any = None, velocities: Any = None, num_worlds: int = 1) -> State:
    """A body at rest in its shape at rest, unless positions or velocities are given.

    Args:
        positions: [m], shape (world, vertex, dim); their dtype decides the precision. By default the mesh's vertices in
            ``num_worlds`` worlds, in JAX's default precision if they are NumPy's.
        velocities: [m/s], the same shape.
        num_worlds: if no positions are given, and the mesh's vertices have no world axis of their own.

    Returns:
        A state. Gradients flow to positions and velocities, and to the mesh's vertices if no positions are given.

    Raises:
        ValueError: a shape does not fit; or, if known on the host, a position is not finite, or a number of ``params``
            cannot be simulated, or a mesh that is to bend is not straight or flat at rest.
        TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    params = bare(params)
    x, v = motion(params.mesh, positions, velocities, num_worlds)
    refuse(params, x.dtype)
    return State(x, v, jnp.zeros(len(x), jnp.uint32))


@worldwise
def step(
    params: Params, state: State, force: Any = None, pins: Any = None, colliders: Collider | tuple[Collider, ...] = ()
) -> State:
    """Advance every world by one time step. Pure; composes with jit, grad, vmap, scan and checkpoint.

    Args:
        force: on every vertex [N], shape (world, vertex, dim); axes 0 and 1 may have size 1.
        pins: where the vertices ``params.pinned`` are at the end of the step [m], shape (pinned, dim) or (1 | world,
            pinned, dim), in the order of their numbers; they move there in a straight line. By default they stay.
        colliders: shapes that keep vertices out (:mod:`fphys.particles.boundary`), where they are at the step's start;
            during it they move with their velocity. Contact "separate", with friction, or "sticky".

    Returns:
        The next state. A world whose state, loads or parameters cannot be simulated keeps its last state, its status
        says so, and it passes no gradient; other worlds are not affected. Gradients flow to all of params (the mesh's
        vertices, too), positions, velocities, force, pins and colliders.

    Raises:
        ValueError: a shape does not fit, before anything runs. TypeError: dtypes differ. UnitError: a quantity is of
            another kind.
    """
    return _step(*_arguments("pbd.step", params, state, force, pins, colliders), None)[0]


@worldwise
def reactions(
    params: Params, state: State, force: Any = None, pins: Any = None, colliders: Collider | tuple[Collider, ...] = ()
) -> Array:
    """What a step does to its colliders: the mean force [N] and torque [N m] on each, (world, collider, 6).

    Args:
        params, state, force, pins, colliders: as in :func:`step`, which is taken again: it costs as much.

    Returns:
        Force, then torque about the collider's origin at the start of the step. Times the time step it is the momentum
        that the body loses to them, to rounding. Zero in worlds that do not take the step. Gradients flow to all
        arguments.

    Raises:
        ValueError: a shape does not fit. TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    params, state, force, pins, shapes = _arguments("pbd.reactions", params, state, force, pins, colliders)
    return _step(params, state, force, pins, shapes, contact.origins(shapes, len(state.x), state.x.dtype))[1]


@worldwise
def exchange(
    params: Params,
    state: State,
    colliders: tuple[Collider, ...],
    response: Response,
    force: Any = None,
    pins: Any = None,
) -> tuple[State, Array]:
    """:func:`step` of one substep, in which bodies carry the colliders and answer: both velocities are found at once.

    Args:
        colliders: shapes at their places; their velocities are those that the bodies find (given ones are not read).
        response: the bodies (:class:`fphys.particles.response.Response`), and which of them carries each collider.

    Returns:
        The next state, and the impulse that every body took from the vertices: linear [N s], and angular about its
        origin [N m s], shape (world, body, 6). Gradients flow as in :func:`step`, and to all of ``response``.

    Raises:
        ValueError: ``params.substeps`` is not 1, a shape does not fit, or there is no collider. TypeError: dtypes
            differ. UnitError: a kind.
    """
    return yielding(params, state, colliders, response, force, pins)[:2]


def yielding(
    params: Params,
    state: State,
    colliders: tuple[Collider, ...],
    response: Response,
    force: Any = None,
    pins: Any = None,
) -> tuple[State, Array, Tangent]:
    """:func:`exchange`; and the tangent at the twists that it found (:func:`fphys.particles.response.tangent`)."""
    if params.substeps != 1:
        raise ValueError(f"pbd.exchange takes params.substeps=1, not {params.substeps}: lower params.timestep instead")
    params, state, force, pins, shapes = _arguments("pbd.exchange", params, state, force, pins, colliders)
    response = answering(response, len(shapes), len(state.x), state.x.dtype)
    after, _, took, along = _exchange(params, state, force, pins, shapes, response)
    return after, took, along


def _arguments(
    name: str, params: Params, state: State, force: Any, pins: Any, colliders: Any
) -> tuple[Params, State, Array, Array, tuple[Collider, ...]]:
    """The arguments of a step as it takes them, with the world axis in each."""
    expect_kinds(name, params, state, Params, State)
    n, dim, dtype = state.x.shape[1], state.x.shape[-1], state.x.dtype
    expect_fields(state, {"v": (dim,)}, (), "pbd.init")
    if state.x.shape[1:] != (params.mesh.topology.num_vertices, params.mesh.dim):
        raise ValueError(f"state.x has shape {state.x.shape}, the mesh {params.mesh.topology.num_vertices} vertices")
    force = load("force", units.si(force, units.force, "force"), (len(state.x), n, dim), dtype)
    pins = places(units.si(pins, units.length, "pins"), state.x[:, np.array(params.pinned, int)])
    shapes = contact.shapes("pbd", colliders, dtype, dim, len(state.x))
    params = for_worlds(rows(bare(params), dtype), len(state.x))
    return params, state, force, pins, shapes


def check(params: Params, state: State) -> None:
    """Raise an error on the host if the status reports a fault.

    Raises:
        StateError: names world, fault and what to change.
    """
    expect_kinds("pbd.check", params, state, Params, State)
    room = params.neighbors
    worlds.report(state.status, lambda world, bit: _CAUSES.get(bit, "").format(room, 2 * room), "pbd.reset")


def reset(params: Params, state: State, mask: Array, start: State) -> State:
    """Reset the worlds of ``mask`` to those of ``start``, and clear their fault bits.

    Args:
        mask: the worlds to reset, bool, shape (num_worlds,).
        start: a state with as many worlds, positions in [m], for example from :func:`init`.

    Gradients flow to ``start`` in the worlds that are reset, and to ``state`` in the others.

    Raises:
        ValueError: the mask or ``start`` has another shape. TypeError: not parameters and state of this solver.
    """
    expect_kinds("pbd.reset", params, state, Params, State)
    return worlds.reset(state, mask, start)


_CAUSES = {
    Status.NONFINITE: "positions or velocities became NaN, infinite or huge; lower params.timestep or the loads",
    Status.BADCTRL: "force, pins or a collider were not finite; the world skipped that step",
    Status.BADPARAM: (
        "a number is not one to simulate: time step and density must be positive, compliances, bending stiffness, "
        "damping, friction and thickness not negative, gravity finite, and every element's extent at rest positive"
    ),
    Status.UNCONVERGED: DISAGREED,
    Status.NEIGHBOR_OVERFLOW: (
        "a vertex had more than {} others nearer than params.apart, and those without room did not push: give "
        "params.neighbors={}, or a smaller params.apart"
    ),
}


# ---------------------------------------------------------------------------------------------------------------------
# A step


def _held(stop: Array, params: Params, state: State, *loads: Any) -> tuple[Any, ...]:
    """Arguments for which these worlds stand still."""
    return params, state.replace(status=state.status | flag(Status.NONFINITE, stop)), *loads


@recomputed(lambda result: result[2], _held)
def _step(
    _: None,
    params: Params,
    state: State,
    force: Array,
    pins: Array,
    colliders: tuple[Collider, ...],
    about: Array | None,
) -> tuple[tuple[State, Array | None, Array], None]:
    """The next state; mean wrenches on colliders about points, if these are given; and the worlds that stand still."""
    params, clean, force, pins, (colliders, about), bits = screen(params, state, force, pins, (colliders, about))
    h, weight, freely = _freely(params, clean, force, pins)
    start, still = _counted(clean.x)

    def substep(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], tuple[Array, Array | None]]:
        before, (moved, v, push, crowded) = carry[0], freely(start, *carry, k)
        push, took = contact.pushed(params.thickness, colliders, about, k * h, h, weight, start, before, moved, push)
        return (moved + push, v + push / h[:, None, None]), (crowded, took)

    numbers = jnp.arange(1, params.substeps + 1, dtype=clean.x.dtype)
    (moved, v), (crowded, took) = jax.lax.scan(substep, (still, in_space(clean.v)), numbers)
    after, stop = _frozen(state, start + moved, v, bits, crowded.any(0))
    return (after, contact.mean_wrench(took, params.timestep, stop), stop), None


@recomputed(lambda result: result[1], _held)
def _exchange(
    _: None,
    params: Params,
    state: State,
    force: Array,
    pins: Array,
    colliders: tuple[Collider, ...],
    response: Response,
) -> tuple[tuple[State, Array, Array, Tangent], None]:
    """As :func:`_step`, of one substep; what the bodies took; and their :func:`~fphys.particles.response.tangent`."""
    params, clean, force, pins, (colliders, response), bits = screen(params, state, force, pins, (colliders, response))
    h, weight, freely = _freely(params, clean, force, pins)
    start, still = _counted(clean.x)
    moved, v, push, crowded = freely(start, still, in_space(clean.v), jnp.ones((), start.dtype))
    x, place = start + still, start + (moved + push)
    origins = [response.pos[:, b] for b in response.body]

    def slopes(shapes: tuple[Collider, ...]) -> tuple[Array, Array]:
        near = [contact.ahead(c, h) for c in shapes]
        found = [contact.weigh(params.thickness, c, h, o, weight, x, place) for c, o in zip(near, origins, strict=True)]
        slope, pull = zip(*found, strict=True)
        return jnp.concatenate(slope, 1), jnp.concatenate(pull, 1)

    twist = answer(response, colliders, slopes)
    along = tangent(response, colliders, slopes, twist)
    given = []
    for c, origin in zip(carried(colliders, response, twist), origins, strict=True):
        before, place = place, contact.touch(params.thickness, contact.ahead(c, h), h, weight, x, place)
        given.append(contact.give(h, origin, weight, x, before, place))
        push = push + (place - before)
    after, stop = _frozen(state, start + (moved + push), v + push / h[:, None, None], bits, crowded)
    took = taken(response, jnp.concatenate(given, 1))
    return (after, stop, choose(stop, 0, took), Tangent(*(choose(stop, 0, a) for a in along))), None


def _freely(params: Params, clean: State, force: Array, pins: Array) -> tuple[Array, Array, Any]:
    """The length of a substep, the vertices' inverse masses, and a function of how they move in substep k.

    It gives what has moved and velocities without constraints, how far these and other vertices push, and worlds where
    a vertex has too many neighbours. A velocity gains the push over the time: a difference of places would be rounded.
    """
    topology, held = params.mesh.topology, list(params.pinned)
    found = constraints.groups(topology, params.bend is not None, params.squeeze is not None, params.curved)
    step = params.timestep / params.substeps
    rest = in_space(params.mesh.vertices)
    values = tuple(_values(params, group, rest, step) for group in found)
    weight = 1 / _masses(params)
    weight = weight.at[:, held].set(0)
    fall = in_space(params.gravity)[:, None] + weight[..., None] * in_space(force)
    keep, h = jnp.exp(-params.damping * step)[:, None, None], step[:, None, None]
    begin, end = in_space(clean.x[:, held]), in_space(pins)

    def freely(start: Array, before: Array, v: Array, k: Array) -> tuple[Array, ...]:
        v = keep * (v + h * fall)
        moved = before + h * v
        if held:
            way = end - begin
            moved = moved.at[:, held].set(begin - start[:, held] + (k / params.substeps) * way)
            v = v.at[:, held].set(way / (params.substeps * h))
        pushed = project(found, start, moved, weight, values)
        if not params.apart:
            return moved, v, pushed, jnp.zeros(len(start), bool)
        x, place = start + before, start + (moved + pushed)
        apart, needed = contact.meet(params.apart, params.neighbors, params.friction, rest, weight, x, place)
        return moved, v, pushed + (apart - place), needed > params.neighbors

    return step, weight, freely


def _counted(x: Array) -> tuple[Array, Array]:
    """Positions that others are counted from, and what has moved: nothing yet. The gradient is in what has moved."""
    start = jax.lax.stop_gradient(in_space(x))
    return start, in_space(x) - start


def _frozen(state: State, x: Array, v: Array, bits: Array, crowded: Array) -> tuple[State, Array]:
    """The next state, and the worlds that stand still."""
    dim = state.x.shape[-1]
    new = State(x[..., :dim], v[..., :dim], flag(Status.NEIGHBOR_OVERFLOW, crowded))
    return freeze(state, new, bits, ~sound([new.x, new.v], len(bits)))


def _values(params: Params, group: Group, rest: Array, h: Array) -> Values:
    """The numbers of a group's constraints."""
    square, topology = (h**2)[:, None], params.mesh.topology
    if group.kind == "edge":
        return Values(params.stretch[:, group.order] / square, measures(rest, group.corners))
    if group.kind == "bend":
        return Values(params.bend[:, group.order] * square, constraints.shares(rest, topology)[:, group.order])
    if group.kind == "hinge":
        even = jnp.ones((1, len(topology.elements)), rest.dtype)
        stiffness = params.bend * constraints.hinge_stiffness(rest, topology, even)
        return Values(stiffness[:, group.order] * square, constraints.angles(rest, topology)[:, group.order])
    size = measures(rest, group.corners)
    return Values(size * params.squeeze[:, group.order] / square, size)


def _masses(params: Params) -> Array:
    size = measures(in_space(params.mesh.vertices), params.mesh.elements)
    return shared(params.density * size, params.mesh.elements, params.mesh.topology.num_vertices)
