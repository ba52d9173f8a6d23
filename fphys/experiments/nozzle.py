"""A nozzle is shaped so that its jet lands in a bucket. Gradients through particles and walls find its shape.

A source gives the nozzle as much liquid at any shape. Its floor and its roof are obstacles that fade out over three
cells (:mod:`fphys.particles.boundary`), given by samples of their signed distance. The unknowns are control points of
two curves: the middle between floor and roof, and how far apart they are. `jax.grad` goes back from the jet through the
flow to the samples. The search is in the plane. It stops short of the flight: each particle behind the mouth says where
it would come down to the bucket's rim.

The success test is one plain simulation in space, with flight, of a nozzle with that section, as deep as it is high at
its beginning. Two drains, in the bucket and on the floor, count what comes down. Beside it is the first guess.
"""

import dataclasses
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.particles import boundary, flow, mpm
from fphys.render import Camera, Surface
from fphys.runs import Run

from . import expect_positive, film
from .lattice import lattice

Array = jax.Array

BAR = 0.8  # of what comes down in the last third of the motion
INFLOW = 1.0  # m/s
INLET, LONG = 0.2, 0.5  # m: height and depth of the nozzle where it begins, and its length
TARGET, HALF, RIM = 1.35, 0.1, -0.35  # m: the bucket's middle, half its length, its rim; heights are from the source's
FLOOR, TOP = -0.5, 0.4  # m
NEAR, FAR = 0.02, 0.18  # m beyond the mouth, between which particles say where they would come down
SEARCH, LATE = 0.75, 0.2  # s: length of a motion in the search, and its last part, which counts
STAYS = (0.7, 1.2)  # s, the longest time that liquid stays, in the search and in space: there are slots for as much
FREE = 3  # control points of each curve
BEND = 0.06  # m, unit of those of the middle: small, so that the search bends the nozzle less than it narrows it
GRAVITY, DENSITY = 9.81, 1000.0
SOUND, VISCOSITY = 15.0, 0.5  # m/s and Pa s, of the liquid
WIDTH = 3.0  # cells over which the nozzle fades out
TAME = 3e-3  # weight of the change from the first guess, which settles which of the shapes that reach is found [m^2]
SHOWN = 30  # pictures a second
KEPT = 20_000  # particles that are saved to be viewed
APART = 0.58  # m, between the two nozzles in pictures, half of it
WATER = (0.16, 0.44, 0.72, 0.9)
COLORS = "0.55 0.58 0.62 1", "0.93 0.42 0.16 1"
NAMES = ("first guess", "#6b7280"), ("found", "#ec6a29")


@dataclasses.dataclass(frozen=True)
class Config:
    across: int = 8
    """Cells across the nozzle where it begins, in space, an even number; a cell holds eight particles."""
    coarse: int = 8
    """The same in the search, which is in the plane."""
    iterations: int = 14
    """Gradient steps."""
    rate: float = 0.15
    """Adam's step at the start, which falls to zero as a cosine."""
    duration: float = 1.5
    """Length of the motion in space [s]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")
        for name in ("across", "coarse"):
            if (cells := getattr(self, name)) % 2:
                raise ValueError(f"--{name} is {cells}: it must be even, so that the nozzle is whole cells long")


class Rig(NamedTuple):
    """A source, a domain and drains, in the plane or in space; the nozzle is not in it."""

    params: mpm.Params
    state: mpm.State  # without particles
    source: flow.Source
    drains: tuple[boundary.Collider, ...]
    sides: tuple[boundary.Collider, ...]  # of the nozzle, in space
    steps: int  # between two calls of the source
    calls: int  # of the source between two pictures

    @property
    def beat(self) -> float:
        """Time between two calls of the source [s]."""
        return 1 / (SHOWN * self.calls)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the shape in float64; try it, beside the first guess, in float32."""
    begun = time.perf_counter()
    with jax.enable_x64(True):
        shape = np.asarray(search(config, run))
    found = time.perf_counter()
    rig = beginning(config.across, 3, 2, np.float32)
    path, there, taken = trial(rig, np.stack([np.asarray(guess()), shape]), round(config.duration * SHOWN), run)
    seconds = time.perf_counter() - found
    when, late = np.arange(1, len(path) + 1) / SHOWN, -max(len(path) // 3, 1)
    came = taken[-1] - taken[late - 1] if len(taken) > -late else taken[-1]
    share = came[:, 0] / np.maximum(came.sum(1), 1)
    litres = 1e3 * taken[..., 0] * float(rig.source.spacing) ** 3
    run.save(shape=shape, first_shape=guess(), litres=litres)
    pictures = _film(run, rig, path, there, when, shape)
    run.plot("nozzle", _figure(run, pictures, shape, when, litres))
    return {
        "success": bool(share[1] >= BAR),
        "share_in_the_bucket": float(share[1]),
        "first_share": float(share[0]),
        "particles": int(there[-1].sum()),
        "steps": len(path) * rig.calls * rig.steps,
        "mouth_of_inlet": float(np.exp(shape[1, -1])),
        "search_seconds": round(found - begun, 2),
        "simulation_seconds": round(seconds, 2),
    }


def search(config: Config, run: Run) -> Array:
    """The shape whose jet comes down nearest to the bucket."""
    import optax

    rig = beginning(config.coarse, 2, 1, np.float64)
    slopes = jax.jit(jax.value_and_grad(lambda shape: cost(rig, shape), has_aux=True))
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.6, b2=0.95)
    shape = best = guess()
    memory, least = optimizer.init(shape), math.inf
    for i in run.progress(config.iterations, "nozzle"):
        (value, (state, miss, spread)), slope = slopes(shape)
        mpm.check(rig.params, state)
        best, least = (shape, float(value)) if float(value) < least else (best, least)
        run.log(i, cost=value, miss=miss, spread=spread)
        change, memory = optimizer.update(slope / jnp.linalg.norm(slope), memory)
        shape = jnp.asarray(optax.apply_updates(shape, change))
    return best


