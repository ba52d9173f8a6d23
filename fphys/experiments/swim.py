"""An eel of five links learns to swim. Gradients through links and water find how its joints move.

The eel, a chain of capsules, floats in the middle of a closed tank of water (MPM), all in the plane. Motors bend its
four joints, each along a sine of a given frequency. Links and water push each other (:mod:`fphys.coupling`): nothing
else moves the eel, and all that it gains the water loses. The unknowns are a sine and a cosine of every joint. At first
all joints bend together, and the eel hardly moves on. Adam takes them from the direction of the gradient of its speed
in the last beat, back through all steps. What it finds is a wave that runs towards the tail.

Only the direction counts: small changes of the water grow, and the gradient is a hundred times as steep as the speed
is over a tenth of a radian.
"""

import dataclasses
import math
import time
from typing import Any, NamedTuple

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

BAR = 0.3  # body lengths per second
STEP = 0.005  # s
CELL = 0.03  # m, of the water's grid
SOUND = 8.0  # m/s, in the water
PRESSED = 0.97  # part of its volume at rest that the water has, so that it follows where the eel leaves
LINKS = 5
LINK, RADIUS = 4 * CELL, CELL  # m, length of a link and half its width
LENGTH = LINKS * LINK  # m
TANK = CELL * np.array([44, 16])  # m
TAIL = 0.27  # m, where the tail's end is at first
STIFF, DAMPED = 200.0, 8.0  # N m/rad and N m s/rad, of the motors, for a metre of depth
WATER = (0.25, 0.5, 0.85), (0.55, 0.75, 0.95)
COLORS = "#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0"


