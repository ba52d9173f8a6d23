"""A hanging cable is led through a ring. The place of its far end and its length are found by gradient.

The cable begins straight. One end stays; the other is carried to a wall, and the cable comes to rest. It then has to
hang through the middle of the ring, level. Newton's method acts on three numbers, the end's place on the wall and the
length, with gradients through the whole motion. There are four rings, one in each world. The success test is one plain
simulation, twice as long.
"""

import dataclasses
import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.deformables import mesh, pbd
from fphys.render import Camera, Flex
from fphys.render.flex import PALETTE
from fphys.runs import Run

from . import expect_positive, film

Array = jax.Array

BAR = 0.005  # m, beside the middle of the ring
LEVEL = 0.02  # slope in the ring
ANCHOR = np.array([0.0, 0.0, 1.0])  # m, the fixed end
WALL = 1.2  # m, x of the other
RING = 0.03  # m, radius
STEP = 0.01  # s
CARRIED = 0.8  # s, time in which the far end is carried to the wall
MOST = 0.15  # m, largest change of an unknown in an iteration
BACK = f'<geom type="box" size="0.02 0.7 0.8" pos="{WALL + 0.03} 0 0.8" rgba="0.85 0.85 0.87 1"/>'
GUESS = (0.0, 0.8, 1.5)  # m: y and z of the far end, length


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the rings."""
    cells: int = 40
    """Edges of the cable."""
    rings: int = 4
    """Worlds, each with a ring of its own."""
    duration: float = 2.0
    """Time that the cable has to come to rest [s]."""
    damping: float = 8.0
    """Of its motion [1/s]."""
    iterations: int = 8
    """Newton steps."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the end and the length; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    rings = goals(config)
    steps = max(round(config.duration / STEP), 1)

    def misses(unknown: Array) -> Array:
        at, slope = crossing(hang(unknown, config, steps)[0].x, rings)
        return jnp.concatenate([(at - rings)[:, 1:], slope[:, None]], 1)

    @jax.jit
    def newton(unknown: Array) -> tuple[Array, Array]:
        missed, pull = jax.vjp(misses, unknown)
        one = jnp.broadcast_to(jnp.eye(3)[:, None], (3, *missed.shape))  # each of what is missed, in all worlds
        rows = jnp.moveaxis(jax.vmap(pull)(one)[0], 0, 1)
        change = jnp.linalg.solve(rows, missed[..., None])[..., 0]
        return unknown - jnp.clip(change, -MOST, MOST), missed

    begun = time.perf_counter()
    unknown = jnp.broadcast_to(jnp.asarray(GUESS), (config.rings, 3))
    for i in run.progress(config.iterations, "cable"):
        unknown, missed = newton(unknown)
        run.log(i, worst=jnp.abs(missed).max())
    last, path = jax.jit(hang, static_argnums=(1, 2))(unknown, config, 2 * steps)
    seconds = time.perf_counter() - begun
    pbd.check(parameters(unknown[:, 2], config), last)
    at, slope = crossing(last.x, rings)
    beside, slope = np.linalg.norm(at - rings, axis=-1), np.abs(slope)
    run.save(unknown=unknown, rings=rings)
    ring = f'<body mocap="true">{hoop(np.zeros(3), PALETTE[1])}</body>'
    edges = mesh.rope(config.cells, 1.0).elements
    run.motion(
        STEP * np.arange(1, len(path) + 1), film.stage(BACK + ring), x=path, elements=edges, marks=rings[:, None]
    )
    pictures = _film(run, np.asarray(path), rings)
    run.plot("cable", _figure(pictures, np.asarray(last.x), rings))
    return {
        "success": bool(beside.max() < BAR and slope.max() < LEVEL),
        "beside_ring": float(beside.max()),
        "slope": float(slope.max()),
        "final_speed": float(jnp.linalg.norm(last.v, axis=-1).max()),
        "ends": unknown[:, :2],
        "lengths": unknown[:, 2],
        "search_seconds": round(seconds, 2),
    }


def goals(config: Config) -> np.ndarray:
    """The middle of each ring [m], shape (world, 3)."""
    return np.random.default_rng(config.seed).uniform([0.5, -0.25, 0.4], [0.75, 0.25, 0.75], (config.rings, 3))


