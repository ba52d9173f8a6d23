"""A jet of water is shaped so that it lands in a bucket. Gradients through its particles find its velocities.

The jet is longer than the bucket is wide. If it is thrown with one velocity, most of it misses. The unknowns are the
velocities at a few points along the jet. `jax.grad` goes back through the flight to the place where each particle
comes down to the rim of the bucket. The flight consists of sums over smoothed particles, whose neighbours change. Adam
moves the velocities. The success test is one plain simulation with impact and splash: enough particles must be in the
bucket at the end.

The gradient of the particles' places after the splash was tried first. It is correct but useless: a particle that hits
the bucket from outside stays outside whatever its velocity, and particles that collide in the bucket go anywhere.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.particles import sph
from fphys.render import splat
from fphys.runs import Run

from . import expect_positive
from .lattice import lattice

Array = jax.Array

BAR = 0.8  # of the particles
SPACING = 0.06  # m
LONG, THICK = 20, 3  # particles along and across the jet
RELEASE = (-1.2, 0.8)  # m, lower corner of the jet
CENTRE, HALF, DEPTH = 1.3, 0.36, 0.48  # m, of the bucket, whose floor is at height zero
GUESS = (2.4, 2.0)  # m/s
MARGIN = 1.5 * SPACING  # how far inside the bucket's walls particles are asked to be [m]
SLACK = 0.03  # weight of the speeds, which settles which of the jets that land is found [1e-3 s^2]
FPS = 25.0
BUCKET = f"""<mujoco><worldbody>
  <geom type="box" size="0.02 0.1 {DEPTH / 2}" pos="{CENTRE - HALF - 0.02} 0 {DEPTH / 2}" rgba="0.42 0.45 0.5 1"/>
  <geom type="box" size="0.02 0.1 {DEPTH / 2}" pos="{CENTRE + HALF + 0.02} 0 {DEPTH / 2}" rgba="0.42 0.45 0.5 1"/>
  <geom type="box" size="{HALF + 0.04} 0.1 0.02" pos="{CENTRE} 0 -0.02" rgba="0.42 0.45 0.5 1"/>