@dataclasses.dataclass(frozen=True)
class Config:
    frequency: float = 2.5
    """Beats a second."""
    beats: int = 3
    """How many; the last one counts."""
    amplitude: float = 0.6
    """How far a joint may bend [rad]."""
    iterations: int = 15
    """Gradient steps."""
    rate: float = 0.1
    """Adam's step at the start, which falls to zero as a cosine [rad]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")
        if self.frequency * STEP > 0.1:
            raise ValueError(
                f"--frequency is {self.frequency}: a beat needs ten steps of {STEP} s, so at most {0.1 / STEP:g}"
            )


class Scene(NamedTuple):
    """What does not change."""

    model: fphys.Model
    water: coupling.MPM
    substeps: int


class Motion(NamedTuple):
    """What is recorded at each step, with a leading time axis T."""

    qpos: Array  # of the eel, (T, 1, nq)
    x: Array  # of the water [m], (T, 1, particle, 2)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the gait; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    scene, now = beginning()
    play = jax.jit(lambda gait: swim(scene, now, config, gait))
    slopes = jax.jit(jax.value_and_grad(lambda gait: -speed(swim(scene, now, config, gait)[1].qpos, config)))
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.7, b2=0.9)
    begun, gait, speeds = time.perf_counter(), first_gait(), []
    best, memory = gait, optimizer.init(gait)
    for i in run.progress(config.iterations, "swim"):
        value, slope = slopes(gait)
        best = gait if -float(value) > np.nanmax([-math.inf, *speeds]) else best
        speeds.append(-float(value))
        run.log(i, lengths_per_second=speeds[-1])
        change, memory = optimizer.update(slope / jnp.linalg.norm(slope), memory)
        gait = jnp.asarray(optax.apply_updates(gait, change))
    seconds = time.perf_counter() - begun
    _, first = play(first_gait())
    last, motion = play(best)
    before, after = (float(speed(m.qpos, config)) for m in (first, motion))
    fphys.check(last[0])
    mpm.check(scene.water.params, last[1])

    qpos, shown = np.asarray(motion.qpos), film.moments(len(motion.qpos), STEP)
    when, x = STEP * (shown + 1), np.pad(np.asarray(motion.x)[shown], [(0, 0)] * 3 + [(0, 1)])
    states = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (len(x), *a.shape)), fphys.init(scene.model, 1))
    states = states.replace(qpos=qpos[shown])
    run.save(gait=best, first=first_gait())
    band = (np.asarray(now[1].x[0, :, 0]) / LINK).astype(int) % 2  # of the water, so that one sees it flow
    run.motion(when, scene.model, states, x=x, color=np.array(WATER)[band], radius=CELL / 4)
    camera = Camera(azimuth=90, elevation=-75, distance=0.8, lookat=(TANK[0] / 2, TANK[1] / 2, 0.0))
    water = [dots(x[:, 0, band == k], WATER[k], 0.3 * CELL) for k in range(2)]
    pictures = film.among(run, scene.model, states, water, 1 / float(when[1] - when[0]), camera, 320, 800)
    run.plot("swim", _figure(run, pictures, np.asarray(first.qpos), qpos))
    return {
        "success": after > BAR,
        "lengths_per_second": after,
        "first_lengths_per_second": before,
        "waves_of_the_body": float(lag(best) / (2 * math.pi) * LINKS / (LINKS - 2)),
        "outside": int((abs(x[-1, 0, :, :2] - TANK / 2) > TANK / 2).any(-1).sum()),
        "particles": x.shape[2],
        "search_seconds": round(seconds, 2),
    }


def beginning() -> tuple[Scene, tuple[fphys.State, mpm.State]]:
    """The scene, and where it begins: a straight eel in water at rest."""
    model = fphys.load(film.stage(_tank() + _eel()).replace("</mujoco>", f"{_motors()}</mujoco>"), dtype=jnp.float64)
    model = model.replace({"opt.timestep": jnp.full(1, STEP), "opt.gravity": jnp.zeros((1, 3))})
    substeps = math.ceil(STEP * SOUND / (0.4 * CELL))
    params = mpm.Params(
        mpm.Liquid(1000.0, bulk=1000.0 * SOUND**2, gamma=7.0),
        STEP / substeps,
        cell=CELL,
        shape=tuple(np.round(TANK / CELL).astype(int).tolist()),
    )
    x = lattice([0.0, 0.0], TANK.tolist(), CELL / 2)
    along = np.clip(x[:, 0], TAIL, TAIL + LENGTH)
    x = x[np.hypot(x[:, 0] - along, x[:, 1] - TANK[1] / 2) > RADIUS + CELL / 8]
    free = TANK.prod() - 2 * RADIUS * LENGTH - math.pi * RADIUS**2
    water = mpm.init(params, jnp.asarray(x[None]), volume=free / len(x) / PRESSED)
    water = water.replace(F=water.F * PRESSED ** (1 / 3))
    links = tuple(f"link{k}" for k in range(LINKS))
    return Scene(model, coupling.MPM(params, links), substeps), (fphys.init(model, 1), water)


def _tank() -> str:
    """The rim of the tank, which is drawn."""
    (a, b), t = TANK / 2, 0.01
    sides = (a, -t, a + 2 * t, t), (0, b, t, b), (2 * a + t, b, t, b), (a, 2 * b + t, a + 2 * t, t)
    one = '<geom type="box" pos="{} {} .02" size="{} {} .02" rgba=".7 .75 .8 1" contype="0" conaffinity="0"/>'
    return "".join(one.format(*side) for side in sides)


def _eel() -> str:
    """Links from the head to the tail, each in the frame at its front end; as heavy as a metre of water's depth."""
    text, front = "", f"{TAIL + LENGTH} {TANK[1] / 2} 0"
    for k in range(LINKS):
        if k:
            joints = f'<joint type="hinge" name="bend{k}" axis="0 0 1" armature=".05"/>'
        else:
            kinds = ("slide", "1 0 0"), ("slide", "0 1 0"), ("hinge", "0 0 1")
            joints = "".join(f'<joint type="{kind}" axis="{axis}"/>' for kind, axis in kinds)
        text += f"""<body name="link{k}" pos="{front}">{joints}
<geom name="link{k}" type="capsule" fromto="0 0 0 {-LINK} 0 0" size="{RADIUS}" mass="{2000 * RADIUS * LINK}"
  friction="0" contype="0" conaffinity="0" rgba="{0.93 - 0.08 * k} {0.42 + 0.05 * k} .16 1"/>"""
        front = f"{-LINK} 0 0"
    return text + "</body>" * LINKS


