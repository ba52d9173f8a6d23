"""Smoothed particle hydrodynamics of weakly compressible fluids.

    d rho_i / dt = sum_j m rho_i / rho_j (v_i - v_j) . grad W + diffusion
    d v_i / dt = -sum_j m (p_i + p_j) / (rho_i rho_j) grad W + viscosity + g
    p = rho_0 c^2 / gamma ((rho / rho_0)^gamma - 1)

with Wendland's C2 kernel, delta-SPH's density diffusion and artificial viscosity (Marrone 2011, the difference at rest
left out as in Fourtakas 2019), Morris's physical viscosity (1997), and walls of dummy particles (Adami 2012). With
``transport`` density is a sum, rho_i = sum_j m W, and particles move along a transport velocity (Adami, Hu and Adams
2013): for fluid without a free surface.
"""

import enum
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .. import units
from ..bridge import reverse_only
from ..errors import StateError
from ..tree import Tree, pytree, static
from . import sph_sums as sums
from .neighbors import Grid, Neighbors, Periods, build, in_space, make_grid, wrap

Array = jax.Array

FLUID, WALL, SLIP_WALL = 0, 1, 2
"""What a particle is: ``material`` of :func:`init`."""

ACOUSTIC, VISCOUS, BODY = 0.4, 0.125, 0.25
"""Courant numbers: a time step is at most 0.4 h / (c + |v|), 0.125 h^2 rho / mu and 0.25 (h / |g|)^(1/2)."""

HUGE = 1e10
"""A state larger than this is a fault."""

_FIELDS = ("x", "v", "rho", "p", "shift")
_SHOWN = 5  # worlds that an error names


class Status(enum.IntFlag):
    """Fault bits of ``state.status``, sticky."""

    NONFINITE = 1  # the state or a parameter became NaN, infinite or larger than 1e10: the world stands still
    BADFORCE = 2  # a force or a wall's velocity is NaN, infinite or larger than 1e10: the world skips the step
    CFL = 4  # the time step is above the Courant limit
    NEIGHBOR_OVERFLOW = 8  # a particle had more neighbours than max_neighbors


_CAUSES = {
    Status.NONFINITE: "the state or a parameter is NaN, infinite or above 1e10: a smaller timestep may help",
    Status.BADFORCE: "force or wall_velocity was NaN, infinite or larger than 1e10: look at what computes them",
    Status.CFL: "the timestep is above the Courant limit (see sph.limit): make it smaller, or sound_speed",
    Status.NEIGHBOR_OVERFLOW: (
        "a particle had {0} neighbours, max_neighbors is {1}: raise it in sph.init, unless particles are clumped that "
        "should not be"
    ),
}


@pytree
class Params(Tree):
    """A fluid and how it is simulated.

    Numbers are scalars, or arrays with one row for all worlds or one for each, (1 | world,); all but the static ones
    may be traced and get gradients, and may be quantities (:mod:`fphys.units`). A sound speed of ten times the fastest
    flow keeps the density within one percent.
    """

    spacing: float = static()  # distance of particles at rest [m]; their mass is density * spacing^dim
    timestep: Any  # [s]
    sound_speed: Any  # c [m/s]
    density: Any = 1000.0  # rho_0, at rest [kg/m^3]
    gravity: Any = 0.0  # [m/s^2], (dim,), (1 | world, dim) or 0
    viscosity: Any = 0.0  # mu, dynamic [Pa s]
    artificial: Any = 0.0  # alpha of the artificial viscosity, often 0.02
    diffusion: Any = 0.1  # delta of the density diffusion
    background: Any = 1.0  # background pressure of the transport velocity, as a multiple of rho_0 c^2
    smoothing: float = static(default=1.5)  # h / spacing; neighbours are nearer than 2 h
    exponent: float = static(default=7.0)  # gamma of the equation of state, 1 for a linear one
    transport: bool = static(default=False)  # transport velocity: for fluid without a free surface
    periodic: Periods | None = static(default=None)  # for each axis its two ends [m], or None where space is open

    def __post_init__(self) -> None:
        object.__setattr__(self, "spacing", units.si(self.spacing, units.length, "params.spacing"))

    @property
    def h(self) -> float:
        """Smoothing length [m]."""
        return self.smoothing * self.spacing


