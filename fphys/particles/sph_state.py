"""A fluid of SPH particles: its parameters, its state, and what is refused before anything runs."""

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .. import units, worlds
from ..tree import Tree, pytree, static
from ..worlds import Status
from .arguments import EMPTY, OVERFLOW, expect_fields, expect_kinds, expect_real, known
from .neighbors import Grid, Periods, ends_of, make_grid, wrap

Array = jax.Array

FLUID, WALL, SLIP_WALL = 0, 1, 2
"""What a particle is: ``material`` of :func:`init`."""

ACOUSTIC, VISCOUS, BODY, CAPILLARY = 0.4, 0.125, 0.25, 0.25
"""Courant numbers: a time step is at most 0.4 h / (c + |v|), 0.125 h^2 rho / mu and 0.25 (h / |g|)^(1/2)."""

_CAUSES = {
    Status.NONFINITE: (
        "the state was or became NaN, infinite or above 1e10, or a particle's density not positive: a smaller timestep "
        "may help"
    ),
    Status.BADPARAM: (
        "a parameter was NaN, infinite or above 1e10, or a time step, sound speed or density not positive: look at "
        "params"
    ),
    Status.BADCTRL: "force or wall_velocity was NaN, infinite or larger than 1e10: look at what computes them",
    Status.CFL: (
        "the timestep is above the Courant limit (see sph.limit): make it smaller, or sound_speed; or a source is to "
        "give more than a layer a call of flow.step"
    ),
    Status.UNCONVERGED: (
        "the solve of dfsph stopped at its limit of iterations: make the timestep smaller, or params.tolerance larger"
    ),
    Status.NEIGHBOR_OVERFLOW: (
        "a particle had {0} neighbours, max_neighbors is {1}: raise it in sph.init, unless particles are clumped that "
        "should not be"
    ),
    Status.THROUGH: (
        "fluid went into or through a wall: give walls at least two layers of particles a spacing apart, three if they "
        "are hit hard; or bodies crushed the fluid between them"
    ),
    Status.SLOT_OVERFLOW: OVERFLOW,
}


