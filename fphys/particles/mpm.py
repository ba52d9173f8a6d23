"""The material point method: MLS-MPM with quadratic B-splines and APIC transfers, in two and three dimensions.

A step (Hu et al. 2018; Jiang et al. 2015): particles deform, F = (I + h C) F, and flow where they yield; they scatter
mass, momentum and stress to the nodes around them; nodes move, under gravity, walls and colliders; particles gather
velocity and its gradient, and move along. The gradient recomputes everything but the particles' states.

Faults belong to particles: NONFINITE, BADCTRL and OOB stop only that particle, which touches no other particle, and its
world goes on.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units, worlds
from ..bridge import worldwise
from ..tree import Tree, pytree, static
from ..worlds import Status, flag
from . import materials
from .arguments import EMPTY, array, each, expect_kinds, expect_real, load, row
from .boundary import Collider, Walls, prepared
from .contact import Contact
from .materials import Corotated, Liquid, Material, MohrCoulomb, NeoHookean, Sand, Snow, VonMises, matched_in_shear
from .mpm_advance import advance, exchanged
from .mpm_arguments import (
    CAUSES,
    between,
    bounds,
    expect_layout,
    expect_state,
    expect_worlds,
    has_normals,
    is_above_limits,
    is_solid,
    lower_of,
    periodic,
    refuse,
    share_kept,
    simulable,
    sizes_of,
    some,
)
from .mpm_parts import number as num_parts
from .mpm_stages import Between, Layout, Setting, Shapes, stacked
from .response import Response, Tangent, answering, driven
from .transfer import AffineFlip, Apic, Transfer

__all__ = [
    "EMPTY",
    "AffineFlip",
    "Apic",
    "Collider",
    "Contact",
    "Corotated",
    "Liquid",
    "Material",
    "MohrCoulomb",
    "NeoHookean",
    "Params",
    "Response",
    "Sand",
    "Snow",
    "State",
    "Status",
    "Transfer",
    "VonMises",
    "Walls",
    "check",
    "exchange",
    "init",
    "matched_in_shear",
    "reactions",
    "reset",
    "step",
]

Array = jax.Array


@pytree
class Params(Tree):
    """The domain, its contents, and the time step.

    Leaves may be numbers, arrays with or without a world axis, or quantities of either (:mod:`fphys.units`); those of
    materials may also have a particle axis: shape (1 | world, particle).
    """

    material: Material | tuple[Material, ...]  # one, or those that the particles' material numbers refer to
    timestep: Any  # h [s], shape () or (1 | world,)
    gravity: Any = 0.0  # [m/s^2], shape (), (dim,) or (1 | world, dim)
    walls: Walls = Walls()
    transfer: Transfer = Apic()  # or AffineFlip(), which loses less energy
    contact: Contact | None = None  # between bodies with grids of their own; None: one grid, where all stick together
    cell: float = static(default=1.0)  # edge of a cell [m]
    shape: tuple[int, ...] = static(default=(64, 64))  # cells per axis
    lower: tuple[float, ...] = static(default=())  # lower corner of the domain [m]; empty: the origin
    parts: int = static(default=0)  # parts of one large world, for threads to take; 0: by its size; see :func:`step`

    def __post_init__(self) -> None:
        for name in ("cell", "lower"):  # static: no quantities
            object.__setattr__(self, name, units.si(getattr(self, name), units.length, f"params.{name}"))
        if isinstance(self.material, list):
            object.__setattr__(self, "material", tuple(self.material))
        expect_layout(self.shape, self.cell, self.lower, self.parts)

    @property
    def dim(self) -> int:
        """2 or 3."""
        return len(self.shape)

    @property
    def materials(self) -> tuple[Material, ...]:
        """All materials."""
        return self.material if isinstance(self.material, tuple) else (self.material,)


@pytree
class State(Tree):
    """Particles. Make them with :func:`init`."""

    x: Array  # Position [m], shape (world, particle, dim).
    v: Array  # Velocity [m/s], shape (world, particle, dim).
    C: Array  # Velocity gradient [1/s], shape (world, particle, 3, 3); in two dimensions the rest is zero.
    F: Array  # Elastic deformation gradient, shape (world, particle, 3, 3); C is applied to it in the next step.
    history: Array  # The material's history variable, shape (world, particle).
    volume: Array  # Volume at rest [m^dim], shape (world, particle).
    material: Array  # Number of the material, int32, shape (world, particle).
    time: Array  # Time [s], shape (world,).
    status: Array  # Fault bits (Status), uint32, shape (world,); no gradient.


def init(params: Params, positions: Any, velocities: Any = None, material: Any = None, volume: Any = None) -> State:
    """Undeformed particles, at rest unless velocities are given.

    Args:
        positions: [m], shape (world, particle, dim); their dtype decides the precision.
        velocities: [m/s], the same shape.
        material: number of each particle's material in ``params.material``, shape (particle,) or (1 | world,
            particle); the first one by default. EMPTY (-1) is a slot without a particle (:mod:`fphys.particles.flow`).
        volume: of each particle at rest [m^dim], shape (), (particle,) or (1 | world, particle); by default that of
            two particles along each edge of a cell.

    Returns:
        A state. Gradients flow to positions, velocities and volume.

    Raises:
        ValueError: a shape does not fit; or, if the numbers are known on the host, a particle lies outside the
            domain, a number, volume or wall's friction cannot be simulated, there is no such material, or the time
            step is above the limit for sound (half a cell per step) or for viscosity (nu dt / dx^2 = 0.35).
        TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    params = _bare(params)
    positions = units.si(positions, units.length, "positions")
    velocities = units.si(velocities, units.velocity, "velocities")
    x = array("positions", positions)
    if x.ndim != 3 or x.shape[2] != params.dim or 0 in x.shape:
        raise ValueError(
            f"positions have shape {x.shape}, must be (num_worlds, n, {params.dim}): params.shape has {params.dim} axes"
        )
    expect_real("positions", x)
    (worlds, n, dim), dtype = x.shape, x.dtype
    v = jnp.zeros_like(x) if velocities is None else array("velocities", velocities, dtype)
    if v.shape != x.shape:
        raise ValueError(f"velocities have shape {v.shape}, positions {x.shape}: both need one row for each particle")
    number = jnp.asarray(0 if material is None else material)
    if not jnp.issubdtype(number.dtype, jnp.integer):
        raise TypeError(f"material is {number.dtype}: give whole numbers, places in params.material")
    number = each("material", number.astype(jnp.int32), (worlds, n), jnp.int32)
    volume = each("volume", (params.cell / 2) ** dim if volume is None else volume, (worlds, n), dtype)
    params.walls.kinds(dim)
    _rows(params, (worlds, n), dtype)
    sizes_of(params, n)
    refuse(params, x, number, volume, bounds(params))
    eye = jnp.broadcast_to(jnp.eye(3, dtype=dtype), (worlds, n, 3, 3))
    return State(
        x=x,
        v=v,
        C=jnp.zeros_like(eye),
        F=eye,
        history=jnp.asarray([m.history for m in params.materials], dtype)[number],
        volume=volume,
        material=number,
        time=jnp.zeros(worlds, dtype),
        status=jnp.zeros(worlds, jnp.uint32),
    )


