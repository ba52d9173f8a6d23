"""A cloth catches a thrown ball. Gradients through cloth and ball find how its holders move.

Four holders carry a cloth (XPBD) at its corners. A ball, a free rigid body, is thrown at it, and both push each other
(:mod:`fphys.coupling`). If the holders stay where they are, the ball strikes the cloth far from its middle and leaves
it. The unknowns are the control points of one smooth path: how all four move along the three axes, and how the plane
through them tilts, until they stand level. Each step of the search is along the gradient of the ball's distance from
the middle of the cloth and of its speed, back through flight, impact and the time until the holders stand. The success
test is one plain simulation, until the ball rests.
"""

import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling
from fphys.deformables import mesh, pbd
from fphys.render import Camera, Flex
from fphys.runs import Run

from . import expect_positive, film
from .reach import rest_to_rest

Array = jax.Array

BAR = 0.03  # m, from the middle of the cloth, seen from above
SLOW = 0.1  # m/s, speed of a ball that rests
STEP, SUBSTEPS = 0.004, 2  # s
EDGE, SLACK, HIGH = 0.6, 0.85, 0.7  # m, of the square cloth; part of it that is between holders; m, their height
RADIUS, MASS = 0.07, 0.3  # m and kg, of the ball
RELEASE, THROW = (-0.8, -0.16, 0.6), (2.2, 0.4, 2.6)  # m and m/s, place and velocity of the ball
THICKNESS = 0.006  # m, between vertices and the ball: between them a triangle may be as near as that less
FREE = 3  # free control points of the path
CARRIED = 1.1  # s, in which the holders move
LANDED = 0.46  # s, when the ball meets the cloth
SOFT = 0.05  # m, distance from the middle below which the cost is quadratic
CALM = 0.05  # weight of the ball's speed [s]
GENTLE = 2e-4  # weight of the holders' acceleration [m / (m/s^2)^2]
DRONE = """<body name="holder{}" mocap="true">
  <geom type="sphere" size=".022" contype="0" conaffinity="0" rgba=".25 .27 .32 1"/>
  <geom type="cylinder" size=".055 .004" pos="0 0 .03" contype="0" conaffinity="0" rgba=".93 .42 .16 1"/></body>"""
PROPS = f"""<body name="ball" pos="{RELEASE[0]} {RELEASE[1]} {RELEASE[2]}"><freejoint/>
<geom name="ball" type="sphere" size="{RADIUS}" mass="{MASS}" friction=".5" rgba=".85 .25 .2 1"/></body>
{"".join(DRONE.format(k) for k in range(4))}"""
BEFORE, AFTER = "#6b7280", "#2a6db5"