@pytree
class Params(Tree):
    """A fluid and how it is simulated.

    Numbers are scalars, or arrays with one row for all worlds or one for each, (1 | world,). All but the static ones
    may be traced, get gradients, and may be quantities (:mod:`fphys.units`). A sound speed of ten times the fastest
    flow keeps the density within one percent.
    """

    spacing: float = static()  # distance of particles at rest [m]; their mass is density * spacing^dim
    timestep: Any  # [s]
    sound_speed: Any  # c [m/s]
    density: Any = 1000.0  # rho_0, at rest [kg/m^3]
    gravity: Any = 0.0  # [m/s^2], (dim,), (1 | world, dim) or 0
    viscosity: Any = 0.0  # mu, dynamic [Pa s]
    artificial: Any = 0.0  # alpha of the artificial viscosity, often 0.02
    diffusion: Any = None  # delta of the density diffusion; None: 0.1, or 0 with tension, whose pressure it smears
    background: Any = 1.0  # background pressure of the transport velocity, as a multiple of rho_0 c^2
    tension: Any = None  # sigma, surface tension [N/m]; None skips its sums
    repulsion: Any = 0.0  # of fluid closer to a wall than a spacing, in rho_0 c^2; 1 keeps splashes from passing
    smoothing: float = static(default=1.5)  # h / spacing; neighbours are closer than 2 h
    exponent: float = static(default=7.0)  # gamma of the equation of state, 1 for a linear one
    transport: bool = static(default=False)  # transport velocity: for fluid without a free surface
    periodic: Periods | None = static(default=None)  # for each axis its two ends [m], or None if space is open
    central: bool = static(default=False)  # viscosity and tension along lines between particles: keeps angular momentum
    method: str = static(default="wcsph")  # "wcsph", weakly compressible, or "dfsph", incompressible
    tolerance: float = static(default=1e-4)  # of dfsph's solve: mean relative error of density

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
    p: Array  # Pressure [Pa], shape (world, particle); for walls, that of the last step.
    shift: Array  # How much faster than v a particle has moved [m/s], with the transport velocity; shaped like v.
    kind: Array  # FLUID, WALL, SLIP_WALL or EMPTY, int32, shape (world, particle); no gradient.
    time: Array  # Simulated time [s], shape (world,).
    status: Array  # Fault bits (Status), uint32, shape (world,); no gradient.
    most_neighbors: Array  # The most neighbours that any particle has had, int32, shape (world,); no gradient.
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
    """The state of particles with given positions and pressure.

    Args:
        positions: [m], shape (num_worlds, particle, dim), dim 2 or 3; its dtype is that of the simulation.
        velocities: [m/s], like positions; default zero.
        material: FLUID (default), WALL, SLIP_WALL, or EMPTY, a slot without a particle
            (:mod:`fphys.particles.flow`), int, shape (particle,) or (num_worlds, particle).
        pressure: [Pa], shape (num_worlds, particle); default zero. Start a column at rest with its own pressure.
        extent: range of the particles along each axis [m], (dim,), by default their present range; it is not a bound,
            but beyond it neighbours are found more slowly.
        max_neighbors: most neighbours of one particle that there is room for; by default half as many again as at rest.
            Further neighbours are left out and reported in the status.

    Raises:
        ValueError: a shape does not fit, a number is not positive, or the time step is above the Courant limit; or, if
            known on the host, a particle is somewhere or moves that is not finite. TypeError: a dtype does not fit;
            UnitError: a kind.
    """
    params, x = bare(params), _positions(units.si(positions, units.length, "positions"))
    velocities = units.si(velocities, units.velocity, "velocities")
    pressure = units.si(pressure, units.pressure, "pressure")
    worlds, particles, dim = x.shape
    _check_params(params, worlds, dim, x.dtype, velocities)
    like = {"velocities": velocities, "pressure": pressure}
    shapes = {"velocities": x.shape, "pressure": x.shape[:2]}
    given = {
        name: jnp.zeros(shapes[name], x.dtype) if value is None else expect(name, value, shapes[name], x.dtype)
        for name, value in like.items()
    }
    if isinstance(material, jax.core.Tracer):
        raise TypeError(
            "material is traced: give what particles are as NumPy's integers, for walls have code of their own"
        )
    material = np.zeros(particles, np.int32) if material is None else np.asarray(material)
    if material.dtype.kind not in "iu":
        raise TypeError(f"material is {material.dtype}: give whole numbers, sph.FLUID, WALL, SLIP_WALL or EMPTY")
    if material.shape not in ((particles,), (worlds, particles)) or not np.isin(material, (EMPTY, 0, 1, 2)).all():
        raise ValueError(
            f"material has shape {material.shape} and values {np.unique(material)[:5].tolist()}, needs (particle,) = "
            f"({particles},) or (num_worlds, particle) of FLUID (0), WALL (1), SLIP_WALL (2) or EMPTY (-1)"
        )
    if max_neighbors is not None and not (max_neighbors >= 1 and int(max_neighbors) == max_neighbors):
        raise ValueError(f"max_neighbors is {max_neighbors}: it must be a whole number, and positive")
    periodic = params.periodic or (None,) * dim
    there = np.broadcast_to(material != EMPTY, x.shape[:2])[..., None]
    _refuse_nonfinite({"positions": x, **given}, there)
    x, given["velocities"] = jnp.where(there | (abs(x) < 1e10), x, 0), jnp.where(there, given["velocities"], 0)
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
        walls=bool((material > 0).any()),
        max_neighbors=_room(params, dim) if max_neighbors is None else int(max_neighbors),
    )


