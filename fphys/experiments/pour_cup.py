"""A cup pours a given volume of water into another. How far it tilts is found by search, in worlds side by side.

A motor tilts the cup about its lip, keeps it there and turns it back. The water (MPM) pushes on the cup, and so on the
motor, which follows its angle by a PD law. The volume poured grows with the largest angle. Each round plays angles that
are closer together, around the one that linear interpolation gives; the best that was played is kept.
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
from fphys.render import Camera
from fphys.runs import Run

from . import expect_positive, film
from .lattice import lattice
from .mix import dots

Array = jax.Array

BAR = 0.05  # relative
STEP = 0.004  # s
SOUND = 8.0  # m/s
HELD = np.array([[-0.12, -0.045, -0.135], [-0.03, 0.045, 0.0]])  # m, ends of the held cup's inside, from the lip
OTHER = np.array([[-0.03, -0.06, 0.01], [0.15, 0.06, 0.13]])  # m, ends of the other cup's inside
LIP = 0.32  # m, height of the lip, about which the cup turns
WALL = 0.03  # m, thickness of all walls: two cells
UP, STAY, BACK, REST = 0.8, 0.4, 0.5, 0.8  # s


@dataclasses.dataclass(frozen=True)
class Config:
    litres: float = 0.3
    """Volume to be poured."""
    depth: float = 0.105
    """Of the water in the cup at first [m]."""
    cell: float = 0.015
    """Edge of the grid's cells [m]."""
    worlds: int = 6
    """Angles that are played at once."""
    rounds: int = 2
    """Rounds of the search."""

    def __post_init__(self) -> None:
        expect_positive(self)
        if self.worlds < 2:
            raise ValueError(f"--worlds is {self.worlds}: it must be 2 or more, to interpolate between")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the angle; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    model, medium, water, substeps = scene(config)
    litres = 1e3 * (config.cell / 2) ** 3
    play = jax.jit(lambda angles: pour(model, medium, water, substeps, angles))
    begun, low, high = time.perf_counter(), math.radians(50), math.radians(85)
    angles, tried, found, best = np.linspace(low, high, config.worlds), np.zeros(0), np.zeros(0), np.inf
    for i in run.progress(config.rounds, "pour-cup"):
        last, paths = play(jnp.asarray(angles))
        fphys.check(last[0])
        mpm.check(medium.params, last[1])
        volumes = litres * np.asarray(received(last[1].x).sum(1))
        tried, found = np.append(tried, angles), np.append(found, volumes)
        k = abs(volumes - config.litres).argmin()
        if abs(volumes[k] - config.litres) < best:
            best, angle, poured = abs(volumes[k] - config.litres), angles[k], volumes[k]
            qpos, x, torque = (np.asarray(a[:, k]) for a in paths)
        run.log(i, error=best / config.litres)
        width = (high - low) / 8 ** (i + 1)
        angles = between(tried, found, config.litres) + width * np.linspace(-0.5, 0.5, config.worlds)
    seconds = time.perf_counter() - begun
    lost = litres * int((~(received(x[-1]) | kept(x[-1]))).sum())
    run.save(angles=tried, litres=found, torque=torque)
    start = fphys.init(model, 1)
    states = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (len(x), *a.shape)), start)
    states, when = states.replace(qpos=qpos[:, None]), STEP * _every() * np.arange(1, len(x) + 1)
    run.motion(when, model, states, x=x[:, None], radius=config.cell / 4)
    pictures = _film(run, model, states, x, config)
    run.plot("pour-cup", _figure(pictures, tried, found, config, torque))
    return {
        "success": bool(best < BAR * config.litres),
        "litres": float(poured),
        "error": float(poured / config.litres - 1),
        "beside_the_cups": float(lost),
        "angle_degrees": math.degrees(angle),
        "particles": int(water.x.shape[1]),
        "search_seconds": round(seconds, 2),
    }


def scene(config: Config) -> tuple[fphys.Model, coupling.MPM, mpm.State, int]:
    """The cups, the water as a medium and at the start, and its steps in one of the bodies."""
    held, other = walls(HELD, "held"), walls(OTHER, "other")
    glass = "".join(box(f"seen{k}", ends, 'rgba=".95 .65 .4 .35"') for k, (_, ends) in enumerate(_thin(HELD)))
    rest = "".join(box(f"rest{k}", ends, 'rgba=".75 .85 .95 .22"') for k, (_, ends) in enumerate(_thin(OTHER)))
    clear = 'group="4" friction="0" mass=".05"'
    props = f"""{"".join(box(name, ends, clear) for name, ends in other)}{rest}
<body name="cup" pos="0 0 {LIP}"><joint name="tilt" type="hinge" axis="0 1 0" armature=".01" damping=".5"/>
{"".join(box(name, ends, clear) for name, ends in held)}{glass}</body>"""
    motor = '<actuator><position name="motor" joint="tilt" kp="200" kv="4"/></actuator>'
    model = fphys.load(film.stage(props).replace("</mujoco>", f"{motor}</mujoco>"), dtype=jnp.float64)
    model = model.replace({"opt.timestep": jnp.full_like(model.opt.timestep, STEP)})
    substeps = math.ceil(STEP * SOUND / (0.4 * config.cell))
    lower, upper = np.array([-0.33, -0.105, -0.03]), np.array([0.21, 0.105, 0.51])
    params = mpm.Params(
        mpm.Liquid(1000.0, bulk=1000.0 * SOUND**2, gamma=7.0),
        STEP / substeps,
        np.array([0.0, 0.0, -9.81]),
        cell=config.cell,
        shape=tuple(np.ceil((upper - lower) / config.cell - 1e-9).astype(int).tolist()),
        lower=tuple(lower.tolist()),
    )
    top = HELD[1] * [1, 1, 0] + [0, 0, HELD[0, 2] + config.depth]
    x = lattice(HELD[0].tolist(), top.tolist(), config.cell / 2) + [0.0, 0.0, LIP]
    names = tuple(name for name, _ in held + other)
    return model, coupling.MPM(params, names), mpm.init(params, jnp.asarray(x[None])), substeps