@worldwise
def step(
    params: Params,
    state: State,
    force: Array | None = None,
    actuation: Array | None = None,
    colliders: Collider | Sequence[Collider] | None = None,
) -> State:
    """Advance every world by one time step. Pure; composes with jit, grad, vmap, scan and checkpoint.

    Args:
        force: on every particle [N], shape (world, particle, dim); axes 0 and 1 may have size 1.
        actuation: stress of muscles in the material's own axes [Pa], shape (world, particle, 3, 3); axes 0 and 1 may
            have size 1. It adds F S F^T to the Kirchhoff stress; a muscle along a fibre d has S = a d d^T.
        colliders: shapes of :mod:`fphys.particles.boundary`, which act on the nodes in this order; of more than three
            at one node, the first three.

    One world of 16,384 particles or more is cut into equal parts, for threads to take: into four, or what divides it,
    by its number of particles, or as ``params.parts`` says. The order of its sums, and so their rounding, depends on
    the number of parts, not on that of threads: the state is bitwise the same on all machines of one kind. With one
    part, sums are in the particles' own order, eight at a time.

    Returns:
        The next state. A particle that is not finite or lies more than half a cell outside the domain stays as it
        is, touches no node and passes no gradient; its world's status says so, and no other particle is affected. The
        same holds for all particles of a world with a number in ``params`` that cannot be simulated. Time stands
        still where all particles do. A time step above the limits that :func:`init` has is reported (CFL), also where
        numbers are traced.
        Gradients flow to all of params, positions, velocities, C, F, history, volume, force, actuation and
        colliders, but not through the choice of the nodes that a collider without a width holds, nor through the
        onset of yielding: a step that yields is differentiated as one that does.

    Raises:
        ValueError: a shape does not fit, before anything runs. TypeError: dtypes differ. UnitError: a quantity is of
            another kind.
    """
    return _step("mpm.step", params, state, force, actuation, colliders, None)[0]


