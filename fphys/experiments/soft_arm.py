"""A soft arm reaches targets. The pressures in its four chambers are found by gradient.

The arm is made of finite elements and hangs from a mount. A chamber runs along each of its four sides. Fibres keep the
chamber's cross-section A, so that its pressure p does the work p A dL when it gets longer by dL: it pushes apart the
vertices along it, wherever they are. There is a target in each world. The method of Levenberg and Marquardt acts on the
pressures, with gradients through the whole motion. The success test is one plain simulation, twice as long.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.deformables import fem, mesh
from fphys.render import Camera, Flex
from fphys.render.flex import PALETTE
from fphys.runs import Run

from . import expect_positive, film

Array = jax.Array

BAR = 0.01  # m
LENGTH = 0.5  # m, of the arm
MOUNT = 0.65  # m, height of its upper end
WIDTH = 0.08  # m
STEP = 0.04  # s
FILLED = 0.8  # s, time in which the pressures rise
AREA = (WIDTH / 2) ** 2  # m^2, of a chamber's cross-section
DENSITY = 500.0  # kg/m^3
UNIT = 1e4  # Pa, of the unknowns
DAMPING = 0.03  # m, of the first iteration, for a change by a unit


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the targets."""
    targets: int = 4
    """Worlds, each with a target of its own."""
    cells: tuple[int, int] = (10, 2)
    """Along the arm, and across it."""
    young: float = 2e5
    """Young's modulus [Pa]."""
    duration: float = 2.0
    """Time that the arm has to come to rest [s]."""
    iterations: int = 8
    """Of Levenberg and Marquardt."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")
        if self.cells[0] < 1 or self.cells[1] < 2 or self.cells[1] % 2:
            raise ValueError(f"--cells is {self.cells}: the second must be even, for chambers to be lines of vertices")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the pressures; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    wanted, steps = targets(config), max(round(config.duration / STEP), 1)
    params = arm(config)

    def tip(pressures: Array) -> Array:
        return middle(params, inflate(params, pressures, steps)[0].x)

    @jax.jit
    def look(pressures: Array) -> tuple[Array, Array]:
        """What is missed [m], (world, 3), and its derivatives, (world, 3, 4)."""
        at, pull = jax.vjp(tip, pressures)
        one = jnp.broadcast_to(jnp.eye(3)[:, None], (3, *at.shape))  # each coordinate, in all worlds
        return at - wanted, jnp.moveaxis(jax.vmap(pull)(one)[0], 0, 1)

    @jax.jit
    def step(missed: Array, slope: Array, damping: Array) -> Array:
        across = jnp.moveaxis(slope, 1, 2)
        normal = slope @ across + damping[:, None, None] ** 2 * jnp.eye(3)
        return -(across @ jnp.linalg.solve(normal, missed[..., None]))[..., 0]

    begun = time.perf_counter()
    pressures, damping = jnp.zeros((config.targets, 4)), jnp.full(config.targets, DAMPING)
    missed, slope = look(pressures)
    for i in run.progress(config.iterations, "soft-arm"):
        trial = pressures + step(missed, slope, damping)
        there, sloping = look(trial)
        nearer = jnp.linalg.norm(there, axis=1) < jnp.linalg.norm(missed, axis=1)
        pressures, missed = (jnp.where(nearer[:, None], *pair) for pair in ((trial, pressures), (there, missed)))
        slope, damping = jnp.where(nearer[:, None, None], sloping, slope), jnp.where(nearer, damping / 4, damping * 4)
        run.log(i, worst=jnp.linalg.norm(missed, axis=1).max())
    last, path = jax.jit(lambda p: inflate(params, p, 2 * steps))(pressures)
    seconds = time.perf_counter() - begun
    fem.check(params, last)
    away = np.linalg.norm(middle(params, last.x) - wanted, axis=-1)
    run.save(pressures=UNIT * pressures, targets=wanted)
    props = f'{held(0.0)}<body mocap="true"><geom size="0.025" rgba="0.93 0.42 0.16 0.6"/></body>'
    when, elements = STEP * np.arange(1, len(path) + 1), params.mesh.elements
    run.motion(when, film.stage(props), x=path, elements=elements, marks=wanted[:, None])
    pictures = _film(run, params, np.asarray(path), wanted)
    run.plot("soft-arm", _figure(pictures, params, np.asarray(path), wanted, UNIT * np.asarray(pressures)))
    return {
        "success": bool(away.max() < BAR),
        "worst": float(away.max()),
        "reached": int((away < BAR).sum()),
        "largest_pressure": float(UNIT * jnp.abs(pressures).max()),
        "final_speed": float(jnp.linalg.norm(last.v, axis=-1).max()),
        "search_seconds": round(seconds, 2),
    }


def targets(config: Config) -> np.ndarray:
    """Points that the tip has to reach [m], shape (world, 3).

    They are where the tip of an arm would be that bends to a circle, by the angle b of 0.4 to 0.9, and is a few per
    cent shorter or longer: L (1 - cos b) / b aside and L sin b / b below the mount.
    """
    rng = np.random.default_rng(config.seed)
    bend, about, longer = rng.uniform([0.4, -np.pi, 0.98], [0.9, np.pi, 1.05], (config.targets, 3)).T
    aside, below = longer * LENGTH * (1 - np.cos(bend)) / bend, longer * LENGTH * np.sin(bend) / bend
    return np.stack([aside * np.cos(about), aside * np.sin(about), MOUNT - below], -1)


def arm(config: Config) -> fem.Params:
    """The arm, held at its upper end."""
    along, across = config.cells
    body = mesh.box((across, across, along), (WIDTH, WIDTH, LENGTH), (-WIDTH / 2, -WIDTH / 2, MOUNT - LENGTH))
    return fem.Params(
        mesh=body,
        material=fem.NeoHookean(DENSITY, config.young, 0.4),
        timestep=STEP,
        gravity=(0.0, 0.0, -9.81),
        damping=4.0,
        pinned=np.flatnonzero(np.isclose(body.vertices[:, 2], MOUNT)),
    )


def inflate(params: fem.Params, pressures: Array, steps: int) -> tuple[fem.State, Array]:
    """The state at the end, and the vertices' places after each step [m], shape (T, world, vertex, 3).

    Args:
        pressures: of the chambers [10 kPa], shape (world, 4). They rise evenly, then stay.
    """

    def advance(s: fem.State, share: Array) -> tuple[fem.State, Array]:
        s = fem.step(params, s, force=push(params, s.x, UNIT * share * pressures))
        return s, s.x

    share = jnp.minimum(STEP * jnp.arange(1, steps + 1) / FILLED, 1.0)
    return fphys.scan(advance, fem.init(params, num_worlds=len(pressures)), share)


def push(params: fem.Params, x: Array, pressure: Array) -> Array:
    """Forces of the chambers' pressures [N], shape (world, vertex, 3): p A times the length's derivative by x."""
    line = chambers(params)
    part = jnp.diff(x[:, line], axis=2)  # (world, chamber, part, 3)
    force = AREA * pressure[:, :, None, None] * part / jnp.linalg.norm(part, axis=-1, keepdims=True)
    return jnp.zeros_like(x).at[:, line[:, 1:]].add(force).at[:, line[:, :-1]].add(-force)


def chambers(params: fem.Params) -> np.ndarray:
    """The vertices along each chamber, shape (4, vertex): in the middle of the sides -x, +x, -y, +y."""
    x, y, z = params.mesh.vertices.T
    half = WIDTH / 2
    lines = [
        np.flatnonzero(np.isclose(x, a) & np.isclose(y, b)) for a, b in ((-half, 0), (half, 0), (0, -half), (0, half))
    ]
    return np.stack([line[np.argsort(z[line])] for line in lines])


def middle(params: fem.Params, x: Any) -> Array:
    """The middle of the arm's lower end [m], shape (..., 3)."""
    return x[..., np.flatnonzero(np.isclose(params.mesh.vertices[:, 2], MOUNT - LENGTH)), :].mean(-2)


