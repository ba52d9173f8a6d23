"""Smoothed particle hydrodynamics of weakly compressible fluids.

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
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..bridge import reverse_only
from ..implicit import recomputed
from ..worlds import Status, choose, flag, freeze, idle, is_nonfinite, sound
from . import sph_sums as sums
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
    limit,
    particle_mass,
    pressure_at,
    reset,
    rows,
    typed,
)

__all__ = [
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

SURFACE = 0.4
"""A particle is at a surface if h |sum_j V grad W| reaches this; in the outermost row it is about 0.7."""


@reverse_only
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
        wall_velocity; only these are stored for the backward pass, which finds the neighbours again. A world that is
        not finite keeps its last state, its status says so, and it passes no gradient; other worlds are not affected.

    Raises:
        ValueError: a shape does not fit. TypeError: a dtype does not fit; UnitError: a kind.
    """
    expect_state(params, state)
    wall_velocity = units.si(wall_velocity, units.velocity, "wall_velocity")
    given = {"force": units.si(force, units.force, "force"), "wall_velocity": wall_velocity}
    loads = {k: None if f is None else expect(k, f, state.x.shape, state.x.dtype) for k, f in given.items()}
    return _step(bare(params), state, loads["force"], loads["wall_velocity"])[0]


@reverse_only
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


@recomputed(lambda result: result[1], _held)
def _step(
    _: None, params: Params, state: State, force: Array | None, wall_velocity: Array | None
) -> tuple[tuple[State, Array, Array], None]:
    """The next state, the worlds that stand still, and the force on the walls [N]."""
    params, clean, loads, bits = _screen(params, state, (force, wall_velocity))
    force, wall_velocity = loads
    dt = rows(params.timestep, 3)
    if wall_velocity is not None:
        clean = clean.replace(v=jnp.where(_fluid(state), clean.v, wall_velocity))
    near = _neighbors(clean, bits)
    slots = _in_slots(params, near, clean)
    if force is not None:
        (force,) = near.to_slots(force)
    if params.transport:
        slots = slots.replace(rho=_density(params, slots, near))
    boundary = _with_walls(params, slots, near)
    pairs, inside = rows(particle_mass(params, state), 3) * _pair_forces(params, boundary, near), _fluid(slots)
    push = pairs + params.gravity[:, None]
    if force is not None:
        push = push + force / rows(particle_mass(params, state), 3)
    carried = []
    if params.transport:
        background, stress = _transport(params, boundary, near)
        push, carried = push + stress, [jnp.where(inside, dt * background, 0)]
    v = slots.v + dt * jnp.where(inside, push, 0)
    rho = boundary.rho
    if not params.transport:
        rho = slots.rho + dt[..., 0] * _density_rate(params, boundary, v, near)
        rho = jnp.where(inside[..., 0], rho, boundary.rho)
    on_walls = jnp.where(inside, 0, rows(particle_mass(params, state), 3) * pairs)
    v, rho, p, on_walls, *carried = near.to_particles(v, rho, boundary.p, on_walls, *carried)
    if not params.transport:
        p = jnp.where(_fluid(state)[..., 0], pressure_at(params, rho), p)
    shift = carried[0] if carried else clean.shift
    x = wrap(params.periodic or (None,), clean.x + dt * (v + shift))
    fast = jnp.sqrt(jax.lax.stop_gradient(jnp.sum(v**2, -1).max(1)))
    above = ~idle(bits) & (params.timestep > jax.lax.stop_gradient(limit(params, fast)))
    bits = bits | flag(Status.CFL, above)
    most = near.number.max(axis=1)
    bits = bits | flag(Status.NEIGHBOR_OVERFLOW, most > state.max_neighbors)
    new = state.replace(time=state.time + params.timestep, x=x, v=v, rho=rho, p=p, shift=shift)
    after, stopped = freeze(state, new, bits, ~_possible(new))
    on_walls = choose(stopped, 0, on_walls)
    return (after.replace(most_neighbors=jnp.maximum(most, state.most_neighbors)), stopped, on_walls), None


def forces(params: Params, state: State) -> Array:
    """Force [N] on every particle from the others, shape (world, particle, dim); on walls, the force of the fluid.

    Forces are equal and opposite for each pair, so that the sum over all particles is zero up to rounding. All of
    ``params`` and ``state`` that is not integer gets gradients.
    """
    params = typed(bare(params), state)
    near = _neighbors(state, jnp.zeros(state.x.shape[0], jnp.uint32))
    boundary = _with_walls(params, _in_slots(params, near, state), near)
    return near.to_particles(rows(particle_mass(params, state), 3) ** 2 * _pair_forces(params, boundary, near))[0]


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
    moving = jnp.broadcast_to((bits == 0)[:, None], state.kind.shape).astype(jnp.int32)
    return build(state.grid, in_space(state.x), moving, state.max_neighbors)


def _in_slots(params: Params, near: Neighbors, state: State) -> State:
    """The particles in the order of slots, in which a step reads them: neighbours are then close in memory."""
    names = ("x", "v", "rho", "shift") if params.transport else ("x", "v", "rho")
    *found, kind = near.to_slots(*(getattr(state, n) for n in names), state.kind.astype(state.x.dtype))
    return state.replace(**dict(zip(names, found)), kind=kind.astype(jnp.int32))


def _particles(state: State, v: Array | None = None) -> sums.Particles:
    return sums.Particles(in_space(state.x), in_space(state.v if v is None else v), state.rho, state.p, state.kind)


def _with_walls(params: Params, state: State, near: Neighbors) -> State:
    """Pressure of the fluid, and what walls take from it: pressure, density, and the velocity beyond the wall."""
    p = pressure_at(params, state.rho)
    if not state.walls:
        return state.replace(p=p)
    fluid = state.kind == FLUID
    total = sums.extensions(near, _particles(state.replace(p=p)), in_space(params.gravity))
    wet = total[..., 0] > 1e-18 * sums.smoothing(state.grid)[1]  # a neighbour at 2 h weighs 1e-30 by rounding
    weight = jnp.where(wet, total[..., 0], 1)
    taken = total[..., 1] / weight
    p = jnp.where(fluid, p, taken if params.transport else jnp.maximum(taken, 0))
    beyond = 2 * state.v - total[..., 2 : 2 + state.v.shape[-1]] / weight[..., None]
    v = jnp.where(fluid[..., None] | ~wet[..., None], state.v, beyond)
    return state.replace(p=p, rho=jnp.where(fluid, state.rho, density_at(params, p)), v=v)


def _pair_forces(params: Params, state: State, near: Neighbors) -> Array:
    """Sum of pair forces for unit masses, shape (world, particle, dim)."""
    rough = params.artificial * params.h * params.sound_speed * params.density
    push = params.repulsion * params.density * params.sound_speed**2
    coefficients = jnp.broadcast_arrays(params.viscosity, rough, push, jnp.full_like(rough, params.spacing**-2))
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
    n = _edge(params, state, near, walls=False) * (params.h / stretched(dim, params.smoothing)) ** 0.5
    none = jnp.zeros_like(state.rho)
    total = sums.tensions(near, sums.Particles(in_space(state.x), n, none, none, state.kind))
    return rows(params.tension, 3) * total[..., :dim]


@functools.cache
def stretched(dim: int, smoothing: float) -> float:
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
    tangent = np.array([(pull * axes[1] ** 2)[f].sum() for f in fluid])
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
    broken = ~(_possible(state) & ((state.kind >= 0) & (state.kind <= SLIP_WALL)).all(1))
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
