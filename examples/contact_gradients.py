"""Exact gradients, softened contacts, and contacts from distance: what each of them sees.

A cart rolls along a rail towards a ball, which it is to push to a target; what is sought is the cart's first speed.
As long as the cart stops short of the ball, nothing that the ball does depends on it, and the exact gradient is zero.

``python examples/contact_gradients.py [PICTURE.png]`` prints what gradient descent finds from the same slow start with
each of the three gradients, and draws it.
"""

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import fphys

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
WIDTH = 0.3  # m, over which contacts are felt
ITERATIONS = 60


def main(picture: str | None = None, iterations: int = ITERATIONS) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Speeds and true costs during each search, by the name of its gradient."""
    with jax.enable_x64(True):
        model = fphys.load(SCENE)
        ways = {
            "exact": (model, fphys.step),
            "softened": (fphys.softened(model, WIDTH), fphys.step),
            "from distance": (model, fphys.contacts_from_distance(WIDTH)),
        }
        true = jax.jit(lambda speed: cost(model, fphys.step, speed))
        speeds = jnp.linspace(0.0, 2.0, 201)
        swept, found = {}, {}
        for name, (used, step) in ways.items():
            slope = jax.jit(jax.value_and_grad(lambda v, used=used, step=step: cost(used, step, v).sum()))
            if picture:
                swept[name] = jax.jit(lambda v, used=used, step=step: cost(used, step, v))(speeds), slope(speeds)[1]
            path = [jnp.full(1, 0.3)]
            for _ in range(iterations):
                path.append(path[-1] - jnp.clip(0.5 * slope(path[-1])[1], -0.1, 0.1))
            path = jnp.concatenate(path)
            found[name] = np.asarray(path), np.asarray(true(path))
            miss = 1000 * np.sqrt(found[name][1][-1])
            print(f"{name:>13}: speed {path[-1]:.3f} m/s, the ball ends {miss:.1f} mm from its target")
        if picture:
            draw(picture, np.asarray(speeds), swept, found)
    return found


def cost(model: fphys.Model, step: Callable[..., fphys.State], speed: jax.Array) -> jax.Array:
    """Squared distance of the ball from its target [m^2] for each first speed of the cart, one world each."""
    state = fphys.init(model, len(speed)).replace(qvel=jnp.stack([speed, jnp.zeros_like(speed)], 1))
    final, _ = fphys.scan(lambda s, _: (step(model, s), None), state, jnp.arange(STEPS))
    return (final.qpos[:, 1] - TARGET) ** 2


def draw(picture: str, speeds: np.ndarray, swept: dict, found: dict) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for name, color in zip(swept, ("#6b7280", "#ec6a29", "#2a6db5")):
        value, slope = swept[name]
        style = "--" if name == "from distance" else "-"
        left.plot(speeds, value, style, color=color, linewidth=1.5, label=name)
        middle.plot(speeds, slope, style, color=color, linewidth=1.5)
        right.semilogy(np.maximum(found[name][1], 1e-10), color=color, linewidth=1.5)
    left.set(title="cost [m²]", xlabel="first speed of the cart [m/s]")
    middle.axhline(0.0, color="#111827", linewidth=0.6)
    middle.set(title="its gradient [m s]", xlabel="first speed of the cart [m/s]", ylim=(-2, 2))
    right.set(title="true cost during descent [m²]", xlabel="iteration")
    left.legend(frameon=False, fontsize=9, loc="lower left")
    for axes in (left, middle, right):
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=150, facecolor="white")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else None)
