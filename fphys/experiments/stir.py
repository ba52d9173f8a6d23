"""An arm stirs water so that a floating ball reaches a corner. Gradients through arm and water find its motion.

A Franka Panda dips a paddle into a tank of water (MPM), in which a ball floats, a free rigid body. Paddle, water and
ball push each other (:mod:`fphys.coupling`), through the water and where they touch. The unknowns are the control
points of a smooth path of the paddle in the plane, and of its angle. The motors follow it by operational-space control,
as in ``push``, and bear the water's load. The first guess is a short straight push. Each iteration takes the gradient
of the ball's distance from the corner, back through water, joints and control, and plays steps of several lengths
against it, side by side; it goes on from the best. Only the gradient's direction counts, as in ``swim``.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling
from fphys.particles import mpm
from fphys.render import Camera, Surface
from fphys.runs import Run

from . import expect_positive, film
from .lattice import lattice
from .push import ARM, fork_pose, limits, ready, torques
from .reach import Motion, rest_to_rest

Array = jax.Array

BAR, DEEPEST = 0.03, 0.005  # m, from the corner, and in the paddle: contacts are soft
STEP = 0.008  # s
SOUND = 4.0  # m/s, in the water
TANK, MIDDLE, DEEP, HIGH = np.array([0.48, 0.36]), np.array([0.54, 0.0]), 0.12, 0.24  # m; edges, middle, water, grid
RADIUS, DENSITY = 0.05, 400.0  # m and kg/m^3, of the ball
FLOATS = np.array([0.55, -0.02, DEEP + 0.01])  # m, where the ball begins
CORNER = MIDDLE + TANK / 2 - RADIUS  # m, where the ball is in the corner
START = np.array([0.42, 0.0, 0.09])  # m, where the paddle's middle begins
BLADE = np.array([0.12, 0.12])  # m, its width and height; it is two cells thick
MARGIN = 0.015  # m, gap between paddle and wall that is asked for
FREE = 3  # free control points of the path
STIFF = 40.0  # rad/s, of the critically damped error when following it: at 12 the water holds the paddle 7 cm back
MOVED = 0.75  # part of the motion in which the paddle moves
ARRIVAL = 0.15  # part of the motion, at its end, for which the ball is to be in the corner
PUSH = 0.1  # m, the first guess
LENGTHS = 0.5 ** np.arange(4)  # of the steps that are tried at once, as parts of the longest; each in its own world
SOFT = 0.02  # m, distance below which the cost is quadratic
FORBIDDEN = 100.0  # weight of what the margin is not [1/m]

TOOL = """
                    <geom type="capsule" fromto="0 0 .107 0 0 {top}" size="0.012" material="joint"/>
                    <geom name="blade" type="box" pos="0 0 {at}" euler="0 0 -.7853981634" size="{thick} {wide} {high}"
                      material="accent" friction="0"/>
                    <site name="fork" pos="0 0 {at}" euler="0 0 -.7853981634" rgba="0 0 0 0"/>
                    <site name="end_effector" """
AT = 0.107 + 0.22  # m, of the blade's middle from the wrist
WATER = (0.2, 0.48, 0.78, 0.75)
BEFORE, AFTER = "#6b7280", "#2a6db5"


@dataclasses.dataclass(frozen=True)
class Config:
    cell: float = 0.04
    """Edge of the grid's cells [m]: half of it is between particles at first, and the paddle is two cells thick."""
    duration: float = 1.6
    """Length of the motion [s]."""
    iterations: int = 6
    """Gradient steps."""
    rate: float = 0.08
    """The longest step that is tried at first [m]; later twice the one that was best, or half of the shortest."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")
        cells = np.array([*TANK, DEEP]) / self.cell
        if not np.allclose(cells, np.round(cells)):
            raise ValueError(f"--cell is {self.cell}: the tank must be whole cells, as with 0.04, 0.03 or 0.02")


class Scene(NamedTuple):
    """What does not change."""

    model: fphys.Model  # arm, paddle, ball and tank
    arm: fphys.Model  # the arm and its paddle alone, which its control knows
    water: coupling.MPM
    upright: Array  # how the paddle is turned at first, shape (3, 3)


class Recorded(NamedTuple):
    """What is recorded at each step, with a leading time axis T."""

    qpos: Array  # joints, then the ball, (T, world, 14)
    torque: Array  # of the motors [N m], (T, world, 7)
    paddle: Array  # its middle [m], (T, world, 3)
    gap: Array  # between paddle and ball [m], (T, world)
    x: Array  # of the water [m], (T, world, particle, 3)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the path; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    scene, now = beginning(config)
    steps, fine = round(config.duration / STEP), substeps(config.cell)
    many, begun = worlds(now, len(LENGTHS)), time.perf_counter()

    def costs_at(points: Array) -> tuple[Array, Array]:
        return costs(play(scene, many, points, steps, fine)[1], points, config.cell)

    def slope_at(points: Array) -> tuple[Array, Array]:
        value, slope = slopes(scene, now, points[:, None], steps, fine)
        return value, slope[:, 0]

    best = search(config, run, costs_at, slope_at)
    seconds = time.perf_counter() - begun
    last, each = play(scene, many, jnp.stack([first_guess(), *[best] * (len(LENGTHS) - 1)], 1), steps, fine)
    fphys.check(last[0])
    mpm.check(scene.water.params, last[1])
    before, after = (Recorded(*(a[:, [k]] for a in each)) for k in range(2))

    shown = film.moments(steps, STEP)
    when = STEP * (shown + 1)
    motions = [_shown(scene, m, shown) for m in (before, after)]
    states, x = motions[1]
    run.save(points=best, torque=after.torque, distance=distance(after), first_distance=distance(before))
    run.motion(when, scene.model, states, x=x, radius=config.cell / 4)
    pictures = _film(run, scene, motions, config.cell / 2, 1 / float(when[1] - when[0]))
    run.plot("stir", _figure(pictures, before, after))
    count = math.ceil(ARRIVAL * steps)
    away, first_away = (float(distance(m)[-count:].mean()) for m in (after, before))
    return {
        "success": bool(away < BAR and after.gap.min() > -DEEPEST),
        "from_corner": away,
        "first_from_corner": first_away,
        "from_corner_at_the_end": float(distance(after)[-1, 0]),
        "least_gap": float(after.gap.min()),
        "largest_torque_of_limit": float((jnp.abs(after.torque) / limits(scene.arm)).max()),
        "outside": int(outside(np.asarray(after.x[-1, 0])).sum()),
        "particles": after.x.shape[2],
        "search_seconds": round(seconds, 2),
    }


def search(
    config: Config,
    run: Run,
    costs_at: Callable[[Array], tuple[Array, Array]],
    slope_at: Callable[[Array], tuple[Array, Array]],
) -> Array:
    """The best control points that are found, shape (FREE, 3): steepest descent, with steps of several lengths at once.

    Args:
        costs_at: what :func:`costs` gives for points (FREE, world, 3), in as many worlds as there are lengths.
        slope_at: the cost of points (FREE, 3), and its gradient.
    """
    best, least, away, longest, slope = first_guess(), np.inf, np.inf, config.rate, None
    for i in run.progress(config.iterations, "stir"):
        if slope is None:
            value, slope = slope_at(best)
            least = min(least, float(value))
        ahead = slope / jnp.maximum(jnp.linalg.norm(slope), 1e-12)
        lengths = longest * LENGTHS
        tried = best[:, None] - jnp.asarray(lengths)[None, :, None] * ahead[:, None]
        found, off = (np.asarray(a) for a in costs_at(tried))
        k = int(np.argmin(np.where(np.isfinite(found), found, np.inf)))
        if found[k] < least:
            best, least, away, slope = tried[:, k], float(found[k]), float(off[k]), None
            longest = min(2 * lengths[k], config.rate)
        else:
            longest = lengths[-1] / 2
        run.log(i, cost=least, distance=away)
    return best


def worlds(now: Any, count: int) -> Any:
    """The same beginning in several worlds."""
    return jax.tree.map(lambda a: jnp.repeat(a, count, 0), now)


def substeps(cell: float) -> int:
    """Steps of the water in one of the bodies."""
    return math.ceil(STEP * SOUND / (0.4 * cell) - 1e-9)


def beginning(config: Config) -> tuple[Scene, tuple[fphys.State, mpm.State]]:
    """The scene, and where it begins: the paddle in the water, at rest."""
    sizes = {"thick": config.cell, "wide": BLADE[0] / 2, "high": BLADE[1] / 2, "at": AT, "top": AT - BLADE[1] / 2}
    text = Path(fphys.asset("franka")).read_text(encoding="utf-8")
    text = text.replace('<site name="end_effector" ', TOOL.format(**sizes))
    whole = text[: text.index("  <keyframe>")] + text[text.index("</mujoco>") :]
    arm, model = (
        fphys.load(t, dtype=jnp.float64, disable=("limit",)).replace({"opt.timestep": jnp.full(1, STEP)})
        for t in (text, whole.replace("</worldbody>", _things()))
    )
    held, upright = ready(arm, START)
    state = fphys.init(model, 1, qpos=jnp.concatenate([held.qpos[0], model.qpos0[0, ARM:]]))

    cell, half = config.cell, TANK / 2
    params = mpm.Params(
        mpm.Liquid(1000.0, bulk=1000.0 * SOUND**2, gamma=7.0),
        STEP / substeps(cell),
        np.array([0.0, 0.0, -9.81]),
        walls=mpm.Walls("separate"),
        cell=cell,
        shape=tuple(np.round(np.array([*TANK, HIGH]) / cell).astype(int).tolist()),
        lower=(*(MIDDLE - half).tolist(), 0.0),
    )
    x = lattice([*(MIDDLE - half), 0.0], [*(MIDDLE + half), DEEP], cell / 2)
    near = cell / 8
    paddle = (abs(x - START) < np.array([cell, *BLADE / 2]) + near).all(1)
    x = x[~paddle & (np.linalg.norm(x - FLOATS, axis=1) > RADIUS + near)]
    water = mpm.init(params, jnp.asarray(x[None]))
    return Scene(model, arm, coupling.MPM(params, ("blade", "ball")), upright), (state, water)


def _things() -> str:
    """The ball, and the tank: panes that are drawn, and planes that only the ball meets."""
    (x, y), (a, b), t, high = MIDDLE, TANK / 2, 0.006, 0.1
    panes = (x + a + t, y, t, b), (x - a - t, y, t, b), (x, y + b + t, a + 2 * t, t), (x, y - b - t, a + 2 * t, t)
    glass = '<geom type="box" pos="{} {} {}" size="{} {} {}" rgba=".7 .8 .9 .25"/>'
    text = "".join(glass.format(px, py, high, sx, sy, high) for px, py, sx, sy in panes)
    faces = (x + a, y, "-1 0 0"), (x - a, y, "1 0 0"), (x, y + b, "0 -1 0"), (x, y - b, "0 1 0")
    plane = '<geom name="face{}" type="plane" pos="{} {} 0" zaxis="{}" size="1 1 1" rgba="0 0 0 0"/>'
    text += "".join(plane.format(k, *face) for k, face in enumerate(faces))
    spot = f"{MIDDLE[0] + TANK[0] / 2 + 0.03} {MIDDLE[1] + TANK[1] / 2 + 0.03} 0.2"
    mass = DENSITY * 4 / 3 * math.pi * RADIUS**3
    pairs = "".join(f'<pair geom1="face{k}" geom2="ball" condim="1"/>' for k in range(4))
    pairs += '<pair geom1="blade" geom2="ball" condim="1"/>'
    return f"""{text}<geom type="sphere" pos="{spot}" size=".02" rgba=".23 .62 .43 .9"/>
    <body name="ball" pos="{FLOATS[0]} {FLOATS[1]} {FLOATS[2]}"><freejoint/>
      <geom name="ball" type="sphere" size="{RADIUS}" mass="{mass}" friction="0" rgba=".85 .25 .2 1"/></body>
  </worldbody>
  <contact>{pairs}</contact>"""


def first_guess() -> Array:
    """A straight push away from the arm: x, y [m], and angle times LEVER [m], shape (FREE, 3)."""
    return jnp.linspace(0.0, 1.0, FREE + 1)[1:, None] * jnp.array([[PUSH, 0.0, 0.0]])


def path(points: Array, steps: int) -> Motion:
    """Of the paddle from its start, by points (FREE, world, 3); each with the shape (T, world, 3)."""
    count = max(round(MOVED * steps), 1)
    moved = rest_to_rest(points, count, jnp.asarray(STEP))
    rest = jnp.broadcast_to(moved.pos[-1:], (steps - count, *moved.pos.shape[1:]))
    still = jnp.zeros_like(rest)
    return Motion(*(jnp.concatenate(both) for both in zip(moved, (rest, still, still), strict=True)))


@functools.partial(jax.jit, static_argnums=(3, 4))
def play(scene: Scene, now: Any, points: Array, steps: int, fine: int) -> tuple[Any, Recorded]:
    """Simulate arm, water and ball: the last state, and what happened.

    Args:
        now: bodies and water, where it begins.
        points: of the path, shape (FREE, world, 3).
        fine: steps of the water in one of the bodies.
    """
    medium = scene.water

    def advance(now: Any, wanted: Motion) -> tuple[Any, Recorded]:
        torque = torques(scene.arm, now[0], wanted, START, scene.upright, STIFF)
        body, (water,) = coupling.step(scene.model, now[0], (medium,), (now[1],), substeps=fine, ctrl=torque)
        pos, mat = fork_pose(scene.model, body)
        gap = between(jnp.einsum("wij,wi->wj", mat, body.qpos[:, ARM : ARM + 3] - pos), medium.params.cell)
        return (body, water), Recorded(body.qpos, torque, pos, gap, water.x)

    return fphys.scan(advance, now, path(points, steps), fphys.Checkpoint(every=20))


def between(x: Array, thick: float) -> Array:
    """From the paddle's surface to that of a ball at ``x`` in the paddle's axes [m], negative inside; shape (world,).

    Args:
        thick: half the paddle's thickness [m].
    """
    out = jnp.abs(x) - jnp.array([[thick, *BLADE / 2]])
    apart = jnp.sqrt((jnp.maximum(out, 0) ** 2).sum(-1) + 1e-12)
    return apart + jnp.minimum(out.max(-1), 0) - RADIUS


@functools.partial(jax.jit, static_argnums=2)
def costs(motion: Recorded, points: Array, thick: float) -> tuple[Array, Array]:
    """The ball's mean distance from the corner when it is to be there, and what the margin is not; and the mean
    distance alone; both [m], shape (world,).

    Args:
        thick: half the paddle's thickness [m].
    """
    last = math.ceil(ARRIVAL * len(motion.qpos))
    off = motion.qpos[-last:, :, ARM : ARM + 2] - jnp.asarray(CORNER)[None, None]
    far = (jnp.sqrt((off**2).sum(-1) + SOFT**2) - SOFT).mean(0)
    room = TANK / 2 - math.hypot(BLADE[0] / 2, thick) - MARGIN
    at = path(points, len(motion.qpos)).pos[..., :2] + jnp.asarray(START[:2] - MIDDLE)[None, None]
    outside = jax.nn.relu(jnp.abs(at) - jnp.asarray(room)[None, None])
    cost = far + FORBIDDEN * (outside**2).sum(-1).mean(0)
    return cost, jnp.linalg.norm(off, axis=-1).mean(0)


def objective(scene: Scene, now: Any, points: Array, steps: int, fine: int) -> Array:
    """The sum of :func:`costs` over worlds [m]."""
    return costs(play(scene, now, points, steps, fine)[1], points, scene.water.params.cell)[0].sum()


slopes = jax.jit(jax.value_and_grad(objective, argnums=2), static_argnums=(3, 4))
"""Of :func:`objective`, by the path's points."""