def pressure_at(params: Params, rho: Array) -> Array:
    """Pressure [Pa] of a density [kg/m^3], (world, particle), with gradients: the equation of state of :mod:`.sph`."""
    rho0, stiffness = _stiffness(params, rho)
    return stiffness * ((rho / rho0) ** params.exponent - 1)


def density_at(params: Params, p: Array) -> Array:
    """Density [kg/m^3] of a pressure [Pa], (world, particle), with gradients; the inverse of :func:`pressure_at`."""
    rho0, stiffness = _stiffness(params, p)
    return rho0 * jnp.maximum(p / stiffness + 1, 1e-6) ** (1 / params.exponent)


def limit(params: Params, speed: Any = 0.0) -> Array:
    """The longest time step [s], shape (1 | world,), for a fastest particle of ``speed`` [m/s]; with dfsph c is zero.

    The least of 0.4 h / (c + |v|), 0.125 h^2 rho_0 / mu, 0.25 (h / |g|)^(1/2) and, with surface tension, 0.25
    (rho_0 h^3 / (2 pi sigma))^(1/2) (Adami, Hu and Adams 2010). The artificial viscosity counts as alpha c h rho_0 / 4.
    """
    params, speed = bare(params), jnp.abs(units.si(speed, units.velocity, "speed"))
    h, c, rho0 = params.h, jnp.atleast_1d(params.sound_speed), jnp.atleast_1d(params.density)
    mu = jnp.atleast_1d(params.viscosity) + 0.25 * jnp.atleast_1d(params.artificial) * c * h * rho0
    gravity = jnp.atleast_2d(jnp.asarray(params.gravity))
    g = jnp.sqrt(jnp.sum(gravity**2, axis=-1))
    viscous = VISCOUS * h**2 * rho0 / jnp.maximum(mu, 1e-30)
    fastest = c + speed if params.method == "wcsph" else jnp.maximum(speed, 1e-30 * c)
    longest = jnp.minimum(jnp.minimum(ACOUSTIC * h / fastest, viscous), BODY * jnp.sqrt(h / jnp.maximum(g, 1e-30)))
    if params.tension is None:
        return longest
    sigma = jnp.maximum(jnp.atleast_1d(params.tension), 1e-30)
    return jnp.minimum(longest, CAPILLARY * jnp.sqrt(rho0 * h**3 / (2 * np.pi * sigma)))


def check(params: Params, state: State) -> None:
    """Raise StateError on the host if a world is faulty: which, why, and what to change."""

    def cause(world: int, bit: Status) -> str:
        return _CAUSES.get(bit, "").format(int(np.asarray(state.most_neighbors)[world]), state.max_neighbors)

    expect_kinds("sph.check", params, state, Params, State)
    worlds.report(state.status, cause, "sph.reset")


def reset(params: Params, state: State, mask: Array, start: State) -> State:
    """Reset the worlds of ``mask`` to those of ``start``, and clear their fault bits.

    Args:
        mask: the worlds to reset, bool, shape (num_worlds,).
        start: a state with as many worlds and particles, positions in [m], for example from :func:`init`.

    Gradients flow to ``start`` in the worlds that are reset, and to ``state`` in the others.

    Raises:
        ValueError: the mask or ``start`` has another shape. TypeError: not parameters and state of this solver.
    """
    expect_kinds("sph.reset", params, state, Params, State)
    return worlds.reset(state, mask, start)


def rows(value: Array, ndim: int) -> Array:
    """One number per world, shaped to broadcast with arrays of ``ndim`` axes."""
    return value.reshape(-1, *[1] * (ndim - 1))


def _room(params: Params, dim: int) -> int:
    """Neighbours at rest, and half as many again for crowding, rounded up to a multiple of eight."""
    reach = 2 * params.smoothing
    at_rest = np.pi * reach**2 if dim == 2 else 4 / 3 * np.pi * reach**3
    return 8 * int(np.ceil((1.5 * at_rest + 8) / 8))


def filling(params: Params, dim: int) -> float:
    """Sum of the kernel over a lattice at rest, times a particle's volume: close to one."""
    return float(_lattice(params, dim).sum())