@pytree
class State(Tree):
    """Particles of many worlds. Make one with :func:`init`."""

    x: Array  # Position [m], shape (world, particle, dim).
    v: Array  # Velocity [m/s], shape (world, particle, dim); walls move along theirs.
    rho: Array  # Density [kg/m^3], shape (world, particle).
    p: Array  # Pressure [Pa], shape (world, particle); of walls, that of the last step.
    shift: Array  # By how much faster than v a particle has moved [m/s], of the transport velocity, like v.
    kind: Array  # FLUID, WALL or SLIP_WALL, int32, shape (world, particle); no gradient.
    time: Array  # Simulated time [s], shape (world,).
    status: Array  # Fault bits (Status), uint32, shape (world,); no gradient.
    most_neighbors: Array  # The most neighbours that a particle has had, int32, shape (world,); no gradient.
    grid: Grid = static()
    walls: bool = static(default=False)  # whether there are any
    max_neighbors: int = static(default=0)


def init(
    params: Params,
    positions: Any,
    velocities: Any = None,
    material: Any = None,
    pressure: Any = None,
    extent: Any = None,
    max_neighbors: int | None = None,
) -> State:
    """The state of particles at a pressure.

    Args:
        positions: [m], shape (num_worlds, particle, dim), dim 2 or 3; its dtype is that of the simulation.
        velocities: [m/s], like positions; default zero.
        material: FLUID (default), WALL or SLIP_WALL, int, shape (particle,) or (num_worlds, particle).
        pressure: [Pa], shape (num_worlds, particle); default zero. A column at rest begins best at its own.
        extent: what particles will span along each axis [m], (dim,), by default what they span now; it is no bound,
            but beyond it neighbours are found less quickly.
        max_neighbors: of one particle, for which there is room; by default half as many again as at rest. What is
            beyond is left out and reported in the status.

    Raises:
        ValueError: a shape does not fit, a number is not positive, or the time step is above the Courant limit.
        TypeError: a dtype does not fit, UnitError a kind.
    """
    params, x = _bare(params), _positions(units.si(positions, units.length, "positions"))
    velocities = units.si(velocities, units.velocity, "velocities")
    pressure = units.si(pressure, units.pressure, "pressure")
    worlds, particles, dim = x.shape
    _check_params(params, worlds, dim, x.dtype, velocities)
    like = {"velocities": velocities, "pressure": pressure}
    shapes = {"velocities": x.shape, "pressure": x.shape[:2]}
    given = {
        name: jnp.zeros(shapes[name], x.dtype) if value is None else _expect(name, value, shapes[name], x.dtype)
        for name, value in like.items()
    }
    material = np.zeros(particles, np.int32) if material is None else np.asarray(material)
    if material.shape not in ((particles,), (worlds, particles)) or not np.isin(material, (0, 1, 2)).all():
        raise ValueError(
            f"material has shape {material.shape} and values {np.unique(material)[:5].tolist()}, needs (particle,) = "
            f"({particles},) or (num_worlds, particle) of FLUID (0), WALL (1) or SLIP_WALL (2)"
        )
    periodic = params.periodic or (None,) * dim
    if extent is None:
        extent = [1.0] * dim if isinstance(x, jax.core.Tracer) else np.ptp(np.nan_to_num(np.asarray(x)), axis=1).max(0)
    return State(
        x=wrap(periodic, x),
        v=given["velocities"],
        rho=density_at(params, given["pressure"]),
        p=given["pressure"],
        shift=jnp.zeros_like(x),
        kind=jnp.broadcast_to(jnp.asarray(material, jnp.int32), x.shape[:2]),
        time=jnp.zeros(worlds, x.dtype),
        status=jnp.zeros(worlds, jnp.uint32),
        most_neighbors=jnp.zeros(worlds, jnp.int32),
        grid=make_grid(2 * params.h, periodic, [float(e) for e in extent], particles),
        walls=bool(material.any()),
        max_neighbors=_room(params, dim) if max_neighbors is None else int(max_neighbors),
    )


