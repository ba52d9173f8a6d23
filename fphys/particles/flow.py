"""Sources and drains: particles that are born and removed, in a state of fixed size.

A state has slots. One whose material is :data:`EMPTY` (``state.material`` in MPM, ``state.kind`` in SPH) has no
particle: it touches nothing, stands still, and its other numbers mean nothing. ``init`` takes EMPTY among the
materials, at any place. :func:`step` fills empty slots from sources and empties those in drains. Call it before each
step of the solver:

    state, tally = flow.step(params, state, tally, sources, drains)
    state = mpm.step(params, state)

A source releases a layer of particles whenever its flow is a spacing ahead of the last one, at the place that this
layer has reached by then: the spacing is exact, whatever the time step. Alive = alive at the start + born - removed.

Which slot, in which step, and which particle a drain takes are events, without a derivative. Between events gradients
flow: from a particle to the velocity, points and spacing of its source. A particle that is removed passes none.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..tree import Tree, pytree, static
from ..worlds import Status, flag, is_nonfinite
from . import mpm, sph
from .arguments import EMPTY, array, known, row
from .boundary import Collider, is_inside, prepared
from .mpm_arguments import bounds, lower_of, periodic
from .neighbors import periods, wrap
from .sample import ball

__all__ = ["EMPTY", "Source", "Tally", "alive", "init", "opening", "step"]

Array = jax.Array
State = TypeVar("State", mpm.State, sph.State)


@pytree
class Source(Tree):
    """A layer of particles that enters again and again. All numbers may be quantities, and have a world axis.

    What of it lies beyond a periodic face enters by the other one.
    In front of a source there should be room: where matter stands still, layers pile up.
    """

    points: Any  # of the layer [m], shape (point, dim) or (1 | world, point, dim): see :func:`opening`
    velocity: Any  # of the particles as they enter [m/s], shape (dim,) or (1 | world, dim)
    spacing: Any  # between layers, and between points [m], shape () or (1 | world,); a particle has spacing^dim
    start: Any = 0.0  # [s], shape () or (1 | world,)
    stop: Any = np.inf  # no layer enters from then on [s]
    material: int = static(default=0)  # number of its material in MPM
    slots: tuple[int, int] | None = static(default=None)  # the first that it may fill, and one past the last; None: all
    """Where bodies have grids of their own (``mpm.Contact``), those of one body."""


@pytree
class Tally(Tree):
    """What has flowed. Make one with :func:`init`."""

    ahead: Array  # How far the flow of each source is ahead of its last layer [m], shape (world, source).
    born: Array  # Particles that each source has given, int32, shape (world, source); no gradient.
    lost: Array  # Those for which there was no empty slot, int32, shape (world, source); no gradient.
    removed: Array  # Particles that each drain has taken, int32, shape (world, drain); no gradient.


def opening(centre: Any, normal: Any, radius: Any, spacing: Any) -> np.ndarray:
    """Points of a layer across a round opening, in two dimensions a slit of length 2 ``radius``; on the host.

    Args:
        centre: [m], shape (dim,).
        normal: the way out, of any length, shape (dim,).

    Returns:
        Positions [m], float64, shape (point, dim).

    Raises:
        ValueError: the normal has no length, or a number does not fit. UnitError: a quantity.
    """
    centre = np.asarray(units.si(centre, units.length, "centre"), float)
    radius, spacing = (
        float(units.si(value, units.length, name)) for name, value in (("radius", radius), ("spacing", spacing))
    )
    normal = np.asarray(normal, float)
    if not (0 <= radius < np.inf and 0 < spacing < np.inf):
        raise ValueError(f"radius is {radius} m and spacing {spacing} m: give a finite radius, and a positive spacing")
    if centre.shape not in ((2,), (3,)) or normal.shape != centre.shape or not np.linalg.norm(normal) > 0:
        raise ValueError(f"centre is {centre} and normal {normal}: give two or three numbers each, a normal not zero")
    across = np.linalg.svd(normal[None])[2][1:]  # axes that are normal to it
    if len(centre) == 2:
        count = max(round(2 * radius / spacing), 1)
        flat = spacing * (np.arange(count) + 0.5 - count / 2)[:, None]
    else:  # a narrow one has a point in its middle
        flat = ball((0.0, 0.0), radius, spacing) if radius > spacing else np.zeros((1, 2))
    return centre + (flat[:, :, None] * across).sum(1)


def alive(state: mpm.State | sph.State) -> Array:
    """Which slots hold a particle, bool, shape (world, particle). Walls of SPH are none."""
    return state.kind == sph.FLUID if isinstance(state, sph.State) else state.material != EMPTY


def init(state: mpm.State | sph.State, sources: Sequence[Source] = (), drains: Sequence[Collider] = ()) -> Tally:
    """The tally before anything has flowed. The first layer of each source enters at its start."""
    worlds, dtype = len(state.x), state.x.dtype
    spacing = [jnp.broadcast_to(_numbers(i, s, state)["spacing"], (worlds,)) for i, s in enumerate(sources)]
    born, lost = (jnp.zeros((worlds, len(sources)), jnp.int32) for _ in range(2))
    ahead = jnp.stack(spacing, 1) if spacing else jnp.zeros((worlds, 0), dtype)
    return Tally(ahead, born, lost, jnp.zeros((worlds, len(drains)), jnp.int32))


def step(
    params: mpm.Params | sph.Params,
    state: State,
    tally: Tally,
    sources: Sequence[Source] = (),
    drains: Sequence[Collider] = (),
    duration: Any = None,
) -> tuple[State, Tally]:
    """Remove what is in drains, then let layers enter that are due. Pure; composes with jit, grad, vmap and scan.

    Args:
        params, state: of :mod:`.mpm` or :mod:`.sph`. An SPH world that is held stays as it is. Layers go on entering a
            world that skips its steps for another reason, such as BADPARAM: they lie on one another there.
        sources: at most one layer each enters in a call.
        drains: planes, spheres, boxes and capsules of :mod:`.boundary`; their contact has no meaning.
        duration: time until the next call [s], by default ``params.timestep``.

    Returns:
        The state and the tally. Particles without an empty slot are counted in ``tally.lost``, and the world's status
        says SLOT_OVERFLOW; if a flow is more than a layer ahead, CFL; if a number of a source is NaN or infinite, or a
        spacing not positive, BADPARAM, and nothing enters. Other worlds are not affected. Gradients flow to the state
        and to points, velocities and spacings of sources.

    Raises:
        ValueError: a shape does not fit, or the spacing is not that of ``params`` (SPH); a source that is known to stop
            before it starts, or to be outside the domain (MPM). TypeError: a dtype does not.
        UnsupportedError: a drain is a field. UnitError: a quantity of another kind.
    """
    dtype, (worlds, _, dim) = state.x.dtype, state.x.shape
    for name, of in {"ahead": sources, "born": sources, "lost": sources, "removed": drains}.items():
        if (found := np.shape(getattr(tally, name))) != (worlds, len(of)):
            raise ValueError(
                f"tally.{name} has shape {found}, needs {(worlds, len(of))} for {len(sources)} sources and "
                f"{len(drains)} drains in {worlds} worlds: make it with flow.init"
            )
    given = params.timestep if duration is None else duration
    duration = row("duration", units.si(given, units.duration, "duration"), (), dtype)
    moves = ~is_nonfinite(state.status) if isinstance(state, sph.State) else jnp.ones(worlds, bool)
    removed = []
    for i, drain in enumerate(drains):
        drain = prepared(drain, i, dtype, dim, worlds, kind="drains")
        gone = alive(state) & is_inside(jax.lax.stop_gradient(drain), jax.lax.stop_gradient(state.x)) & moves[:, None]
        state = _without(state, gone)
        removed.append(gone.sum(1, dtype=jnp.int32))
    ahead, born, lost = [], [], []
    for i, source in enumerate(sources):
        state, *counts = _released(params, state, tally.ahead[:, i], i, source, duration, moves)
        for found, count in zip((ahead, born, lost), counts, strict=True):
            found.append(count)
    if sources:
        tally = Tally(
            jnp.stack(ahead, 1), tally.born + jnp.stack(born, 1), tally.lost + jnp.stack(lost, 1), tally.removed
        )
    return state, tally.replace(removed=tally.removed + jnp.stack(removed, 1)) if drains else tally


def _released(
    params: Any, state: Any, ahead: Array, number: int, source: Source, duration: Array, moves: Array
) -> tuple[Any, Array, Array, Array]:
    """The state with one source's layer, where one is due; how far its flow is ahead; how many are born, and lost."""
    (worlds, n, dim), given = state.x.shape, _numbers(number, source, state)
    if isinstance(state, mpm.State) and not 0 <= source.material < len(params.materials):
        raise ValueError(
            f"sources[{number}].material is {source.material}, but params.material has {len(params.materials)}: 0 to "
            f"{len(params.materials) - 1}"
        )
    if isinstance(state, mpm.State):
        _expect_inside(params, number, source)
    if isinstance(state, sph.State) and (size := known(given["spacing"])) is not None:
        if not np.allclose(size[0], params.spacing, rtol=1e-5, atol=0):
            raise ValueError(
                f"sources[{number}].spacing is {size[0]} m, params.spacing {params.spacing}: give the same"
            )
    fine = jnp.isfinite(given["velocity"]).all(-1) & jnp.isfinite(given["points"]).all((1, 2))
    fine = fine & (given["spacing"] > 0) & jnp.isfinite(given["spacing"])
    fine = jnp.broadcast_to(fine & ~jnp.isnan(given["start"]) & ~jnp.isnan(given["stop"]), (worlds,))
    spacing = jnp.where(fine, given["spacing"], 1)
    velocity = jnp.where(fine[:, None], given["velocity"], 0)
    square = (velocity**2).sum(-1)
    flows = square > 0
    speed = jnp.where(flows, jnp.sqrt(jnp.where(flows, square, 1)), 0)
    way = velocity / jnp.where(flows, speed, 1)[:, None]
    on = moves & flows & (state.time >= given["start"]) & (state.time < given["stop"])
    due = on & (ahead >= spacing)
    points = jnp.where(fine[:, None, None], given["points"], 0)
    count = points.shape[1]
    x = jnp.broadcast_to(points, (worlds, count, dim)) + (way * (ahead - spacing)[:, None])[:, None]
    first, end = source.slots or (0, n)
    empty = (_kinds(state) == EMPTY) & ((np.arange(n) >= first) & (np.arange(n) < end))[None]
    room = empty.sum(1, dtype=jnp.int32)

    def fill(state: Any, x: Array, velocity: Array) -> Any:
        slots = jax.vmap(lambda e: jnp.nonzero(e, size=count, fill_value=n)[0])(empty)
        slots = jnp.where(due[:, None], slots, n)
        layer = _layer(params, source, x, jnp.broadcast_to(velocity[:, None], x.shape), spacing, state)
        world = jnp.arange(worlds)[:, None]
        put = {
            name: old.at[world, slots].set(getattr(layer, name), mode="drop") for name, old in _fields(state).items()
        }
        return state.replace(**put)

    state = jax.lax.cond(due.any(), fill, lambda state, *_: state, state, x, velocity)
    born = jnp.where(due, jnp.minimum(room, count), 0)
    lost = jnp.where(due, count, 0) - born
    ahead = jnp.where(due, ahead - spacing, ahead)
    late = on & (ahead >= spacing)
    bits = flag(Status.SLOT_OVERFLOW, lost > 0) | flag(Status.CFL, late) | flag(Status.BADPARAM, ~fine)
    ahead = ahead + jnp.where(on, speed * duration, 0)
    return state.replace(status=state.status | bits), ahead, born, lost


