"""A cloth catches balls. The motion of its holders is found by gradient, through the cloth and the balls that it stops.

Four balls are thrown, one in each world, each towards a place of its own beside the cloth. Four holders carry the
cloth's corners. Their common velocity, a few numbers for each world, is found by Adam on the gradient of where the ball
is above the cloth, and how fast. Cloth and ball push each other (:mod:`fphys.coupling`). The success test is the same
simulation, longer.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fphys
from fphys import coupling
from fphys.deformables import mesh, pbd
from fphys.render import Camera, Flex, frames
from fphys.render.flex import PALETTE
from fphys.runs import Run

from . import expect_positive, film

Array = jax.Array

NEAR = 0.15  # m, of the ball from the cloth's middle, seen from above
SLOW = 0.5  # m/s
STEP = 0.01  # s
SUBSTEPS = 10
HEIGHT = 0.6  # m, of the cloth at first
EDGE = 0.6  # m, of the cloth
RADIUS = 0.05  # m, of the ball
START = np.array([-1.3, 0.0, 1.0])  # m, where the balls are thrown from
BALL = f"""<body name="ball" pos="{START[0]} {START[1]} {START[2]}"><freejoint/>
<geom name="ball" type="sphere" size="{RADIUS}" mass="0.05" friction="0.3" rgba="0.85 0.35 0.2 1"/></body>"""


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the throws."""
    throws: int = 4
    """Worlds, each with a throw of its own."""
    cells: int = 10
    """Of the cloth, along an edge."""
    duration: float = 1.3
    """Of a catch [s]."""
    knots: int = 7
    """Times at which the holders' velocity is given, the first and last of which are at rest."""
    iterations: int = 60
    """Steps of Adam."""


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the holders' motion."""
    expect_positive(config, "iterations")
    steps = max(round(config.duration / STEP), 2)
    model, medium = scene(config)
    throw = thrown(config)

    def loss(knots: Array) -> tuple[Array, Array]:
        _, (ball, speed, middle, _) = play(model, medium, throw, velocities(knots, steps), steps)
        late = slice(steps // 2, None)
        beside = ((ball - middle)[late, :, :2] ** 2).sum(-1).mean(0)
        fast = (speed[-steps // 6 :] ** 2).sum(-1).mean(0)
        each = beside + 0.01 * fast + 2e-4 * (knots**2).sum((1, 2))
        return each.sum(), each

    optimizer = optax.adam(0.12)

    @jax.jit
    def improve(knots: Array, state: Any) -> tuple[Array, Any, Array]:
        (_, each), slope = jax.value_and_grad(loss, has_aux=True)(knots)
        change, state = optimizer.update(slope, state)
        return optax.apply_updates(knots, change), state, each

    begun = time.perf_counter()
    knots = jnp.zeros((config.throws, config.knots - 2, 3))
    best, least, state = knots, jnp.full(config.throws, jnp.inf), optimizer.init(knots)
    for i in run.progress(config.iterations, "catch"):
        after, state, each = improve(knots, state)
        best = jnp.where((each < least)[:, None, None], knots, best)
        least, knots = jnp.minimum(each, least), after
        run.log(i, worst=each.max(), mean=each.mean())
    longer = steps + round(0.5 / STEP)
    last, (ball, speed, middle, cloth) = jax.jit(play, static_argnums=4)(
        model, medium, throw, velocities(best, steps), longer
    )
    seconds = time.perf_counter() - begun
    fphys.check(last[0])
    pbd.check(medium.params, last[1])
    beside = np.linalg.norm(np.asarray(ball - middle)[-1, :, :2], axis=-1)
    above, speed = np.asarray(ball - middle)[-1, :, 2], np.linalg.norm(np.asarray(speed)[-1], axis=-1)
    caught = (beside < NEAR) & (above > 0) & (speed < SLOW)
    run.save(knots=best, ball=ball, x=cloth, throw=throw, elements=medium.params.mesh.elements)
    pictures = _film(run, model, medium, np.asarray(ball), np.asarray(cloth))
    run.plot("catch", _figure(pictures, np.asarray(ball), np.asarray(middle)))
    return {
        "success": bool(caught.all()),
        "caught": int(caught.sum()),
        "beside_middle": float(beside.max()),
        "final_speed": float(speed.max()),
        "search_seconds": round(seconds, 2),
    }


def scene(config: Config) -> tuple[fphys.Model, coupling.PBD]:
    """A ball above a floor, and the cloth that it touches, held at its corners."""
    model = fphys.load(film.STAGE.format(props=BALL))
    model = model.replace({"opt.timestep": jnp.full_like(model.opt.timestep, STEP)})
    cloth = mesh.cloth((config.cells, config.cells), (EDGE, EDGE))
    cloth = cloth.replace(vertices=cloth.vertices + [-EDGE / 2, -EDGE / 2, HEIGHT])
    distance = np.abs(np.abs(cloth.vertices[:, :2]) - EDGE / 2).sum(1)
    corners = tuple(np.flatnonzero(distance < 1e-6).tolist())
    real = model.qpos0.dtype
    params = pbd.Params(
        cloth.replace(vertices=jnp.asarray(cloth.vertices, real)),
        density=0.3,
        timestep=STEP / SUBSTEPS,
        stretch=2e-4,
        bend=1e-4,
        gravity=(0.0, 0.0, -9.81),
        damping=1.0,
        thickness=0.005,
        pinned=corners,
        substeps=1,
    )
    return model, coupling.PBD(params, ("ball",))


def thrown(config: Config) -> np.ndarray:
    """Velocities of the balls [m/s], shape (world, 3): they would fly to places beside the cloth's middle."""
    rng = np.random.default_rng(config.seed)
    angle = 2 * np.pi * (np.arange(config.throws) + rng.uniform(0, 1, config.throws)) / config.throws
    place = np.stack([0.45 * np.cos(angle), 0.45 * np.sin(angle), np.full_like(angle, HEIGHT)], -1)
    flight = rng.uniform(0.65, 0.8, (config.throws, 1))
    return (place - START) / flight + [0, 0, 9.81 / 2] * flight


def velocities(knots: Array, steps: int) -> Array:
    """Of the holders in each step [m/s], shape (T, world, 3), linear between knots."""
    ends = jnp.pad(knots, ((0, 0), (1, 1), (0, 0)))
    at = (jnp.arange(steps) + 0.5) / steps * (ends.shape[1] - 1)
    first = jnp.floor(at).astype(int)
    share = (at - first)[:, None, None].astype(knots.dtype)
    along = ends.swapaxes(0, 1)
    return (1 - share) * along[first] + share * along[first + 1]


def play(model: fphys.Model, medium: coupling.PBD, throw: Any, holders: Array, steps: int) -> Any:
    """The last state; and the ball [m], its velocity, the cloth's middle and vertices after each step, (T, world, ...).

    The holders stay where they are after their last velocity.
    """
    real = model.qpos0.dtype
    body = fphys.init(model, len(throw))
    body = body.replace(qvel=body.qvel.at[:, :3].set(jnp.asarray(throw, real)))
    cloth = pbd.init(medium.params, num_worlds=len(throw))
    middle = jnp.argmin((medium.params.mesh.vertices[:, :2] ** 2).sum(1))
    holders = jnp.pad(holders, ((0, steps - len(holders)), (0, 0), (0, 0))).astype(real)

    def advance(now: Any, velocity: Array) -> Any:
        body, cloth = now
        driven = medium.replace(pins=jnp.broadcast_to(velocity[:, None], (len(throw), 4, 3)))
        body, (cloth,) = coupling.step(model, body, (driven,), (cloth,), substeps=SUBSTEPS)
        return (body, cloth), (body.qpos[:, :3], body.qvel[:, :3], cloth.x[:, middle], cloth.x)

    return fphys.scan(advance, (body, cloth), holders)


def _film(run: Run, model: fphys.Model, medium: coupling.PBD, ball: np.ndarray, cloth: np.ndarray) -> Any:
    """The throws side by side."""
    every = max(round(1 / (film.FPS * STEP)), 1)
    start, shown = fphys.init(model, ball.shape[1]), []
    qpos = np.broadcast_to(np.asarray(start.qpos), (len(ball), *start.qpos.shape)).copy()
    qpos[..., :3] = ball
    states = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (len(ball), *x.shape)), start).replace(qpos=qpos)
    camera = Camera(azimuth=70, elevation=-18, distance=2.6, lookat=(-0.2, 0.0, 0.6))

    def draw() -> np.ndarray:
        for k in range(min(ball.shape[1], 4)):
            flex = Flex(medium.params.mesh.elements, cloth, PALETTE[k % len(PALETTE)], 0.004)
            shown.append(frames(model, states, camera, 320, 320, k, every, flexes=[flex]))
        pictures = np.concatenate(shown, axis=2)
        return np.concatenate([pictures, np.repeat(pictures[-1:], round(film.PAUSE * film.FPS), axis=0)])

    run.video(run.name, draw, 1 / (every * STEP))
    return shown[0] if shown else None


def _figure(pictures: np.ndarray | None, ball: np.ndarray, middle: np.ndarray) -> Any:
    figure, axes = film.strip(pictures, (0.25, 0.45, 0.6, 1.0), 2)
    seconds = STEP * np.arange(1, len(ball) + 1)
    for k in range(ball.shape[1]):
        color = PALETTE[k % len(PALETTE)]
        axes[0].plot(ball[:, k, 0], ball[:, k, 2], color=color, linewidth=1.2)
        axes[0].plot(middle[:, k, 0], middle[:, k, 2], "--", color=color, linewidth=0.8)
        axes[1].plot(seconds, np.linalg.norm((ball - middle)[:, k, :2], axis=-1), color=color, linewidth=1.2)
    axes[0].set(xlabel="x [m]", title="balls, and the cloth's middle (dashed): z [m]")
    axes[1].set(xlabel="t [s]", title="distance from the middle, seen from above [m]", ylim=(0, None))
    return figure