def pressure_at(params: Params, rho: Array) -> Array:
    """Pressure [Pa] of a density [kg/m^3], (world, particle), with gradients: see the equation of state above."""
    rho0, stiffness = _stiffness(params, rho)
    return stiffness * ((rho / rho0) ** params.exponent - 1)


def density_at(params: Params, p: Array) -> Array:
    """Density [kg/m^3] of a pressure [Pa], (world, particle), with gradients; the inverse of :func:`pressure_at`."""
    rho0, stiffness = _stiffness(params, p)
    return rho0 * jnp.maximum(p / stiffness + 1, 1e-6) ** (1 / params.exponent)


def limit(params: Params, speed: Any = 0.0) -> Array:
    """The longest time step [s], shape (1 | world,), for a fastest particle of ``speed`` [m/s].

    The least of 0.4 h / (c + |v|), 0.125 h^2 rho_0 / mu and 0.25 (h / |g|)^(1/2). The artificial viscosity counts as
    alpha c h rho_0 / 4.
    """
    params, speed = _bare(params), units.si(speed, units.velocity, "speed")
    h, c, rho0 = params.h, jnp.atleast_1d(params.sound_speed), jnp.atleast_1d(params.density)
    mu = jnp.atleast_1d(params.viscosity) + 0.25 * jnp.atleast_1d(params.artificial) * c * h * rho0
    gravity = jnp.atleast_2d(params.gravity)
    g = jnp.sqrt(jnp.sum(gravity**2, axis=-1))
    viscous = VISCOUS * h**2 * rho0 / jnp.maximum(mu, 1e-30)
    return jnp.minimum(jnp.minimum(ACOUSTIC * h / (c + speed), viscous), BODY * jnp.sqrt(h / jnp.maximum(g, 1e-30)))


@reverse_only
def step(params: Params, state: State, force: Any = None, wall_velocity: Any = None) -> State:
    """Advance every world by one time step (semi-implicit Euler: velocity, then density and position by it).

    Args:
        params: the fluid.
        state: the particles.
        force: [N] on every particle, shape (world, particle, dim); on walls it has no effect.
        wall_velocity: [m/s] of wall particles, shape (world, particle, dim); of the fluid's it is not read. By default
            walls keep their velocity.

    Returns:
        The next state. Gradients flow to all numbers of params, positions, velocities, densities, force and
        wall_velocity; only these are kept for the backward pass, which finds the neighbours again. A world that is
        not finite keeps its last state, its status says so, it passes no gradient, and others do not notice.

    Raises:
        ValueError: a shape does not fit. TypeError: a dtype does not, UnitError a kind.
    """
    _expect_state(params, state)
    wall_velocity = units.si(wall_velocity, units.velocity, "wall_velocity")
    given = {"force": units.si(force, units.force, "force"), "wall_velocity": wall_velocity}
    loads = {k: None if f is None else _expect(k, f, state.x.shape, state.x.dtype) for k, f in given.items()}
    return jax.checkpoint(_step)(_bare(params), state, loads["force"], loads["wall_velocity"])


def _step(params: Params, state: State, force: Array | None, wall_velocity: Array | None) -> State:
    params, clean, loads, bits = _screen(params, state, (force, wall_velocity))
    force, wall_velocity = loads
    fluid, dt = _fluid(state), _rows(params.timestep, 3)
    if wall_velocity is not None:
        clean = clean.replace(v=jnp.where(fluid, clean.v, wall_velocity))
    near = _neighbors(clean, bits)
    if params.transport:
        clean = clean.replace(rho=_density(params, clean, near))
    boundary = _with_walls(params, clean, near)
    push = _acceleration(params, boundary, near, force)
    shift = clean.shift
    if params.transport:
        background, stress = _transport(params, boundary, near)
        push, shift = push + stress, jnp.where(fluid, dt * background, 0)
    v = clean.v + dt * jnp.where(fluid, push, 0)
    rho, p = boundary.rho, boundary.p
    if not params.transport:
        rho = clean.rho + dt[..., 0] * _density_rate(params, boundary, v, near)
        rho = jnp.where(fluid[..., 0], rho, boundary.rho)
        p = jnp.where(fluid[..., 0], pressure_at(params, rho), boundary.p)
    x = wrap(params.periodic or (None,), clean.x + dt * (v + shift))
    fast = jnp.sqrt(jax.lax.stop_gradient(jnp.sum(v**2, -1).max(1)))
    above = params.timestep > jax.lax.stop_gradient(limit(params, fast))
    bits = bits | jnp.where(above, jnp.uint32(Status.CFL), jnp.uint32(0))
    most = near.number.max(axis=1)
    bits = bits | jnp.where(most > state.max_neighbors, jnp.uint32(Status.NEIGHBOR_OVERFLOW), jnp.uint32(0))
    most = jnp.maximum(most, state.most_neighbors)
    new = state.replace(time=state.time + params.timestep, x=x, v=v, rho=rho, p=p, shift=shift, most_neighbors=most)
    return _freeze(state, new, bits)