@worldwise
def reactions(
    params: Params,
    state: State,
    force: Array | None = None,
    actuation: Array | None = None,
    colliders: Collider | Sequence[Collider] | None = None,
) -> Array:
    """What a step does to its colliders: the mean force [N] and torque [N m] on each, (world, collider, 6).

    Args:
        params, state, force, actuation, colliders: as in :func:`step`, which is taken again: it costs a little more.

    Returns:
        Force, then torque about the collider's origin; in a plane, of each metre of thickness. Times the time step it
        is the momentum that the particles lose to it, to rounding. Zero in worlds that do not take the step. Gradients
        flow to all arguments.

    Raises:
        ValueError: a shape does not fit. TypeError: dtypes differ. UnitError: a quantity is of another kind.
    """
    given = (colliders,) if isinstance(colliders, Collider) else tuple(colliders or ())
    dtype, (worlds, _, dim) = state.x.dtype, state.x.shape
    if not given:
        return jnp.zeros((worlds, 0, 6), dtype)
    given = tuple(prepared(c, i, dtype, dim, worlds, fades=True) for i, c in enumerate(given))
    took = _step("mpm.reactions", params, state, force, actuation, given, driven(given, worlds))[1][0]
    timestep = row("timestep", _bare(params).timestep, (), dtype)
    return took / jnp.where(timestep > 0, timestep, 1)[:, None, None]


@worldwise
def exchange(
    params: Params,
    state: State,
    colliders: Sequence[Collider],
    response: Response,
    force: Array | None = None,
    actuation: Array | None = None,
) -> tuple[State, Array]:
    """:func:`step` in which bodies carry the colliders and answer: both velocities are found at once.

    Args:
        colliders: shapes at their places; their velocities are those that the bodies find (given ones are not read). A
            body across a periodic face has an image of each there; it is less than half a period from its origin.
        response: the bodies (:class:`fphys.particles.response.Response`), and which of them carries each collider.

    Returns:
        The next state, and the impulse that every body took from the particles: linear [N s], and angular about its
        origin [N m s], shape (world, body, 6). Their sum with the change of the particles' momentum is that of gravity,
        force and walls, to rounding. Gradients flow as in :func:`step`, and to all of ``response``.

    Raises:
        ValueError: a shape does not fit, or there is no collider. TypeError: dtypes differ. UnitError: a kind.
    """
    return yielding(params, state, colliders, response, force, actuation)[:2]


def yielding(
    params: Params,
    state: State,
    colliders: Sequence[Collider],
    response: Response,
    force: Array | None = None,
    actuation: Array | None = None,
) -> tuple[State, Array, Tangent]:
    """:func:`exchange`; and the tangent at the twists that it found (:func:`fphys.particles.response.tangent`)."""
    after, (took, along) = _step("mpm.exchange", params, state, force, actuation, colliders, response)
    return after, took, along