def guess() -> Array:
    """A straight nozzle that becomes narrower, shape (2, FREE)."""
    return jnp.stack([jnp.zeros(FREE), jnp.linspace(-0.2, -0.7, FREE)])


def cost(rig: Rig, shape: Array) -> tuple[Array, tuple[mpm.State, Array, Array]]:
    """Mean square of the distance from the bucket's middle at which the jet would come down [m^2], and a little for
    the change from the first guess; the state, the mean distance and its standard deviation [m].

    Args:
        shape: of the nozzle, shape (2, FREE): see :func:`section`.
    """
    state = rig.state, flow.init(rig.state, [rig.source], rig.drains)
    calls, last = (round(seconds / rig.beat) for seconds in (SEARCH, LATE))
    (end, _), sums = pour(rig, walls(rig, shape[None]), state, calls, fphys.Checkpoint(every=10))
    weight, first, second = sums[-last:].sum((0, 1))
    miss, square = first / jnp.maximum(weight, 1e-9), second / jnp.maximum(weight, 1e-9)
    return square + TAME * ((shape - guess()) ** 2).mean(), (end, miss, jnp.sqrt(square - miss**2))


def beginning(across: int, dim: int, worlds: int, dtype: Any) -> Rig:
    """Where nothing has flowed yet; ``across`` cells are across the nozzle where it begins."""
    cell = INLET / across
    calls = math.ceil(INFLOW / (SHOWN * 0.75 * cell / 2))  # so that no layer is late
    steps = math.ceil(SOUND / (0.45 * cell * SHOWN * calls))
    low, high, half = math.ceil(-FLOOR / cell) + 4, math.ceil(TOP / cell), across // 2 + 5
    end = LONG + FAR + 4 * cell if dim == 2 else TARGET + HALF + 0.1  # the wall there must not slow the jet
    velocity = np.zeros((2 * dim, dim), dtype)
    velocity[0, 0] = INFLOW  # a wall that gives way to nothing, behind the source
    params = mpm.Params(
        material=mpm.Liquid(DENSITY, bulk=DENSITY * SOUND**2, viscosity=VISCOSITY),
        timestep=1 / (SHOWN * calls * steps),
        gravity=(*(0.0,) * (dim - 1), -GRAVITY),
        walls=mpm.Walls(("slip", *("separate",) * (2 * dim - 1)), velocity=velocity),
        cell=cell,
        shape=(math.ceil(end / cell), *(2 * half,) * (dim - 2), low + high),
        lower=(0.0, *(-half * cell,) * (dim - 2), -low * cell),
    )
    layer = lattice((-INLET / 2,) * (dim - 1), (INLET / 2,) * (dim - 1), cell / 2)
    points = np.pad(layer, ((0, 0), (1, 0)), constant_values=cell / 4).astype(dtype)
    source = flow.Source(points, (INFLOW, *(0.0,) * (dim - 1)), cell / 2)
    slots = len(points) * math.ceil(STAYS[dim - 2] * INFLOW / (cell / 2))
    x = np.broadcast_to(points[0], (worlds, slots, dim))
    state = mpm.init(params, jnp.asarray(x), material=np.full(slots, flow.EMPTY))
    ground = boundary.plane((*(0.0,) * (dim - 1), FLOOR + cell), (*(0.0,) * (dim - 1), 1.0))
    if dim == 2:
        return Rig(params, state, source, (ground, boundary.plane((LONG + FAR, 0.0), (-1.0, 0.0))), (), steps, calls)
    bucket = boundary.box((TARGET, 0.0, RIM - 0.04), (HALF, half * cell, 0.03))
    reach, aside = (LONG / 2 + cell, 2 * cell, 1.0), INLET / 2 + 2.5 * cell
    sides = tuple(boundary.box((LONG / 2 - cell, y, 0.0), reach) for y in (-aside, aside))
    return Rig(params, state, source, (bucket, ground), sides, steps, calls)


