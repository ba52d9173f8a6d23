"""A seven-joint arm pushes a box to a pose. Gradients through the contacts find its motion.

A Franka Panda holds a fork with two round tips, which push a box on the floor. The unknowns are the control points of
a smooth path of the fork in the plane, and of its angle. Operational-space control makes the arm follow the path: O.
Khatib, "A unified approach for motion and force control of robot manipulators", 1987. `jax.vjp` goes back through arm,
tips, box and floor, once for each of the three numbers that say where the box ends. Levenberg-Marquardt takes the
least change of the points that should bring the box to the goal. The search begins with a straight push without
turning. There are several goals, one per world.

A single tip is not enough. The box is then in unstable balance before the tip. Where it ends depends steeply and
unevenly on the path, and the search stopped 1.5 to 2 cm from three of four goals. With two tips it comes within 3 mm
of all.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
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
from .reach import Motion, limits, rest_to_rest

Array = jax.Array

BAR, TURN = 0.02, np.radians(5.0)  # m and rad
START = (0.42, 0.0, 0.05)  # m, of the fork, between its tips
BOX = np.array([0.52, 0.0])  # m, where the box stands at first
HALF, RADIUS = 0.05, 0.02  # m, half the side of the box, radius of a tip
LEFT, RIGHT = "-0.0212 -0.0212", "0.0212 0.0212"  # m, of the tips in the flange's frame, which is turned by 45 degrees
ARM = 7  # joints
FREE = 5  # free control points of the path
FREQUENCY = 12.0  # rad/s, of the critically damped error when following a path
LEVER = 0.15  # m, by which a turn is weighed against a distance
STEP = 0.03  # m, the largest change of a control point in one iteration
ARRIVAL = 0.05  # the part of the motion, at its end, for which the box is to be at the goal

TOOL = f"""
                    <geom type="capsule" fromto="0 0 0.107 0 0 0.2" size="0.009" material="joint"/>
                    <geom type="capsule" fromto="{RIGHT} 0.2 {LEFT} 0.2" size="0.009" material="joint"/>
                    <geom type="capsule" fromto="{RIGHT} 0.2 {RIGHT} 0.25" size="0.009" material="joint"/>
                    <geom type="capsule" fromto="{LEFT} 0.2 {LEFT} 0.25" size="0.009" material="joint"/>
                    <geom name="right" type="sphere" pos="{RIGHT} 0.257" size="{RADIUS}" material="accent"/>
                    <geom name="left" type="sphere" pos="{LEFT} 0.257" size="{RADIUS}" material="accent"/>
                    <site name="fork" pos="0 0 0.257" rgba="0 0 0 0"/>
                    <site name="end_effector" """
THINGS = f"""
    <body name="box" pos="{BOX[0]} {BOX[1]} 0.04">
      <freejoint/>
      <geom name="box" type="box" size="{HALF} {HALF} 0.04" mass="0.5" rgba="0.16 0.42 0.70 1"/>
      <geom type="box" pos="0.035 0 0.0405" size="0.015 0.006 0.0004" mass="0" rgba="1 1 1 1"/>
    </body>
    <body name="goal" mocap="true">
      <geom type="box" pos="0 0 0.0005" size="{HALF} {HALF} 0.0005" rgba="0.23 0.62 0.43 0.8"/>
      <geom type="box" pos="0.035 0 0.001" size="0.015 0.006 0.001" rgba="1 1 1 1"/>
    </body>
  </worldbody>
  <contact>
    <pair geom1="floor" geom2="box" friction="0.4 0.4 0.005"/>
    <pair geom1="left" geom2="box" friction="0.4 0.4"/>
    <pair geom1="right" geom2="box" friction="0.4 0.4"/>
  </contact>"""


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the goals."""
    goals: int = 4
    """Random poses for the box, each in its own world: 10 to 16 cm along an arc that turns it
    by up to 20 degrees, and up to 1.5 cm aside of that."""
    duration: float = 2.5
    """Length of the motion [s]."""
    timestep: float = 0.005
    """Time step of simulation and control [s]."""
    iterations: int = 12
    """Iterations of Levenberg-Marquardt."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


class Goal(NamedTuple):
    pos: Array  # Of the box [m], shape (world, 2).
    angle: Array  # Of the box about the vertical [rad], shape (world,).


class Plan(NamedTuple):
    points: Array  # Control points of the path [m], shape (FREE, world, 3).
    error: Array  # What final_errors gives [m], shape (world, 3).
    slope: Array  # Its derivative by the points, shape (world, 3, 3 FREE).
    cost: Array  # Sum of its squares [m^2], shape (world,).
    damping: Array  # Levenberg-Marquardt's, relative to the trace, shape (world,).


class Scene(NamedTuple):
    model: fphys.Model  # Arm, fork, box and floor.
    arm: fphys.Model  # The arm alone, which its control knows.
    state: fphys.State  # The fork beside the box, at rest.
    upright: Array  # Orientation of the fork there, shape (3, 3).


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the paths; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    goal = goals(config)
    scene = beginning(config.timestep, goal)
    steps = round(config.duration / config.timestep)
    linearized = jax.jit(functools.partial(linearize, scene, goal, steps))

    begun = time.perf_counter()
    plan = linearized(first_guess(goal))
    for i in run.progress(config.iterations, "push"):
        plan = improve(linearized, plan)
        error = jnp.sqrt(plan.cost)
        run.log(i, median_error=jnp.median(error), worst_error=error.max())
    states, torque = jax.jit(follow, static_argnums=2)(scene, plan.points, steps)
    seconds = time.perf_counter() - begun

    miss, turn = (np.asarray(x) for x in off(states, goal))
    reached = (miss[-1] < BAR) & (turn[-1] < TURN)
    tip = jax.jit(jax.vmap(lambda state: fork_pose(scene.model, state)[0]))(states)
    run.save(points=plan.points, torque=torque, qvel=states.qvel, tip=tip, miss=miss, turn=turn)
    run.save(goal=goal.pos, goal_angle=goal.angle, start=scene.state.qpos)
    run.motion(states.time[:, 0], scene.model, states)
    run.plot("push", _figure(states, np.asarray(tip), goal, miss, turn))
    view = Camera(azimuth=140, elevation=-28, distance=1.25, lookat=(0.5, 0, 0.15))
    film(run, scene.model, states, worlds=min(config.goals, 3), camera=view)
    return {
        "success": bool(reached.all()),
        "reached": int(reached.sum()),
        "goals": config.goals,
        "worst_miss": float(miss[-1].max()),
        "worst_turn_degrees": float(np.degrees(turn[-1].max())),
        "miss": miss[-1],
        "turn_degrees": np.degrees(turn[-1]),
        "final_box_speed": float(jnp.linalg.norm(states.qvel[-1, :, ARM : ARM + 3], axis=1).max()),
        "largest_torque_of_limit": float((jnp.abs(torque) / limits(scene.arm)).max()),
        "search_seconds": round(seconds, 2),
    }


def goals(config: Config) -> Goal:
    """Random poses for the box."""
    rng = np.random.default_rng(config.seed)
    ahead, aside = rng.uniform([0.1, -0.015], [0.16, 0.015], (config.goals, 2)).T
    angle = np.radians(rng.uniform(-20.0, 20.0, config.goals))
    cos, sin = np.cos(angle / 2), np.sin(angle / 2)
    pos = BOX + np.stack([cos * ahead - sin * aside, sin * ahead + cos * aside], -1)
    return Goal(jnp.asarray(pos), jnp.asarray(angle))


def beginning(timestep: float, goal: Goal) -> Scene:
    """The models and where the motion begins, a goal in each world."""
    text = Path(fphys.asset("franka")).read_text(encoding="utf-8").replace('<site name="end_effector" ', TOOL)
    arm, model = (
        fphys.load(t, disable=("limit",)).replace({"opt.timestep": jnp.full(1, timestep)})
        for t in (text, text.replace("</worldbody>", THINGS).replace(_keyframe(text), ""))
    )
    state, upright = ready(arm, START)
    worlds = len(goal.angle)
    qpos = jnp.concatenate([state.qpos[0], model.qpos0[0, ARM:]])
    turned = jnp.stack([jnp.cos(goal.angle / 2), 0 * goal.angle, 0 * goal.angle, jnp.sin(goal.angle / 2)], -1)
    place = jnp.pad(goal.pos, ((0, 0), (0, 1)))
    beside = fphys.init(model, worlds, qpos=qpos).replace(mocap_pos=place[:, None], mocap_quat=turned[:, None])
    return Scene(model, arm, beside, upright)


def ready(arm: fphys.Model, place: Any) -> tuple[fphys.State, Array]:
    """The arm at rest with its fork at a place [m], and how the fork is turned there: as in the ready pose, (3, 3)."""
    state = fphys.init(arm, 1, qpos=arm.key.qpos[arm.id("key", "home")])
    upright = fork_pose(arm, state)[1][0]
    still = jnp.zeros((1, ARM))
    for _ in range(10):  # Newton's method
        motion = jnp.concatenate(_error(arm, state, upright, jnp.asarray(place)), -1)
        state = state.replace(qpos=state.qpos + _joint_motion(arm, state, motion, still))
    return state, upright


def first_guess(goal: Goal) -> Array:
    """Control points (FREE, world, 3) of straight pushes that end behind the goal: place relative to the start [m], and
    angle of the fork times LEVER [m], which is zero."""
    end = goal.pos - jnp.asarray([HALF + RADIUS, 0.0]) - jnp.asarray(START[:2])
    return jnp.linspace(0.0, 1.0, FREE + 1)[1:, None, None] * jnp.pad(end, ((0, 0), (0, 1)))


def follow(scene: Scene, points: Array, steps: int) -> tuple[fphys.State, Array]:
    """Simulate the arm whose fork follows a path: states and torques [N m], stacked on a leading time axis T."""

    def advance(now: fphys.State, wanted: Motion) -> Any:
        torque = torques(scene.arm, now, wanted, START, scene.upright)
        now = fphys.step(scene.model, now, torque)
        return now, (now, torque)

    return fphys.scan(advance, scene.state, rest_to_rest(points, steps, scene.model.opt.timestep[0]))[1]


def torques(
    arm: fphys.Model, now: fphys.State, wanted: Motion, start: Any, upright: Array, frequency: float = FREQUENCY
) -> Array:
    """Of the motors, so that the fork follows a path [N m], shape (world, 7): operational-space control.

    Args:
        arm: the arm alone; its joints are the first of the state's.
        wanted: along x, along y and about the vertical times LEVER, relative to the start, shape (world, 3).
        start, upright: where the fork begins [m], (3,), and how it is turned there, (3, 3).
        frequency: of the critically damped error [rad/s]: under a load the fork lags less if it is higher.
    """
    state = fphys.init(arm, len(now.qpos)).replace(qpos=now.qpos[:, :ARM], qvel=now.qvel[:, :ARM])
    goal, angle = _split(wanted.pos)
    error = jnp.concatenate(_error(arm, state, _turned(angle[:, 2], upright), goal + jnp.asarray(start)), -1)
    rate = (fphys.jacobian(arm, state, "site", "fork") @ state.qvel[..., None])[..., 0]
    speed, acc = (jnp.concatenate(_split(x), -1) for x in (wanted.vel, wanted.acc))
    acc = acc + fphys.control.pd(error, jnp.zeros_like(error), rate - speed, frequency**2, 2 * frequency)
    posture = -2 * frequency * state.qvel
    torque = fphys.inverse(arm, state, _joint_motion(arm, state, acc, posture))
    return jnp.clip(torque, -limits(arm), limits(arm))


def linearize(scene: Scene, goal: Goal, steps: int, points: Array) -> Plan:
    """Where the box ends, and how that depends on the path."""
    misses, pull = jax.vjp(lambda p: final_errors(follow(scene, p, steps)[0], goal), points)
    each = jnp.broadcast_to(jnp.eye(3)[:, :, None], (3, *misses.shape))
    (rows,) = jax.vmap(pull)(each)  # (3, FREE, world, 3)
    slope = jnp.moveaxis(rows, 2, 0).reshape(points.shape[1], 3, -1)
    return Plan(points, misses.T, slope, (misses**2).sum(0), jnp.full(points.shape[1], 0.01))


def improve(linearized: Callable[[Array], Plan], now: Plan) -> Plan:
    """One iteration in every world: kept where the error falls; otherwise the damping grows."""
    square = now.slope @ now.slope.mT
    scale = jnp.trace(square, axis1=1, axis2=2) + 1e-9
    damped = square + (now.damping * scale)[:, None, None] * jnp.eye(3)
    change = -(now.slope.mT @ jnp.linalg.solve(damped, now.error[..., None]))[..., 0]
    change = change * jnp.minimum(1.0, STEP / jnp.maximum(jnp.abs(change).max(1, keepdims=True), 1e-9))
    points = now.points + jnp.moveaxis(change.reshape(len(change), -1, 3), 0, 1)
    new = linearized(points)._replace(damping=now.damping / 4)
    old = now._replace(damping=now.damping * 4)
    better = new.cost < now.cost

    def choose(a: Array, b: Array, axis: int) -> Array:
        return jnp.where(better.reshape([-1 if n == axis else 1 for n in range(a.ndim)]), a, b)

    return Plan(*(choose(a, b, int(name == "points")) for name, a, b in zip(Plan._fields, new, old, strict=True)))


def final_errors(states: fphys.State, goal: Goal) -> Array:
    """How far the box is off in x, in y, and in angle times LEVER [m], on average at the end, shape (3, world)."""
    last = round(ARRIVAL * len(states.qpos))
    gap = states.qpos[-last:, :, ARM : ARM + 2] - goal.pos
    x, y = jnp.moveaxis(heading(states)[-last:], -1, 0)
    turn = y * jnp.cos(goal.angle) - x * jnp.sin(goal.angle)  # the sine of the angle between
    return jnp.stack([gap[..., 0], gap[..., 1], LEVER * turn]).mean(1)


def off(states: fphys.State, goal: Goal) -> tuple[Array, Array]:
    """Distance [m] and angle [rad] of the box from its goal, both (T, world)."""
    x, y = jnp.moveaxis(heading(states), -1, 0)
    turn = (jnp.arctan2(y, x) - goal.angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
    return jnp.linalg.norm(states.qpos[..., ARM : ARM + 2] - goal.pos, axis=-1), jnp.abs(turn)


def heading(states: fphys.State) -> Array:
    """The box's own x axis, seen from above, shape (T, world, 2)."""
    w, x, y, z = jnp.moveaxis(states.qpos[..., ARM + 3 :], -1, 0)
    return jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z)], -1)


