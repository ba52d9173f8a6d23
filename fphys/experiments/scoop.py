"""A scoop lifts a given mass of sand. How deep it digs is found by search, in worlds side by side.

An arm of two slides and a hinge, each with a motor that follows a path, pushes the scoop through a bed of sand (MPM),
tips it back and lifts it. The sand pushes on the scoop, and so on the motors. The mass lifted grows with the depth.
Each round plays depths that are closer together, around the one that linear interpolation gives; the best is kept.
"""

import dataclasses
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling
from fphys.particles import mpm
from fphys.render import Camera, Grains
from fphys.runs import Run

from . import expect_positive, film
from .lattice import lattice
from .pour_cup import between, box, walls

Array = jax.Array

BAR = 0.05  # relative
STEP = 0.004  # s
DENSITY, YOUNG = 1600.0, 1e5  # kg/m^3, Pa
BED = np.array([[-0.24, -0.12, 0.0], [0.24, 0.12, 0.09]])  # m, ends of the sand
INSIDE = np.array([[-0.16, -0.06, 0.0], [0.0, 0.06, 0.1]])  # m, of the scoop; it is open in front (+x) and above
START = (-0.1, 0.16)  # m, where its edge begins
HIGH = 0.32  # m, where its edge ends
LIFTED = 0.2  # m, height of what counts as lifted
FORCES = 3000.0, 3000.0, 300.0  # N/m, N/m, N m, of the motors by what they are off
MOVE = 1.6  # s


@dataclasses.dataclass(frozen=True)
class Config:
    grams: float = 350.0
    """Mass to be lifted."""
    cell: float = 0.02
    """Edge of the grid's cells [m]: half of it is between grains at first, and the scoop is two cells thick."""
    friction: float = 0.4
    """Of sand on the scoop."""
    worlds: int = 4
    """Depths that are played at once."""
    rounds: int = 2
    """Rounds of the search."""
    shallow: float = 0.01
    """Least depth of the first round [m]."""
    deep: float = 0.04
    """Largest depth of the first round [m]."""

    def __post_init__(self) -> None:
        expect_positive(self, "friction")
        if self.worlds < 2:
            raise ValueError(f"--worlds is {self.worlds}: it must be 2 or more, to interpolate between")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the depth; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    model, medium, sand, substeps = scene(config)
    grain = 1e3 * DENSITY * (config.cell / 2) ** 3
    play = jax.jit(lambda depths: dig(model, medium, sand, substeps, depths))
    begun, low, high = time.perf_counter(), config.shallow, config.deep
    depths, tried, found, best = np.linspace(low, high, config.worlds), np.zeros(0), np.zeros(0), np.inf
    for i in run.progress(config.rounds, "scoop"):
        last, paths = play(jnp.asarray(depths))
        fphys.check(last[0])
        mpm.check(medium.params, last[1])
        grams = grain * np.asarray((last[1].x[..., 2] > LIFTED).sum(1))
        tried, found = np.append(tried, depths), np.append(found, grams)
        k = abs(grams - config.grams).argmin()
        if abs(grams[k] - config.grams) < best:
            best, depth, lifted = abs(grams[k] - config.grams), depths[k], float(grams[k])
            qpos, x, force = (np.asarray(a[:, k]) for a in paths)
        run.log(i, error=best / config.grams)
        width = (high - low) / 8 ** (i + 1)
        depths = between(tried, found, config.grams) + width * np.linspace(-0.5, 0.5, config.worlds)
    seconds = time.perf_counter() - begun
    run.save(depths=tried, grams=found, force=force)
    x, when = x[:, None], STEP * _every() * np.arange(1, len(x) + 1)
    states = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (len(x), *a.shape)), fphys.init(model, 1))
    states = states.replace(qpos=qpos[:, None])
    run.motion(when, model, states, x=x, radius=config.cell / 4)
    camera = Camera(azimuth=150, elevation=-33, distance=0.95, lookat=(-0.02, 0.0, 0.14))
    grains = Grains(x, 0.42 * config.cell)
    pictures = film.among(run, model, states, [grains], 1 / (_every() * STEP), camera)
    run.plot("scoop", _figure(pictures, tried, found, config, when, force))
    return {
        "success": bool(abs(lifted / config.grams - 1) < BAR),
        "grams": lifted,
        "error": lifted / config.grams - 1,
        "depth": float(depth),
        "largest_push": float(abs(force[:, 0]).max()),
        "particles": int(sand.x.shape[1]),
        "search_seconds": round(seconds, 2),
    }


