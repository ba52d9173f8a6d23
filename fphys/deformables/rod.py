"""Rods that bend and twist: cables, by extended position-based dynamics with small steps.

Each edge of a rope has a frame, whose third axis t is along the edge (Cosserat's theory; Kugelstadt and Schoemer 2016,
"Position and orientation based Cosserat rods"). A step is made of substeps. Each moves vertices and frames freely, then
lets every constraint act once, as in :mod:`fphys.deformables.pbd`, with the compliance alpha / h^2:

    edges:   x_1 - x_0 = l t                  their length, and the frame along them
    joints:  log(q_0^-1 q_1) = its value at rest, a bend about two axes and a twist, of stiffness B / l, B / l and G / l

with 4 tan(angle / 4) for an angle. All joints of a row act at once, about one of their axes after the other: a frame
has joints on both sides, whose moments almost cancel, and one that acted before the other would give way to it.

A multiplier lambda of an edge moves its ends by w lambda and turns its frame by I^-1 (-l t x lambda); one of a joint
turns two frames against each other. Linear momentum stays to rounding, angular momentum to the order of the substep.
A frame has the moments of inertia rho l (r^2 + l^2) / 4 across and rho l r^2 / 2 along the edge. The gradient is that
of the substeps as taken, which are recomputed and run backwards.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import units, worlds
from ..bridge import worldwise
from ..implicit import recomputed
from ..math import quat_mul, quat_unit, rotate
from ..particles.arguments import array, expect_fields, expect_kinds, load
from ..particles.boundary import Collider
from ..tree import Tree, pytree, static
from ..worlds import Status, flag, freeze, sound
from . import contact
from .arguments import expect_lines, for_worlds, motion, places, vertex_numbers
from .chain import Chain, chains, solve
from .constraints import colors
from .frames import laid
from .mesh import Mesh, measures, shared
from .rod_arguments import bare, expect, joints_of, lines_of, refuse, rows_of, screen
from .turns import axis_of, exp, frames_of, inverse, log, turned_by

__all__ = ["Params", "State", "Status", "check", "init", "joints", "reactions", "reset", "step"]

Array = jax.Array


@pytree
class Params(Tree):
    """A rod, what it is made of, and the time step. Leaves may be numbers, or arrays with or without a world axis.

    A round rod of Young's modulus E, shear modulus S and radius r has EA = pi E r^2, B = pi E r^4 / 4 and
    G = pi S r^4 / 2.
    """

    mesh: Mesh  # edges, each beginning where the one before ends; its vertices are the shape at rest, straight or not
    density: Any  # [kg/m], shape (), (edge,) or (1 | world, edge)
    radius: Any  # r [m], of the frames' inertia, shape () or (1 | world,)
    timestep: Any  # of a whole step [s], shape () or (1 | world,)
    bend: Any  # B [N m^2], shape (), (joint,) or (1 | world, joint): see ``joints``
    twist: Any  # G [N m^2], the torque of a twist by 1 rad/m, shape as of ``bend``
    stretch: Any = 0.0  # compliance of edges [m/N], l / EA, also across them; shape (), (edge,) or (1 | world, edge)
    gravity: Any = 0.0  # [m/s^2], shape (), (3,) or (1 | world, 3)
    damping: Any = 0.0  # c [1/s]: velocities and spins decay by exp(-c t), shape () or (1 | world,)
    thickness: Any = 0.0  # how near vertices may come to colliders [m], shape () or (1 | world,)
    pinned: tuple[int, ...] = static(default=())  # numbers of the vertices whose positions are given
    clamped: tuple[int, ...] = static(default=())  # numbers of the edges whose frames are given
    substeps: int = static(default=50)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pinned", vertex_numbers(self.pinned))
        object.__setattr__(self, "clamped", vertex_numbers(self.clamped, "edges"))
        expect(self)


@pytree
class State(Tree):
    """A rod in motion. Make it with :func:`init`."""

    x: Array  # Position [m], shape (world, vertex, 3).
    v: Array  # Velocity [m/s], shape (world, vertex, 3).
    q: Array  # Orientation of the edges' frames, unit quaternions (w, x, y, z), shape (world, edge, 4).
    spin: Array  # Angular velocity of the frames [rad/s], in the world's axes, shape (world, edge, 3).
    status: Array  # Fault bits (Status), uint32, shape (world,); no gradient.


def joints(mesh: Mesh) -> np.ndarray:
    """The two edges of every joint, int32, shape (joint, 2), in the order of ``Params.bend``.

    Raises:
        ModelError: more than two edges meet at a vertex, or two that run against each other.
    """
    return joints_of(mesh.topology)


def init(params: Params, positions: Any = None, velocities: Any = None, num_worlds: int = 1) -> State:
    """A rod at rest in its shape at rest, unless positions or velocities are given.

    Args:
        positions: [m], shape (world, vertex, 3); their dtype decides the precision. Frames turn with their
            edges, so that joints bend and do not twist; in a ring they twist alike, as little as they can.
        velocities: [m/s], the same shape.
        num_worlds: if no positions are given, and the mesh's vertices have no world axis of their own.

    Returns:
        A state. Gradients flow to positions and velocities, and to the mesh's vertices.

    Raises:
        ValueError: a shape does not fit; or, if known on the host, a position is not finite, or a number of ``params``
            cannot be simulated. TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    params = bare(params)
    x, v = motion(params.mesh, positions, velocities, num_worlds)
    refuse(params)
    expect_lines("positions", x, params.mesh.topology.elements)
    now = _tangents(x, params.mesh)
    before = jnp.broadcast_to(_tangents(rows_of(params, x.dtype).mesh.vertices, params.mesh), now.shape)
    return State(
        x, v, laid(before, now, lines_of(params.mesh.topology)), jnp.zeros_like(now), jnp.zeros(len(x), jnp.uint32)
    )