def walls(inside: np.ndarray, name: str, thick: float = WALL) -> list[tuple[str, np.ndarray]]:
    """The floor and sides of a cup around its inside: name and ends of each, in the frame of its ends.

    They overlap at edges and corners: a node in one of them is pushed to its nearest face, which must not be a joint.
    """
    (x, y, z), (a, b, c) = inside
    t = thick
    ends = [
        [[x - t, y - t, z - t], [a + t, b + t, z]],
        [[x - t, y - t, z - t], [x, b + t, c]],
        [[a, y - t, z - t], [a + t, b + t, c]],
        [[x - t, y - t, z - t], [a + t, y, c]],
        [[x - t, b, z - t], [a + t, b + t, c]],
    ]
    return [(f"{name}{k}", np.array(e)) for k, e in enumerate(ends)]


def _thin(inside: np.ndarray) -> list[tuple[str, np.ndarray]]:
    return walls(inside, "", 0.004)


def box(name: str, ends: np.ndarray, rest: str) -> str:
    """MJCF of a box that only matter feels."""
    middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    unseen = 'contype="0" conaffinity="0"'
    numbers = [" ".join(f"{v:.6g}" for v in vector) for vector in (middle, half)]
    mass = "" if "mass" in rest else 'mass="0"'
    return f'<geom name="{name}" type="box" pos="{numbers[0]}" size="{numbers[1]}" {unseen} {mass} {rest}/>'


def tilt(angle: Array, time: Array) -> Array:
    """The wanted angle: up to ``angle``, kept, and back to zero; smooth."""
    smooth = lambda s: jnp.clip(s, 0, 1) ** 2 * (3 - 2 * jnp.clip(s, 0, 1))  # noqa: E731
    return angle * (smooth(time / UP) - smooth((time - UP - STAY) / BACK))


def pour(model: fphys.Model, medium: coupling.MPM, water: mpm.State, substeps: int, angles: Array) -> Any:
    """The cup and the water at the end; the cup's angle, particles and motor's torque at times of the film.

    Args:
        angles: the largest of each world [rad], shape (world,).
    """
    worlds, every = len(angles), _every()
    body = fphys.init(model, worlds)
    matter = jax.tree.map(lambda a: jnp.broadcast_to(a, (worlds, *a.shape[1:])), water)

    def advance(now: Any, time: Array) -> tuple[Any, None]:
        aim = tilt(angles, time)[:, None]
        body, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps, ctrl=aim)
        return (body, matter), None

    def some(now: Any, times: Array) -> Any:
        now, _ = jax.lax.scan(advance, now, times)
        torque = 200.0 * (tilt(angles, times[-1]) - now[0].qpos[:, 0]) - 4.0 * now[0].qvel[:, 0]
        return now, (now[0].qpos, now[1].x, torque)

    times = STEP * jnp.arange(math.ceil((UP + STAY + BACK + REST) / (STEP * every)) * every).reshape(-1, every)
    return jax.lax.scan(some, (body, matter), times)


def _every() -> int:
    return max(round(1 / (film.FPS * STEP)), 1)


def received(x: Any) -> Any:
    """Which particles are in the other cup."""
    return ((x > OTHER[0] - 0.012) & (x < OTHER[1] + 0.012)).all(-1)


def kept(x: Any) -> Any:
    """Which particles are in the held cup, upright."""
    x = x - np.array([0.0, 0.0, LIP])
    return ((x > HELD[0] - 0.012) & (x < HELD[1] + 0.012)).all(-1)


def between(angles: np.ndarray, litres: np.ndarray, wanted: float) -> float:
    """The angle at which a volume would be poured, by interpolation."""
    order = np.argsort(angles)
    rising = np.maximum.accumulate(litres[order]) + 1e-9 * np.arange(len(order))
    return float(np.interp(wanted, rising, angles[order]))


def _film(run: Run, model: fphys.Model, states: Any, x: np.ndarray, config: Config) -> Any:
    water = dots(x, (0.25, 0.5, 0.85), 0.32 * config.cell)
    camera = Camera(azimuth=75, elevation=-33, distance=0.85, lookat=(-0.02, 0.0, 0.2))
    return film.among(run, model, states, [water], 1 / (_every() * STEP), camera)


def _figure(pictures: Any, tried: np.ndarray, found: np.ndarray, config: Config, torque: np.ndarray) -> Any:
    figure, (left, right) = film.strip(pictures, (0.0, 0.3, 0.48, 1.0), 2)
    order = np.argsort(tried)
    left.plot(np.degrees(tried[order]), found[order], "o-", markersize=3, color="#2a6db5")
    left.axhline(config.litres, color="#6b7280", linewidth=0.8, linestyle=":")
    left.set(xlabel="largest angle [degrees]", ylabel="poured [litres]")
    right.plot(STEP * _every() * np.arange(1, len(torque) + 1), torque, color="#ec6a29")
    right.set(xlabel="t [s]", ylabel="torque of the motor [N m]")
    return figure