def distance(motion: Recorded) -> Array:
    """From the ball to where it is in the corner, seen from above [m], shape (T, world)."""
    return jnp.linalg.norm(motion.qpos[..., ARM : ARM + 2] - jnp.asarray(CORNER)[None, None], axis=-1)


def outside(x: np.ndarray) -> np.ndarray:
    """Which particles are not in the tank."""
    return np.asarray((abs(x[:, :2] - MIDDLE) > TANK / 2 + 0.01).any(1) | (x[:, 2] < -0.01))


def _shown(scene: Scene, motion: Recorded, shown: np.ndarray) -> tuple[Any, np.ndarray]:
    """States, and the water's particles, at times of the film."""
    start = fphys.init(scene.model, 1)
    states = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (len(shown), *a.shape)), start)
    return states.replace(qpos=np.asarray(motion.qpos)[shown]), np.asarray(motion.x)[shown]


def _film(run: Run, scene: Scene, motions: list[tuple[Any, np.ndarray]], spacing: float, fps: float) -> Any:
    """The first guess and what was found, side by side."""
    each = [(states, [Surface(x, spacing, WATER)]) for states, x in motions]
    camera = Camera(azimuth=155, elevation=-32, distance=1.35, lookat=(0.45, 0.0, 0.2))
    return film.compared(run, scene.model, each, fps, camera, 480, 480)


