"""A cloth falls on a ball and stays there.

The cloth is simulated by position-based dynamics. It falls a little off the middle, folds over the ball and comes to
rest, held by friction. There is no search. The success test: at no time does a vertex or a triangle touch the ball or
the floor, and at the end the cloth lies still on the ball.

Colliders meet vertices, not the triangles between them. The thickness is what a triangle needs: one with edges c that
touches a ball of radius R with its corners comes nearer to the centre than they by c^2 / (6 R).
"""

import dataclasses
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

RADIUS = 0.15  # m, of the ball, which lies on the floor
ABOVE = 0.03  # m, height of the cloth above the ball
THICKNESS = 0.004  # m
SLOW = 0.05  # m/s, mean speed of the vertices below which the cloth lies still
STEP = 0.01  # s


@dataclasses.dataclass(frozen=True)
class Config:
    cells: int = 30
    """Cells along an edge of the cloth."""
    edge: float = 0.6
    """Of the cloth, which is square [m]."""
    density: float = 0.2
    """[kg/m^2]."""
    bend: float = 2e-5
    """Bending stiffness [N m]."""
    friction: float = 0.3
    """Between cloth, ball and floor."""
    aside: float = 0.03
    """How far the middle of the cloth is beside the middle of the ball [m]."""
    duration: float = 2.0
    """Length of the motion [s]."""

    def __post_init__(self) -> None:
        expect_positive(self, "bend", "friction", "aside")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Let the cloth fall; computed in float32."""
    params, state, colliders = beginning(config)
    begun = time.perf_counter()
    last, path = fall(params, state, colliders, max(round(config.duration / STEP), 1))
    path = np.asarray(path)
    seconds = time.perf_counter() - begun
    pbd.check(params, last)
    elements = params.mesh.elements
    gap, sheet = clearances(path), nearest(path[:, elements])
    speed = float(jnp.linalg.norm(last.v, axis=-1).mean())
    run.save(gap=gap, triangles=sheet)
    ball = f'<geom type="sphere" size="{RADIUS}" pos="0 0 {RADIUS}" rgba="0.93 0.42 0.16 1"/>'
    run.motion(STEP * np.arange(1, len(path) + 1), film.stage(ball), x=path[:, None], elements=elements)
    pictures = film.deforming(run, [Flex(elements, path[:, None], radius=THICKNESS / 2)], STEP, ball)
    run.plot("drape", _figure(pictures, gap, sheet))
    over = path[-1, :, 2].max() > 2 * RADIUS
    return {
        "success": bool(sheet.min() > 0 and over and speed < SLOW),
        "vertex_gap": float(gap.min()),
        "triangle_gap": float(sheet.min()),
        "height": float(path[-1, :, 2].max()),
        "final_speed": speed,
        "vertices": path.shape[1],
        "simulation_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[pbd.Params, pbd.State, tuple[boundary.Collider, ...]]:
    """The cloth above the ball, and what it falls on."""
    rows = max(round(config.cells * 2 / 3**0.5), 1)  # triangles with equal edges
    sheet = mesh.cloth((config.cells, rows), (config.edge, config.edge))
    params = pbd.Params(
        mesh=sheet,
        density=config.density,
        timestep=STEP,
        stretch=1e-4,
        bend=config.bend,
        gravity=(0.0, 0.0, -9.81),
        damping=1.0,
        thickness=THICKNESS,
    )
    middle = np.array([config.aside - config.edge / 2, config.aside / 2 - config.edge / 2, 2 * RADIUS + ABOVE])
    state = pbd.init(params, np.asarray(sheet.vertices + middle, np.float32)[None])
    ball = boundary.sphere((0.0, 0.0, RADIUS), RADIUS, friction=config.friction)
    floor = boundary.plane((0.0, 0.0, 0.0), (0.0, 0.0, 1.0), friction=config.friction)
    return params, state, (ball, floor)


@jax.jit(static_argnums=3)
def fall(
    params: pbd.Params, state: pbd.State, colliders: tuple[boundary.Collider, ...], steps: int
) -> tuple[pbd.State, Array]:
    """The state at the end, and the vertices' places after each step [m], shape (T, vertex, 3)."""

    def advance(s: pbd.State, _: None) -> tuple[pbd.State, Array]:
        s = pbd.step(params, s, colliders=colliders)
        return s, s.x[0]

    return fphys.scan(advance, state, None, length=steps)


def clearances(path: np.ndarray) -> np.ndarray:
    """Distance of the nearest vertex from ball or floor at each time [m], shape (T,), negative inside."""
    ball = np.linalg.norm(path - [0.0, 0.0, RADIUS], axis=-1) - RADIUS
    return np.minimum(ball, path[..., 2]).min(-1)


def nearest(corners: np.ndarray) -> np.ndarray:
    """Distance of the nearest triangle from ball or floor at each time [m], shape (T,), from (T, triangle, 3, 3)."""
    a, b, c = np.moveaxis(corners - [0.0, 0.0, RADIUS], 2, 0)
    edges = np.stack([_to_segment(p, q) for p, q in ((a, b), (b, c), (c, a))]).min(0)
    normal = np.cross(b - a, c - a)
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
    height = (normal * a).sum(-1, keepdims=True)
    foot = height * normal  # of the ball's centre on the triangle's plane
    sides = np.stack([(np.cross(q - p, foot - p) * normal).sum(-1) for p, q in ((a, b), (b, c), (c, a))])
    within = (sides > 0).all(0)
    ball = np.where(within, np.abs(height[..., 0]), edges) - RADIUS
    return np.minimum(ball.min(-1), corners[..., 2].min((1, 2)))


def _to_segment(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Distance of the origin from segments, shape (T, segment)."""
    along = q - p
    t = np.clip(-(p * along).sum(-1) / np.maximum((along**2).sum(-1), 1e-24), 0, 1)
    return np.linalg.norm(p + t[..., None] * along, axis=-1)


def _figure(pictures: np.ndarray | None, gap: np.ndarray, sheet: np.ndarray) -> Any:
    figure, (axes,) = film.strip(pictures, (0.0, 0.1, 1.0))
    t = STEP * np.arange(1, len(gap) + 1)
    axes.plot(t, 1e3 * gap, color="#2a6db5", label="vertices")
    axes.plot(t, 1e3 * sheet, color="#ec6a29", label="triangles")
    axes.axhline(0.0, color="#6b7280", linewidth=0.8, linestyle=":")
    axes.set(xlabel="time [s]", ylabel="distance [mm]", title="least from ball and floor", ylim=(-1, 4e3 * THICKNESS))
    axes.legend(frameon=False)
    return figure