def scene(config: Config) -> tuple[fphys.Model, coupling.MPM, mpm.State, int]:
    """The scoop, the sand as a medium and at the start, and its steps in one of the bodies."""
    iron = f'rgba=".66 .69 .73 1" friction="{config.friction}" mass=".3"'
    plates = walls(INSIDE, "scoop", 2 * config.cell)
    plates = [(name, ends) for k, (name, ends) in enumerate(plates) if k != 2]  # without the front
    for _, ends in plates:
        ends[1, 0] = min(ends[1, 0], INSIDE[1, 0])
    kinds = ("x", "slide", "1 0 0", 1), ("z", "slide", "0 0 1", 1), ("tip", "hinge", "0 1 0", 0.05)
    joints = "".join(f'<joint name="{n}" type="{k}" axis="{axis}" armature="{a}"/>' for n, k, axis, a in kinds)
    wood = 'rgba=".6 .45 .3 1" contype="0" conaffinity="0"'
    props = f"""{_sides()}<body name="scoop" pos="{START[0]} 0 {START[1]}" gravcomp="1">{joints}
{"".join(box(name, ends, iron) for name, ends in plates)}
<geom type="capsule" fromto="-.18 0 .07 -.36 0 .2" size=".014" mass=".2" {wood}/></body>"""
    motor = '<position joint="{}" kp="{}" kv="{}"/>'
    motors = "".join(motor.format(k[0], kp, 0.06 * kp) for k, kp in zip(kinds, FORCES, strict=True))
    text = film.stage(props).replace("</mujoco>", f"<actuator>{motors}</actuator></mujoco>")
    model = fphys.load(text, dtype=jnp.float64)
    model = model.replace({"opt.timestep": jnp.full_like(model.opt.timestep, STEP)})
    law = mpm.Sand(DENSITY, YOUNG, 0.3)
    sound = float(np.sqrt(law.modulus() / DENSITY))
    substeps = math.ceil(STEP * sound / (0.4 * config.cell))
    size = (BED[1] - BED[0]) * [1, 1, 0] + [0, 0, 0.6]
    params = mpm.Params(
        law,
        STEP / substeps,
        np.array([0.0, 0.0, -9.81]),
        walls=mpm.Walls(("slip",) * 4 + ("sticky", "slip")),
        cell=config.cell,
        shape=tuple(np.ceil(size / config.cell - 1e-9).astype(int).tolist()),
        lower=tuple(BED[0].tolist()),
    )
    x = lattice(BED[0].tolist(), BED[1].tolist(), config.cell / 2)
    return (
        model,
        coupling.MPM(params, tuple(name for name, _ in plates)),
        mpm.init(params, jnp.asarray(x[None])),
        substeps,
    )


def _sides() -> str:
    """Glass around the bed, which is drawn."""
    (x, y, _), (a, b, c) = BED
    t, high = 0.006, c / 2 + 0.02
    sides = (0, y - t, a + 2 * t, t), (0, b + t, a + 2 * t, t), (x - t, 0, t, b), (a + t, 0, t, b)
    one = '<geom type="box" pos="{} {} {}" size="{} {} {}" rgba=".7 .8 .9 .22" contype="0" conaffinity="0"/>'
    return "".join(one.format(px, py, high, sx, sy, high) for px, py, sx, sy in sides)


def path(depth: Array, time: Array) -> Array:
    """Where the scoop's edge is to be, from its start [m], and its tip [rad], shape (world, 3)."""

    def smooth(first: float, last: float) -> Array:
        s = jnp.clip((time - first) / (last - first), 0, 1)
        return s**2 * (3 - 2 * s)

    down = START[1] - BED[1, 2] + depth
    x = 0.22 * smooth(0.3, 0.95)
    z = -down * smooth(0.0, 0.4) + (down + HIGH - START[1]) * smooth(0.9, 1.4)
    tip = 0.25 * smooth(0.0, 0.3) - 0.75 * smooth(0.65, 1.05)
    return jnp.stack([jnp.broadcast_to(x, depth.shape), z, jnp.broadcast_to(tip, depth.shape)], -1)


def dig(model: fphys.Model, medium: coupling.MPM, sand: mpm.State, substeps: int, depths: Array) -> Any:
    """The scoop and the sand at the end; joints, particles and motors' forces at times of the film.

    Args:
        depths: of the scoop's edge below the sand's surface in each world [m], shape (world,).
    """
    worlds = len(depths)
    matter = jax.tree.map(lambda a: jnp.broadcast_to(a, (worlds, *a.shape[1:])), sand)

    def advance(now: Any, time: Array) -> tuple[Any, None]:
        aim = path(depths, time)
        body, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps, ctrl=aim)
        return (body, matter), None

    def some(now: Any, times: Array) -> Any:
        now, _ = jax.lax.scan(advance, now, times)
        pull = jnp.array([FORCES]) * (path(depths, times[-1]) - now[0].qpos - 0.06 * now[0].qvel)
        return now, (now[0].qpos, now[1].x, pull)

    every = _every()
    times = STEP * jnp.arange(math.ceil(MOVE / (STEP * every)) * every).reshape(-1, every)
    return jax.lax.scan(some, (fphys.init(model, worlds), matter), times)


def _every() -> int:
    return max(round(1 / (film.FPS * STEP)), 1)


def _figure(pictures: Any, tried: np.ndarray, found: np.ndarray, config: Config, when: Any, force: np.ndarray) -> Any:
    figure, (left, right) = film.strip(pictures, (0.0, 0.5, 1.0), 2)
    order = np.argsort(tried)
    left.plot(1e3 * tried[order], found[order], "o-", markersize=3, color="#b8860b")
    left.axhline(config.grams, color="#6b7280", linewidth=0.8, linestyle=":")
    left.set(xlabel="depth [mm]", ylabel="lifted [g]")
    for k, (name, color) in enumerate((("forwards", "#2a6db5"), ("upwards", "#ec6a29"))):
        right.plot(when, force[:, k], color=color, label=name)
    right.set(xlabel="t [s]", ylabel="force of the motors [N]")
    right.legend(frameon=False, fontsize=8)
    return figure
