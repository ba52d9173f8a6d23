"""A ball bounces off a wall onto a target on the floor. Gradients through the bounce find its throw.

There are many random targets, one per world. The first throw of each hits the wall and misses the target. The unknown
is the velocity at release. `jax.grad` goes back through the flight, the contact with the wall (with friction, spin and
restitution), and the second flight to the place where the ball first touches the floor. Adam moves the velocity. The
success test is one plain rollout.

The ball meets the wall between two steps. The landing place depends on that moment by a sawtooth that the gradient
does not contain. The sawtooth is 1 cm (rms) with steps of 1 ms, where a bounce takes 18 steps, as here. It is 4 cm
with steps of 2 ms, where a bounce takes six.
"""

import dataclasses
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.render import Camera
from fphys.runs import Run

from . import expect_positive
from .film import film

Array = jax.Array

BAR = 0.05  # m
RADIUS = 0.06  # m, of the ball
WALL = 3.0  # m, where its face is along x
RELEASE = (0.0, 0.0, 1.0)  # m
NEAR, FAR = (0.8, -1.2), (2.2, 1.2)  # m, corners of the targets' field on the floor
STEADY = 1e-3  # weight of the throw's speed, which settles which of the throws that reach a target is found [s^2]

SCENE = f"""
<mujoco model="throw">
  <option timestep="0.001"/>
  <visual>
    <global offwidth="1280" offheight="960"/>
    <headlight ambient="0.4 0.4 0.4" diffuse="0.35 0.35 0.35" specular="0.1 0.1 0.1"/>
    <quality shadowsize="4096"/>
  </visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.62 0.75 0.88" rgb2="0.97 0.98 1" width="256"
      height="256"/>
    <texture name="checker" type="2d" builtin="checker" rgb1="0.80 0.83 0.86" rgb2="0.88 0.90 0.92" width="256"
      height="256"/>
    <material name="floor" texture="checker" texrepeat="1 1" texuniform="true"/>
  </asset>
  <default><geom solref="-30000 -60" friction="0.4 0.001 0.0001"/></default>
  <worldbody>
    <light directional="true" pos="-1 -2 4" dir="0.3 0.4 -1" diffuse="0.55 0.55 0.55" castshadow="true"/>
    <geom name="floor" type="plane" size="6 6 0.05" material="floor"/>
    <geom name="wall" type="box" pos="{WALL + 0.05} 0 1.0" size="0.05 1.6 1.0" rgba="0.16 0.42 0.70 0.45"/>
    <body name="ball" pos="{RELEASE[0]} {RELEASE[1]} {RELEASE[2]}">
      <freejoint/>
      <geom name="ball" type="sphere" size="{RADIUS}" mass="0.2" rgba="0.93 0.42 0.16 1"/>
    </body>
    <body name="target" mocap="true">
      <geom type="cylinder" size="{BAR} 0.004" contype="0" conaffinity="0" rgba="0.23 0.62 0.43 1"/>
    </body>
  </worldbody>
</mujoco>"""


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the targets and of the throws that the search begins with."""
    targets: int = 10
    """Random targets, each in its own world."""
    duration: float = 1.4
    """Length of the motion [s]."""
    iterations: int = 60
    """Gradient steps."""
    rate: float = 0.3
    """Adam's step at the start, which falls to zero as a cosine [m/s]."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the throws; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    import optax

    model = fphys.load(SCENE)
    state, velocity = beginning(model, config)
    optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, max(config.iterations, 1)), b1=0.8, b2=0.95)
    steps = round(config.duration / float(model.opt.timestep[0]))

    @jax.jit
    def update(velocity: Array, memory: Any) -> tuple[Array, Any, Array, Array]:
        (value, miss), slope = jax.value_and_grad(objective, argnums=2, has_aux=True)(model, state, velocity, steps)
        change, memory = optimizer.update(slope, memory)
        return jnp.asarray(optax.apply_updates(velocity, change)), memory, value, miss

    begun = time.perf_counter()
    memory, first = optimizer.init(velocity), velocity
    for i in run.progress(config.iterations, "throw"):
        velocity, memory, value, miss = update(velocity, memory)
        run.log(i, cost=value / config.targets, median_miss=jnp.median(miss), worst_miss=miss.max())
    play = jax.jit(throw, static_argnums=3)
    before, states = play(model, state, first, steps), play(model, state, velocity, steps)
    seconds = time.perf_counter() - begun

    miss, first_miss = (np.asarray(distance(s, landing(s))) for s in (states, before))
    bounced = np.asarray(touched(states))
    hit = (miss < BAR) & bounced
    run.save(velocity=velocity, first_velocity=first, target=state.mocap_pos[:, 0], miss=miss)
    run.motion(states.time[:, 0], model, states)
    run.plot("throw", _figure(state, before, states))
    view = Camera(azimuth=8, elevation=-22, distance=4.8, lookat=(1.6, 0, 0.7))
    film(run, model, until_landing(states), worlds=min(config.targets, 3), camera=view)
    return {
        "success": int(hit.sum()) >= math.ceil(0.8 * config.targets),
        "hit": int(hit.sum()),
        "targets": config.targets,
        "off_the_wall": int(bounced.sum()),
        "median_miss": float(np.median(miss)),
        "worst_miss": float(miss.max()),
        "miss": miss,
        "first_miss": first_miss,
        "largest_speed": float(jnp.linalg.norm(velocity, axis=1).max()),
        "search_seconds": round(seconds, 2),
    }