def section(shape: Any, x: np.ndarray, gap: float = 0.0) -> tuple[Array, Array]:
    """Heights of the nozzle's floor and roof [m], both of shape (len(x),).

    Args:
        shape: shape (2, FREE). The middle between both, in units of BEND, is the Bezier curve of 0, 0 and these control
            points; so is the logarithm of their distance in heights of the inlet.
        x: [m], shape (n,).
        gap: how far floor and roof are moved away from the liquid [m].
    """
    t, degree = np.clip(x / LONG, 0, 1), FREE + 1
    basis = np.stack([math.comb(degree, k) * t**k * (1 - t) ** (degree - k) for k in range(2, degree + 1)])
    middle, log = fphys.math.matmul(shape, jnp.asarray(basis, shape.dtype))
    half = INLET / 2 * jnp.exp(log) + gap
    return BEND * middle - half, BEND * middle + half


def walls(rig: Rig, shapes: Any) -> tuple[boundary.Collider, ...]:
    """Floor and roof of the nozzle of each world; ``shapes`` of shape (world, 2, FREE). They end at the mouth.

    Faded out, they are as far apart for the liquid as exact ones: within a fifth of a cell, at any size of the cells.
    """
    params, cell = rig.params, rig.params.cell
    x = cell * np.arange(-2, round(LONG / cell) + 1)
    z = params.lower[-1] + cell * np.arange(params.shape[-1] + 1)
    y = params.lower[1] + cell * np.arange(params.shape[1] + 1)  # in space
    corner = x[0], *y[: params.dim - 2][:1], z[0]

    def field(shape: Array, side: int) -> Array:
        edge = section(shape, x)[side]
        level = jnp.sqrt(1 + jnp.asarray(jnp.gradient(edge, cell)) ** 2)
        distance = (1 - 2 * side) * (jnp.asarray(z, edge.dtype)[None] - edge[:, None]) / level[:, None]
        return distance if params.dim == 2 else jnp.broadcast_to(distance[:, None], (len(x), len(y), len(z)))

    def one(side: int) -> boundary.Collider:
        samples = jnp.stack([field(shape, side) for shape in shapes])
        made = boundary.field(samples[0], cell, tuple(map(float, corner)), width=WIDTH * cell)
        return made.replace(samples=samples.reshape(len(samples), -1))

    return one(0), one(1)


def pour(
    rig: Rig,
    nozzle: tuple[boundary.Collider, ...],
    now: tuple[mpm.State, flow.Tally],
    calls: int,
    adjoint: Any = fphys.Full(),
) -> tuple[tuple[mpm.State, flow.Tally], Array]:
    """The state and the tally after as many calls of the source; :func:`outlook` after each, (calls, world, 3)."""

    def step(state: mpm.State, _: Any) -> tuple[mpm.State, None]:
        return mpm.step(rig.params, state, colliders=(*rig.sides, *nozzle)), None

    def call(now: Any, _: Any) -> tuple[Any, Array]:
        state, tally = flow.step(rig.params, now[0], now[1], [rig.source], rig.drains, rig.beat)
        state, _ = fphys.scan(step, state, None, length=rig.steps)
        return (state, tally), outlook(state)

    return fphys.scan(call, now, None, adjoint, calls)


def outlook(state: mpm.State) -> Array:
    """Sums over particles a little beyond the mouth: of their weights, which fade in and out along the way; of weights
    times the distance [m] from the bucket's middle at which they would come down to its rim; of weights times its
    square. Shape (world, 3)."""
    x, v = state.x, state.v
    part = jnp.clip((x[..., 0] - LONG - NEAR) / (FAR - NEAR), 0, 1)
    weight = jnp.where(flow.alive(state), jnp.sin(jnp.pi * part) ** 2, 0)
    rise = v[..., -1]
    flight = (rise + jnp.sqrt(jnp.maximum(rise**2 + 2 * GRAVITY * (x[..., -1] - RIM), 1e-6))) / GRAVITY
    miss = x[..., 0] + v[..., 0] * flight - TARGET
    return jnp.stack([weight, weight * miss, weight * miss**2], -1).sum(1)