def forces(params: Params, state: State) -> Array:
    """Force [N] on every particle by the others, shape (world, particle, dim); on walls, that of the fluid.

    Equal and opposite for each pair, so that the sum over all particles is zero to rounding. All of ``params`` and
    ``state`` that is not integer gets gradients.
    """
    params = _typed(_bare(params), state)
    near = _neighbors(state, jnp.zeros(state.x.shape[0], jnp.uint32))
    boundary = _with_walls(params, state, near)
    return _rows(_mass(params, state), 3) ** 2 * _pair_forces(params, boundary, near)


def check(state: State) -> None:
    """Raise StateError on the host if a world is faulty: which, why, and what to change."""
    if isinstance(state.status, jax.core.Tracer):
        raise TypeError("check reads the state on the host: call it on what the jitted function returns")
    status = np.asarray(state.status)
    faulty = np.flatnonzero(status)
    if not len(faulty):
        return
    lines = [f"{len(faulty)} of {len(status)} worlds are faulty:"]
    for world in faulty[:_SHOWN]:
        found = [bit for bit in _CAUSES if bit in Status(int(status[world]))]
        most = int(state.most_neighbors[world]), state.max_neighbors
        lines += [f"  world {world}: {bit.name}: {_CAUSES[bit].format(*most)}" for bit in found]
    raise StateError("\n".join(lines))


# ---------------------------------------------------------------------------------------------------------------------
# Parts of a step


def _neighbors(state: State, bits: Array) -> Neighbors:
    """Who is near whom; in a world that stands still, nobody."""
    moving = jnp.broadcast_to((bits == 0)[:, None], state.kind.shape).astype(jnp.int32)
    return build(state.grid, in_space(state.x), moving, state.max_neighbors)


def _particles(state: State, v: Array | None = None) -> sums.Particles:
    return sums.Particles(in_space(state.x), in_space(state.v if v is None else v), state.rho, state.p, state.kind)


def _with_walls(params: Params, state: State, near: Neighbors) -> State:
    """Pressure of the fluid, and what walls take over of it: pressure, density, and the velocity beyond the wall."""
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
    """Sum of forces for unit masses, shape (world, particle, dim)."""
    rough = params.artificial * params.h * params.sound_speed * params.density
    coefficients = jnp.stack(jnp.broadcast_arrays(params.viscosity, rough), -1)
    return sums.forces(near, _particles(state), coefficients)[..., : state.x.shape[-1]]


def _acceleration(params: Params, state: State, near: Neighbors, force: Array | None) -> Array:
    mass = _rows(_mass(params, state), 3)
    a = mass * _pair_forces(params, state, near) + params.gravity[:, None]
    return a if force is None else a + force / mass


def _density_rate(params: Params, state: State, v: Array, near: Neighbors) -> Array:
    diffusion = 2 * params.diffusion * params.h * params.sound_speed
    stratification = _rows(params.density / params.sound_speed**2, 2) * in_space(params.gravity)
    return _rows(_mass(params, state), 2) * sums.rates(near, _particles(state, v), diffusion, stratification)


def _moving(state: State) -> sums.Moving:
    return sums.Moving(in_space(state.x), in_space(state.v), state.rho, in_space(state.shift), state.kind)