@dataclasses.dataclass(frozen=True)
class Config:
    cells: int = 12
    """Cells along an edge of the cloth; a multiple of four."""
    duration: float = 4.8
    """Length of the motion [s]; the holders stand still after 1.1 s."""
    iterations: int = 15
    """Gradient steps."""
    rate: float = 0.08
    """Step at the start, before momentum, which falls to zero as a cosine [m, and slope of the tilt]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")
        if self.cells % 4:
            raise ValueError(
                f"--cells is {self.cells}: it must be a multiple of four, so that a vertex is in the middle"
            )
        if self.duration < CARRIED:
            raise ValueError(f"--duration is {self.duration}: the holders move for {CARRIED} s")


class Scene(NamedTuple):
    """What does not change."""

    model: fphys.Model
    cloth: Any  # coupling.PBD
    corners: Array  # where the holders begin [m], shape (4, 3)


class Motion(NamedTuple):
    """What is recorded at each step, with a leading time axis T."""

    qpos: Array  # of the ball, (T, 1, 7)
    qvel: Array  # (T, 1, 6)
    x: Array  # of the cloth's vertices [m], (T, 1, vertex, 3)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the path; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    scene, now = beginning(config)
    steps = round(config.duration / STEP)
    optimizer = optax.sgd(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), momentum=0.6)
    begun, points = time.perf_counter(), first_guess()
    best, least, memory = points, np.inf, optimizer.init(points)
    for i in run.progress(config.iterations, "catch"):
        (value, off), slope = slopes(scene, now, points)
        if float(value) < least:
            best, least = points, float(value)
        run.log(i, cost=value, distance=off)
        change, memory = optimizer.update(slope / jnp.maximum(jnp.linalg.norm(slope), 1e-12), memory)
        points = jnp.asarray(optax.apply_updates(points, change))
    seconds = time.perf_counter() - begun
    (_, before), (last, after) = (fly(scene, now, p, steps) for p in (first_guess(), best))
    fphys.check(last[0])
    pbd.check(scene.cloth.params, last[1])

    places = holders(scene, best, steps)
    shown = film.moments(steps, STEP)
    when = STEP * (shown + 1)
    motions = [_shown(scene, m, p, shown) for m, p in ((before, first_guess()), (after, best))]
    run.save(points=best, holders=places, distance=beside(after), first_distance=beside(before))
    states, x = motions[1]
    run.motion(when, scene.model, states, x=x, elements=scene.cloth.params.mesh.elements)
    pictures = _film(run, scene, motions, 1 / float(when[1] - when[0]))
    run.plot("catch", _figure(pictures, run, before, after, np.asarray(places)))
    acceleration = jnp.linalg.norm(jnp.diff(places, n=2, axis=0), axis=-1) / STEP**2
    away, first_away = (float(jnp.linalg.norm(gaps(m)[-1])) for m in (after, before))
    speed = float(jnp.linalg.norm(after.qvel[-1, 0, :3]))
    return {
        "success": bool(beside(after)[-1] < BAR and lies(after) and speed < SLOW),
        "beside_middle": float(beside(after)[-1]),
        "from_middle": away,
        "first_from_middle": first_away,
        "ball_speed": speed,
        "ball_height": float(after.qpos[-1, 0, 2]),
        "largest_acceleration": float(acceleration.max()),
        "search_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[Scene, tuple[fphys.State, pbd.State]]:
    """The scene, and where it begins: the ball as it is thrown, the cloth as it hangs at rest."""
    model = fphys.load(film.stage(PROPS), dtype=jnp.float64)
    model = model.replace({"opt.timestep": jnp.full_like(model.opt.timestep, STEP)})
    sheet = mesh.cloth((config.cells, config.cells), (EDGE, EDGE))
    arms = sheet.vertices - [EDGE / 2, EDGE / 2, 0.0]
    pinned = np.flatnonzero(np.isclose(abs(arms[:, :2]), EDGE / 2).all(-1))
    params = pbd.Params(
        sheet,
        density=0.3,
        timestep=STEP / SUBSTEPS,
        stretch=2e-5,
        bend=1e-5,
        gravity=(0.0, 0.0, -9.81),
        damping=12.0,
        thickness=THICKNESS,
        pinned=tuple(pinned.tolist()),
        substeps=1,
    )
    hollow = 0.15 * (4 * arms[:, :2] ** 2 / EDGE**2 - 1).prod(1)
    x = SLACK * arms + np.stack([0 * hollow, 0 * hollow, HIGH - hollow], 1)
    still = jax.jit(lambda s: jax.lax.scan(lambda s, _: (pbd.step(params, s), None), s, length=1000)[0])
    cloth = still(pbd.init(params, jnp.asarray(x[None])))
    state = fphys.init(model, 1)
    state = state.replace(qvel=state.qvel.at[:, :3].set(jnp.asarray(THROW)))
    scene = Scene(model, coupling.PBD(params, ("ball",)), jnp.asarray(x[pinned]))
    return scene, (state, cloth.replace(v=jnp.zeros_like(cloth.v)))


def first_guess() -> Array:
    """The holders stay: shifts along x, y and z [m], and slopes along x and y, shape (FREE, 5)."""
    return jnp.zeros((FREE, 5))


def holders(scene: Scene, points: Array, steps: int) -> Array:
    """Where the four holders are at the start and after each step [m], shape (T + 1, 4, 3); level at the end."""
    count = min(round(CARRIED / STEP), steps)
    path = rest_to_rest(points.at[-1, 3:].set(0)[:, None], count, jnp.asarray(STEP)).pos[:, 0]
    path = jnp.concatenate([jnp.zeros((1, 5)), path, jnp.broadcast_to(path[-1:], (steps - count, 5))])
    arms = scene.corners[:, :2] - scene.corners[:, :2].mean(0, keepdims=True)
    up = (path[:, None, 3:] * arms[None]).sum(-1)
    return scene.corners[None] + path[:, None, :3] + jnp.pad(up[..., None], ((0, 0), (0, 0), (2, 0)))


@functools.partial(jax.jit, static_argnums=3)
def fly(scene: Scene, now: Any, points: Array, steps: int) -> tuple[Any, Motion]:
    """Simulate ball and cloth: the last state, and the motion.

    Args:
        now: of the ball and of the cloth, where it begins.
        points: as :func:`first_guess` gives them.
    """

    def advance(now: Any, velocity: Array) -> tuple[Any, Motion]:
        cloth = scene.cloth.replace(pins=velocity)
        body, (sheet,) = coupling.step(scene.model, now[0], (cloth,), (now[1],), substeps=SUBSTEPS)
        return (body, sheet), Motion(body.qpos, body.qvel, sheet.x)

    return fphys.scan(advance, now, jnp.diff(holders(scene, points, steps), axis=0) / STEP)


def objective(scene: Scene, now: Any, points: Array) -> tuple[Array, Array]:
    """How far the ball is beside the middle of the cloth, and its speed over the holders, from when it lands until
    they stand, the first quarter of that time twice; and how hard these are moved [m].

    Also the distance at the end [m]. Later bounces are not part of it: each multiplies the gradient.
    """
    steps, landed = round(CARRIED / STEP), round(LANDED / STEP)
    places, motion = holders(scene, points, steps), fly(scene, now, points, steps)[1]
    velocity = jnp.diff(places, axis=0) / STEP
    slip = motion.qvel[:, 0, :3] - velocity.mean(1)
    far, fast = (jnp.sqrt((a[landed:] ** 2).sum(-1) + SOFT**2) - SOFT for a in (gaps(motion)[:, :2], CALM * slip))
    near = far[: len(far) // 4].mean()
    return near + far.mean() + fast.mean() + GENTLE * ((jnp.diff(velocity, axis=0) / STEP) ** 2).mean(), far[-1]


slopes = jax.jit(jax.value_and_grad(objective, argnums=2, has_aux=True))
"""Of :func:`objective`, by the path's points."""


