"""fphys's own walker: AntLocomotion."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..math import matmul, rotation
from ..tree import pytree, static
from .env import Env, EnvState, Start
from .randomize import Ranges

Array = jax.Array


@pytree
class AntLocomotion(Env):
    """A quadruped of 8 kg runs along x: reward is its speed [m/s], plus 0.5 while it stands, minus effort.

    It sees its height, its attitude, velocities in its own frame, and its joints. An episode that reaches the time
    limit with a mean speed of ``wanted_speed`` is a success.
    """

    source: ClassVar[str] = "ant"
    varied: ClassVar[Ranges] = (
        ("actuator.gear", 0.8, 1.2),
        ("body.mass", 0.8, 1.2),
        ("geom.friction", 0.5, 1.5),
        ("push", 0.0, 0.5),
    )

    frame_skip: int = static(default=8)
    wanted_speed: float = static(default=2.0)  # [m/s]
    ctrl_cost_weight: float = static(default=0.1)
    healthy_reward: float = static(default=0.5)
    lowest_height: float = static(default=0.22)  # of the trunk's centre [m]
    reset_noise_scale: float = static(default=0.1)

    def start(self, key: Array) -> Start:
        return self.noisy_start(key, self.reset_noise_scale)

    def observation(self, state: EnvState) -> Array:
        turn = rotation(state.qpos[:, 3:7])
        velocity = matmul(state.qvel[:, None, :3], turn)[:, 0]
        parts = (state.qpos[:, 2:3], turn.reshape(-1, 9), velocity, state.qvel[:, 3:6], state.qpos[:, 7:])
        return jnp.concatenate([*parts, state.qvel[:, 6:]], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        place, steps = after.qpos[:, 0], after.length.astype(after.qpos.dtype)
        speed, cost = (place - before.qpos[:, 0]) / self.dt, self.ctrl_cost_weight * (action**2).sum(1)
        fallen = self.terminated(after)
        stands = jnp.where(fallen, 0.0, self.healthy_reward).astype(speed.dtype)
        success = (place >= self.wanted_speed * self.dt * steps) & ~fallen & self.at_limit(before)
        return speed + stands - cost, {
            "reward_forward": speed,
            "reward_survive": stands,
            "reward_ctrl": -cost,
            "x_position": place,
            "success": success,
        }

    def terminated(self, state: EnvState) -> Array:
        upright = 1 - 2 * (state.qpos[:, 4] ** 2 + state.qpos[:, 5] ** 2)  # cosine of the tilt
        return (state.qpos[:, 2] < self.lowest_height) | (upright < 0)
