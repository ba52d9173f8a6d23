"""Smoothed particle hydrodynamics of weakly compressible fluids, and of incompressible ones.

::

    d rho_i / dt = sum_j m rho_i / rho_j (v_i - v_j) . grad W + diffusion
    d v_i / dt = -sum_j m (p_i + p_j) / (rho_i rho_j) grad W + viscosity + g
    p = rho_0 c^2 / gamma ((rho / rho_0)^gamma - 1)

with Wendland's C2 kernel, delta-SPH's density diffusion and artificial viscosity (Marrone 2011, without the difference
at rest as in Fourtakas 2019), Morris's physical viscosity (1997), and walls of dummy particles (Adami 2012). These
push according to the density that the fluid carries, and a sheet pressed along a wall may get through. With
``repulsion``, pairs of fluid and wall closer than a spacing have an additional pressure
repulsion rho_0 c^2 (1 - (r / spacing)^2)^2, a short-range force along the line between them like Monaghan and Kajtar's
(2009), equal and opposite.

With ``transport`` the density is a sum, rho_i = sum_j m W, and particles move with a transport velocity (Adami, Hu and
Adams 2013): for fluid without a free surface.

With ``method="dfsph"`` the fluid is incompressible: pressure comes from a solve a step (``sph_pressure.py``, after
Bender and Koschier 2015), and the time step does not depend on the speed of sound, which only the artificial viscosity
reads.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..bridge import worldwise
from ..implicit import recomputed
from ..worlds import Status, choose, flag, freeze, idle, is_nonfinite, sound
from . import sph_pressure as pressure
from . import sph_sums as sums
from .arguments import EMPTY
from .neighbors import Neighbors, build, in_space, wrap
from .sph_state import (
    FLUID,
    POSITIVE,
    SLIP_WALL,
    WALL,
    Params,
    State,
    bare,
    check,
    density_at,
    expect,
    expect_state,
    filling,
    init,
    lacking,
    limit,
    particle_mass,
    pressure_at,
    reset,
    rows,
    typed,
)

__all__ = [
    "EMPTY",
    "FLUID",
    "SLIP_WALL",
    "WALL",
    "Params",
    "State",
    "Status",
    "check",
    "density_at",
    "exchange",
    "forces",
    "init",
    "limit",
    "pressure_at",
    "renew",
    "reset",
    "step",
]

Array = jax.Array

DIFFUSION = 0.1
"""Default density diffusion (Marrone 2011)."""

RELAXATION = 0.12
"""Share of an excess of density that incompressible fluid removes in a step."""

RECOVERY = 0.04
"""Share of a lack of density that fluid inside makes good in a step: more damps waves, without any it swells."""

INSIDE = 0.1
"""The relative lack of density at which this ends; it fades on the way. A row below a flat surface lacks less."""

BESIDE = 0.01
"""Fluid is at a wall, which may not pull it, if walls have this share of its density."""

HOLD = 1.1
"""Fluid is held if it lacks less density than a particle in the outermost row below a flat surface, times this."""

INTO = 0.95
"""Spacings within which particles of a wall may not be on both sides of fluid."""

SURFACE = 0.4
"""A particle is at a surface if h |sum_j V grad W| reaches this; in the outermost row it is about 0.7."""


@worldwise
def step(params: Params, state: State, force: Any = None, wall_velocity: Any = None) -> State:
    """Advance every world by one time step (semi-implicit Euler: first velocity, then density and position from it).

    Args:
        params: the fluid.
        state: the particles.
        force: [N] on every particle, shape (world, particle, dim); on walls it has no effect.
        wall_velocity: [m/s] of wall particles, shape (world, particle, dim); entries of fluid particles are not read.
            By default walls keep their velocity.

    Returns:
        The next state. Gradients flow to all numbers of params, positions, velocities, densities, force and
        wall_velocity; only these are stored for the backward pass, which finds the neighbours again. An incompressible
        step that is differentiated solves to 1e-8 (1e-6 in float32), so its value differs within ``tolerance``. A world
        that is not finite keeps its last state, its status says so, and it passes no gradient; others are not affected.

    Raises:
        ValueError: a shape does not fit. TypeError: a dtype does not fit; UnitError: a kind.
    """
    expect_state(params, state)
    wall_velocity = units.si(wall_velocity, units.velocity, "wall_velocity")
    given = {"force": units.si(force, units.force, "force"), "wall_velocity": wall_velocity}
    loads = {k: None if f is None else expect(k, f, state.x.shape, state.x.dtype) for k, f in given.items()}
    return _step(bare(params), state, loads["force"], loads["wall_velocity"])[0]


@worldwise
def exchange(params: Params, state: State, force: Any = None) -> tuple[State, Array]:
    """:func:`step`, and the force [N] of the fluid on each wall particle during it, shape (world, particle, dim).

    ``force`` is as in :func:`step`. The force on fluid particles is given as zero. What walls take is what the fluid
    gives, to rounding. Gradients flow as in :func:`step`; a world that stands still gives no force.

    Raises:
        ValueError: a shape does not fit, or ``params.transport`` is on, whose stress on walls is not known.
    """
    expect_state(params, state)
    if params.transport:
        raise ValueError("sph.exchange takes params.transport=False: walls do not feel the transport's stress")
    force = units.si(force, units.force, "force")
    force = None if force is None else expect("force", force, state.x.shape, state.x.dtype)
    after, _, push = _step(bare(params), state, force, None)
    return after, push


def _held(worlds: Array, params: Params, state: State, *loads: Array | None) -> tuple[Any, ...]:
    """Arguments for which these worlds stand still."""
    return params, state.replace(status=state.status | flag(Status.NONFINITE, worlds)), *loads


def _settled(params: Params, state: State, *loads: Array | None) -> tuple[Any, ...]:
    """Arguments with the tolerance of a step that is differentiated."""
    finest = pressure.SETTLED[state.x.dtype.itemsize]
    return params.replace(tolerance=min(params.tolerance, finest)), state, *loads


@recomputed(lambda result: result[1], _held, _settled)
def _step(
    known: Array | None,
    params: Params,
    state: State,
    force: Array | None,
    wall_velocity: Array | None,
) -> tuple[tuple[State, Array, Array], Array | None]:
    """The next state, the worlds that stand still, and the force on the walls [N]; and what the solve found."""
    params, clean, loads, bits = _screen(params, state, (force, wall_velocity))
    force, wall_velocity = loads
    if wall_velocity is not None:
        clean = clean.replace(v=jnp.where((state.kind > FLUID)[..., None], wall_velocity, clean.v))
    near = _neighbors(clean, bits)
    slots = _in_slots(params, near, clean)
    load = params.gravity[:, None]
    if force is not None:
        load = load + near.to_slots(force)[0] / rows(particle_mass(params, state), 3)
    if params.method == "dfsph":
        after, on_walls, known, unsolved = _incompressible(known, params, slots, near, load)
    else:
        after, on_walls = _compressible(params, slots, near, load)
        unsolved = jnp.zeros(bits.shape, bool)
    moved = (after.shift,) if params.transport else ()
    v, rho, p, on_walls, *moved = near.to_particles(after.v, after.rho, after.p, on_walls, *moved)
    if params.method == "wcsph" and not params.transport:
        p = jnp.where(_fluid(state)[..., 0], pressure_at(params, rho), p)
    shift = moved[0] if moved else clean.shift
    x = wrap(params.periodic or (None,), clean.x + rows(params.timestep, 3) * (v + shift))
    fast = jnp.sqrt(jax.lax.stop_gradient(jnp.sum(v**2, -1).max(1)))
    above = ~idle(bits) & (params.timestep > jax.lax.stop_gradient(limit(params, fast)))
    bits = bits | flag(Status.CFL, above) | flag(Status.UNCONVERGED, ~idle(bits) & unsolved)
    if state.walls:
        bits = bits | flag(Status.THROUGH, sums.buried(near, _particles(slots), INTO * params.spacing))
    most = near.number.max(axis=1)
    bits = bits | flag(Status.NEIGHBOR_OVERFLOW, most > state.max_neighbors)
    new = state.replace(time=state.time + params.timestep, x=x, v=v, rho=rho, p=p, shift=shift)
    after, stopped = freeze(state, new, bits, ~_possible(new))
    on_walls = choose(stopped, 0, on_walls)
    known = None if known is None else choose(stopped, 0, known)
    return (after.replace(most_neighbors=jnp.maximum(most, state.most_neighbors)), stopped, on_walls), known


def _compressible(params: Params, slots: State, near: Neighbors, load: Array) -> tuple[State, Array]:
    """The slots with velocity, density and shift one step later, and the force on the walls [N]."""
    dt, mass, inside = rows(params.timestep, 3), rows(particle_mass(params, slots), 3), _fluid(slots)
    if params.transport:
        slots = slots.replace(rho=_density(params, slots, near))
    boundary = _with_walls(params, slots.replace(p=pressure_at(params, slots.rho)), near)
    pairs = mass * _pair_forces(params, boundary, near)
    push, rho = pairs + load, boundary.rho
    if params.transport:
        background, stress = _transport(params, boundary, near)
        push, slots = push + stress, slots.replace(shift=jnp.where(inside, dt * background, 0))
    v = slots.v + dt * jnp.where(inside, push, 0)
    if not params.transport:
        rho = slots.rho + dt[..., 0] * _density_rate(params, boundary, v, near)
        rho = jnp.where(inside[..., 0], rho, boundary.rho)
    return slots.replace(v=v, rho=rho, p=boundary.p), jnp.where(inside, 0, mass * pairs)


def _incompressible(
    known: Array | None, params: Params, slots: State, near: Neighbors, load: Array
) -> tuple[State, Array, Array, Array]:
    """The same of incompressible fluid, what its solve found, and the worlds in which that is unconverged."""
    dim, fluid, inside = slots.x.shape[-1], slots.kind == FLUID, _fluid(slots)
    dt, volume, full = rows(params.timestep, 2), params.spacing**dim, filling(params, dim)
    at, filled = pressure.places(near, in_space(slots.x), fluid, slots.walls, volume, full * params.h)
    turn = dt / (full * params.h)  # the share of its density that a rate of velocities adds in a step
    scale = params.density[:, None] * full * (params.h / dt) ** 2  # the pressure [Pa] of w

    pairs, head = _all_but_pressure(params, slots, near)
    v = slots.v + dt[..., None] * jnp.where(inside, pairs + load, 0)
    excess, edge = jnp.where(fluid, filled, 0), HOLD * lacking(params, dim)
    held = fluid & (excess > -edge)
    inner = RECOVERY * jnp.clip(1 + excess / INSIDE, 0, 1) ** 2
    surplus = jnp.where(held, jnp.where(excess > 0, RELAXATION, inner) * excess, excess + edge)
    pulled = held & (at.walled < BESIDE * full * params.h)
    b = surplus + turn * pressure.approach(near, at, volume, in_space(v))
    found, unsolved = known, jnp.zeros(slots.time.shape, bool)
    if found is None:
        start = jax.lax.stop_gradient(slots.p / scale)
        found, unsolved = pressure.solve(pressure.matrix(near, at, volume), b, pulled, start, params.tolerance)
    w = pressure.settled(near, at, volume, b, pulled, found)
    w = pressure.lent(near, at, volume, w)
    p = jnp.where(fluid, scale * w, jnp.maximum(scale * w + head, 0))
    push = pressure.push(near, at, volume, w, p)
    p = jnp.where(fluid, push[..., 3] / (full * params.h * (1 + filled)), p)
    push = push[..., :dim]
    v = jnp.where(inside, v - push / turn[..., None], v)

    on_walls = rows(particle_mass(params, slots), 3) * jnp.where(inside, 0, pairs - push / rows(turn * dt, 3))
    rho = jnp.where(fluid, params.density[:, None] * (1 + excess), params.density[:, None])
    return slots.replace(v=v, rho=rho, p=p), on_walls, found, unsolved


def _all_but_pressure(params: Params, slots: State, near: Neighbors) -> tuple[Array, Array]:
    """Accelerations by pairs of incompressible fluid, but those that the solve finds: (world, particle, dim).

    Walls have the weight of fluid in them, rho g . d in the mean (Adami 2012), on top of the fluid's pressure: the
    second result, [Pa], (world, particle), which is not negative in the first.
    """
    taken = _with_walls(params, _at_rest(params, slots.replace(p=0 * slots.p)), near)
    boundary = taken.replace(p=jnp.maximum(taken.p, 0))
    return rows(particle_mass(params, slots), 3) * _pair_forces(params, boundary, near), taken.p


def _at_rest(params: Params, state: State) -> State:
    """The state with the density of rest everywhere, which pairs of incompressible fluid have."""
    return state.replace(rho=jnp.broadcast_to(params.density[:, None], state.rho.shape))


@worldwise
def forces(params: Params, state: State) -> Array:
    """Force [N] on every particle from the others, shape (world, particle, dim); on walls, the force of the fluid.

    Forces are equal and opposite for each pair, so that the sum over all particles is zero up to rounding. All of
    ``params`` and ``state`` that is not integer gets gradients.
    """
    params = typed(bare(params), state)
    near = _neighbors(state, jnp.zeros(state.x.shape[0], jnp.uint32))
    slots, mass = _in_slots(params, near, state), rows(particle_mass(params, state), 3)
    if params.method == "dfsph":
        dim, fluid = state.x.shape[-1], slots.kind == FLUID
        volume, full = params.spacing**dim, filling(params, dim) * params.h
        at, _ = pressure.places(near, in_space(slots.x), fluid, slots.walls, volume, full)
        p = pressure.lent(near, at, volume, slots.p)
        push = pressure.push(near, at, volume, p)[..., :dim] / rows(params.density * params.h, 3)
        return near.to_particles(mass * (_all_but_pressure(params, slots, near)[0] - push))[0]
    boundary = _with_walls(params, slots.replace(p=pressure_at(params, slots.rho)), near)
    return near.to_particles(mass**2 * _pair_forces(params, boundary, near))[0]


def renew(params: Params, state: State, share: Any = 0.1) -> State:
    """Relax the density inside the fluid towards that given by the particles' positions, to prevent gain of volume.

    Density is integrated in time, and where two surfaces meet it rises as soon as their particles are neighbours: fluid
    that splashed stays looser than its density says, by up to a seventh after a jet (Pilloton et al. 2024). Call this
    about every tenth step in flows with much splashing; with 0.1, the difference then fades within a hundred steps.

        rho_i + share g_i (rho_0 sum_j W_ij / sum_j W_ij at rest - rho_i)
        g_i = max(0, 1 - |h sum_j V grad W_ij|^2 / e^2)^2

    where g, with e = 0.4, is about one inside and zero at surfaces, which have no neighbours on one side.

    Args:
        params: of a fluid without ``transport``, which does not gain volume in this way.
        share: fraction of the difference that is removed, shape () or (1 | world,).

    Returns:
        The state with new densities and pressures of the fluid. Gradients flow to params, positions, densities and
        ``share``. A world that stands still stays as it is.

    Raises:
        ValueError: ``share`` has another number of worlds, or the state does not fit. TypeError: a dtype does not fit.
    """
    expect_state(params, state)
    params, clean, _, bits = _screen(bare(params), state, ())
    dim, fluid = state.x.shape[-1], state.kind == FLUID
    near = _neighbors(clean, bits)
    slots = _in_slots(params, near, clean)
    found = rows(particle_mass(params, state), 2) * sums.densities(near, _moving(slots)) / filling(params, dim)
    surface = jnp.sum((params.h * _edge(params, slots, near)) ** 2, -1)
    found, surface = near.to_particles(found, surface)
    inside = jnp.maximum(1 - surface / SURFACE**2, 0) ** 2
    share = jnp.atleast_1d(jnp.asarray(share, state.x.dtype))
    if share.shape not in ((1,), state.x.shape[:1]):
        raise ValueError(f"share has shape {share.shape}, needs () or (num_worlds,) = {state.x.shape[:1]}")
    share = rows(share, 2)
    moving = fluid & ~idle(bits)[:, None]
    rho = jnp.where(moving, clean.rho + share * inside * (found - clean.rho), state.rho)
    return state.replace(rho=rho, p=jnp.where(moving, pressure_at(params, jnp.where(moving, rho, clean.rho)), state.p))


# ---------------------------------------------------------------------------------------------------------------------
# Parts of a step


def _neighbors(state: State, bits: Array) -> Neighbors:
    """The neighbours of each particle; none in a world that stands still."""
    moving = ((bits == 0)[:, None] & (state.kind != EMPTY)).astype(jnp.int32)
    return build(state.grid, in_space(state.x), moving, state.max_neighbors)


def _in_slots(params: Params, near: Neighbors, state: State) -> State:
    """The particles in the order of slots, in which a step reads them: neighbours are then close in memory."""
    names = ("x", "v", "rho") + ("shift",) * params.transport + ("p",) * (params.method == "dfsph")
    *found, kind = near.to_slots(*(getattr(state, n) for n in names), state.kind.astype(state.x.dtype))
    return state.replace(**dict(zip(names, found)), kind=kind.astype(jnp.int32))


def _particles(state: State, v: Array | None = None) -> sums.Particles:
    return sums.Particles(in_space(state.x), in_space(state.v if v is None else v), state.rho, state.p, state.kind)


def _with_walls(params: Params, state: State, near: Neighbors) -> State:
    """What walls take from the fluid: pressure, density, and the velocity beyond the wall."""
    if not state.walls:
        return state
    p, fluid = state.p, state.kind == FLUID
    total = sums.extensions(near, _particles(state), in_space(params.gravity))
    wet = total[..., 0] > 1e-18 * sums.smoothing(state.grid)[1]  # a neighbour at 2 h weighs 1e-30 by rounding
    weight = jnp.where(wet, total[..., 0], 1)
    taken = total[..., 1] / weight
    push_only = params.method == "wcsph" and not params.transport
    p = jnp.where(fluid, p, jnp.maximum(taken, 0) if push_only else taken)
    beyond = 2 * state.v - total[..., 2 : 2 + state.v.shape[-1]] / weight[..., None]
    v = jnp.where(fluid[..., None] | ~wet[..., None], state.v, beyond)
    beyond = state.rho if params.method == "dfsph" else density_at(params, p)
    return state.replace(p=p, rho=jnp.where(fluid, state.rho, beyond), v=v)


def _pair_forces(params: Params, state: State, near: Neighbors) -> Array:
    """Sum of pair forces for unit masses, shape (world, particle, dim)."""
    rough = params.artificial * params.h * params.sound_speed * params.density
    push = params.repulsion * params.density * params.sound_speed**2
    drag = params.viscosity
    if params.central:
        rough, drag = rough + drag * along_lines(state.x.shape[-1], params.smoothing), 0 * drag
    coefficients = jnp.broadcast_arrays(drag, rough, push, jnp.full_like(rough, params.spacing**-2))
    total = sums.forces(near, _particles(state), jnp.stack(coefficients, -1))[..., : state.x.shape[-1]]
    return total if params.tension is None else total + _tension(params, state, near) / rows(params.density, 3) ** 2


def _density_rate(params: Params, state: State, v: Array, near: Neighbors) -> Array:
    delta = (DIFFUSION if params.tension is None else 0.0) if params.diffusion is None else params.diffusion
    diffusion = 2 * delta * params.h * params.sound_speed
    stratification = rows(params.density / params.sound_speed**2, 2) * in_space(params.gravity)
    return rows(particle_mass(params, state), 2) * sums.rates(near, _particles(state, v), diffusion, stratification)


def _edge(params: Params, state: State, near: Neighbors, walls: bool = True) -> Array:
    """-sum_j V grad W [1/m], shape (world, particle, 3): it points out of the fluid, and is zero inside.

    Without ``walls`` the sum is over fluid particles only, and zero for walls.
    """
    x, half = in_space(state.x), jnp.full_like(state.rho, 0.5)
    share = half if walls else jnp.where(state.kind == FLUID, half, -half)
    unit = sums.Particles(x, jnp.zeros_like(x), 2 * half, share, state.kind)
    return params.spacing ** state.x.shape[-1] * sums.forces(near, unit, jnp.zeros((1, 4), x.dtype))


def _tension(params: Params, state: State, near: Neighbors) -> Array:
    """Surface tension force divided by the volumes of both particles, shape (world, particle, dim).

    The stress is h (|n|^2 I - n n) sigma / s, with n the gradient of the volume fraction of fluid; across a flat
    surface it adds up to sigma. Walls do not count as fluid: there is tension along them too, and nothing adheres.
    """
    dim = state.x.shape[-1]
    n = _edge(params, state, near, walls=False) * (params.h / stretched(dim, params.smoothing, params.central)) ** 0.5
    none = jnp.zeros_like(state.rho)
    lean = jnp.full((1,), (dim + 2) / 2 if params.central else 0, none.dtype)
    total = sums.tensions(near, sums.Particles(in_space(state.x), n, none, none, state.kind), lean)
    return rows(params.tension, 3) * total[..., :dim]


@functools.cache
def along_lines(dim: int, smoothing: float) -> float:
    """How much larger the coefficient of a force along lines is than the viscosity that it has, 2 (dim + 2) and more.

    Monaghan (2005) has 2 (dim + 2) F (u . d) d / r^2; with r^2 + 0.01 h^2 there, a lattice needs more of it.
    """
    reach = int(2 * smoothing)
    axes = np.meshgrid(*[np.arange(-reach, reach + 1) / smoothing] * dim)
    square = sum(a**2 for a in axes)
    slope = np.maximum(1 - np.sqrt(square) / 2, 0) ** 3
    return float(2 * (dim + 2) * (slope * square).sum() / (slope * square**2 / (square + 0.01)).sum())


@functools.cache
def stretched(dim: int, smoothing: float, central: bool = False) -> float:
    """Effect of h^2 (|n|^2 I - n n) when a flat surface of a lattice is stretched, divided by h, dimensionless.

    It is sum_i h |n_i|^2 w_i dx over a column of particles below the surface, with w the rate of stretching that the
    sum over pairs sees: one inside, about one half at the surface.
    """
    depth = np.arange(int(2 * smoothing) + 2)
    along = np.arange(-depth[-1], depth[-1] + 1)
    axes = np.meshgrid(np.arange(-depth[-1], 2 * depth[-1]), *[along] * (dim - 1), indexing="ij")
    q = np.sqrt(sum(a**2 for a in axes)) / smoothing
    scale = (7 / (4 * np.pi) if dim == 2 else 21 / (16 * np.pi)) / smoothing ** (dim + 2)
    slope, pull = 5 * scale * np.maximum(1 - q / 2, 0) ** 3, 1.5 * scale * np.maximum(1 - q**2 / 4, 0) ** 2
    fluid = [axes[0] >= -d for d in depth]  # the neighbours of a particle that many rows below the surface
    normal = np.array([(slope * axes[0])[f].sum() for f in fluid]) * smoothing
    lean = 1.5 - (dim + 2) / 2 * axes[0] ** 2 / np.maximum((q * smoothing) ** 2, 1) if central else 1.0
    tangent = np.array([(pull * lean * axes[1] ** 2)[f].sum() for f in fluid])
    return float((normal**2 * tangent).sum() / smoothing)


def _moving(state: State) -> sums.Moving:
    return sums.Moving(in_space(state.x), in_space(state.v), state.rho, in_space(state.shift), state.kind)


def _density(params: Params, state: State, near: Neighbors) -> Array:
    """Sum of the masses around [kg/m^3], (world, particle); unchanged in a world that stands still."""
    total = rows(particle_mass(params, state), 2) * sums.densities(near, _moving(state))
    return jnp.where(near.number.max(axis=1, keepdims=True) > 0, total, state.rho)


def _transport(params: Params, state: State, near: Neighbors) -> tuple[Array, Array]:
    """Accelerations by the background pressure and by the stress of the momentum that particles carry."""
    mass, dim = rows(particle_mass(params, state), 3), state.x.shape[-1]
    total = mass * sums.transports(near, _moving(state))
    pressure = rows(params.background * params.density * params.sound_speed**2, 3)
    return -pressure * total[..., :dim], total[..., 3 : 3 + dim]


def _screen(params: Params, state: State, loads: tuple[Array | None, ...]) -> tuple[Params, State, Any, Array]:
    """Parameters as rows, faulty worlds out of the computation, and the fault bits, uint32, (world,)."""
    params = typed(params, state)
    possible = jax.tree.map(lambda leaf: sound([leaf]), params)
    for name in POSITIVE:
        possible = possible.replace(**{name: getattr(possible, name) & (getattr(params, name) > 0)})
    params = jax.tree.map(lambda leaf, ok: choose(~ok, 1, leaf), params, possible)
    unsound = ~functools.reduce(jnp.logical_and, jax.tree.leaves(possible))
    broken = ~(_possible(state) & ((state.kind >= EMPTY) & (state.kind <= SLIP_WALL)).all(1))
    uncontrolled = ~sound([f for f in loads if f is not None], broken.size)
    bits = flag(Status.NONFINITE, broken | is_nonfinite(state.status))
    bits |= flag(Status.BADPARAM, unsound) | flag(Status.BADCTRL, uncontrolled)
    out = idle(bits)
    rest = jnp.broadcast_to(params.density[:, None], state.rho.shape)
    clean = {name: choose(out, 0, getattr(state, name)) for name in ("x", "v", "shift")}
    state = state.replace(**clean, rho=choose(out, jax.lax.stop_gradient(rest), state.rho))
    return params, state, tuple(None if f is None else choose(out, 0, f) for f in loads), bits


def _possible(state: State) -> Array:
    """Worlds whose particles are finite and have a density, shape (world,)."""
    return sound([state.x, state.v, state.rho, state.shift]) & (state.rho > 0).all(1)


def _fluid(state: State) -> Array:
    return (state.kind == FLUID)[..., None]