def parameters(length: Array, config: Config) -> pbd.Params:
    """A cable of some length in each world [m], (world,)."""
    straight = mesh.rope(config.cells, 1.0)
    return pbd.Params(
        mesh=straight.replace(vertices=length[:, None, None] * jnp.asarray(straight.vertices)),
        density=0.1,
        timestep=STEP,
        gravity=(0.0, 0.0, -9.81),
        damping=config.damping,
        pinned=(0, config.cells),
        substeps=10,
    )


def hang(unknown: Array, config: Config, steps: int) -> tuple[pbd.State, Array]:
    """The state at the end, and the vertices' places after each step [m], shape (T, world, vertex, 3).

    Args:
        unknown: y and z of the far end, and length [m], shape (world, 3).
    """
    y, z, length = unknown.T
    params = parameters(length, config)
    x = ANCHOR + params.mesh.vertices[:, :, :1] * np.array([0.6, -0.8, 0.0])  # not through the wall
    begin, end = x[:, -1], jnp.stack([jnp.full_like(y, WALL), y, z], -1)
    share = jnp.minimum(STEP * jnp.arange(1, steps + 1) / CARRIED, 1.0)
    far = begin + (share**2 * (3 - 2 * share))[:, None, None] * (end - begin)

    def advance(s: pbd.State, far: Array) -> tuple[pbd.State, Array]:
        s = pbd.step(params, s, pins=jnp.stack([x[:, 0], far], 1))
        return s, s.x

    return fphys.scan(advance, pbd.init(params, x), far)


def crossing(x: Array, rings: Any) -> tuple[Array, Array]:
    """Where each cable passes its ring's plane, normal to x [m], (world, 3), and its slope dz/dx there, (world,)."""
    world = np.arange(len(x))
    after = jnp.clip(jnp.argmax(x[:, :, 0] > rings[:, :1], axis=1), 2, x.shape[1] - 2)
    a, b = x[world, after - 1], x[world, after]
    share = ((rings[:, 0] - a[:, 0]) / (b[:, 0] - a[:, 0]))[:, None]
    along = (1 - share) * (b - x[world, after - 2]) + share * (x[world, after + 1] - a)
    return a + share * (b - a), along[:, 2] / along[:, 0]


def hoop(middle: np.ndarray, color: tuple[float, ...]) -> str:
    """MJCF of a ring about the direction x."""
    angle, paint = np.linspace(0, 2 * np.pi, 25), " ".join(map(str, color))
    around = middle + RING * np.stack([0 * angle, np.cos(angle), np.sin(angle)], -1)
    ends = (" ".join(map(str, (*a, *b))) for a, b in itertools.pairwise(around))
    return "".join(f'<geom type="capsule" size="0.004" fromto="{each}" rgba="{paint} 1"/>' for each in ends)


def _film(run: Run, path: np.ndarray, rings: np.ndarray) -> np.ndarray | None:
    """All cables in one picture, each in its ring's colour."""
    elements = np.stack([np.arange(path.shape[2] - 1), np.arange(1, path.shape[2])], 1)
    colors = [PALETTE[k % len(PALETTE)] for k in range(len(rings))]
    props = [BACK, *(hoop(ring, color) for ring, color in zip(rings, colors, strict=True))]
    flexes = [Flex(elements, path[:, k, None], color, 0.008) for k, color in enumerate(colors)]
    return film.deforming(
        run, flexes, STEP, "".join(props), Camera(azimuth=60, elevation=-12, distance=2.6, lookat=(0.65, 0.0, 0.7))
    )


def _figure(pictures: np.ndarray | None, x: np.ndarray, rings: np.ndarray) -> Any:
    figure, axes = film.strip(pictures, (0.0, 0.15, 1.0), 2)
    for k, (cable, ring) in enumerate(zip(x, rings, strict=True)):
        color = PALETTE[k % len(PALETTE)]
        for place, axis in zip(axes, (2, 1), strict=True):
            place.plot(cable[:, 0], cable[:, axis], color=color, linewidth=1.2)
            place.plot(ring[0], ring[axis], "o", color=color, markersize=7, fillstyle="none")
    axes[0].set(xlabel="x [m]", ylabel="z [m]", title="from the side")
    axes[1].set(xlabel="x [m]", ylabel="y [m]", title="from above")
    return figure
