"""A soft body walks. Gradients through its particles and their friction on the floor find how its muscles act.

The body is in the plane. It has two legs with two muscles each, one in front and one behind. The stress of a muscle
along the leg is tanh of a sum of sines. Adam moves the weights of the sines so that the body gets far, with gradients
through all steps. The success test is one plain simulation: the centre of the body must move forwards by more than the
length of the body.
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
from fphys.render.flex import PALETTE
from fphys.runs import Run

from . import expect_positive
from .film import stage
from .lattice import lattice

Array = jax.Array

CELL = 1 / 32  # m
STEP = 2e-3  # s
LENGTH = 10 * CELL  # m, of the body
LEG = 3 * CELL  # m, width and height of a leg
START = 4 * CELL  # m, where the hind leg begins
STRENGTH = 4e3  # Pa, largest stress of a muscle
SINES = 4
FPS = 25.0


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the weights that the search begins with."""
    young: float = 1e4
    """Young's modulus [Pa]."""
    frequency: float = 3.0
    """Of the muscles' rhythm [1/s]."""
    duration: float = 2.0
    """Length of the motion [s]."""
    iterations: int = 40
    """Gradient steps."""
    rate: float = 0.3
    """Adam's step."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the gait; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    params, state, muscle = beginning(config)
    optimizer = optax.adam(config.rate, b1=0.8, b2=0.95)

    def objective(weights: Array) -> Array:
        return -travelled(state, walk(params, state, muscle, weights, config)[0])

    @jax.jit
    def update(weights: Array, memory: Any) -> tuple[Array, Any, Array, Array]:
        value, slope = jax.value_and_grad(objective)(weights)
        size = jnp.linalg.norm(slope)
        change, memory = optimizer.update(slope / jnp.maximum(size, 1e-12), memory)
        return jnp.asarray(optax.apply_updates(weights, change)), memory, -value, size

    begun = time.perf_counter()
    weights = 0.1 * jnp.asarray(np.random.default_rng(config.seed).standard_normal((muscle.max() + 1, SINES + 1)))
    memory, best, farthest = optimizer.init(weights), weights, -np.inf
    for i in run.progress(config.iterations, "soft-walk"):
        before = weights
        weights, memory, value, size = update(weights, memory)
        if float(value) > farthest:
            best, farthest = before, float(value)
        run.log(i, lengths=value / LENGTH, gradient=size)
    last, path = jax.jit(walk, static_argnums=4)(params, state, muscle, best, config)
    seconds = time.perf_counter() - begun
    mpm.check(params, last)
    lengths = float(travelled(state, last) / LENGTH)
    run.save(weights=best, signals=signals(best, config))
    color = np.array([PALETTE[k % 4] for k in muscle])
    run.motion(STEP * np.arange(1, len(path) + 1), stage(), x=path[:, None], color=color, radius=CELL / 4)
    run.plot("soft-walk", _figure(np.asarray(path), muscle, np.asarray(signals(best, config))))
    run.video("soft-walk", lambda: _film(np.asarray(path), muscle), FPS)
    return {
        "success": lengths >= 1.0,
        "body_lengths": lengths,
        "speed": lengths * LENGTH / config.duration,
        "search_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[mpm.Params, mpm.State, np.ndarray]:
    """The body on the floor, and the number of each particle's muscle, -1 where there is none."""
    hind, front = START, START + LENGTH - LEG
    parts = [lattice((x, 0.0), (x + LEG, LEG), CELL / 2) for x in (hind, front)]
    parts.append(lattice((START, LEG), (START + LENGTH, 2 * LEG), CELL / 2))
    x = np.concatenate(parts)
    muscle = np.full(len(x), -1)
    for number, left in enumerate((hind, hind + LEG / 2, front, front + LEG / 2)):
        muscle[(x[:, 1] < LEG) & (x[:, 0] > left) & (x[:, 0] < left + LEG / 2)] = number
    params = mpm.Params(
        mpm.Corotated(1000.0, config.young, 0.3),
        STEP,
        (0.0, -9.81),
        mpm.Walls("separate", friction=(0.0, 0.0, 1.0, 0.0)),
        cell=CELL,
        shape=(64, 16),
    )
    return params, mpm.init(params, x[None]), muscle


def signals(weights: Array, config: Config) -> Array:
    """What each muscle does in each step, from -1 to 1, shape (T, muscle)."""
    t = STEP * jnp.arange(round(config.duration / STEP))[:, None]
    sines = jnp.sin(2 * jnp.pi * (config.frequency * t + jnp.arange(SINES) / SINES))
    return jnp.tanh(sines @ weights[:, :SINES].T + weights[:, SINES])


def walk(
    params: mpm.Params, state: mpm.State, muscle: np.ndarray, weights: Array, config: Config
) -> tuple[mpm.State, Array]:
    """The state at the end and the particles' places after each step, shape (T, particle, 2)."""
    belongs = jnp.asarray(muscle[:, None] == np.arange(len(weights)), state.x.dtype)
    along = jnp.zeros((3, 3), state.x.dtype).at[1, 1].set(STRENGTH)

    def advance(s: mpm.State, signal: Array) -> tuple[mpm.State, Array]:
        s = mpm.step(params, s, actuation=((belongs @ signal)[:, None, None] * along)[None])
        return s, s.x[0]

    return fphys.scan(advance, state, signals(weights, config))


def travelled(before: mpm.State, after: mpm.State) -> Array:
    """How far the centre has moved forwards [m]."""
    return after.x[0, :, 0].mean() - before.x[0, :, 0].mean()


def _film(path: np.ndarray, muscle: np.ndarray) -> np.ndarray:
    """The floor has a mark at each body length."""
    shown = path[:: round(1 / (FPS * STEP))]
    floor = np.stack([np.linspace(0, 2, 300), np.full(300, -0.3 * CELL)], -1)
    x = np.concatenate([shown, np.broadcast_to(floor, (len(shown), 300, 2))], 1)
    marks = np.where((floor[:, 0] / LENGTH).astype(int) % 2, 5, 0)
    return splat(x, 0.3 * CELL, np.concatenate([muscle + 1, marks]), height=270, width=800)


def _figure(path: np.ndarray, muscle: np.ndarray, doing: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    colors = np.array(["#6b7280", "#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0"])
    shown = np.linspace(0, len(path) - 1, 4).astype(int)
    for k, when in enumerate(shown):
        left.scatter(*(path[when] + [0, 0.3 * k]).T, s=2.0, color=colors[muscle + 1])
    left.set(aspect="equal", xlabel="x [m]", ylabel="time [s]", title=f"the body, {LENGTH:.2f} m long")
    left.set_yticks(0.3 * np.arange(4) + 0.02, [f"{when * STEP:.1f}" for when in shown])
    t = STEP * np.arange(len(doing))
    for number, line in enumerate(doing.T):
        right.plot(t, line, color=colors[number + 1], linewidth=1.0)
    right.set(xlabel="time [s]", ylabel="stress of the muscles / the largest [-]", xlim=(0, min(1.0, t[-1])))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