def held(y: float) -> str:
    """MJCF of what holds an arm's upper end."""
    return f'<geom type="box" size="0.06 0.06 0.02" pos="0 {y} {MOUNT + 0.02}" rgba="0.5 0.5 0.55 1"/>'


def _film(run: Run, params: fem.Params, path: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """The arms side by side, with their targets."""
    flexes, props = [], []
    for k, target in enumerate(wanted):
        aside, color = np.array([0.0, 0.7 * k, 0.0]), PALETTE[k % len(PALETTE)]
        flexes.append(Flex(params.mesh.elements, path[:, k, None] + aside, color, 1e-3))
        at, paint = " ".join(map(str, target + aside)), " ".join(map(str, color))
        props.append(f'<geom type="sphere" size="0.025" pos="{at}" rgba="{paint} 0.6"/>')
        props.append(held(0.7 * k))
    return film.deforming(
        run, flexes, STEP, "".join(props), Camera(azimuth=0, elevation=-15, distance=2.6, lookat=(0.0, 1.05, 0.4))
    )


def _figure(
    pictures: np.ndarray | None, params: fem.Params, path: np.ndarray, wanted: np.ndarray, pressures: np.ndarray
) -> Any:
    figure, (left, right) = film.strip(pictures, (0.0, 0.2, 1.0), 2)
    t = STEP * np.arange(1, len(path) + 1)
    for k, target in enumerate(wanted):
        away = np.linalg.norm(np.asarray(middle(params, path[:, k])) - target, axis=-1)
        left.plot(t, 1e3 * away, color=PALETTE[k % len(PALETTE)])
        right.bar(np.arange(4) + 0.8 * k / len(wanted), pressures[k] / 1e3, 0.8 / len(wanted), color=PALETTE[k % 4])
    left.set(xlabel="time [s]", ylabel="distance [mm]", title="of the tip from its target", ylim=(0, None))
    right.axhline(0.0, color="#6b7280", linewidth=0.8)
    right.set(xlabel="chamber", ylabel="pressure [kPa]")
    right.set_xticks(np.arange(4) + 0.3, ["-x", "+x", "-y", "+y"])
    return figure
