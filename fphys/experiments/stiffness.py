"""The stiffness of a soft block is found from a recorded motion.

A block in the plane falls on a floor, flattens and bounces. The recording has the places of its particles at a few
times, with noise. Adam adjusts the logarithms of Young's modulus and Poisson's ratio, with gradients through the
simulation.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.particles import mpm
from fphys.render import splat
from fphys.runs import Run

from . import expect_positive
from .film import stage

Array = jax.Array

BAR = 0.02  # relative
CELL = 1 / 24  # m
EDGE = 0.3  # m, of the block
STEP = 1e-3  # s
FPS = 25.0


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the noise."""
    young: float = 2e4
    """True Young's modulus [Pa]."""
    poisson: float = 0.3
    """True Poisson's ratio."""
    guess: tuple[float, float] = (4e4, 0.2)
    """Young's modulus [Pa] and Poisson's ratio that the search begins with."""
    noise: float = 1e-3
    """Standard deviation of the recorded positions [m]."""
    steps: int = 300
    """Length of the motion, in steps of a millisecond."""
    records: int = 6
    """Times at which the particles are recorded."""
    iterations: int = 60
    """Gradient steps."""
    rate: float = 0.1
    """Adam's step at the start, on logarithms; it falls to zero as a cosine."""

    def __post_init__(self) -> None:
        expect_positive(self, "poisson", "noise", "iterations")
        if self.steps < self.records:
            raise ValueError(f"--steps is {self.steps}, --records {self.records}: there must be a step for each record")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the two numbers; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    state = beginning()
    truth = jnp.log(jnp.array([config.young, config.poisson]))
    clean = record(motion(truth, state, config.steps), config)
    recorded = clean + config.noise * np.random.default_rng(config.seed).standard_normal(clean.shape)
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.7, b2=0.9)

    def misfit(logs: Array) -> Array:
        return jnp.mean((record(motion(logs, state, config.steps), config) - recorded) ** 2) / config.noise**2

    @jax.jit
    def update(logs: Array, memory: Any) -> tuple[Array, Any, Array]:
        value, slope = jax.value_and_grad(misfit)(logs)
        change, memory = optimizer.update(slope / jnp.maximum(jnp.linalg.norm(slope), 1e-12), memory)
        return jnp.asarray(optax.apply_updates(logs, change)), memory, value

    begun = time.perf_counter()
    logs = jnp.log(jnp.array(config.guess))
    memory, path = optimizer.init(logs), [np.exp(logs)]
    for i in run.progress(config.iterations, "stiffness"):
        logs, memory, value = update(logs, memory)
        path.append(np.exp(logs))
        run.log(i, misfit=value, young=path[-1][0], poisson=path[-1][1])
    seconds = time.perf_counter() - begun
    young, poisson = (float(x) for x in path[-1])
    error = abs(young / config.young - 1)
    states = motion(logs, state, config.steps)
    run.save(path=np.array(path), recorded=recorded)
    run.motion(STEP * np.arange(1, config.steps + 1), stage(), x=states.x, radius=CELL / 4)
    run.plot("stiffness", _figure(np.array(path), config))
    every = round(1 / (FPS * STEP))
    run.video("stiffness", lambda: splat(np.asarray(states.x[::every, 0]), 0.3 * CELL, height=360, width=480), FPS)
    return {
        "success": error < BAR,
        "young": young,
        "young_error": error,
        "poisson": poisson,
        "poisson_error": abs(poisson / config.poisson - 1),
        "search_seconds": round(seconds, 2),
    }


def beginning() -> mpm.State:
    """The block above the floor, on its way down."""
    line = np.arange(0.25, EDGE / CELL, 0.5) * CELL
    x = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(1, -1, 2) + np.array([0.35, 0.05])
    return mpm.init(parameters(jnp.log(jnp.array([1e4, 0.3]))), x, np.broadcast_to([0.0, -1.5], x.shape))


def parameters(logs: Array) -> mpm.Params:
    """The scene for logarithms of Young's modulus [Pa] and Poisson's ratio."""
    young, poisson = jnp.exp(logs[0]), jnp.exp(logs[1])
    walls = mpm.Walls("separate", friction=0.3)
    return mpm.Params(mpm.Corotated(1000.0, young, poisson), STEP, (0.0, -9.81), walls, cell=CELL, shape=(24, 16))


def motion(logs: Array, state: mpm.State, steps: int) -> mpm.State:
    """All states, stacked on a leading time axis."""
    params = parameters(logs)

    def advance(s: mpm.State, _: None) -> tuple[mpm.State, mpm.State]:
        s = mpm.step(params, s)
        return s, s

    return jax.lax.scan(advance, state, None, length=steps)[1]


def record(states: mpm.State, config: Config) -> Array:
    """Where the particles are at the recorded times [m], shape (records, particle, 2)."""
    times = np.linspace(0, config.steps, config.records + 1).astype(int)[1:] - 1
    return states.x[times, 0]


def _figure(path: np.ndarray, config: Config) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    for axes, values, true, name in zip(
        figure.subplots(1, 2), path.T, (config.young, config.poisson), ("Young's modulus [Pa]", "Poisson's ratio [-]")
    ):
        axes.plot(values, color="#2a6db5")
        axes.axhline(true, color="#6b7280", linewidth=0.8, linestyle=":")
        axes.set(xlabel="iteration", ylabel=name)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