def fork_pose(model: fphys.Model, state: fphys.State) -> tuple[Array, Array]:
    """Where the fork is [m] and how it is turned, shapes (world, 3) and (world, 3, 3)."""
    sites, fork = fphys.kinematics(model, state).site, model.id("site", "fork")
    return sites.pos[:, fork], sites.mat[:, fork]


def _error(arm: fphys.Model, state: fphys.State, upright: Array, goal: Any) -> tuple[Array, Array]:
    """From the fork to a place [m] and to an orientation [rad, small], both (world, 3)."""
    pos, mat = fork_pose(arm, state)
    return goal - pos, 0.5 * jnp.cross(mat, jnp.broadcast_to(upright, mat.shape), axis=-2).sum(-1)


def _joint_motion(arm: fphys.Model, state: fphys.State, motion: Array, posture: Array) -> Array:
    """The motion of the joints (world, 7) that moves and turns the fork so (world, 6), and is else near ``posture``."""
    jacobian = fphys.jacobian(arm, state, "site", "fork")
    wanted = motion[..., None] - jacobian @ posture[..., None]
    return posture + (jacobian.mT @ jnp.linalg.solve(jacobian @ jacobian.mT, wanted))[..., 0]


def _split(path: Array) -> tuple[Array, Array]:
    """Of (world, 3) along x, along y and about the vertical times LEVER: linear and angular parts, both (world, 3)."""
    zero = jnp.zeros_like(path[:, 0])
    return jnp.stack([path[:, 0], path[:, 1], zero], -1), jnp.stack([zero, zero, path[:, 2] / LEVER], -1)


