"""A soft ball bounces off the floor into a target. Gradients through the bounce find its throw.

The ball is a disc of elastic particles in the plane. There are several random targets, one per world. `jax.grad` goes
back through flight, impact with friction, and the oscillation after the impact, to the velocity and the spin of the
throw. Adam moves both. The success test is one plain simulation: the centre must be within one cell of the target at
the end, and the ball must have touched the floor.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.particles import mpm
from fphys.render import splat
from fphys.runs import Run

from . import expect_positive
from .film import stage
from .lattice import lattice

Array = jax.Array

CELL = 1 / 24  # m, and how near the target is reached
STEP = 2e-3  # s
RADIUS = 0.11  # m
RELEASE = (0.3, 0.4)  # m
NEAR, FAR = (1.0, 0.35), (1.5, 0.6)  # m, corners of the targets' field
GUESS = (2.0, -2.0, 0.0)  # m/s and rad/s
FPS = 25.0
MARK = f'<body mocap="true"><geom type="cylinder" size="{CELL} 0.002" euler="90 0 0" rgba="0.93 0.42 0.16 0.5"/></body>'


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the targets."""
    targets: int = 4
    """Random targets, each in its own world."""
    young: float = 3e4
    """Young's modulus [Pa]."""
    duration: float = 0.7
    """Length of the motion [s]."""
    iterations: int = 40
    """Gradient steps."""
    rate: float = 0.15
    """Adam's step at the start, which falls to zero as a cosine [m/s, and 10 rad/s]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the throws; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    params, state, target = beginning(config)
    steps = round(config.duration / STEP)
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.8, b2=0.95)

    def objective(throws: Array) -> tuple[Array, Array]:
        gap = fly(params, state, throws, steps)[0].x.mean(1) - target
        return (gap**2).sum(), jnp.linalg.norm(gap, axis=1)

    @jax.jit
    def update(throws: Array, memory: Any) -> tuple[Array, Any, Array, Array]:
        (value, miss), slope = jax.value_and_grad(objective, has_aux=True)(throws)
        change, memory = optimizer.update(slope, memory)
        return jnp.asarray(optax.apply_updates(throws, change)), memory, value, miss

    begun = time.perf_counter()
    throws = first = jnp.tile(jnp.array(GUESS) / jnp.array([1.0, 1.0, 10.0]), (config.targets, 1))
    memory = optimizer.init(throws)
    for i in run.progress(config.iterations, "soft-throw"):
        throws, memory, value, miss = update(throws, memory)
        run.log(i, cost=value, worst_miss=miss.max())
    play = jax.jit(fly, static_argnums=3)
    (_, before), (last, path) = (play(params, state, t, steps) for t in (first, throws))
    seconds = time.perf_counter() - begun
    mpm.check(params, last)

    miss, first_miss = (np.asarray(jnp.linalg.norm(p[-1].mean(1) - target, axis=1)) for p in (path, before))
    bounced = np.asarray((path[..., 1] < CELL).any((0, 2)))
    run.save(throws=throws, target=target, miss=miss, first_miss=first_miss)
    target_at = np.stack([target[:, 0], 0 * target[:, 0], target[:, 1]], -1)  # a plane is shown upright
    run.motion(STEP * np.arange(1, steps + 1), stage(MARK), x=path, marks=target_at[:, None], radius=CELL / 4)
    run.plot("soft-throw", _figure(np.asarray(before), np.asarray(path), np.asarray(target)))
    run.video("soft-throw", lambda: _film(np.asarray(path), np.asarray(target)), FPS)
    return {
        "success": bool((miss < CELL).all() and bounced.all()),
        "miss_in_cells": miss / CELL,
        "first_miss_in_cells": first_miss / CELL,
        "bounced": int(bounced.sum()),
        "targets": config.targets,
        "search_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[mpm.Params, mpm.State, Array]:
    """The ball in the hand, and a target in each world, shape (world, 2)."""
    body = lattice((-RADIUS, -RADIUS), (RADIUS, RADIUS), CELL / 2)
    body = body[np.linalg.norm(body, axis=1) < RADIUS] + np.array(RELEASE)
    params = mpm.Params(
        mpm.Corotated(1000.0, config.young, 0.3),
        STEP,
        (0.0, -9.81),
        mpm.Walls("separate", friction=0.2),
        cell=CELL,
        shape=(48, 30),
    )
    target = np.random.default_rng(config.seed).uniform(NEAR, FAR, (config.targets, 2))
    return params, mpm.init(params, np.tile(body, (config.targets, 1, 1))), jnp.asarray(target)


def fly(params: mpm.Params, state: mpm.State, throws: Array, steps: int) -> tuple[mpm.State, Array]:
    """The state at the end and the particles' places after each step, shape (T, world, particle, 2).

    Args:
        throws: velocity [m/s] and spin [10 rad/s], shape (world, 3).
    """
    arm = state.x - state.x.mean(1, keepdims=True)
    spin = 10.0 * throws[:, 2, None, None]
    v = throws[:, None, :2] + spin * jnp.stack([-arm[..., 1], arm[..., 0]], -1)
    turn = jnp.zeros_like(state.C).at[..., 0, 1].set(-spin[..., 0]).at[..., 1, 0].set(spin[..., 0])

    def advance(s: mpm.State, _: Array) -> tuple[mpm.State, Array]:
        s = mpm.step(params, s)
        return s, s.x

    return fphys.scan(advance, state.replace(v=v, C=turn), jnp.arange(steps))


def _film(path: np.ndarray, target: np.ndarray) -> np.ndarray:
    """All worlds in one picture, each ball with its target in its colour; the corners of the domain keep the view."""
    shown = path[:: round(1 / (FPS * STEP))]
    turn = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    circle = CELL * np.stack([np.cos(turn), np.sin(turn)], -1)
    rings = target[:, None] + circle
    floor = np.stack([np.linspace(0, 2, 200), np.full(200, -0.3 * CELL)], -1)
    still = np.concatenate([rings.reshape(-1, 2), floor])
    x = np.concatenate([shown.reshape(len(shown), -1, 2), np.broadcast_to(still, (len(shown), *still.shape))], 1)
    colors = np.repeat(np.arange(len(target)), path.shape[2]), np.repeat(np.arange(len(target)), 60), np.full(200, 5)
    return splat(x, 0.22 * CELL, np.concatenate(colors), height=360, width=640)


def _figure(before: np.ndarray, path: np.ndarray, target: np.ndarray) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    axes = figure.subplots()
    colors = ["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b", "#6b7280"]
    for world, place in enumerate(target):
        color = colors[world % len(colors)]
        axes.plot(*before[:, world].mean(1).T, ":", color=color, linewidth=0.8)
        axes.plot(*path[:, world].mean(1).T, color=color)
        axes.scatter(*path[-1, world].T, s=1.5, color=color)
        axes.add_patch(Circle((place[0], place[1]), CELL, color=color, alpha=0.35, linewidth=0))
    axes.set(xlim=(0, 2), ylim=(0, 1), aspect="equal", xlabel="x [m]", ylabel="y [m]")
    axes.set_title("centres: first guess dotted; targets of one cell; the balls at the end")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