def _density(params: Params, state: State, near: Neighbors) -> Array:
    """Sum of the masses around [kg/m^3], (world, particle); in a world that stands still, as it was."""
    total = _rows(_mass(params, state), 2) * sums.densities(near, _moving(state))
    return jnp.where(near.number.max(axis=1, keepdims=True) > 0, total, state.rho)


def _transport(params: Params, state: State, near: Neighbors) -> tuple[Array, Array]:
    """Accelerations by the background pressure and by the stress of what particles carry across."""
    mass, dim = _rows(_mass(params, state), 3), state.x.shape[-1]
    total = mass * sums.transports(near, _moving(state))
    pressure = _rows(params.background * params.density * params.sound_speed**2, 3)
    return -pressure * total[..., :dim], total[..., 3 : 3 + dim]


def _screen(params: Params, state: State, loads: tuple[Array | None, ...]) -> tuple[Params, State, Any, Array]:
    """Parameters as rows, faulty worlds out of the computation, and the fault bits, uint32, (world,)."""
    params = _typed(params, state)
    worlds = state.x.shape[0]
    broken = ~(
        _sound([state.x, state.v, state.rho, state.shift])
        & jnp.broadcast_to(_sound(jax.tree.leaves(params), worlds), (worlds,))
    )
    bad = ~_sound([f for f in loads if f is not None], worlds)
    bits = jnp.where(broken, jnp.uint32(Status.NONFINITE), jnp.uint32(0))
    bits |= jnp.where(bad, jnp.uint32(Status.BADFORCE), jnp.uint32(0))
    bits |= state.status & jnp.uint32(Status.NONFINITE)
    out = bits != 0
    rest = jnp.broadcast_to(params.density[:, None], state.rho.shape)
    clean = {name: _where(out, 0, getattr(state, name)) for name in ("x", "v", "shift")}
    state = state.replace(**clean, rho=_where(out, jax.lax.stop_gradient(rest), state.rho))
    return params, state, tuple(None if f is None else _where(out, 0, f) for f in loads), bits


def _sound(values: list[Array], worlds: int = 1) -> Array:
    """Worlds whose values are all finite and not huge, shape (1 | world,)."""
    ok = jnp.ones(worlds, bool)
    for value in values:
        ok = ok & (jnp.abs(value) <= HUGE).reshape(value.shape[0], -1).all(1)  # false for NaN
    return ok


def _freeze(old: State, new: State, bits: Array) -> State:
    """Keep the last state of worlds that are faulty, or became it."""
    fine = _sound([new.x, new.v, new.rho, new.shift])
    bits = bits | jnp.where(fine, jnp.uint32(0), jnp.uint32(Status.NONFINITE))
    held = (bits & jnp.uint32(Status.NONFINITE | Status.BADFORCE)) != 0
    kept = {k: _where(held, jax.lax.stop_gradient(getattr(old, k)), getattr(new, k)) for k in _FIELDS}
    return new.replace(**kept, time=jnp.where(held, old.time, new.time), status=old.status | bits)


def _where(mask: Array, a: Any, b: Array) -> Array:
    """``a`` in the worlds where the mask holds."""
    return jnp.where(mask.reshape(-1, *[1] * (b.ndim - 1)), a, b)


def _fluid(state: State) -> Array:
    return (state.kind == FLUID)[..., None]


def _rows(value: Array, ndim: int) -> Array:
    """A number of each world, beside arrays of ``ndim`` axes."""
    return value.reshape(-1, *[1] * (ndim - 1))


def _room(params: Params, dim: int) -> int:
    """Neighbours at rest, and half as many again for the crowded, to a whole eight."""
    reach = 2 * params.smoothing
    at_rest = np.pi * reach**2 if dim == 2 else 4 / 3 * np.pi * reach**3
    return 8 * int(np.ceil((1.5 * at_rest + 8) / 8))


def _mass(params: Params, state: State) -> Array:
    return params.density * params.spacing ** state.x.shape[-1]