def _step(
    name: str, params: Params, state: State, force: Any, actuation: Any, colliders: Any, response: Response | None
) -> tuple[State, Any]:
    """The next state; and what the bodies took and its tangent, None without a response."""
    expect_kinds(name, params, state, Params, State)
    expect_state(params, state)
    params, dtype, (worlds, n, dim) = _bare(params), state.x.dtype, state.x.shape
    force, actuation = units.si(force, units.force, "force"), units.si(actuation, units.pressure, "actuation")
    force = load("force", force, (worlds, n, dim), dtype)
    layout = Layout(
        tuple(m.kind for m in params.materials),
        params.walls.kinds(dim),
        float(params.cell),
        tuple(params.shape),
        lower_of(params),
        actuation is not None,
        around=periodic(params),
    )
    actuation = load("actuation", actuation, (worlds, n, 3, 3), dtype)
    given = tuple(colliders or ()) if isinstance(colliders, Sequence | None) else (colliders,)
    given = tuple(prepared(c, i, dtype, dim, worlds, fades=True) for i, c in enumerate(given))
    kinds, shapes = stacked(given) if given else ((), None)
    rows, keep, contact = _rows(params, (worlds, n), dtype)
    bodies = tuple((size, _parts(params, worlds, size)) for size in sizes_of(params, n))
    smooth = 0 if params.contact is None else params.contact.smooth
    layout = layout._replace(bodies=bodies, colliders=kinds, smooth=smooth)
    response = None if response is None else answering(response, len(given), worlds, dtype)
    return _advanced(params, state, layout, rows, (keep, contact), force, actuation, given, shapes, response)


@jax.jit
def _advanced(
    params: Params,
    state: State,
    layout: Layout,
    rows: dict[str, Array],
    last: tuple[Array | None, Between | None],
    force: Array,
    actuation: Array,
    colliders: tuple[Collider, ...],
    shapes: Shapes | None,
    response: Response | None,
) -> tuple[State, Any]:
    (keep, contact), number = last, jnp.clip(state.material, 0, len(params.materials) - 1)
    setting = Setting(materials.table(params.materials, state.x.dtype, number), **rows)
    rest = (setting.gravity, setting.wall_friction, setting.wall_velocity)
    fine = simulable(setting.table, len(layout.kinds), setting.timestep, rest, state)
    fine = fine & (setting.wall_friction >= 0).all(1)
    for value in () if shapes is None else (shapes.friction, shapes.width):
        fine = fine & ((value >= 0) & jnp.isfinite(value)).all(1)
    if keep is not None:
        fine = fine & (keep >= 0) & (keep <= 1)
    for value in contact or ():
        fine = fine & ((value >= 0) & jnp.isfinite(value)).reshape(len(value), -1).all(1)
    if contact is not None:
        fine = fine & has_normals(jax.lax.stop_gradient(contact.normal))
    force = jnp.where(fine[:, None, None], force, jnp.nan)  # a particle with this force takes no part
    empty = state.material == EMPTY
    history = jnp.where(empty, jnp.nan, state.history)  # a slot with this history takes no part
    matter = state.replace(time=None, status=None, material=number, history=history)
    if response is None:
        (moved, bits, still), took = advance(layout, setting, matter, empty, force, actuation, shapes, *last), None
    else:
        given = layout, setting, matter, empty, force, actuation, colliders, response, *last
        moved, bits, still, *took = exchanged(*given)
        took = tuple(took)
    bits = bits | flag(Status.CFL, is_above_limits(params, setting.timestep))
    bits = jnp.where(fine, bits, flag(Status.BADPARAM, ~fine))
    time = state.time + jnp.where(fine & ~still, setting.timestep, 0)
    history = jnp.where(empty, state.history, moved.history)
    return moved.replace(time=time, status=state.status | bits, material=state.material, history=history), took


