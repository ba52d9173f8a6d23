"""Poles on a cart: Gymnasium's InvertedPendulum-v5 and InvertedDoublePendulum-v5.

A. Barto, R. Sutton and C. Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems",
1983.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..rigid.last import LastSolve, constraint_generalized
from ..rigid.tree.kinematics import kinematics
from ..tree import pytree, static
from .env import Env, EnvState, Start

Array = jax.Array


@pytree
class InvertedPendulum(Env):
    """A cart balances a pole: reward is 1 while it stands within 0.2 rad."""

    source: ClassVar[str] = "inverted_pendulum.xml"

    frame_skip: int = static(default=2)
    reset_noise_scale: float = static(default=0.01)

    def start(self, key: Array) -> Start:
        return self.noisy_start(key, self.reset_noise_scale)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        stands = (~self.terminated(after)).astype(after.qpos.dtype)
        return stands, {"reward_survive": stands}

    def terminated(self, state: EnvState) -> Array:
        finite = jnp.isfinite(self.observation(state)).all(1)
        return ~finite | (jnp.abs(state.qpos[:, 1]) > 0.2)


@pytree
class InvertedDoublePendulum(Env):
    """A cart balances two poles, one on the other."""

    source: ClassVar[str] = "inverted_double_pendulum.xml"

    frame_skip: int = static(default=5)
    healthy_reward: float = static(default=10.0)
    reset_noise_scale: float = static(default=0.1)

    def start(self, key: Array) -> Start:
        return self.noisy_start(key, self.reset_noise_scale, "normal")

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        force = constraint_generalized(self.model, last, ctrl)
        return {"tip": kinematics(self.model, last.state).site.pos[:, 0], "constraint": force[:, :1]}

    def observation(self, state: EnvState) -> Array:
        x, angle = state.qpos[:, :1], state.qpos[:, 1:]
        bounded = [jnp.clip(v, -10, 10) for v in (state.qvel, state.seen["constraint"])]
        return jnp.concatenate([x, jnp.sin(angle), jnp.cos(angle), *bounded], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        x, _, height = after.seen["tip"].T
        distance = 0.01 * x**2 + (height - 2) ** 2
        velocity = 1e-3 * after.qvel[:, 1] ** 2 + 5e-3 * after.qvel[:, 2] ** 2
        survive = self.healthy_reward * (~self.terminated(after)).astype(x.dtype)
        return survive - distance - velocity, {
            "reward_survive": survive,
            "distance_penalty": -distance,
            "velocity_penalty": -velocity,
        }

    def terminated(self, state: EnvState) -> Array:
        return state.seen["tip"][:, 2] <= 1