def _figure(pictures: Any, before: Recorded, after: Recorded) -> Any:
    figure, (left, centre, right) = film.strip(pictures, (0.4, 1.0), 3)
    t = STEP * np.arange(1, len(after.qpos) + 1)
    for motion, name, color in ((before, "first guess", BEFORE), (after, "found", AFTER)):
        left.plot(t, distance(motion), color=color, label=name)
        centre.plot(*np.asarray(motion.qpos)[:, 0, ARM : ARM + 2].T, color=color)
        centre.plot(*np.asarray(motion.paddle)[:, 0, :2].T, color=color, linestyle="--", linewidth=1.0)
    left.set(xlabel="t [s]", ylabel="ball from the corner [m]", ylim=(0, None))
    left.legend(frameon=False, fontsize=8)
    rim = MIDDLE + TANK / 2 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])
    centre.plot(*rim.T, "k", linewidth=0.8)
    centre.plot(*CORNER, "o", color="#3a9d6e", fillstyle="none")
    centre.set(xlabel="x [m]", ylabel="y [m]", title="ball, and paddle (dashed)", aspect="equal")
    for k in (0, 1, 3, 5):
        right.plot(t, np.asarray(after.torque)[:, 0, k], linewidth=1.2, label=f"joint {k + 1}")
    right.set(xlabel="t [s]", ylabel="torques found [N m]")
    right.legend(frameon=False, fontsize=8, ncols=2)
    return figure
