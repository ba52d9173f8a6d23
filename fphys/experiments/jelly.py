"""Jelly falls into a tray and piles up.

Balls and cubes of soft rubber, particles of the material point method, are dropped on one another. There is no
search. The success test: no particle is lost, none is inside out, no body loses more volume than the weight of the
pile explains, and the pile comes to rest.
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import numpy as np

from fphys.particles import mpm, sample
from fphys.render import Camera, Surface
from fphys.runs import Run

from . import expect_positive, film

TRAY, HEIGHT = 0.8, 2.0  # m, edge of the tray, and where the domain ends
SIZE = 0.26  # m, diameter of a ball, edge of a cube times 1.15
SHOWN = 30  # pictures a second
KEPT = 20_000  # particles that are saved to be viewed
SWELL = 0.15  # relative change of a body's volume: a pile 0.65 m high presses with rho g h = 0.14 of the bulk modulus
CALM = 0.15  # m/s, root of the mean square
COLORS = (
    (0.90, 0.26, 0.30),
    (0.98, 0.66, 0.18),
    (0.27, 0.66, 0.42),
    (0.20, 0.49, 0.80),
    (0.56, 0.36, 0.72),
    (0.94, 0.48, 0.64),
)
GLASS = 'rgba="0.75 0.85 0.9 0.18"'


@dataclasses.dataclass(frozen=True)
class Config:
    bodies: int = 12
    """Balls and cubes in turn."""
    across: int = 32
    """Cells across the tray; a cell holds eight particles."""
    young: float = 4e4
    """Young's modulus [Pa]."""
    duration: float = 3.2
    """Length of the motion [s]."""
    seed: int = 0
    """Of where and how they begin."""

    def __post_init__(self) -> None:
        expect_positive(self)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Let them fall, in float32."""
    params, state, body = beginning(config)
    count = round(1 / (SHOWN * float(params.timestep)))
    begun, shown, speed = time.perf_counter(), [np.asarray(state.x[0])], [0.0]
    for i in run.progress(round(config.duration * SHOWN), "jelly"):
        state = advance(params, state, count)
        shown.append(np.asarray(state.x[0]))
        speed.append(float(np.sqrt((np.asarray(state.v[0], float) ** 2).sum(-1).mean())))
        run.log(i, speed=speed[-1])
    seconds = time.perf_counter() - begun
    mpm.check(params, state)
    path, when = np.array(shown), np.arange(len(shown)) / SHOWN
    ratio = np.linalg.det(np.asarray(state.F[0], float))
    swell = max(abs(ratio[body == k].mean() - 1) for k in range(config.bodies))
    run.save(speed=np.array(speed))
    color = np.array(COLORS)[body % len(COLORS)]
    some = slice(None, None, -(-path.shape[1] // KEPT))
    run.motion(when, film.stage(tray()), x=path[:, None, some], color=color[some], radius=params.cell / 4)
    jellies = [
        Surface(path[:, None, body == k], params.cell / 2, COLORS[k % len(COLORS)], shine=0.9, drops=False)
        for k in range(config.bodies)
    ]
    view = Camera(azimuth=115, elevation=-27, track=False, lookat=(TRAY / 2, TRAY / 2, 0.4), distance=1.9)
    pictures = film.deforming(run, jellies, 1 / SHOWN, tray(), view, 720, 1280)
    run.plot("jelly", _figure(pictures, when, np.array(speed)))
    return {
        "success": bool(swell < SWELL and ratio.min() > 0 and speed[-1] < CALM),
        "swell": float(swell),
        "least_volume_ratio": float(ratio.min()),
        "final_speed": speed[-1],
        "particles": path.shape[1],
        "steps": count * (len(path) - 1),
        "simulation_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[mpm.Params, mpm.State, np.ndarray]:
    """The bodies above the tray, turned at random, four to a layer; and to which of them each particle belongs."""
    cell, rng = TRAY / config.across, np.random.default_rng(config.seed)
    bodies = []
    for k in range(config.bodies):
        x = sample.ball((0.0,) * 3, SIZE / 2, cell / 2)
        if k % 2:
            half = SIZE / 2.3
            x = sample.box((-half,) * 3, (half,) * 3, cell / 2) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
        place = np.array([k % 2, k // 2 % 2]) * 0.36 + 0.22 + rng.uniform(-0.03, 0.03, 2)
        bodies.append(x + [*place, 0.25 + 0.4 * (k // 4) + 0.08 * (k % 4)])
    jelly = mpm.Corotated(density=1000.0, young=config.young, poisson=0.35)
    speed = np.sqrt(float(np.asarray(jelly.modulus())) / 1000.0) + 2.0  # sound, and some of the fall
    top = max(float(x[:, 2].max()) for x in bodies)
    params = mpm.Params(
        material=jelly,
        timestep=1 / (SHOWN * np.ceil(speed / (0.4 * cell * SHOWN))),
        gravity=(0.0, 0.0, -9.81),
        walls=mpm.Walls("separate", friction=0.4),
        cell=cell,
        shape=(config.across, config.across, int(np.ceil(max(top, HEIGHT) / cell)) + 2),
    )
    state = mpm.init(params, np.concatenate(bodies).astype(np.float32)[None])
    return params, state, np.repeat(np.arange(config.bodies), list(map(len, bodies)))


@functools.partial(jax.jit, static_argnums=2)
def advance(params: mpm.Params, state: mpm.State, count: int) -> mpm.State:
    """The state ``count`` steps later."""
    return jax.lax.fori_loop(0, count, lambda _, s: mpm.step(params, s), state)


def tray() -> str:
    """Glass around the floor, MJCF."""
    half, high, thick = TRAY / 2, 0.15, 0.008
    sides = [(-thick, half, thick, half), (TRAY + thick, half, thick, half)]
    sides += [(half, -thick, half, thick), (half, TRAY + thick, half, thick)]
    return "".join(f'<geom type="box" pos="{x} {y} {high}" size="{a} {b} {high}" {GLASS}/>' for x, y, a, b in sides)


def _figure(pictures: Any, when: np.ndarray, speed: np.ndarray) -> Any:
    figure, (axes,) = film.strip(pictures, (0.1, 0.25, 0.5, 1.0))
    axes.plot(when, speed, color="#2a6db5")
    axes.set(xlabel="time [s]", ylabel="speed, RMS [m/s]", ylim=(0, None))
    return figure