def _expect_inside(params: mpm.Params, number: int, source: Source) -> None:
    """Refuse a source outside MPM's domain, whose particles would be lost at once; ValueError."""
    if (points := known(units.si(source.points, units.length, "points"))) is None:
        return
    (lower, upper), around = bounds(params), list(periodic(params))
    outside = (points[0] < lower) | (points[0] >= upper)
    outside[..., around] = False
    if outside.any():
        raise ValueError(
            f"sources[{number}].points are outside the domain, which is {lower + params.cell / 2} to "
            f"{upper - params.cell / 2} m, the first at {points[0][outside.any(-1)][0]}: move them, or enlarge it"
        )


def _layer(params: Any, source: Source, x: Array, v: Array, spacing: Array, state: Any) -> Any:
    """The particles of a layer, as the solver makes them."""
    if isinstance(state, sph.State):
        return sph.init(params, x, v, max_neighbors=state.max_neighbors)
    x = wrap(periods(periodic(params), lower_of(params), float(params.cell), params.shape), x)
    size, eye = x.shape[:2], jnp.broadcast_to(jnp.eye(3, dtype=x.dtype), (*x.shape[:2], 3, 3))
    return state.replace(
        x=x,
        v=v,
        C=jnp.zeros_like(eye),
        F=eye,
        history=jnp.full(size, params.materials[source.material].history, x.dtype),
        volume=jnp.broadcast_to((spacing ** x.shape[2])[:, None], size),
        material=jnp.full(size, source.material, jnp.int32),
    )


