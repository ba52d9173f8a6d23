"""A seven-joint arm reaches a target. Gradients through the simulation find its trajectory.

A Franka Panda under gravity moves from its ready pose. Its flange has to be at the target after two seconds, at rest.
There are many random targets, one per world. The unknowns are the control points of a smooth path of the joints.
Computed torque makes the motors follow the path, within their limits. `jax.value_and_grad` goes back through all steps
of control and simulation, and Adam moves the control points. The cost is the distance to the target and the speed at
the end, the effort, and the excess over the ranges and speeds of the joints, which the simulation does not enforce. No
inverse kinematics is used.
"""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.render import Camera
from fphys.runs import Run

from . import expect_positive
from .film import film

Array = jax.Array

BAR = 0.01  # m
SPEED = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])  # rad/s, the manufacturer's limits
MARGIN = 0.05  # rad, from the ends of the joints' ranges
FREQUENCY = 10.0  # rad/s, of the critically damped error when following a path
ARRIVAL = 0.05  # the part of the motion, at its end, for which the flange is to be at the target
FREE = 2  # free control points of the path
STIFFNESS = np.array([30.0, 120.0, 10.0, 50.0, 2.0, 3.0, 0.5])  # N m/rad, of settle
DAMPING = np.array([6.0, 30.0, 2.0, 14.0, 0.4, 0.5, 0.08])  # N m s/rad, of settle

TARGET = """
    <body name="target" mocap="true">
      <geom type="sphere" size="0.045" rgba="0.23 0.62 0.43 0.6"/>
    </body>
  </worldbody>"""


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the targets."""
    targets: int = 20
    """Random targets, each in its own world."""
    duration: float = 2.0
    """Length of the motion [s]."""
    timestep: float = 0.005
    """Time step of simulation and control [s]."""
    iterations: int = 80
    """Gradient steps."""
    rate: float = 0.2
    """Adam's step at the start, which falls to zero as a cosine [rad]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


class Motion(NamedTuple):
    pos: Array  # Joint angles [rad], shape (T, world, 7).
    vel: Array  # Their speeds [rad/s], the same shape.
    acc: Array  # Their accelerations [rad/s^2], the same shape.


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the paths; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    model = franka(config.timestep)
    targets = reachable(model, config)
    state = beginning(model, targets)
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.8, b2=0.95)
    points = jnp.zeros((FREE, config.targets, model.structure.nv))
    steps = round(config.duration / config.timestep)

    @jax.jit
    def update(points: Array, memory: Any) -> tuple[Array, Any, Array, Array]:
        (value, states), slope = jax.value_and_grad(objective, argnums=2, has_aux=True)(model, state, points, steps)
        change, memory = optimizer.update(slope, memory)
        return jnp.asarray(optax.apply_updates(points, change)), memory, value, distance(model, states)[-1]

    begun = time.perf_counter()
    memory = optimizer.init(points)
    for i in run.progress(config.iterations, "reach"):
        points, memory, value, miss = update(points, memory)
        run.log(i, cost=value / config.targets, median_miss=jnp.median(miss), worst_miss=miss.max())
    states, ctrl = jax.jit(follow, static_argnums=3)(model, state, points, steps)
    miss = np.asarray(distance(model, states))
    seconds = time.perf_counter() - begun

    low, high = ranges(model)
    beyond = np.maximum(low - states.qpos, states.qpos - high).max()
    reached = miss[-1] < BAR
    run.save(ctrl=ctrl, qvel=states.qvel, target=targets, distance=miss)
    run.motion(states.time[:, 0], model, states)
    run.plot("reach", _figure(model, states, ctrl, miss))
    view = Camera(azimuth=140, elevation=-18, distance=2.4, lookat=(0, 0, 0.55))
    film(run, model, states, worlds=min(config.targets, 3), camera=view)
    return {
        "success": int(reached.sum()) >= math.ceil(0.95 * config.targets),
        "reached": int(reached.sum()),
        "targets": config.targets,
        "median_miss": float(np.median(miss[-1])),
        "worst_miss": float(miss[-1].max()),
        "miss": miss[-1],
        "final_joint_speed": float(jnp.abs(states.qvel[-1]).max()),
        "largest_torque_of_limit": float((jnp.abs(ctrl) / limits(model)).max()),
        "largest_speed_of_limit": float((jnp.abs(states.qvel) / SPEED).max()),
        "beyond_joint_range": max(float(beyond), 0.0),
        "search_seconds": round(seconds, 2),
    }


def franka(timestep: float) -> fphys.Model:
    """The arm with a free-standing target; joint ranges are not enforced."""
    text = Path(fphys.asset("franka")).read_text(encoding="utf-8").replace("</worldbody>", TARGET)
    model = fphys.load(text, disable=("limit",))
    return model.replace({"opt.timestep": jnp.full(1, timestep)})


def reachable(model: fphys.Model, config: Config) -> np.ndarray:
    """Points [m] that the flange is at in random poses, shape (target, 3), off the floor and the arm's own column."""
    rng = np.random.default_rng(config.seed)
    low, high = ranges(model)
    centre, half = (low + high) / 2, 0.9 * (high - low) / 2
    qpos = centre + half * rng.uniform(-1.0, 1.0, (10 * config.targets + 100, len(low)))
    points = np.asarray(flange(model, fphys.init(model, len(qpos), qpos=qpos)))
    return points[(points[:, 2] > 0.1) & (np.hypot(points[:, 0], points[:, 1]) > 0.25)][: config.targets]


def beginning(model: fphys.Model, targets: np.ndarray) -> fphys.State:
    """At rest in the ready pose, a target in each world."""
    state = fphys.init(model, len(targets), qpos=model.key.qpos[model.id("key", "home")])
    return state.replace(mocap_pos=jnp.asarray(targets)[:, None])


