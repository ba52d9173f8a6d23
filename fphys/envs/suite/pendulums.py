"""Pendulum, poles on a cart, and acrobot: what the control suite swings up.

A. Barto, R. Sutton and C. Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems",
1983; M. Spong, "The swing up control problem for the acrobot", 1995.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ...model import State
from ...rigid.tree.kinematics import kinematics
from ...tree import pytree, static
from ..env import EnvState, Start
from .base import SuiteEnv, tolerance

Array = jax.Array


@pytree
class Pendulum(SuiteEnv):
    """Swing up a pole with a weak motor, to within 8 degrees: "pendulum-swingup"."""

    source: ClassVar[str] = "pendulum.xml"

    def start(self, key: Array) -> Start:
        angle = jax.random.uniform(key, (1,), self.model.qpos0.dtype, -np.pi, np.pi)
        return Start(angle, jnp.zeros_like(angle))

    def measure(self, physics: State) -> dict[str, Array]:
        turn = self.turns(physics)[:, self.model.id("body", "pole")]
        return {"direction": turn[:, ::-2, 2]}  # of the pole, along z and x

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.seen["direction"], state.qvel], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        upright = after.seen["direction"][:, 0]
        return tolerance(upright, (np.cos(np.deg2rad(8)).item(), 1.0)), {"upright": upright}


@pytree
class Cartpole(SuiteEnv):
    """Hold a pole upright on a cart, or swing it up first: "cartpole-balance", "cartpole-swingup", and both sparse."""

    source: ClassVar[str] = "cartpole.xml"

    swing_up: bool = static(default=True)
    sparse: bool = static(default=False)  # the reward is 0 or 1

    def start(self, key: Array) -> Start:
        real, keys = self.model.qpos0.dtype, jax.random.split(key)
        if self.swing_up:
            qpos = 0.01 * jax.random.normal(keys[0], (2,), real) + jnp.asarray([0, np.pi], real)
        else:
            bound = jnp.asarray([0.1, 0.034], real)
            qpos = jax.random.uniform(keys[0], (2,), real, -bound, bound)
        return Start(qpos, 0.01 * jax.random.normal(keys[1], (2,), real))

    def measure(self, physics: State) -> dict[str, Array]:
        turn = self.turns(physics)[:, self.model.id("body", "pole_1")]
        return {"direction": turn[:, ::-2, 2]}  # of the pole, along z and x

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.qpos[:, :1], state.seen["direction"], state.qvel], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        x, upright = after.qpos[:, 0], after.seen["direction"][:, 0]
        terms = {"upright": upright, "position": x}
        if self.sparse:
            return tolerance(x, (-0.25, 0.25)) * tolerance(upright, (0.995, 1.0)), terms
        centred = (1 + tolerance(x, margin=2.0)) / 2
        calm = (4 + tolerance(action[:, 0], (0.0, 0.0), 1.0, "quadratic", 0.0)) / 5
        slow = (1 + tolerance(after.qvel[:, 1], margin=5.0)) / 2
        return (upright + 1) / 2 * calm * slow * centred, terms


@pytree
class Acrobot(SuiteEnv):
    """Swing up two links with a motor between them: "acrobot-swingup", "acrobot-swingup_sparse"."""

    source: ClassVar[str] = "acrobot.xml"

    sparse: bool = static(default=False)  # the reward is 0 or 1
    radius: float = static(default=0.2)  # of the target [m], as the model's site

    def start(self, key: Array) -> Start:
        angles = jax.random.uniform(key, (2,), self.model.qpos0.dtype, -np.pi, np.pi)
        return Start(angles, jnp.zeros_like(angles))

    def measure(self, physics: State) -> dict[str, Array]:
        where = kinematics(self.model, physics).site.pos
        target, tip = (where[:, self.model.id("site", name)] for name in ("target", "tip"))
        links = [self.model.id("body", name) for name in ("upper_arm", "lower_arm")]
        turn = self.turns(physics)[:, np.array(links)]
        directions = jnp.concatenate([turn[:, :, 0, 2], turn[:, :, 2, 2]], 1)  # of both links, along x, then along z
        return {"directions": directions, "distance": jnp.linalg.norm(target - tip, axis=1)}

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.seen["directions"], state.qvel], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        distance = after.seen["distance"]
        return tolerance(distance, (0.0, self.radius), 0.0 if self.sparse else 1.0), {"distance": distance}