def _motors() -> str:
    one = '<position joint="bend{}" kp="{}" kv="{}"/>'
    return f"<actuator>{''.join(one.format(k, STIFF, DAMPED) for k in range(1, LINKS))}</actuator>"


def first_gait() -> Array:
    """Sine and cosine of each joint [rad], shape (LINKS - 1, 2): all bend together, the tail more."""
    return jnp.stack([jnp.linspace(0.1, 0.3, LINKS - 1), jnp.zeros(LINKS - 1)], -1)


def lag(gait: Array) -> float:
    """By how much the last joint is behind the first [rad]."""
    phase = np.unwrap(np.arctan2(np.asarray(gait[:, 1]), np.asarray(gait[:, 0])))
    return float(phase[0] - phase[-1])


def aims(config: Config, gait: Array) -> Array:
    """Angles that the motors are to follow [rad], shape (T, LINKS - 1): none is larger than the amplitude."""
    t = STEP * jnp.arange(1, round(config.beats / (config.frequency * STEP)) + 1)[:, None]
    turn = 2 * jnp.pi * config.frequency * t
    size = jnp.sqrt((gait**2).sum(-1) + 1e-12)
    share = config.amplitude * jnp.tanh(size / config.amplitude) / size
    wave = jnp.sin(turn) * gait[None, :, 0] + jnp.cos(turn) * gait[None, :, 1]
    return jnp.minimum(2 * config.frequency * t, 1.0) * share[None] * wave


def swim(scene: Scene, now: Any, config: Config, gait: Array) -> tuple[Any, Motion]:
    """The last state, and the motion.

    Args:
        gait: sine and cosine of each joint [rad], shape (LINKS - 1, 2).
    """

    def advance(now: Any, aim: Array) -> tuple[Any, Motion]:
        after = coupling.step(scene.model, now[0], (scene.water,), (now[1],), substeps=scene.substeps, ctrl=aim[None])
        body, (water,) = after
        return (body, water), Motion(body.qpos, water.x)

    return fphys.scan(advance, now, aims(config, gait), fphys.Checkpoint(every=20))


def middle(qpos: Array) -> Array:
    """Where the eel's middle is along the tank [m], from the front of its head at first; shape (T,)."""
    angle = jnp.cumsum(qpos[:, 0, 2:], -1)
    before = jnp.cumsum(jnp.cos(angle), -1) - jnp.cos(angle)
    return qpos[:, 0, 0] - LINK * (before + jnp.cos(angle) / 2).mean(-1)


def speed(qpos: Array, config: Config) -> Array:
    """In the last beat, towards the head [body lengths per second]."""
    beat = min(round(1 / (config.frequency * STEP)), len(qpos) - 1)
    x = middle(qpos)
    return (x[-1] - x[-1 - beat]) / (beat * STEP * LENGTH)


def _figure(run: Run, pictures: Any, first: np.ndarray, best: np.ndarray) -> Any:
    figure, (left, centre, right) = film.strip(pictures, (0.0, 1.0), 3)
    t = STEP * np.arange(1, len(best) + 1)
    for k, color in enumerate(COLORS):
        left.plot(t, best[:, 0, 3 + k], color=color, linewidth=1.2, label=f"joint {k + 1}")
    left.set(xlabel="t [s]", ylabel="angles, from head to tail [rad]")
    left.legend(frameon=False, fontsize=8, ncols=2)
    for name, qpos, style in (("first", first, "--"), ("best", best, "-")):
        x = np.asarray(middle(jnp.asarray(qpos)))
        centre.plot(t, (x - x[0]) / LENGTH, style, color=COLORS[0], label=name)
    centre.set(xlabel="t [s]", ylabel="way [body lengths]")
    centre.legend(frameon=False, fontsize=8)
    right.plot(run.history.get("lengths_per_second", []), color=COLORS[0])
    right.set(xlabel="iteration", ylabel="speed [body lengths/s]")
    return figure
