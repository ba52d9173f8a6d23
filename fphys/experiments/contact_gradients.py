"""Exact gradients, softened contacts, and contacts from distance: what each of them sees.

A cart rolls along a rail towards a ball. It has to push the ball to a target. What is sought is the first speed of the
cart. If the cart stops short of the ball, the motion of the ball does not depend on it, and the exact gradient is
zero. Gradient descent follows each of the three gradients from the same slow start.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.runs import Run

from . import expect_positive

Array = jax.Array

SCENE = """
<mujoco>
  <option timestep="0.005"/>
  <default><geom size="0.1" mass="1" solref="-2000 -20"/></default>
  <worldbody>
    <body name="cart"><joint type="slide" axis="1 0 0" damping="1"/><geom/></body>
    <body name="ball" pos="0.6 0 0"><joint type="slide" axis="1 0 0" damping="1"/><geom/></body>
  </worldbody>
</mujoco>"""
STEPS = 400
TARGET = 0.5  # m, how far the ball is to be moved
SLOW = 0.3  # m/s, where each search begins


@dataclasses.dataclass(frozen=True)
class Config:
    width: float = 0.3
    """Distance over which contacts are felt [m]."""
    iterations: int = 60
    """Gradient steps of each search."""

    def __post_init__(self) -> None:
        expect_positive(self, "iterations")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Follow each gradient; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    model = fphys.load(SCENE)
    ways = {
        "exact": (model, fphys.step),
        "softened": (fphys.softened(model, config.width), fphys.step),
        "from_distance": (model, fphys.contacts_from_distance(config.width)),
    }
    true = jax.jit(lambda speed: cost(model, fphys.step, speed))
    speeds = jnp.linspace(0.0, 2.0, 201)
    swept, searched, metrics = {}, {}, {}
    for name, (used, step) in ways.items():
        slope = jax.jit(jax.value_and_grad(lambda v, used=used, step=step: cost(used, step, v).sum()))
        swept[name] = jax.jit(lambda v, used=used, step=step: cost(used, step, v))(speeds), slope(speeds)[1]
        path = [jnp.full(1, SLOW)]
        for i in run.progress(config.iterations, name):
            path.append(path[-1] - jnp.clip(0.5 * slope(path[-1])[1], -0.1, 0.1))
            run.log(i, **{f"{name}_speed": path[-1][0]})
        path = jnp.concatenate(path)
        searched[name] = true(path)
        run.save(**{f"{name}_speed": path, f"{name}_cost": searched[name]})
        metrics |= {f"{name}_speed": float(path[-1]), f"{name}_miss": float(jnp.sqrt(searched[name][-1]))}
    final = start(model, jnp.array([metrics[f"{name}_speed"] for name in ways]))
    states = jax.jit(lambda s: fphys.rollout(model, s, jnp.zeros((STEPS, len(ways), 0))))(final)
    run.motion(states.time[:, 0], model, states)
    run.plot("contact-gradients", _figure(np.asarray(speeds), swept, searched))
    return metrics


def cost(model: fphys.Model, step: Callable[..., fphys.State], speed: Array) -> Array:
    """Squared distance of the ball from its target [m^2] for each first speed of the cart, one world each."""
    final, _ = fphys.scan(lambda s, _: (step(model, s), None), start(model, speed), jnp.arange(STEPS))
    return (final.qpos[:, 1] - TARGET) ** 2


def start(model: fphys.Model, speed: Array) -> fphys.State:
    """The cart on its way, a first speed [m/s] for each world."""
    return fphys.init(model, len(speed)).replace(qvel=jnp.stack([speed, jnp.zeros_like(speed)], 1))


def _figure(speeds: np.ndarray, swept: dict[str, tuple[Array, Array]], searched: dict[str, Array]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for name, color in zip(swept, ("#6b7280", "#ec6a29", "#2a6db5")):
        value, slope = swept[name]
        style = "--" if name == "from_distance" else "-"
        left.plot(speeds, value, style, color=color, linewidth=1.5, label=name.replace("_", " "))
        middle.plot(speeds, slope, style, color=color, linewidth=1.5)
        right.semilogy(np.maximum(searched[name], 1e-10), color=color, linewidth=1.5)
    left.set(ylabel="cost [m²]", xlabel="first speed of the cart [m/s]")
    middle.axhline(0.0, color="#111827", linewidth=0.6)
    middle.set(ylabel="its gradient [m s]", xlabel="first speed of the cart [m/s]", ylim=(-2, 2))
    right.set(ylabel="true cost [m²]", title="during descent", xlabel="iteration")
    left.legend(frameon=False, fontsize=9, loc="lower left")
    for axes in (left, middle, right):
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