def path(model: fphys.Model, points: Array, steps: int) -> Motion:
    """A curve from the ready pose; ``points`` (FREE, world, 7) are relative to it."""
    motion = rest_to_rest(points, steps, model.opt.timestep[0])
    return motion._replace(pos=model.key.qpos[model.id("key", "home")] + motion.pos)


def rest_to_rest(points: Array, steps: int, timestep: Array) -> Motion:
    """A Bezier curve from zero through ``points`` (n, world, m): its first three control points are zero, its last
    three together, so that it begins and ends without speed and acceleration. Shape (T, world, m)."""
    degree, free = len(points) + 4, len(points)
    t = jnp.arange(1, steps + 1) / steps

    def place(t: Array) -> Array:
        basis = [math.comb(degree, i) * t**i * (1 - t) ** (degree - i) for i in range(degree + 1)]
        return jnp.stack([*basis[3 : 2 + free], sum(basis[2 + free :])])

    rate = 1 / (steps * timestep)
    velocity = jax.jacfwd(place)
    acceleration = jax.jacfwd(velocity)
    return Motion(
        *(
            jnp.einsum("tk,kwj->twj", jax.vmap(f)(t) * rate**n, points)
            for n, f in enumerate((place, velocity, acceleration))
        )
    )


def follow(model: fphys.Model, state: fphys.State, points: Array, steps: int) -> tuple[fphys.State, Array]:
    """Simulate the motors following a path: states and torques [N m], stacked on a leading time axis T.

    Computed torque: the inverse dynamics of the acceleration that the path and a PD law on the error ask for.
    """
    limit = limits(model)

    def advance(now: fphys.State, goal: Motion) -> Any:
        correction = fphys.control.pd(goal.pos, now.qpos, now.qvel - goal.vel, FREQUENCY**2, 2 * FREQUENCY)
        torque = fphys.inverse(model, now, goal.acc + correction)
        torque = jnp.clip(torque, -limit, limit)
        now = fphys.step(model, now, torque)
        return now, (now, torque)

    return fphys.scan(advance, state, path(model, points, steps))[1]


def objective(model: fphys.Model, state: fphys.State, points: Array, steps: int) -> tuple[Array, fphys.State]:
    """Cost of the paths, summed over worlds, and the states they lead to."""
    states, torque = follow(model, state, points, steps)
    timestep = model.opt.timestep[0]
    last = math.ceil(ARRIVAL * steps)
    low, high = ranges(model)
    miss = distance(model, jax.tree.map(lambda x: x[-last:], states), soften=BAR)
    speed = (states.qvel[-last:] ** 2).sum(-1)
    beyond = jax.nn.relu(low + MARGIN - states.qpos) + jax.nn.relu(states.qpos - high + MARGIN)
    beyond = beyond + jax.nn.relu(jnp.abs(states.qvel) - 0.9 * SPEED)
    effort = (torque / limits(model)) ** 2
    running = timestep * (beyond**2 + 0.01 * effort).sum((0, 2))
    return (miss.mean(0) + 0.01 * speed.mean(0) + running).sum(), states


def distance(model: fphys.Model, states: fphys.State, soften: float = 0.0) -> Array:
    """From flange to target [m], shape (T, world); softened, it is quadratic near zero: sqrt(d^2 + s^2) - s."""
    gap = jax.vmap(lambda state: flange(model, state) - state.mocap_pos[:, 0])(states)
    return jnp.sqrt((gap**2).sum(-1) + soften**2) - soften


def flange(model: fphys.Model, state: fphys.State) -> Array:
    """Where the flange is [m], shape (world, 3)."""
    return fphys.kinematics(model, state).site.pos[:, model.id("site", "end_effector")]


def limits(model: fphys.Model) -> Array:
    """Largest torque of each motor [N m], shape (7,)."""
    return model.actuator.ctrlrange[0, :, 1]


def ranges(model: fphys.Model) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest angle of each joint [rad], shape (7,): the file's, whether enforced or not."""
    return tuple(np.array(model.structure.source.jnt_range).T)


def settle(model: fphys.Model, state: fphys.State, steps: int) -> fphys.State:
    """PD control to the zero pose under gravity, its load compensated, torques cut off at their limits: all states."""
    limit, kp, kd = limits(model), jnp.asarray(STIFFNESS), jnp.asarray(DAMPING)

    def advance(now: fphys.State, _: None) -> Any:
        torque = fphys.control.pd(jnp.zeros_like(now.qpos), now.qpos, now.qvel, kp, kd)
        now = fphys.step(model, now, jnp.clip(torque + fphys.bias(model, now), -limit, limit))
        return now, now

    return fphys.scan(advance, state, jnp.arange(steps))[1]


def _figure(model: fphys.Model, states: Any, ctrl: Array, miss: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    time = np.asarray(states.time[:, 0])
    left.semilogy(time, 1000 * miss, color="#2a6db5", linewidth=1.0, alpha=0.6)
    left.axhline(1000 * BAR, color="#c23b4b", linestyle="--", linewidth=1.0)
    left.text(time[0], 1000 * BAR * 0.9, "1 cm", color="#c23b4b", va="top")
    left.set(title=f"{miss.shape[1]} targets", ylabel="distance to the target [mm]")
    colors = ["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b", "#6b7280", "#b8860b"]
    for j, name in enumerate(model.names("joint")):
        right.plot(time, 100 * ctrl[:, 0, j] / limits(model)[j], color=colors[j], linewidth=1.2, label=name)
    right.set(title="first target", ylabel="torque [% of its limit]")
    right.legend(frameon=False, fontsize=8, ncols=4)
    for axes in (left, right):
        axes.set(xlabel="time [s]", xlim=(0, time[-1]))
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