</worldbody></mujoco>"""


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the places of the particles, jostled a little."""
    points: int = 4
    """Points along the jet at which its velocity is given."""
    duration: float = 0.95
    """Length of the motion [s]."""
    sound_speed: float = 20.0
    """[m/s]."""
    iterations: int = 30
    """Gradient steps."""
    rate: float = 0.3
    """Adam's step at the start, which falls to zero as a cosine [m/s]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the jet; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    params, state = beginning(config)
    steps = round(config.duration / params.timestep)
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.8, b2=0.95)

    def objective(velocity: Array) -> tuple[Array, Array]:
        path = shoot(params, state, velocity, steps)[1]
        aside = jnp.maximum(jnp.abs(crossing(path) - CENTRE) - (HALF - MARGIN), 0.0)
        return (aside**2).mean() + 1e-3 * SLACK * (velocity**2).mean(), inside(path[-1]).mean()

    @jax.jit
    def update(velocity: Array, memory: Any) -> tuple[Array, Any, Array, Array]:
        (value, share), slope = jax.value_and_grad(objective, has_aux=True)(velocity)
        slope = slope / jnp.maximum(jnp.linalg.norm(slope), 1e-12)
        change, memory = optimizer.update(slope, memory)
        return jnp.asarray(optax.apply_updates(velocity, change)), memory, value, share

    begun = time.perf_counter()
    velocity = first = jnp.tile(jnp.array(GUESS), (config.points, 1))
    memory, best, most = optimizer.init(velocity), velocity, -1.0
    for i in run.progress(config.iterations, "jet"):
        before, (velocity, memory, value, share) = velocity, update(velocity, memory)
        if float(share) > most:
            best, most = before, float(share)
        run.log(i, cost=value, share=share)
    velocity, play = best, jax.jit(shoot, static_argnums=3)
    (_, before), (last, path) = (play(params, state, v, steps) for v in (first, velocity))
    seconds = time.perf_counter() - begun
    sph.check(params, last)
    share, first_share = (float(inside(np.asarray(p[-1])).mean()) for p in (path, before))
    run.save(velocity=velocity, first_velocity=first)
    run.motion(params.timestep * np.arange(1, steps + 1), BUCKET, x=path[:, None], radius=SPACING / 2)
    walls = np.asarray(state.x[0, LONG * THICK :])
    run.plot("jet", _figure(np.asarray(before), np.asarray(path), walls, np.asarray(velocity)))
    run.video("jet", lambda: _film(np.asarray(path), walls, params.timestep), FPS)
    return {
        "success": share >= BAR,
        "share_in_the_bucket": share,
        "first_share": first_share,
        "largest_speed": float(jnp.linalg.norm(velocity, axis=1).max()),
        "search_seconds": round(seconds, 2),
    }


def beginning(config: Config) -> tuple[sph.Params, sph.State]:
    """The jet, the hindmost particles first, and the bucket."""
    jet = lattice(RELEASE, (RELEASE[0] + LONG * SPACING, RELEASE[1] + THICK * SPACING), SPACING)
    jet = jet + 1e-2 * SPACING * np.random.default_rng(config.seed).standard_normal(jet.shape)
    thick = 3 * SPACING
    bucket = lattice((CENTRE - HALF - thick, -thick), (CENTRE + HALF + thick, DEPTH), SPACING)
    bucket = bucket[(np.abs(bucket[:, 0] - CENTRE) > HALF) | (bucket[:, 1] < 0)]
    kind = np.repeat([sph.FLUID, sph.WALL], [len(jet), len(bucket)])
    params = sph.Params(
        SPACING, timestep=1.0, sound_speed=config.sound_speed, gravity=np.array([0.0, -9.81]), artificial=0.5
    )
    params = params.replace(timestep=0.9 * float(sph.limit(params, 6.0).min()))
    return params, sph.init(params, np.concatenate([jet, bucket])[None], material=kind)


def shoot(params: sph.Params, state: sph.State, velocity: Array, steps: int) -> tuple[sph.State, Array]:
    """The state at the end and where the jet's particles are after each step, shape (T, particle, 2).

    Args:
        velocity: at points from the jet's end to its head [m/s], shape (point, 2), linear in between.
    """
    count = LONG * THICK
    at = jnp.linspace(0.0, 1.0, len(velocity))
    along = (state.x[0, :count, 0] - RELEASE[0]) / (LONG * SPACING)
    v = jnp.stack([jnp.interp(along, at, velocity[:, axis]) for axis in range(2)], -1)

    def advance(s: sph.State, _: Array) -> tuple[sph.State, Array]:
        s = sph.step(params, s)
        return s, s.x[0, :count]

    start = state.replace(v=state.v.at[0, :count].set(v))
    return fphys.scan(advance, start, jnp.arange(steps))


def crossing(path: Array) -> Array:
    """Where along x each particle comes down to the bucket's rim, between two steps [m], shape (particle,).

    The step is a discrete choice without gradient. Of a particle that stays above, where it is at the end.
    """
    low = (path[..., 1] <= DEPTH + SPACING).at[-1].set(True)
    after, particle = jnp.maximum(jnp.argmax(low, axis=0), 1), jnp.arange(path.shape[1])
    before, below = path[after - 1, particle], path[after, particle]
    fall = jnp.maximum(before[:, 1] - below[:, 1], 1e-9)
    part = jnp.clip((before[:, 1] - DEPTH - SPACING) / fall, 0.0, 1.0)
    return before[:, 0] + part * (below[:, 0] - before[:, 0])


def inside(x: Any) -> Any:
    """Which particles are in the bucket."""
    return (abs(x[:, 0] - CENTRE) < HALF) & (x[:, 1] > 0) & (x[:, 1] < DEPTH)


def _film(path: np.ndarray, walls: np.ndarray, step: float) -> np.ndarray:
    shown = path[:: round(1 / (FPS * step))]
    shown = np.where(shown[..., 1:] > -0.5, shown, np.nan)
    x = np.concatenate([shown, np.broadcast_to(walls, (len(shown), *walls.shape))], 1)
    return splat(x, 0.45 * SPACING, np.repeat([0, 5], [path.shape[1], len(walls)]), height=360, width=640)


def _figure(before: np.ndarray, path: np.ndarray, walls: np.ndarray, velocity: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    left.scatter(*walls.T, s=3.0, color="#6b7280")
    left.scatter(*before[-1].T, s=3.0, color="#ec6a29", label="first guess")
    for share, alpha in ((0.0, 0.2), (0.3, 0.3), (0.6, 0.5), (1.0, 1.0)):
        left.scatter(*path[int(share * (len(path) - 1))].T, s=3.0, color="#2a6db5", alpha=alpha)
    left.set(
        aspect="equal",
        xlim=(-1.3, 2.0),
        ylim=(-0.3, 1.6),
        xlabel="x [m]",
        ylabel="y [m]",
        title="the jet, and where it ends",
    )
    left.legend(frameon=False, fontsize=8)
    at = np.linspace(0, 1, len(velocity))
    for line, name, color in zip(velocity.T, ("forwards", "upwards"), ("#2a6db5", "#3a9d6e")):
        right.plot(at, line, "o-", color=color, label=name)
    right.set(xlabel="part of the jet, from its end", ylabel="velocity [m/s]")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