def gaps(motion: Motion) -> Array:
    """From where the ball would lie on the cloth's middle to where it is [m], shape (T, 3)."""
    middle = motion.x[:, 0, motion.x.shape[2] // 2]
    return motion.qpos[:, 0, :3] - middle - jnp.asarray([[0.0, 0.0, RADIUS + THICKNESS]])


def beside(motion: Motion) -> Array:
    """How far the ball is from the middle of the cloth, seen from above [m], shape (T,)."""
    return jnp.linalg.norm(gaps(motion)[:, :2], axis=-1)


def lies(motion: Motion) -> bool:
    """Whether the ball touches the cloth at the end."""
    apart = jnp.linalg.norm(motion.x[-1, 0] - motion.qpos[-1, :, :3], axis=-1)
    return bool(apart.min() < RADIUS + 2 * THICKNESS)


def _shown(scene: Scene, motion: Motion, points: Array, shown: np.ndarray) -> tuple[Any, np.ndarray]:
    """States of ball and holders, and the cloth's vertices, at times of the film."""
    states = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (len(shown), *a.shape)), fphys.init(scene.model, 1))
    places = np.asarray(holders(scene, points, len(motion.qpos)))[shown + 1, None]
    states = states.replace(qpos=np.asarray(motion.qpos)[shown], mocap_pos=places)
    return states, np.asarray(motion.x)[shown]


def _film(run: Run, scene: Scene, motions: list[tuple[Any, np.ndarray]], fps: float) -> np.ndarray | None:
    """Before the search and after it, side by side."""
    elements = scene.cloth.params.mesh.elements
    flexes = [(states, [Flex(elements, x, (0.24, 0.5, 0.72), THICKNESS / 2)]) for states, x in motions]
    camera = Camera(azimuth=75, elevation=-26, distance=2.3, lookat=(0.25, 0.0, 0.5))
    return film.compared(run, scene.model, flexes, fps, camera, 480, 480)


def _figure(pictures: Any, run: Run, before: Motion, after: Motion, places: np.ndarray) -> Any:
    figure, (left, centre, right) = film.strip(pictures, (0.7 / (STEP * len(after.qpos)), 1.0), 3)
    t = STEP * np.arange(1, len(after.qpos) + 1)
    for motion, name, color in ((before, "holders at rest", BEFORE), (after, "found", AFTER)):
        left.plot(t, np.linalg.norm(np.asarray(gaps(motion)), axis=-1), color=color, label=name)
    left.set(xlabel="t [s]", ylabel="ball from the cloth's middle [m]", ylim=(0, 1.5))
    left.legend(frameon=False, fontsize=8)
    middle = places[1:].mean(1) - places[0].mean(0)
    for k, (name, color) in enumerate(zip("xyz", (AFTER, "#ec6a29", "#3a9d6e"), strict=True)):
        centre.plot(t, middle[:, k], color=color, label=name)
    centre.set(xlabel="t [s]", ylabel="way of the holders [m]")
    centre.legend(frameon=False, fontsize=8)
    right.plot(run.history.get("cost", []), color=AFTER)
    right.set(xlabel="iteration", ylabel="cost [m]")
    return figure