def _turned(angle: Array, mat: Array) -> Array:
    """An orientation turned about the vertical, shape (world, 3, 3)."""
    cos, sin, zero = jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)
    turn = jnp.stack([cos, -sin, zero, sin, cos, zero, zero, zero, zero + 1.0], -1)
    return turn.reshape(-1, 3, 3) @ mat


def _keyframe(text: str) -> str:
    return text[text.index("  <keyframe>") : text.index("</mujoco>")]


def _figure(states: fphys.State, tip: np.ndarray, goal: Goal, miss: np.ndarray, turn: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    above, distance, angle = figure.subplots(1, 3, width_ratios=(1.3, 1.0, 1.0))
    colors = ["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b", "#6b7280"]
    corners = HALF * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1], [1, 1]])
    ends = np.asarray(heading(states))[-1]
    time = np.asarray(states.time[:, 0])
    for world in range(miss.shape[1]):
        color = colors[world % len(colors)]
        facing = [np.cos(goal.angle[world]), np.sin(goal.angle[world])]
        for place, (c, s), style in (
            (goal.pos[world], facing, ":"),
            (states.qpos[-1, world, ARM : ARM + 2], ends[world], "-"),
        ):
            square = np.asarray(place) + corners @ np.array([[c, s], [-s, c]])
            above.plot(*square.T, style, color=color, linewidth=1.3)
        above.plot(*tip[:, world, :2].T, color=color, linewidth=1.0, alpha=0.7)
        distance.semilogy(time, 100 * miss[:, world], color=color, linewidth=1.3)
        angle.plot(time, np.degrees(turn[:, world]), color=color, linewidth=1.3)
    above.plot(*(BOX + corners).T, color="#6b7280", linewidth=1.0)
    above.set(title="from above: goals dotted", xlabel="x [m]", ylabel="y [m]", aspect="equal")
    distance.axhline(100 * BAR, color="#c23b4b", linestyle="--", linewidth=1.0)
    distance.set(ylabel="distance from the goal [cm]", xlabel="time [s]")
    angle.axhline(np.degrees(TURN), color="#c23b4b", linestyle="--", linewidth=1.0)
    angle.set(ylabel="angle from the goal [degrees]", xlabel="time [s]", ylim=(0, None))
    for axes in (above, distance, angle):
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