def trial(rig: Rig, shapes: np.ndarray, pictures: int, run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the nozzles of all worlds do: for each picture, where slots are [m], which hold particles, and how many
    particles each drain has taken, shape (T, world, drain)."""
    nozzle = walls(rig, jnp.asarray(shapes, rig.state.x.dtype))
    advance = jax.jit(lambda now: pour(rig, nozzle, now, rig.calls)[0])
    now, shown = (rig.state, flow.init(rig.state, [rig.source], rig.drains)), []
    for _ in run.progress(pictures, "in space"):
        state, tally = now = advance(now)
        shown.append([np.asarray(a) for a in (state.x, flow.alive(state), tally.removed)])
    mpm.check(rig.params, now[0])
    path, there, taken = (np.array(each) for each in zip(*shown))
    return path, there, taken


def props(shapes: Any, cell: float) -> str:
    """Both nozzles with their feeds and buckets, MJCF, the first one behind; the ground is at height zero."""
    text, x, deep = "", np.linspace(0, LONG, 33), INLET / 2 + cell
    for shape, y, color in zip(shapes, (APART, -APART), COLORS, strict=True):

        def box(at: Any, half: Any, rgba: str, turn: float = 0.0, y: float = y) -> str:
            pos = f"{at[0]} {y + at[1]} {at[2] - FLOOR}"
            quat = f"{math.cos(turn / 2)} 0 {-math.sin(turn / 2)} 0"
            return f'<geom type="box" pos="{pos}" quat="{quat}" size="{half[0]} {half[1]} {half[2]}" rgba="{rgba}"/>'

        edges = np.asarray(section(jnp.asarray(shape), x, 0.5 * cell))
        for edge, sign in zip(edges, (-1, 1)):
            for (x0, z0), (x1, z1) in zip(np.stack([x, edge], 1), np.stack([x, edge], 1)[1:]):
                turn = math.atan2(z1 - z0, x1 - x0)
                size = math.hypot(x1 - x0, z1 - z0) / 2 + 1e-3, deep, 0.006
                text += box(((x0 + x1) / 2, 0, (z0 + z1) / 2 + 0.006 * sign), size, color, turn)
        low, high = edges.min() - 0.012, edges.max() + 0.012
        for side in (-1, 1):
            pane = LONG / 2, side * (deep + 0.004), (low + high) / 2
            text += box(pane, (LONG / 2, 0.004, (high - low) / 2), "0.75 0.85 0.9 0.2")
        text += box((-0.1, 0, (FLOOR + 0.2) / 2), (0.1, deep + 0.02, (0.2 - FLOOR) / 2), "0.32 0.35 0.4 1")
        middle, tall, wide = RIM / 2 + FLOOR / 2, (RIM - FLOOR) / 2, deep + 0.05
        for along in (-1, 1):
            text += box((TARGET + along * HALF, 0, middle), (0.005, wide, tall), "0.42 0.45 0.5 1")
            text += box((TARGET, along * wide, middle), (HALF, 0.005, tall), "0.42 0.45 0.5 1")
    return text


def _film(run: Run, rig: Rig, path: Any, there: Any, when: np.ndarray, shape: np.ndarray) -> Any:
    """Save the motion and show it, both worlds side by side; the pictures."""
    cell, text = rig.params.cell, props((guess(), shape), rig.params.cell)
    path = path - np.array([0.0, 0.0, FLOOR], np.float32)
    path[..., 1] += np.array([APART, -APART], np.float32)[:, None]
    path = np.where(there[..., None], path, np.nan)
    kept = path[:, :, :: -(-path.shape[1] * path.shape[2] // KEPT)]
    run.motion(when, film.stage(text), x=kept.reshape(len(path), 1, -1, 3), radius=0.35 * cell)
    water = [Surface(path[:, world, None], cell / 2, WATER) for world in range(path.shape[1])]
    view = Camera(azimuth=72, elevation=-27, track=False, lookat=(0.66, 0.02, 0.22), distance=2.5)
    return film.deforming(run, water, 1 / SHOWN, text, view, 480, 848)


def _figure(run: Run, pictures: Any, shape: np.ndarray, when: np.ndarray, litres: np.ndarray) -> Any:
    figure, (left, centre, right) = film.strip(pictures, (0.2, 0.5, 1.0), 3)
    x = np.linspace(0, LONG, 60)
    for world, (name, color) in enumerate(NAMES):
        for edge in section(jnp.asarray((guess(), shape)[world]), x):
            left.plot(x, edge, color=color)
        centre.plot(when, litres[:, world], color=color, label=name)
    left.set(xlabel="x [m]", ylabel="floor and roof [m]", aspect="equal")
    centre.set(xlabel="time [s]", ylabel="liquid in the bucket [l]")
    centre.legend(frameon=False)
    for name, color, label in (("miss", "#2a6db5", "mean"), ("spread", "#3a9d6e", "spread")):
        right.plot(np.abs(run.history.get(name, [])), color=color, label=label)
    right.set(xlabel="iteration", ylabel="how far the jet misses [m]", ylim=(0, None))
    right.legend(frameon=False)
    return figure