@worldwise
def step(
    params: Params,
    state: State,
    force: Any = None,
    torque: Any = None,
    pins: Any = None,
    turns: Any = None,
    colliders: Collider | tuple[Collider, ...] = (),
) -> State:
    """Advance every world by one time step. Pure; composes with jit, grad, vmap, scan and checkpoint.

    Args:
        force: on every vertex [N], shape (world, vertex, 3); axes 0 and 1 may have size 1.
        torque: on every edge's frame [N m], shape (world, edge, 3); axes 0 and 1 may have size 1.
        pins: where the vertices ``params.pinned`` are at the end of the step [m], shape (pinned, 3) or (1 | world,
            pinned, 3); they move there in a straight line. By default they stay.
        turns: orientations of the frames ``params.clamped`` at the end of the step, quaternions, shape (clamped, 4) or
            (1 | world, clamped, 4); they turn there by the shortest way, less than half a turn. By default they stay.
        colliders: shapes that keep vertices out (:mod:`fphys.particles.boundary`), as in
            :func:`fphys.deformables.pbd.step`.

    Returns:
        The next state. A world whose state, loads or parameters cannot be simulated keeps its last state, its status
        says so, and it passes no gradient; other worlds are not affected. Gradients flow to all of params (the mesh's
        vertices, too), the state, force, torque, pins, turns and colliders.

    Raises:
        ValueError: a shape does not fit, before anything runs. TypeError: dtypes differ. UnitError: a quantity is of
            another kind.
    """
    return _step(*_arguments("rod.step", params, state, (force, torque, pins, turns), colliders), None)[0]


