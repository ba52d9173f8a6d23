"""A quadruped walks. Gradients through the contacts of its feet find its gait.

A gait is periodic. The target angles of the joints are Fourier series of the phase. Diagonal pairs of legs are half a
period apart (a trot), and left and right are mirrored. PD control turns the target angles into torques in every step.
The search begins with stepping on the spot. `jax.value_and_grad` goes back through a second or two of control,
simulation and contact, in several worlds with different disturbances, and Adam moves the coefficients. The success
test is one plain rollout of 4 s from standing, with other disturbances.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.runs import Run

from . import expect_positive
from .film import film

Array = jax.Array

BAR = 0.5  # m/s
JUDGED = 4.0  # s
FALLEN = 0.17, 0.8  # m and a cosine: a trunk that is lower, or more inclined, has fallen
STIFFNESS, DAMPING = 80.0, 2.0  # N m/rad and N m s/rad
CONTACTS, ROWS = 16, 92  # what a world holds: feet and, stumbling, some of the rest


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the disturbances: speeds of joints and trunk at the beginning."""
    worlds: int = 4
    """Disturbances that the gait is found with."""
    duration: float = 1.6
    """Length of the motion that the gait is found with [s]."""
    speed: float = 0.7
    """The speed to walk at [m/s]."""
    frequency: float = 2.5
    """Steps of a leg each second [Hz]."""
    timestep: float = 0.004
    """Time step of simulation and control [s]."""
    iterations: int = 80
    """Gradient steps."""
    rate: float = 0.01
    """Adam's step at the start, which falls to zero as a cosine [rad]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the gait; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    model = quadruped(config.timestep)
    state = beginning(model, config.worlds, config.seed)
    gait = stepping()
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.8, b2=0.95),
    )

    @jax.jit
    def update(gait: Array, memory: Any) -> tuple[Array, Any, Array, Array, Array]:
        (value, states), slope = jax.value_and_grad(objective, argnums=2, has_aux=True)(model, state, gait, config)
        change, memory = optimizer.update(slope, memory)
        return jnp.asarray(optax.apply_updates(gait, change)), memory, value, speed(states), jnp.linalg.norm(slope)

    begun = time.perf_counter()
    memory, least, best = optimizer.init(gait), np.inf, gait
    for i in run.progress(config.iterations, "walk"):
        now = gait
        gait, memory, value, forward, norm = update(gait, memory)
        least, best = (float(value), now) if value < least else (least, best)
        run.log(i, cost=value, speed=forward.mean(), slope=norm)
    gait = best
    seconds = time.perf_counter() - begun

    fresh = beginning(model, config.worlds, config.seed + 1000)
    play = jax.jit(walk, static_argnums=(3, 4))
    states, torque = play(model, fresh, gait, round(JUDGED / config.timestep), config.frequency)
    mean, stands = np.asarray(speed(states)), np.asarray(upright(states))
    run.save(gait=gait, torque=torque, qvel=states.qvel, start=fresh.qpos, start_qvel=fresh.qvel)
    run.motion(states.time[:, 0], model, states)
    run.plot("walk", _figure(model, run, states, torque))
    film(run, model, jax.tree.map(lambda x: x[:, :1], states), camera="chase")
    return {
        "success": bool(((mean >= BAR) & stands).all()),
        "speed": mean,
        "stands": int(stands.sum()),
        "worlds": config.worlds,
        "lowest_trunk": float(states.qpos[..., 2].min()),
        "drift_aside": float(jnp.abs(states.qpos[-1, :, 1]).max()),
        "largest_torque": float(jnp.abs(torque).max()),
        "search_seconds": round(seconds, 2),
    }


def quadruped(timestep: float) -> fphys.Model:
    model = fphys.load(fphys.asset("quadruped"))
    return model.replace({"opt.timestep": jnp.full(1, timestep)})


def beginning(model: fphys.Model, worlds: int, seed: int) -> fphys.State:
    """Standing, with random speeds of at most 0.1 m/s, 0.2 rad/s of the trunk and 0.5 rad/s of the joints."""
    scale = np.array([0.1] * 3 + [0.2] * 3 + [0.5] * 12)
    qvel = scale * np.random.default_rng(seed).uniform(-1.0, 1.0, (worlds, 18))
    home = model.key.qpos[model.id("key", "home")]
    return fphys.init(model, worlds, qpos=home, qvel=qvel, max_contacts=CONTACTS, max_constraints=ROWS)


def stepping() -> Array:
    """Coefficients of stepping on the spot, shape (front and back, joint, 5): a leg bends for half a period."""
    lift = 0.2 * np.array([1 / np.pi, 0.0, 0.5, -2 / (3 * np.pi), 0.0])  # rad, of max(0, sin)
    return jnp.asarray(np.stack([np.stack([0 * lift, -lift, 2 * lift])] * 2))


def targets(gait: Array, time: Array, frequency: float) -> Array:
    """Angles of the twelve joints relative to standing [rad] at times (world,), shape (world, 12)."""
    phase = 2 * jnp.pi * frequency * time[:, None] + jnp.pi * jnp.asarray([0.0, 1.0, 1.0, 0.0])
    basis = jnp.stack([jnp.ones_like(phase), *(f(n * phase) for n in (1, 2) for f in (jnp.cos, jnp.sin))], -1)
    legs = gait[jnp.asarray([0, 0, 1, 1])]  # front left, front right, back left, back right
    mirror = jnp.asarray([[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]] * 2)
    angles = jnp.einsum("wlk,ljk->wlj", basis, legs) * mirror
    return angles.reshape(len(time), 12)


def walk(
    model: fphys.Model, state: fphys.State, gait: Array, steps: int, frequency: float
) -> tuple[fphys.State, Array]:
    """Simulate: states and torques [N m], stacked on a leading time axis T. The gait sets in within 0.2 s."""
    home = model.key.qpos[model.id("key", "home")][7:]
    limit = model.actuator.ctrlrange[0, :, 1]

    def advance(now: fphys.State, _: Any) -> Any:
        goal = home + jnp.clip(now.time / 0.2, 0.0, 1.0)[:, None] * targets(gait, now.time, frequency)
        torque = fphys.control.pd(goal, now.qpos[:, 7:], now.qvel[:, 6:], STIFFNESS, DAMPING, limit)
        now = fphys.step(model, now, torque)
        return now, (now, torque)

    return fphys.scan(advance, state, jnp.arange(steps))[1]


def objective(model: fphys.Model, state: fphys.State, gait: Array, config: Config) -> tuple[Array, fphys.State]:
    """Mean cost over the worlds, and the states."""
    steps = round(config.duration / config.timestep)
    states, torque = walk(model, state, gait, steps, config.frequency)
    late = slice(round(0.4 / config.timestep), None)
    velocity, spin, height = states.qvel[late, :, :3], states.qvel[late, :, 3:6], states.qpos[late, :, 2]
    tilt = states.qpos[late, :, 4:7]
    slow = (velocity[..., 0].mean(0) - config.speed) ** 2
    wobble = (0.1 * velocity[..., 1:] ** 2).sum(-1) + (0.02 * spin**2).sum(-1) + (2.0 * tilt**2).sum(-1)
    wobble = wobble + 20.0 * (height - 0.27) ** 2
    effort = 1e-4 * (torque**2).mean((0, 2))
    return (slow + wobble.mean(0) + effort).mean(), states


def speed(states: fphys.State) -> Array:
    """Mean forward speed from the beginning [m/s], shape (world,)."""
    return (states.qpos[-1, :, 0]) / states.time[-1]


def upright(states: fphys.State) -> Array:
    """Whether the trunk stays up the whole time, shape (world,)."""
    _, x, y, _ = jnp.moveaxis(states.qpos[..., 3:7], -1, 0)
    height, cosine = FALLEN
    return ((states.qpos[..., 2] > height) & (1 - 2 * (x * x + y * y) > cosine)).all(0)


def _figure(model: fphys.Model, run: Run, states: fphys.State, torque: Array) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 6.4), layout="constrained")
    (found, place), (height, joints) = figure.subplots(2, 2)
    time = np.asarray(states.time[:, 0])
    colors = ["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b", "#6b7280"]
    found.plot(run.history.get("speed", []), color=colors[0], linewidth=1.4)
    found.axhline(BAR, color="#c23b4b", linestyle="--", linewidth=1.0)
    found.set(ylabel="speed during the search [m/s]", xlabel="gradient step")
    for world in range(states.qpos.shape[1]):
        color = colors[world % len(colors)]
        place.plot(time, states.qpos[:, world, 0], color=color, linewidth=1.2)
        height.plot(time, states.qpos[:, world, 2], color=color, linewidth=1.0)
    place.plot(time, BAR * time, color="#c23b4b", linestyle="--", linewidth=1.0)
    place.set(ylabel="way [m]", title=f"dashed, {BAR} m/s", xlabel="time [s]")
    height.axhline(FALLEN[0], color="#c23b4b", linestyle="--", linewidth=1.0)
    height.set(ylabel="height of the trunk [m]", xlabel="time [s]", ylim=(0, None))
    last = time > time[-1] - 1.0
    for j, name in enumerate(model.names("joint")[1:4]):
        joints.plot(time[last], torque[last, 0, j], color=colors[j], linewidth=1.2, label=name)
    joints.set(ylabel="torque [N m]", title="a leg in the last second", xlabel="time [s]")
    joints.legend(frameon=False, fontsize=9)
    for axes in (found, place, height, joints):
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