def _stiffness(params: Params, like: Array) -> tuple[Array, Array]:
    """rho_0 and rho_0 c^2 / gamma as columns."""
    params = _bare(params)
    rho0, c = (jnp.asarray(v, like.dtype).reshape(-1, 1) for v in (params.density, params.sound_speed))
    return rho0, rho0 * c**2 / params.exponent


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def _bare(params: Params) -> Params:
    """Params without quantities."""
    if not isinstance(params, Params):
        raise TypeError(f"params is of type {type(params).__name__}, must be a sph.Params")
    kinds = {"timestep": units.duration, "sound_speed": units.velocity, "density": units.density}
    return units.bare(params, kinds | {"gravity": units.acceleration, "viscosity": units.viscosity}, "params")


def _typed(params: Params, state: State) -> Params:
    """Parameters as arrays of the state's precision with a row for all worlds or one for each."""
    real, dim = state.x.dtype, state.x.shape[-1]
    leaves = {name: jnp.asarray(getattr(params, name), real) for name in _NUMBERS}
    rows = {name: leaf.reshape(-1) for name, leaf in leaves.items()}
    gravity = jnp.asarray(params.gravity, real)
    gravity = jnp.broadcast_to(gravity, (*gravity.shape[:-1], dim)) if gravity.ndim < 2 else gravity
    return params.replace(**rows, gravity=gravity.reshape(-1, dim))


_NUMBERS = ("timestep", "sound_speed", "density", "viscosity", "artificial", "diffusion", "background")
_POSITIVE = ("timestep", "sound_speed", "density")


def _positions(positions: Any) -> Array:
    x = jnp.asarray(positions)
    if x.ndim != 3 or x.shape[-1] not in (2, 3) or 0 in x.shape:
        raise ValueError(f"positions has shape {x.shape}, needs (num_worlds, particle, dim) with dim 2 or 3")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"positions is {x.dtype}, must be float32 or float64")
    return x


def _expect(name: str, value: Any, shape: tuple[int, ...], real: Any) -> Array:
    value = jnp.asarray(value, real) if not isinstance(value, jax.Array) else value
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(value.shape)}, needs {shape}: axis 0 is the world axis")
    if value.dtype != real:
        raise TypeError(f"{name} is {value.dtype}, the particles are {real}: cast it, for nothing is cast silently")
    return value


def _expect_state(params: Any, state: Any) -> None:
    if not isinstance(params, Params) or not isinstance(state, State):
        raise TypeError(
            f"step takes (sph.Params, sph.State, ...), got ({type(params).__name__}, {type(state).__name__})"
        )


def _check_params(params: Params, worlds: int, dim: int, real: Any, velocities: Any) -> None:
    if not (params.spacing > 0 and params.smoothing >= 1):
        raise ValueError(f"spacing is {params.spacing}, smoothing {params.smoothing}: must be > 0, and at least 1")
    if params.periodic is not None and len(params.periodic) != dim:
        raise ValueError(
            f"periodic has {len(params.periodic)} axes, positions have {dim}: give two ends or None for each"
        )
    for name in (*_NUMBERS, "gravity"):
        value = getattr(params, name)
        shape, last = np.shape(value), (dim,) if name == "gravity" else ()
        if shape not in ((), last, (1, *last), (worlds, *last)):
            raise ValueError(f"params.{name} has shape {shape}, needs {last} or (num_worlds, ...) = {(worlds, *last)}")
        if isinstance(value, jax.core.Tracer):
            continue
        least = 0 if name in _POSITIVE else -np.inf if name == "gravity" else -1e-300
        if not (np.isfinite(value).all() and (np.asarray(value) > least).all()):
            raise ValueError(f"params.{name} is {value}: must be finite{' and positive' if least == 0 else ''}")
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (*jax.tree.leaves(params), velocities)):
        return
    speed = 0.0 if velocities is None else float(np.sqrt((np.asarray(velocities) ** 2).sum(-1)).max())
    longest, dt = np.asarray(limit(params, speed)), np.asarray(params.timestep)
    if (dt > longest * (1 + 1e-6)).any():
        raise ValueError(
            f"params.timestep is {dt.max():g} s, above the Courant limit {longest.min():g} s (see sph.limit): make it "
            "smaller, the spacing larger, or sound_speed smaller"
        )
