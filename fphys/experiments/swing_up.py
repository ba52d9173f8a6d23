"""A double pendulum swings up and balances. Gradients through the simulation find its torques.

The motors are too weak to hold the arms level. The pendulum starts from several random states near hanging, one per
world. iLQR (`fphys.control.ilqr`) finds the torques of all 250 steps. It carries the gradient and the Gauss-Newton
curvature of the cost back through every step of the simulator. The success test is one rollout of the torques without
feedback: both angles must be within 0.1 rad of upright for the last half second.
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import control
from fphys.runs import Run

from . import expect_positive
from .film import film

Array = jax.Array

BAR = 0.1  # rad
STANDING = 0.5  # s


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of the states to start from and of the torques that the search begins with."""
    starts: int = 5
    """States to start from, each in its own world."""
    spread: float = 1.0
    """How far the starts lie from hanging at rest, at most [rad and rad/s]."""
    steps: int = 250
    """Length of the motion, in steps of 10 ms."""
    iterations: int = 40
    """Iterations of iLQR."""

    def __post_init__(self) -> None:
        expect_positive(self, "spread", "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the torques; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    model = fphys.load(fphys.asset("double-pendulum"))
    state, guess = beginning(model, config)
    cost = task(model, config.steps)
    improve = jax.jit(functools.partial(control.ilqr, model, state, cost))
    slope = jax.jit(functools.partial(gradient, model, state, cost))

    begun = time.perf_counter()
    plan = first = jax.jit(functools.partial(control.plan, model, state, cost))(guess)
    for i in run.progress(config.iterations, "swing-up"):
        plan = improve(plan)
        angle = worst_angle(model, plan.x[..., : model.structure.nq])
        run.log(i, cost=plan.value.mean(), worst_angle=angle.max(), gradient=slope(plan.ctrl))
    seconds = time.perf_counter() - begun

    ctrl = plan.ctrl
    states = jax.jit(functools.partial(fphys.rollout, model, state))(ctrl)
    angle = np.asarray(worst_angle(model, states.qpos))
    run.save(ctrl=ctrl, qvel=states.qvel, start_qpos=state.qpos, start_qvel=state.qvel)
    run.motion(states.time[:, 0], model, states)
    run.plot("swing-up", _figure(model, run, state, states, ctrl))
    film(run, model, states, worlds=min(config.starts, 3))
    return {
        "success": bool((angle < BAR).all()),
        "standing": int((angle < BAR).sum()),
        "starts": config.starts,
        "worst_angle": angle,
        "largest_torque": np.abs(ctrl).max((0, 1)),
        "torque_limit": cost.limit,
        "cost": plan.value,
        "gradient": float(slope(ctrl)),
        "first_gradient": float(slope(first.ctrl)),
        "search_seconds": round(seconds, 2),
    }


def beginning(model: fphys.Model, config: Config) -> tuple[fphys.State, Array]:
    """States near hanging, and torques (T, world, nu) to begin the search with, which change four times a second."""
    rng = np.random.default_rng(config.seed)
    s = model.structure
    qpos = np.asarray(model.key.qpos[model.id("key", "hanging")])
    qpos = qpos + rng.uniform(-config.spread, config.spread, (config.starts, s.nq))
    qvel = rng.uniform(-config.spread, config.spread, (config.starts, s.nv))
    levels = rng.normal(0.0, 0.3, (config.steps // 25 + 1, config.starts, s.nu))
    guess = model.actuator.ctrlrange[0, :, 1] * np.tanh(np.repeat(levels, 25, axis=0)[: config.steps])
    return fphys.init(model, config.starts, qpos=qpos, qvel=qvel), guess


def task(model: fphys.Model, steps: int) -> control.Cost:
    """Upright and at rest is zero: weigh it lightly on the way, and fully from shortly before it counts."""
    standing = round((STANDING + 0.05) / float(model.opt.timestep[0]))
    if steps <= standing:
        raise ValueError(f"steps is {steps}: the last {standing} are for standing, choose 200 or more")
    when = jnp.where(jnp.arange(steps) >= steps - standing, 1.0, 0.002)
    weights = jnp.asarray([1.0, 1.0, 0.05, 0.05])
    return control.Cost(when[:, None] * weights, jnp.full(model.structure.nu, 1e-3), model.actuator.ctrlrange[0, :, 1])


def worst_angle(model: fphys.Model, qpos: Array) -> Array:
    """Largest angle from upright of either joint during the last half second [rad], shape (world,)."""
    standing = round(STANDING / float(model.opt.timestep[0]))
    return jnp.abs(qpos[-standing - 1 :]).max((0, 2))


def gradient(model: fphys.Model, state: fphys.State, cost: control.Cost, ctrl: Array) -> Array:
    """Norm of the cost's gradient by z, in reverse mode through the whole rollout. It is zero at the optimum."""

    def value(z: Array) -> Array:
        return control.plan(model, state, cost, cost.limit * jnp.tanh(z)).value.sum()

    return jnp.linalg.norm(jax.grad(value)(jnp.arctanh(ctrl / cost.limit)))


def _figure(model: fphys.Model, run: Run, state: Any, states: Any, ctrl: Array) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 6.4), layout="constrained")
    angles, torques = figure.subplots(2, 2, sharex=True)
    time = np.asarray(states.time[:, 0])
    names = model.names("joint")
    limit = np.asarray(model.actuator.ctrlrange[0, :, 1])
    colors = ["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b"]
    for j, (top, bottom) in enumerate(zip(angles, torques)):
        for world in range(ctrl.shape[1]):
            path = np.concatenate([state.qpos[None, world, j], states.qpos[:, world, j]])
            color = colors[world % len(colors)]
            top.plot(np.concatenate([[0.0], time]), path, color=color, linewidth=1.4, label=f"start {world}")
            bottom.plot(time, ctrl[:, world, j], color=color, linewidth=1.1)
        top.fill_between([time[-1] - STANDING, time[-1]], -BAR, BAR, color="#3a9d6e", alpha=0.3, linewidth=0)
        top.set(title=names[j], ylabel="angle [rad]")
        bottom.axhline(limit[j], color="#6b7280", linestyle="--", linewidth=0.9)
        bottom.axhline(-limit[j], color="#6b7280", linestyle="--", linewidth=0.9)
        bottom.set(xlabel="time [s]", ylabel="torque [N m]", xlim=(0, time[-1]))
    angles[0].legend(frameon=False, fontsize=9)
    angles[1].annotate(
        f"within {BAR} rad for the last {STANDING} s",
        (time[-1] - STANDING / 2, BAR),
        xytext=(0.99, 0.92),
        textcoords="axes fraction",
        ha="right",
        fontsize=9,
        color="#2c7a55",
        arrowprops={"arrowstyle": "-", "color": "#2c7a55"},
    )
    for axes in (*angles, *torques):
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
