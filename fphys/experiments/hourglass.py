"""Sand runs through an hourglass.

Sand of the material point method, in three colours, falls through a neck between two bulbs of glass. The glass is a
collider given by samples of its signed distance. There is no search. The success test: no grain is lost or outside the
glass, and sand runs as in an hourglass, at the same rate when the upper bulb is half empty as before, where a liquid
would run more slowly.
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import numpy as np

from fphys.particles import boundary, mpm, sample
from fphys.render import Camera, Flex, Grains
from fphys.runs import Run

from . import expect_positive, film

BULB, NECK, HALF = 0.11, 0.03, 0.2  # m: radii of the bulbs and of the neck, half the height
MIDDLE = HALF + 0.018  # m, height of the neck above the floor in pictures: on a plate
FILLED = 0.17  # m, height of the sand above the neck
FRICTION = 0.3  # of sand on glass
YOUNG = (
    1e5  # Pa, which settles by three parts in a hundred under its weight, and allows time steps of half a millisecond
)
SHOWN = 30  # pictures a second
KEPT = 20_000  # particles that are saved to be viewed
STEADY = 0.25  # relative difference of the two rates
SANDS = ((0.87, 0.73, 0.49), (0.78, 0.45, 0.26), (0.93, 0.86, 0.72))
GLASS = (0.7, 0.85, 0.92, 0.22)


@dataclasses.dataclass(frozen=True)
class Config:
    across: float = 6.0
    """Cells across the neck; a cell holds eight particles. 6 are 17 thousand, 9 are 58 thousand."""
    duration: float = 3.5
    """Length of the motion [s]."""

    def __post_init__(self) -> None:
        expect_positive(self)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Let the sand run, in float32."""
    params, state, glass = beginning(config)
    count = round(1 / (SHOWN * float(params.timestep)))
    begun, shown = time.perf_counter(), [np.asarray(state.x[0])]
    for i in run.progress(round(config.duration * SHOWN), "hourglass"):
        state = advance(params, state, glass, count)
        shown.append(np.asarray(state.x[0]))
        run.log(i, below=float((shown[-1][:, 2] < 0).mean()))
    seconds = time.perf_counter() - begun
    mpm.check(params, state)
    path, when = np.array(shown), np.arange(len(shown)) / SHOWN
    below = (path[..., 2] < 0).mean(1)
    lost = int((~inside(path[-1], params.cell)).sum())
    first, second = (rate(when, below, *part) for part in ((0.1, 0.4), (0.4, 0.7)))
    run.save(below=below)
    color = np.array(SANDS)[layer(path[0])]
    raised = path[:, None] + [0.0, 0.0, MIDDLE]
    some = slice(None, None, -(-path.shape[1] // KEPT))
    run.motion(when, film.stage(wood()), x=raised[:, :, some], color=color[some], radius=params.cell / 4)
    view = Camera(azimuth=90, elevation=-8, track=False, lookat=(0.0, 0.0, MIDDLE), distance=0.72)
    pictures = film.deforming(run, parts(params, raised, layer(path[0])), 1 / SHOWN, wood(), view, 1080, 810)
    run.plot("hourglass", _figure(pictures, when, below))
    return {
        "success": bool(lost == 0 and abs(second / first - 1) < STEADY),
        "lost": lost,
        "rate_first": first,
        "rate_second": second,
        "below": float(below[-1]),
        "particles": path.shape[1],
        "steps": count * (len(path) - 1),
        "simulation_seconds": round(seconds, 2),
    }


def radius(z: Any) -> Any:
    """Of the glass, inside [m]."""
    return NECK + (BULB - NECK) * np.sin(np.pi / 2 * np.clip(np.abs(z) / HALF, 0, 1)) ** 2


def beginning(config: Config) -> tuple[mpm.Params, mpm.State, boundary.Collider]:
    """The sand in the upper bulb, and the glass."""
    cell = 2 * NECK / config.across
    wide, high = int(np.ceil(BULB / cell)) + 1, int(np.ceil(HALF / cell))  # cells from the axis, and from the neck
    sand = mpm.Sand(young=YOUNG)
    speed = float(np.sqrt(np.asarray(sand.modulus()) / sand.density))
    params = mpm.Params(
        material=sand,
        timestep=1 / (SHOWN * np.ceil(speed / (0.45 * cell * SHOWN))),
        gravity=(0.0, 0.0, -9.81),
        walls=mpm.Walls("separate", friction=0.6),
        cell=cell,
        shape=(2 * wide, 2 * wide, 2 * high),
        lower=(-wide * cell, -wide * cell, -high * cell),
    )
    x = sample.box((-BULB, -BULB, 0.0), (BULB, BULB, FILLED), cell / 2)
    x = x + np.random.default_rng(0).uniform(-cell / 10, cell / 10, x.shape)  # sand has no rows
    x = x[np.hypot(x[:, 0], x[:, 1]) < radius(x[:, 2]) - cell / 2]
    state = mpm.init(params, x.astype(np.float32)[None])
    return params, state, wall(params)


def wall(params: mpm.Params) -> boundary.Collider:
    """The glass: negative distances are inside it, outside the bulbs."""
    spacing = params.cell / 2
    axes = [low + spacing * np.arange(2 * n + 1) for low, n in zip(params.lower, params.shape)]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    slope = np.pi / 2 * (BULB - NECK) / HALF * np.sin(np.pi * np.clip(np.abs(z) / HALF, 0, 1))
    distance = (radius(z) - np.hypot(x, y)) / np.hypot(1.0, slope)
    return boundary.field(distance.astype(np.float32), spacing, params.lower, friction=FRICTION)


@functools.partial(jax.jit, static_argnums=3)
def advance(params: mpm.Params, state: mpm.State, glass: boundary.Collider, count: int) -> mpm.State:
    """The state ``count`` steps later."""
    return jax.lax.fori_loop(0, count, lambda _, s: mpm.step(params, s, colliders=glass), state)


def rate(when: np.ndarray, below: np.ndarray, begin: float, end: float) -> float:
    """Share of the sand that passes the neck in a second, while the share below is between two; NaN if it never is."""
    part = (below >= begin) & (below <= end)
    return float(np.polyfit(when[part], below[part], 1)[0]) if part.sum() > 2 else np.nan


def inside(x: np.ndarray, cell: float) -> np.ndarray:
    """Which grains are no more than half a cell outside the glass."""
    return np.asarray((np.hypot(x[:, 0], x[:, 1]) < radius(x[:, 2]) + cell / 2) & (np.abs(x[:, 2]) < HALF + cell))


def layer(x: np.ndarray) -> np.ndarray:
    """The colour of each grain, by layers of the sand as it was filled."""
    return (6 * x[:, 2] / FILLED).astype(int) % len(SANDS)


def parts(params: mpm.Params, path: np.ndarray, kind: np.ndarray) -> list[Any]:
    """What is drawn: the sand in its colours, and the glass."""
    grains = [Grains(path[:, :, kind == k], 0.33 * params.cell, color) for k, color in enumerate(SANDS)]
    sides, rows = 64, 61
    z, angle = np.linspace(-HALF, HALF, rows), 2 * np.pi * np.arange(sides) / sides
    r = radius(z)[:, None] + 0.3 * params.cell
    ring = np.stack([r * np.cos(angle), r * np.sin(angle), np.broadcast_to(z[:, None] + MIDDLE, (rows, sides))], -1)
    i, j = np.meshgrid(np.arange(rows - 1), np.arange(sides), indexing="ij")
    a, b, c, d = (((i + p) * sides + (j + q) % sides).ravel() for p, q in ((0, 0), (0, 1), (1, 0), (1, 1)))
    faces = np.concatenate([np.stack([a, b, d], 1), np.stack([a, d, c], 1)])
    shell = np.broadcast_to(ring.reshape(1, 1, -1, 3), (len(path), 1, rows * sides, 3))
    return [*grains, Flex(faces, shell, GLASS, radius=1e-4)]


def wood() -> str:
    """The plates and pillars that hold the glass, and a lamp, MJCF."""
    brown, wide, thick = 'rgba="0.48 0.31 0.2 1"', BULB + 0.025, 0.008
    places = MIDDLE - HALF - thick, MIDDLE + HALF + thick
    plates = (f'<geom type="cylinder" pos="0 0 {z}" size="{wide} {thick}" {brown}/>' for z in places)
    angles = np.pi * np.array([0.25, 0.75, 1.25, 1.75]) + 0.2
    pillars = (
        f'<geom type="cylinder" pos="{(wide - 0.01) * np.cos(a)} {(wide - 0.01) * np.sin(a)} {MIDDLE}" '
        f'size="0.005 {HALF}" {brown}/>'
        for a in angles
    )
    lamp = '<light directional="true" dir="-0.4 1 -0.35" castshadow="false" diffuse="0.5 0.5 0.5"/>'
    return "".join([lamp, *plates, *pillars])


def _figure(pictures: Any, when: np.ndarray, below: np.ndarray) -> Any:
    figure, (axes,) = film.strip(pictures, (0.0, 0.3, 0.6, 1.0))
    axes.plot(when, 100 * below, color="#2a6db5")
    axes.set(xlabel="time [s]", ylabel="sand below the neck [%]", ylim=(0, 100))
    return figure
