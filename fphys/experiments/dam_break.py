"""A dam breaks, and the water meets a block.

The tank, the column and the block are those of Kleefsman et al. (2005), SPHERIC's second benchmark, with lengths
rounded to whole cells. The water is a liquid of the material point method, between walls that hold the field on their
faces. There is no search. The success test: no particle is lost or deep in the block, mechanical energy never rises,
and the front reaches the block later than a front without any friction would, by Ritter's 2 sqrt(g H), and in less
than twice that time.
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import numpy as np

from fphys.particles import boundary, mpm, sample
from fphys.render import Camera, Surface
from fphys.runs import Run

from . import expect_positive, film

LENGTH, WIDTH, HEIGHT = 3.22, 1.0, 1.5  # m, of the tank; HEIGHT is where the domain ends
COLUMN = (1.228, 1.0, 0.55)  # m, of the water
BLOCK = (2.4755, 0.5, 0.0), (0.0805, 0.2015, 0.161)
"""Middle and half edges [m]. Half of it is in the ground, so that no lower face presses water through the floor."""
GRAVITY, DENSITY = 9.81, 1000.0
SOUND = 30.0  # m/s
SHOWN = 30  # pictures a second
KEPT = 20_000  # particles that are saved to be viewed
RISE = 0.01  # of the energy at the start
GLASS = 'rgba="0.75 0.85 0.9 0.15"'


@dataclasses.dataclass(frozen=True)
class Config:
    across: int = 21
    """Cells across the tank; a cell holds eight particles. 21 are 50 thousand, 26 are 97 thousand."""
    duration: float = 3.5
    """Length of the motion [s]."""

    def __post_init__(self) -> None:
        expect_positive(self)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Let the dam break, in float32."""
    params, state, block = beginning(config)
    count = max(round(1 / (SHOWN * float(params.timestep))), 1)
    begun, shown, energy = time.perf_counter(), [np.asarray(state.x[0])], [total(state)]
    for i in run.progress(round(config.duration * SHOWN), "dam-break"):
        state = advance(params, state, block, count)
        shown.append(np.asarray(state.x[0]))
        energy.append(total(state))
        run.log(i, energy=energy[-1])
    seconds = time.perf_counter() - begun
    mpm.check(params, state)
    path, when = np.array(shown), np.arange(len(shown)) / SHOWN
    face = BLOCK[0][0] - BLOCK[1][0]
    front = np.quantile(path[:, :, 0], 0.998, axis=1)
    arrival = float(np.interp(face, front[: front.argmax() + 1], when[: front.argmax() + 1]))
    ritter = (face - COLUMN[0]) / (2 * np.sqrt(GRAVITY * COLUMN[2]))
    lost = int((~inside(path[-1], params.cell)).sum())
    rise = float(np.maximum.accumulate(energy[::-1])[::-1][1:].max() / energy[0] - 1)
    run.save(front=front, energy=np.array(energy))
    kept = path[:, None, :: -(-path.shape[1] // KEPT)]
    run.motion(when, film.stage(props(params)), x=kept, radius=0.35 * params.cell)
    water = Surface(path[:, None], params.cell / 2, (0.16, 0.44, 0.72, 0.85))
    view = Camera(azimuth=125, elevation=-27, track=False, lookat=(1.65, 0.5, 0.3), distance=3.7)
    pictures = film.deforming(run, [water], 1 / SHOWN, props(params), view, 720, 1280)
    run.plot("dam-break", _figure(pictures, when, front, np.array(energy) / energy[0], face, ritter))
    return {
        "success": bool(lost == 0 and rise < RISE and ritter < arrival < 2 * ritter),
        "lost": lost,
        "arrival_seconds": arrival,
        "ritter_seconds": ritter,
        "energy_rise": rise,
        "energy_left": energy[-1] / energy[0],
        "particles": path.shape[1],
        "steps": count * (len(path) - 1),
        "simulation_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[mpm.Params, mpm.State, boundary.Collider]:
    """The column of water at one end of the tank, and the block."""
    cell = WIDTH / config.across
    steps = np.ceil(SOUND / (0.45 * cell * SHOWN))  # between two pictures
    params = mpm.Params(
        material=mpm.Liquid(density=DENSITY, bulk=DENSITY * SOUND**2),
        timestep=1 / (SHOWN * steps),
        gravity=(0.0, 0.0, -GRAVITY),
        walls=mpm.Walls("separate", hold="face"),
        cell=cell,
        shape=(round(LENGTH / cell), config.across, round(HEIGHT / cell)),
    )
    x = sample.box((0.0, 0.0, 0.0), COLUMN, cell / 2)
    x = x + np.random.default_rng(0).uniform(-cell / 8, cell / 8, x.shape)  # no rows, which the flow would draw out
    state = mpm.init(params, x.astype(np.float32)[None], volume=float(np.prod(COLUMN)) / len(x))
    return params, state, boundary.box(*BLOCK)


@functools.partial(jax.jit, static_argnums=3)
def advance(params: mpm.Params, state: mpm.State, block: boundary.Collider, count: int) -> mpm.State:
    """The state ``count`` steps later."""
    return jax.lax.fori_loop(0, count, lambda _, s: mpm.step(params, s, colliders=block), state)


def total(state: mpm.State) -> float:
    """Kinetic energy and that of height [J]."""
    x, v, volume = (np.asarray(a[0], float) for a in (state.x, state.v, state.volume))
    return float((DENSITY * volume * (0.5 * (v**2).sum(-1) + GRAVITY * x[:, 2])).sum())


def inside(x: np.ndarray, cell: float) -> np.ndarray:
    """Which particles are in the tank, and less than three quarters of a cell inside the block."""
    length = round(LENGTH / cell) * cell
    tank = (x > -cell / 2) & (x < [length + cell / 2, WIDTH + cell / 2, HEIGHT + cell / 2])
    deep = np.abs(x - BLOCK[0]) < np.array(BLOCK[1]) - 0.75 * cell
    return np.asarray(tank.all(-1) & ~deep.all(-1))


def props(params: mpm.Params) -> str:
    """The tank of glass and the block, MJCF."""
    length, thick, high = params.shape[0] * params.cell, 0.01, 0.5
    gap = thick + 0.2 * params.cell  # the surface of the water is a little outside its particles

    def pane(x: float, y: float, dx: float, dy: float) -> str:
        return f'<geom type="box" pos="{x} {y} {high}" size="{dx} {dy} {high}" {GLASS}/>'

    middle, half = (" ".join(map(str, numbers)) for numbers in BLOCK)
    return "".join(
        [
            f'<geom type="box" pos="{middle}" size="{half}" rgba="0.93 0.42 0.16 1"/>',
            *(pane(x, WIDTH / 2, thick, WIDTH / 2 + gap) for x in (-gap, length + gap)),
            *(pane(length / 2, y, length / 2 + gap, thick) for y in (-gap, WIDTH + gap)),
        ]
    )


def _figure(pictures: Any, when: Any, front: Any, energy: Any, face: float, ritter: float) -> Any:
    figure, (left, right) = film.strip(pictures, (0.1, 0.17, 0.3), 2)
    early = when < 3 * ritter
    left.plot(when[early], front[early], color="#2a6db5", label="the front")
    left.plot([0, ritter], [COLUMN[0], face], color="#6b7280", linestyle=":", label="without friction (Ritter)")
    left.axhline(face, color="#ec6a29", linewidth=0.8)
    left.set(xlabel="time [s]", ylabel="where the front is [m]", ylim=(COLUMN[0] - 0.1, face + 0.3))
    left.legend(frameon=False)
    right.plot(when, energy, color="#2a6db5")
    right.set(xlabel="time [s]", ylabel="mechanical energy / the first [-]", ylim=(0, 1.1))
    return figure