def lacking(params: Params, dim: int) -> float:
    """The share of that sum which a particle in the outermost row below a flat surface does not have."""
    by_row = _lattice(params, dim).reshape(2 * int(2 * params.smoothing) + 1, -1).sum(1)
    return float(by_row[: len(by_row) // 2].sum() / by_row.sum())


def _lattice(params: Params, dim: int) -> np.ndarray:
    """The kernel at the points of a lattice around a particle, times a particle's volume: an axis a dimension."""
    reach = int(2 * params.smoothing)
    axes = np.meshgrid(*[np.arange(-reach, reach + 1) / params.smoothing] * dim, indexing="ij")
    q = np.minimum(np.sqrt(sum(a**2 for a in axes)), 2)
    scale = (7 / (4 * np.pi) if dim == 2 else 21 / (16 * np.pi)) / params.smoothing**dim
    return scale * (1 - q / 2) ** 4 * (2 * q + 1)


def particle_mass(params: Params, state: State) -> Array:
    return params.density * params.spacing ** state.x.shape[-1]


def _stiffness(params: Params, like: Array) -> tuple[Array, Array]:
    """rho_0 and rho_0 c^2 / gamma as columns."""
    params = bare(params)
    rho0, c = (jnp.asarray(v, like.dtype).reshape(-1, 1) for v in (params.density, params.sound_speed))
    return rho0, rho0 * c**2 / params.exponent


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def bare(params: Params) -> Params:
    """Params without quantities."""
    if not isinstance(params, Params):
        raise TypeError(f"params is of type {type(params).__name__}, must be a sph.Params")
    kinds = {"timestep": units.duration, "sound_speed": units.velocity, "density": units.density}
    params = units.bare(params, kinds | {"gravity": units.acceleration, "viscosity": units.viscosity}, "params")
    if params.method not in ("wcsph", "dfsph"):
        raise ValueError(f"params.method is {params.method!r}: it is 'wcsph' or 'dfsph'")
    if params.method == "dfsph":
        repulsion = known(params.repulsion)
        if params.transport or (repulsion is not None and repulsion[0].any()):
            raise ValueError(
                "params.method 'dfsph' takes neither transport nor repulsion: its pressure keeps particles apart, and "
                "walls too"
            )
        if not params.tolerance > 0:
            raise ValueError(f"params.tolerance is {params.tolerance}: it must be positive")
    if (
        not isinstance(params.gravity, tuple | list)
        and np.ndim(params.gravity) == 0
        and (gravity := known(params.gravity)) is not None
        and gravity[0] != 0
    ):
        raise ValueError(f"params.gravity is {gravity[0]}, and has a direction: give a vector, (0, -9.81) in a plane")
    return params


def typed(params: Params, state: State) -> Params:
    """Parameters as arrays of the state's precision with a row for all worlds or one for each."""
    real, dim = state.x.dtype, state.x.shape[-1]
    numbers = [name for name in _NUMBERS if getattr(params, name) is not None]
    leaves = {name: jnp.asarray(getattr(params, name), real) for name in numbers}
    rows = {name: leaf.reshape(-1) for name, leaf in leaves.items()}
    gravity = jnp.asarray(params.gravity, real)
    gravity = jnp.broadcast_to(gravity, (*gravity.shape[:-1], dim)) if gravity.ndim < 2 else gravity
    return params.replace(**rows, gravity=gravity.reshape(-1, dim))


POSITIVE = ("timestep", "sound_speed", "density")
"""The parameters that must be positive."""

_NUMBERS = (*POSITIVE, "viscosity", "artificial", "diffusion", "background", "tension", "repulsion")


def _refuse_nonfinite(given: dict[str, Array], there: np.ndarray) -> None:
    """Refuse particles of which a value is not finite, if that is known on the host; ValueError."""
    for name, value in given.items():
        if (seen := known(value)) is None:
            continue
        values = seen[0].reshape(*there.shape[:2], -1)
        if (wrong := there[..., 0] & ~np.isfinite(values).all(-1)).any():
            world, p = np.argwhere(wrong)[0]
            raise ValueError(f"{name} of particle {p} in world {world} are {seen[0][world, p]}: give finite numbers")


def _positions(positions: Any) -> Array:
    x = jnp.asarray(positions)
    if x.ndim != 3 or x.shape[-1] not in (2, 3) or 0 in x.shape:
        raise ValueError(
            f"positions has shape {x.shape}, needs (num_worlds, particle, dim) with dim 2 or 3, none empty"
        )
    expect_real("positions", x)
    return x


def expect(name: str, value: Any, shape: tuple[int, ...], real: Any) -> Array:
    value = jnp.asarray(value) if hasattr(value, "dtype") else jnp.asarray(value, real)
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(value.shape)}, needs {shape}: axis 0 is the world axis")
    if value.dtype != real:
        raise TypeError(f"{name} is {value.dtype}, the particles are {real}: cast it, for nothing is cast silently")
    return value


def expect_state(params: Any, state: Any) -> None:
    expect_kinds("sph.step", params, state, Params, State)
    dim = state.x.shape[-1]
    tails = {"v": (dim,), "rho": (), "p": (), "shift": (dim,), "kind": ()}
    expect_fields(state, tails, ("kind",), "sph.init")
    reach, ends = 2 * params.h, ends_of(params.periodic or (None,) * dim)
    if not np.isclose(state.grid.radius, reach, rtol=1e-6) or (state.grid.lower, state.grid.period) != ends:
        raise ValueError(
            f"params.spacing, smoothing or periodic are not those that the state was made with (neighbours within "
            f"{state.grid.radius:g} m, now {reach:g} m): make it anew with sph.init"
        )


def _check_params(params: Params, worlds: int, dim: int, real: Any, velocities: Any) -> None:
    if not params.exponent > 0:
        raise ValueError(
            f"params.exponent is {params.exponent}: must be positive, 7 for water, 1 for a linear equation"
        )
    if not (params.spacing > 0 and params.smoothing >= 1):
        raise ValueError(f"spacing is {params.spacing}, smoothing {params.smoothing}: must be > 0, and at least 1")
    if params.periodic is not None and len(params.periodic) != dim:
        raise ValueError(
            f"periodic has {len(params.periodic)} axes, positions have {dim}: give two ends or None for each"
        )
    for name in (*_NUMBERS, "gravity"):
        value = 0.0 if getattr(params, name) is None else getattr(params, name)
        shape, last = np.shape(value), (dim,) if name == "gravity" else ()
        if shape not in ((), last, (1, *last), (worlds, *last)):
            raise ValueError(f"params.{name} has shape {shape}, needs {last} or (num_worlds, ...) = {(worlds, *last)}")
        if isinstance(value, jax.core.Tracer):
            continue
        low = np.asarray(value) <= 0 if name in POSITIVE else np.asarray(value) < 0
        if not np.isfinite(value).all() or (name != "gravity" and low.any()):
            which = "" if name == "gravity" else " and positive" if name in POSITIVE else " and not negative"
            raise ValueError(f"params.{name} is {value}: must be finite{which}")
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (*jax.tree.leaves(params), velocities)):
        return
    speed = 0.0 if velocities is None else float(np.sqrt((np.asarray(velocities) ** 2).sum(-1)).max())
    with jax.ensure_compile_time_eval():
        longest, dt = np.asarray(limit(params, speed)), np.asarray(params.timestep)
    if (dt > longest * (1 + 1e-6)).any():
        raise ValueError(
            f"params.timestep is {dt.max():g} s, above the Courant limit {longest.min():g} s of particles at "
            f"{speed:g} m/s (see sph.limit): make it smaller, the spacing larger, or sound_speed smaller"
        )