def _parts(params: Params, worlds: int, n: int) -> int:
    """Into how many parts the particles of a body are cut; ValueError: they cannot be."""
    parts = (params.parts or num_parts(n)) if worlds == 1 else 1
    if n % parts:
        raise ValueError(f"params.parts is {parts}, which does not divide {n} particles: take a divisor, or 0")
    return parts


def check(params: Params, state: State) -> None:
    """Raise an error on the host if the status reports a fault.

    Raises:
        StateError: names world, fault, the particles that are outside or not finite now, and the number to change.
    """
    expect_kinds("mpm.check", params, state, Params, State)
    lower, upper = bounds(params)

    def cause(world: int, bit: Status) -> str:
        fields = [np.asarray(getattr(state, name))[world] for name in ("x", "v", "C", "F", "history")]
        x, F, there = fields[0], fields[3], np.asarray(state.material)[world] != EMPTY
        finite = np.all([np.isfinite(a).reshape(len(x), -1).all(-1) for a in fields], 0)
        with np.errstate(invalid="ignore"):
            out = finite & ((x < lower) | (x > upper)).any(-1)
            inverted = ~is_solid(np.where(finite[:, None, None], F, np.eye(3, dtype=x.dtype)))
        which = {Status.NONFINITE: ~finite, Status.OOB: out, Status.INVERTED: inverted}
        return CAUSES.get(bit, "").format(some(which[bit] & there) if bit in which else "")

    worlds.report(state.status, cause, "mpm.reset")


def reset(params: Params, state: State, mask: Array, start: State) -> State:
    """Reset the worlds of ``mask`` to those of ``start``, and clear their fault bits.

    Args:
        mask: the worlds to reset, bool, shape (num_worlds,).
        start: a state with as many worlds and particles, positions in [m], for example from :func:`init`.

    Gradients flow to ``start`` in the worlds that are reset, and to ``state`` in the others.

    Raises:
        ValueError: the mask or ``start`` has another shape. TypeError: not parameters and state of this solver.
    """
    expect_kinds("mpm.reset", params, state, Params, State)
    return worlds.reset(state, mask, start)


def _rows(params: Params, size: tuple[int, int], dtype: Any) -> tuple[dict[str, Array], Array | None, Between | None]:
    """The numbers of a :class:`Setting` but for materials, what a particle keeps of its velocity, contact.

    Raises:
        ValueError, TypeError: by name, a number, also of a material, does not fit the worlds and particles of ``size``.
    """
    dim = params.dim
    velocity = row("walls.velocity", params.walls.velocity, (2 * dim, dim), dtype, vector=True)
    rows = {
        "timestep": row("timestep", params.timestep, (), dtype),
        "gravity": row("gravity", params.gravity, (dim,), dtype, vector=True),
        "wall_friction": row("walls.friction", params.walls.friction, (2 * dim,), dtype),
        "wall_velocity": jnp.pad(velocity, ((0, 0), (0, 0), (0, 3 - dim))),
    }
    keep, contact = share_kept(params, dtype), between(params, dtype)
    others = {} if keep is None else {"transfer.keep": keep}
    others |= {} if contact is None else {f"contact.{name}": value for name, value in contact._asdict().items()}
    expect_worlds(params, size, **{f"params.{name}": value for name, value in (rows | others).items()})
    return rows, keep, contact


def _bare(params: Params) -> Params:
    """Params without quantities."""
    for m in params.materials:
        if not isinstance(m, Material):
            raise TypeError(f"params.material has a {type(m).__name__}: give mpm.Corotated(...) or another material")
    if not isinstance(params.walls, Walls):
        raise TypeError(f"params.walls is a {type(params.walls).__name__}: give mpm.Walls('sticky'), for example")
    given = [units.bare(m, m.kinds, type(m).__name__) for m in params.materials]
    material = tuple(given) if isinstance(params.material, tuple) else given[0]
    walls = units.bare(params.walls, {"velocity": units.velocity}, "walls")
    params = units.bare(params, {"timestep": units.duration, "gravity": units.acceleration}, "params")
    return params.replace(material=material, walls=walls)