def beginning(model: fphys.Model, config: Config) -> tuple[fphys.State, Array]:
    """The ball in the hand, a target in each world, and velocities (world, 3) to begin the search with [m/s]."""
    rng = np.random.default_rng(config.seed)
    place = rng.uniform(NEAR, FAR, (config.targets, 2))
    velocity = np.array([5.0, 0.0, 2.5]) + rng.uniform(-0.5, 0.5, (config.targets, 3))
    state = fphys.init(model, config.targets)
    return state.replace(mocap_pos=jnp.asarray(np.pad(place, ((0, 0), (0, 1))))[:, None]), jnp.asarray(velocity)


def throw(model: fphys.Model, state: fphys.State, velocity: Array, steps: int) -> fphys.State:
    """All states of balls thrown without spin, stacked on a leading time axis T."""
    state = state.replace(qvel=jnp.concatenate([velocity, jnp.zeros_like(velocity)], 1))
    return fphys.rollout(model, state, jnp.zeros((steps, len(velocity), 0)))


def objective(model: fphys.Model, state: fphys.State, velocity: Array, steps: int) -> tuple[Array, Array]:
    """Squared distances from the targets [m^2] and a little of the speeds, summed over worlds; the distances [m]."""
    states = throw(model, state, velocity, steps)
    gap = landing(states) - states.mocap_pos[0, :, 0, :2]
    return (gap**2).sum() + STEADY * (velocity**2).sum(), distance(states, landing(states))


def landing(states: fphys.State) -> Array:
    """Where each ball first touches the floor [m], shape (world, 2), between two steps.

    The step is a discrete choice without gradient; the time within it, and by it the place, follows the motion. Of a
    ball that is in the air until the end, where it is then.
    """
    pos, after = states.qpos[..., :3], landed(states)
    world = jnp.arange(pos.shape[1])
    high, low = pos[after - 1, world], pos[after, world]
    fall = jnp.maximum(high[:, 2] - low[:, 2], 1e-9)
    part = jnp.clip((high[:, 2] - RADIUS) / fall, 0.0, 1.0)
    return high[:, :2] + part[:, None] * (low[:, :2] - high[:, :2])


def landed(states: fphys.State) -> Array:
    """The first step after which each ball touches the floor, or the last one, shape (world,)."""
    below = (states.qpos[..., 2] <= RADIUS).at[-1].set(True)
    return jnp.maximum(jnp.argmax(below, axis=0), 1)


def until_landing(states: fphys.State) -> fphys.State:
    """The states, each world held from where its ball lands."""
    after, world = landed(states), jnp.arange(states.qpos.shape[1])
    time = jnp.minimum(jnp.arange(len(states.qpos))[:, None], after)
    return jax.tree.map(lambda leaf: leaf[time, world], states)


def distance(states: fphys.State, place: Array) -> Array:
    """From places on the floor to the targets [m], shape (world,)."""
    return jnp.linalg.norm(place - states.mocap_pos[0, :, 0, :2], axis=1)


def touched(states: fphys.State) -> Array:
    """Whether each ball touches the wall before the floor, shape (world,)."""
    before = jnp.arange(len(states.qpos))[:, None] < landed(states)
    return ((states.qpos[..., 0] >= WALL - RADIUS) & before).any(0)


def _figure(state: fphys.State, before: fphys.State, states: fphys.State) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    side, top = figure.subplots(1, 2)
    colors = ["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b", "#6b7280"]
    for world in range(state.qpos.shape[0]):
        color = colors[world % len(colors)]
        target = np.asarray(state.mocap_pos[world, 0])
        for shown, style, width in ((before, ":", 0.8), (states, "-", 1.3)):
            path = np.asarray(shown.qpos[:, world, :3])
            end = int(landed(shown)[world]) + 1
            side.plot(path[:end, 0], path[:end, 2], style, color=color, linewidth=width)
            top.plot(path[:end, 0], path[:end, 1], style, color=color, linewidth=width)
        side.plot(target[0], 0.0, marker="^", color=color, clip_on=False)
        top.add_patch(Circle((target[0], target[1]), BAR, color=color, alpha=0.5, linewidth=0))
    for axes in (side, top):
        axes.axvline(WALL, color="#6b7280", linewidth=3.0)
        axes.set(xlabel="x [m]", xlim=(-0.1, WALL + 0.1))
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    side.set(title="from the side, until the floor is touched", ylabel="z [m]", ylim=(0, None))
    top.set(title="from above: first guess dotted, targets 5 cm", ylabel="y [m]", aspect="equal")
    return figure
