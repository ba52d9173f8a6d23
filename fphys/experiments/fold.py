"""A cloth is folded in half. The motion of the bar that holds one of its edges is found by gradient.

The cloth lies on a table. A bar holds one edge. Its path is a Bezier curve in the plane across it, with three free
control points. Adam moves these so that the vertices of one half come to lie over their mirror images in the other,
with gradients through friction and the bending of the cloth. The success test is one plain simulation.

The cloth does not meet itself. So that its layers stay apart, the upper half is wanted some centimetres above the lower
one, the bar holds on at the end, and the cloth is as stiff as felt: its fold is a loop.
"""

import dataclasses
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.deformables import mesh, pbd
from fphys.particles import boundary
from fphys.render import Flex
from fphys.runs import Run

from . import expect_positive, film

Array = jax.Array

BAR = 0.01  # m, root mean square of the horizontal distance from the mirror image
EDGE = 0.4  # m, of the cloth, which is square
THICKNESS = 0.005  # m, height of the cloth above the table
ABOVE = 0.03  # m, height of the upper half above the lower one
CARRIED = 0.8  # part of the motion in which the bar moves
POINTS = 3  # free control points of a path
STEP = 0.02  # s


@dataclasses.dataclass(frozen=True)
class Config:
    cells: int = 14
    """Cells along an edge of the cloth."""
    bend: float = 1e-3
    """Bending stiffness [N m]."""
    friction: float = 0.8
    """Between cloth and table."""
    short: float = 0.15
    """How far the first guess leaves the edge from where it has to be [m]."""
    duration: float = 1.5
    """Length of the motion [s]."""
    iterations: int = 30
    """Gradient steps."""
    rate: float = 0.04
    """Adam's step at the start [m]; it falls to zero as a cosine."""

    def __post_init__(self) -> None:
        expect_positive(self, "friction", "short", "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the paths; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    params, start = beginning(config)
    steps = max(round(config.duration / STEP), 1)
    upper, mirror = halves(start)
    lower = np.setdiff1d(np.arange(len(start)), upper)
    wanted = start[mirror] + [0.0, 0.0, ABOVE]
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.8, b2=0.95)

    def objective(points: Array) -> Array:
        x = carry(params, start, points, steps, config.friction)[0].x[0]
        over, under = ((x[upper] - wanted) ** 2).sum(1).mean(), ((x[lower] - start[lower]) ** 2).sum(1).mean()
        return over + under

    @jax.jit
    def update(points: Array, memory: Any) -> tuple[Array, Any, Array]:
        value, slope = jax.value_and_grad(objective)(points)
        change, memory = optimizer.update(slope / jnp.maximum(jnp.linalg.norm(slope), 1e-12), memory)
        return jnp.asarray(optax.apply_updates(points, change)), memory, jnp.sqrt(value)

    begun = time.perf_counter()
    points = jnp.asarray(guess(config))
    memory, best, least = optimizer.init(points), points, np.inf
    for i in run.progress(config.iterations, "fold"):
        before = points
        points, memory, value = update(points, memory)
        if float(value) < least:
            best, least = before, float(value)
        run.log(i, distance=value)
    last, path = jax.jit(lambda p: carry(params, start, p, steps, config.friction))(best)
    seconds = time.perf_counter() - begun
    pbd.check(params, last)
    x = np.asarray(last.x[0])
    beside = np.linalg.norm((x[upper] - start[mirror])[:, :2], axis=1)
    apart = (x[upper] - x[mirror])[:, 2]
    run.save(points=best, upper=upper, mirror=mirror)
    run.motion(STEP * np.arange(1, steps + 1), film.stage(), x=path, elements=params.mesh.elements)
    pictures = film.deforming(run, [Flex(params.mesh.elements, path, radius=THICKNESS / 4)], STEP)
    run.plot("fold", _figure(pictures, run, x, start, upper))
    rms = float(np.sqrt((beside**2).mean()))
    return {
        "success": bool(rms < BAR and apart.min() > 0),
        "beside_mirror": rms,
        "farthest": float(beside.max()),
        "layers_apart": float(apart.min()),
        "final_speed": float(jnp.linalg.norm(last.v, axis=-1).max()),
        "search_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[pbd.Params, np.ndarray]:
    """The cloth, and where its vertices begin [m], shape (vertex, 3); it is to be folded about y = 0."""
    rows = 2 * round(config.cells / 3**0.5)  # even, so that vertices have mirror images; triangles of about equal edges
    sheet = mesh.cloth((config.cells, rows), (EDGE, EDGE))
    start = sheet.vertices + [0.0, -EDGE / 2, THICKNESS]
    params = pbd.Params(
        mesh=sheet,
        density=0.2,
        timestep=STEP,
        stretch=1e-4,
        bend=config.bend,
        gravity=(0.0, 0.0, -9.81),
        damping=2.0,
        thickness=THICKNESS,
        pinned=tuple(np.flatnonzero(np.isclose(sheet.vertices[:, 1], EDGE)).tolist()),
        substeps=10,
    )
    return params, start


def halves(start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vertices that are to go over, and for each the one that it is to lie over."""
    upper = np.flatnonzero(start[:, 1] > 1e-9)
    image = start[upper] * [1.0, -1.0, 1.0]
    return upper, np.linalg.norm(start - image[:, None], axis=-1).argmin(1)


def guess(config: Config) -> np.ndarray:
    """y and z of the path's control points [m], shape (POINTS, 2): up, over, and down too early."""
    y = [EDGE / 2, 0.0, -EDGE / 2 + config.short]
    z = [0.2, 0.3, THICKNESS + 2 * ABOVE]
    return np.stack([y, z], 1)


def bar(points: Array, steps: int) -> Array:
    """y and z of the bar after each step [m], shape (T, 2), from control points, shape (POINTS, 2)."""
    t = jnp.minimum(jnp.arange(1, steps + 1) / (CARRIED * steps), 1.0)
    t = t**2 * (3 - 2 * t)
    weight = jnp.stack([math.comb(POINTS, k) * t**k * (1 - t) ** (POINTS - k) for k in range(POINTS + 1)], 1)
    return weight @ jnp.concatenate([np.array([[EDGE / 2, THICKNESS]]), points])


def carry(params: pbd.Params, start: np.ndarray, points: Array, steps: int, friction: float) -> tuple[pbd.State, Array]:
    """The state at the end, and the vertices' places after each step [m], shape (T, 1, vertex, 3)."""
    table = boundary.plane((0.0, 0.0, 0.0), (0.0, 0.0, 1.0), friction=friction)

    def advance(s: pbd.State, pins: Array) -> tuple[pbd.State, Array]:
        s = pbd.step(params, s, pins=pins, colliders=(table,))
        return s, s.x

    x, path = start[list(params.pinned), 0], bar(points, steps)
    pins = jnp.concatenate([jnp.broadcast_to(x[:, None], (steps, len(x), 1)), path[:, None].repeat(len(x), 1)], 2)
    return fphys.scan(advance, pbd.init(params, start[None]), pins)


def _figure(pictures: np.ndarray | None, run: Run, x: np.ndarray, start: np.ndarray, upper: np.ndarray) -> Any:
    figure, (left, right) = film.strip(pictures, (0.0, 0.3, 0.55, 1.0), 2)
    run.curves(left, "distance")
    left.set(ylabel="distance from the fold, RMS [m]", yscale="log", xlabel="gradient step")
    lower = np.setdiff1d(np.arange(len(x)), upper)
    for which, color, label in ((lower, "#6b7280", "lower half"), (upper, "#2a6db5", "upper half")):
        right.plot(x[which, 1], x[which, 2], ".", color=color, markersize=3, label=label)
    right.set(xlabel="y [m]", ylabel="z [m]", title="at the end, from the side", aspect="equal")
    right.set_xlim(-EDGE / 2 - 0.02, 0.07)
    right.legend(frameon=False)
    return figure