@worldwise
def reactions(
    params: Params,
    state: State,
    force: Any = None,
    torque: Any = None,
    pins: Any = None,
    turns: Any = None,
    colliders: Collider | tuple[Collider, ...] = (),
) -> Array:
    """What a step does to its colliders: the mean force [N] and torque [N m] on each, (world, collider, 6).

    Args:
        params, state, force, torque, pins, turns, colliders: as in :func:`step`, taken again: it costs as much.

    Returns:
        As of :func:`fphys.deformables.pbd.reactions`. Gradients flow to all arguments.

    Raises:
        ValueError: a shape does not fit. TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    params, state, loads, shapes = _arguments("rod.reactions", params, state, (force, torque, pins, turns), colliders)
    return _step(params, state, loads, shapes, contact.origins(shapes, len(state.x), state.x.dtype))[1]


def _arguments(
    name: str, params: Params, state: State, loads: tuple[Any, ...], colliders: Any
) -> tuple[Params, State, tuple[Array, ...], tuple[Collider, ...]]:
    """The arguments of a step as it takes them, world axis first; loads are force, torque, pins and turns."""
    expect_kinds(name, params, state, Params, State)
    force, torque, pins, turns = loads
    dtype, (count, n) = state.x.dtype, state.x.shape[:2]
    vertices, edges = params.mesh.topology.num_vertices, len(params.mesh.elements)
    expect_fields(state, {"v": (3,)}, (), "rod.init")
    if n != vertices or state.q.shape != (count, edges, 4) or state.spin.shape[1:] != (edges, 3):
        raise ValueError(
            f"state has {n} vertices and frames of shape {state.q.shape}, the mesh {vertices} vertices and {edges} "
            "edges: begin with rod.init"
        )
    force = load("force", units.si(force, units.force, "force"), (count, n, 3), dtype)
    torque = load("torque", torque, (count, edges, 3), dtype)
    pins = places(units.si(pins, units.length, "pins"), state.x[:, np.array(params.pinned, int)])
    turns = _orientations(turns, state.q[:, np.array(params.clamped, int)])
    shapes = contact.shapes("rod", colliders, dtype, 3, count)
    return for_worlds(rows_of(bare(params), dtype), count), state, (force, torque, pins, turns), shapes


def check(params: Params, state: State) -> None:
    """Raise an error on the host if the status reports a fault.

    Raises:
        StateError: names world, fault and what to change.
    """
    expect_kinds("rod.check", params, state, Params, State)
    worlds.report(state.status, lambda world, bit: _CAUSES.get(bit, ""), "rod.reset")


def reset(params: Params, state: State, mask: Array, start: State) -> State:
    """Reset the worlds of ``mask`` to those of ``start``, and clear their fault bits.

    Args:
        mask: the worlds to reset, bool, shape (num_worlds,).
        start: a state with as many worlds, positions in [m], for example from :func:`init`.

    Gradients flow to ``start`` in the worlds that are reset, and to ``state`` in the others.

    Raises:
        ValueError: the mask or ``start`` has another shape. TypeError: not parameters and state of this solver.
    """
    expect_kinds("rod.reset", params, state, Params, State)
    return worlds.reset(state, mask, start)


_CAUSES = {
    Status.NONFINITE: "positions or velocities became NaN, infinite or huge; lower params.timestep or the loads",
    Status.BADCTRL: "force, torque, pins, turns or a collider were not finite; the world skipped that step",
    Status.BADPARAM: (
        "a number is not one to simulate: time step, density and radius must be positive, compliances, stiffness, "
        "damping and thickness not negative, gravity finite, and every edge's length at rest positive"
    ),
}


# ---------------------------------------------------------------------------------------------------------------------
# A step


def _held(stop: Array, params: Params, state: State, *others: Any) -> tuple[Any, ...]:
    """Arguments for which these worlds stand still."""
    return params, state.replace(status=state.status | flag(Status.NONFINITE, stop)), *others


@recomputed(lambda result: result[2], _held)
def _step(
    _: None,
    params: Params,
    state: State,
    loads: tuple[Array, ...],
    colliders: tuple[Collider, ...],
    about: Array | None,
) -> tuple[tuple[State, Array | None, Array], None]:
    """The next state; mean wrenches on colliders about points, if these are given; and the worlds that stand still."""
    params, clean, loads, (colliders, about), bits = screen(params, state, loads, (colliders, about))
    force, torque, pins, turns = loads
    held, clamped = list(params.pinned), list(params.clamped)
    rest, h = params.mesh.vertices, params.timestep / params.substeps
    length = measures(rest, params.mesh.elements)
    mass = params.density * length
    weight = (1 / shared(mass, params.mesh.elements, rest.shape[1])).at[:, held].set(0)
    square = params.radius[:, None] ** 2
    easy = [4 / (mass * (square + length**2)), 2 / (mass * square)]  # the inverse of inertia across and along an edge
    easy = [value.at[:, clamped].set(0) for value in easy]
    fall = params.gravity[:, None] + weight[..., None] * force
    keep, dt = jnp.exp(-params.damping * h)[:, None, None], h[:, None, None]
    act = _constraints(params, rest, length, weight, easy, h)
    start, way = clean.x, pins - clean.x[:, held]
    frames = quat_unit(clean.q)
    arc = log(quat_mul(turns, inverse(frames[:, clamped])))

    def substep(carry: tuple[Array, ...], k: Array) -> tuple[tuple[Array, ...], Array | None]:
        before, v, turned, spin = carry
        part = k / params.substeps
        v = keep * v + dt * fall
        moved = before + dt * v
        ahead = keep * spin + dt * _yield(easy, axis_of(quat_mul(turned, frames)), torque)
        turn = exp(dt * ahead)
        if held:
            moved, v = moved.at[:, held].set(part * way), v.at[:, held].set(way / (params.substeps * dt))
        if clamped:
            turn = turn.at[:, clamped].set(quat_mul(exp(part * arc), inverse(turned[:, clamped])))
        push, turn = act(_At(start, moved, frames, turned), turn)
        push, took = contact.pushed(params.thickness, colliders, about, k * h, h, weight, start, before, moved, push)
        return (moved + push, v + push / dt, quat_unit(quat_mul(turn, turned)), log(turn) / dt), took

    numbers = jnp.arange(1, params.substeps + 1, dtype=start.dtype)
    none = jnp.zeros_like(frames).at[..., 0].set(1)
    (moved, v, turned, spin), took = jax.lax.scan(substep, (jnp.zeros_like(start), clean.v, none, clean.spin), numbers)
    x, q = start + moved, quat_mul(turned, frames)
    new = State(x, v, q, spin, jnp.zeros_like(state.status))
    after, stop = freeze(state, new, bits, ~sound([x, v, q, spin], len(bits)))
    return (after, contact.mean_wrench(took, params.timestep, stop), stop), None


class _At(NamedTuple):
    """Where a substep has taken a rod without constraints: vertices at start + moved, frames at turned * frames.

    As in pbd, float32 rounds what has moved and turned, not where it is.
    """

    start: Array  # vertices at the start of the step [m], (world, vertex, 3)
    moved: Array
    frames: Array  # at the start of the step, (world, edge, 4)
    turned: Array  # unit quaternions, up to the start of the substep


def _constraints(params: Params, rest: Array, length: Array, weight: Array, easy: list[Array], h: Array) -> Any:
    """A function that lets every constraint push vertices and turn frames once, colour after colour."""
    elements, pairs = params.mesh.elements, joints_of(params.mesh.topology)
    square = (h**2)[:, None]
    compliance = params.stretch / square
    frames = frames_of(_tangents(rest, params.mesh))
    straight = quat_mul(inverse(frames[:, pairs[:, 0]]), frames[:, pairs[:, 1]])
    reach = 0.5 * (length[:, pairs[:, 0]] + length[:, pairs[:, 1]])
    bend, twist = (value * square / reach for value in (params.bend, params.twist))

    def stretch(at: _At, push: Array, turn: Array, some: np.ndarray) -> tuple[Array, Array]:
        a, b = elements[some].T
        l = length[:, some, None]
        wa, wb = weight[:, a, None], weight[:, b, None]
        total = wa + wb + compliance[:, some, None]
        rest = axis_of(at.frames[:, some])
        change = _swing(quat_mul(turn[:, some], at.turned[:, some]), rest)
        t = rest + change
        gap = at.start[:, b] - at.start[:, a] - l * rest
        off = gap + (at.moved[:, b] - at.moved[:, a]) + (push[:, b] - push[:, a]) - l * change
        ahead = (off * t).sum(-1, keepdims=True) * t
        across = total + l**2 * easy[0][:, some, None]
        pull = -_over(ahead, total) - _over(off - ahead, across)
        push = push.at[:, a].add(-wa * pull).at[:, b].add(wb * pull)
        twist = _yield([e[:, some] for e in easy], t, -l * jnp.cross(t, pull))
        return push, turn.at[:, some].set(turned_by(turn[:, some], twist))

    def straighten(at: _At, turn: Array, chain: Chain) -> Array:
        """All joints of a chain give moments at once, about one of their axes after the other."""
        a, b = pairs[chain.joints].T
        soft = jnp.stack(jnp.broadcast_arrays(twist, bend, bend))[..., chain.joints]
        axes = jnp.eye(3, dtype=turn.dtype)[jnp.array([2, 0, 1]), None, None]

        def one_axis(turn: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
            k, axis = given
            now = quat_mul(quat_mul(turn, at.turned), at.frames)
            bent = quat_mul(inverse(straight[:, chain.joints]), quat_mul(inverse(now[:, a]), now[:, b]))
            off = (log(bent) * axis).sum(-1)
            about = rotate(now[:, b], jnp.broadcast_to(axis, (*off.shape, 3)))
            one, two = (_yield([e[:, side] for e in easy], axis_of(now[:, side]), about) for side in (a, b))
            low, high = ((give * jnp.roll(about, to, 1)).sum(-1) for give, to in ((one, 1), (two, -1)))
            middle = 1 + k * ((one + two) * about).sum(-1)
            moment = solve(chain, -k * low, middle, -k * high, -k * off)[..., None] * about
            total = jnp.zeros((*now.shape[:2], 3), now.dtype).at[:, a].add(-moment).at[:, b].add(moment)
            return turned_by(turn, _yield(easy, axis_of(now), total)), None

        return jax.lax.scan(one_axis, turn, (soft, axes))[0]

    def act(at: _At, turn: Array) -> tuple[Array, Array]:
        push = jnp.zeros_like(at.moved)
        for some in _by_color(elements):
            push, turn = stretch(at, push, turn, some)
        for chain in chains(pairs):
            turn = straighten(at, turn, chain)
        return push, quat_unit(turn)

    return act


def _by_color(corners: np.ndarray) -> list[np.ndarray]:
    """Constraints that share nothing."""
    color = colors(corners) if len(corners) else np.zeros(0, int)
    return [np.flatnonzero(color == c) for c in range(color.max(initial=-1) + 1)]


def _over(value: Array, total: Array) -> Array:
    """A quotient; zero if nothing can move."""
    return jnp.where(total > 0, value, 0) / jnp.where(total > 0, total, 1)


def _swing(q: Array, t: Array) -> Array:
    """How far a turn moves a vector, to the last digit where both are small."""
    w, v = q[..., :1], q[..., 1:]
    return 2 * jnp.cross(v, w * t + jnp.cross(v, t))


def _yield(easy: list[Array], t: Array, torque: Array) -> Array:
    """How far frames turn under a torque: across t, and along it."""
    along = (torque * t).sum(-1, keepdims=True) * t
    return easy[0][..., None] * (torque - along) + easy[1][..., None] * along


def _tangents(x: Array, mesh: Mesh) -> Array:
    """Unit vectors along the edges, (world, edge, 3)."""
    d = x[:, mesh.elements[:, 1]] - x[:, mesh.elements[:, 0]]
    return d / jnp.sqrt(jnp.maximum((d**2).sum(-1, keepdims=True), 1e-30))


def _orientations(turns: Any, now: Array) -> Array:
    """Orientations of clamped frames, shape (world, clamped, 4), those of now if none are given."""
    if turns is None:
        return now
    at = array("turns", turns, now.dtype)
    at = at[None] if at.ndim == 2 else at
    if at.ndim != 3 or len(at) not in (1, len(now)) or at.shape[1:] != now.shape[1:]:
        raise ValueError(f"turns have shape {at.shape}, must be {now.shape[1:]} or (1 | {len(now)}, ...): quaternions")
    return quat_unit(jnp.broadcast_to(at, now.shape))