def _fields(state: Any) -> dict[str, Array]:
    """What a state has of each particle."""
    values = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return {name: value for name, value in values.items() if getattr(value, "ndim", 0) > 1}


def _kinds(state: Any) -> Array:
    return state.kind if isinstance(state, sph.State) else state.material


def _without(state: Any, gone: Array) -> Any:
    """The state without these particles, which stand where they were and pass no gradient."""
    kinds = jnp.where(gone, jnp.int32(EMPTY), _kinds(state))
    x = jnp.where(gone[..., None], jax.lax.stop_gradient(state.x), state.x)
    v = jnp.where(gone[..., None], 0, state.v)
    return state.replace(x=x, v=v, **{"kind" if isinstance(state, sph.State) else "material": kinds})


def _numbers(number: int, source: Source, state: Any) -> dict[str, Array]:
    """A source's numbers with the world axis first.

    Raises:
        ValueError, TypeError: one does not fit, by name. UnitError: a quantity of another kind.
    """
    name, dtype, (worlds, n, dim) = f"sources[{number}]", state.x.dtype, state.x.shape
    if not isinstance(source, Source):
        raise TypeError(f"{name} is a {type(source).__name__}: give flow.Source(...)")
    kinds = {"points": units.length, "velocity": units.velocity, "spacing": units.length}
    source = units.bare(source, kinds | dict.fromkeys(("start", "stop"), units.duration), name)
    points = source.points
    points = jnp.asarray(points, dtype) if not isinstance(points, jax.Array) else array(f"{name}.points", points, dtype)
    points = points[None] if points.ndim == 2 else points
    if points.ndim != 3 or points.shape[2] != dim or 0 in points.shape:
        raise ValueError(f"{name}.points have shape {points.shape}, need (point, {dim}) or (num_worlds, point, {dim})")
    velocity = source.velocity
    velocity = jnp.asarray(velocity, dtype) if isinstance(velocity, tuple | list) else velocity
    found = {
        "points": points,
        "velocity": row(f"{name}.velocity", velocity, (dim,), dtype, vector=True),
        **{key: row(f"{name}.{key}", getattr(source, key), (), dtype) for key in ("spacing", "start", "stop")},
    }
    for key, value in found.items():
        if len(value) not in (1, worlds):
            raise ValueError(f"{name}.{key} is of {len(value)} worlds, there are {worlds}: give one for all, or each")
    if (size := known(found["spacing"])) is not None and not ((size[0] > 0) & np.isfinite(size[0])).all():
        raise ValueError(f"{name}.spacing is {size[0]} m: it must be positive and finite")
    for key in ("points", "velocity"):
        if (values := known(found[key])) is not None and not np.isfinite(values[0]).all():
            raise ValueError(f"{name}.{key} are not all finite: {values[0].ravel()[:6]}")
    times = known(found["start"], found["stop"])
    if times is not None and not (times[0] < times[1]).all():
        raise ValueError(f"{name} starts at {times[0]} s and stops at {times[1]} s: start must come first")
    first, end = source.slots or (0, n)
    if not 0 <= first < end <= n:
        raise ValueError(f"{name}.slots are {source.slots}, the state has {n}: give the first, and one past the last")
    return found
