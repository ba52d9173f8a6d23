"""Runners and a swimmer in a plane: Gymnasium's HalfCheetah-v5, Hopper-v5, Walker2d-v5 and Swimmer-v5.

P. Wawrzynski, "A cat-like robot real-time learning to run", 2009 (cheetah); T. Erez, Y. Tassa and E. Todorov,
"Infinite-horizon model predictive control for periodic tasks with contacts", 2011 (hopper, walker); R. Coulom,
"Reinforcement learning using neural networks", 2002 (swimmer).
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..tree import pytree, static
from .ant import place
from .env import Env, EnvState, Start

Array = jax.Array


@pytree
class Runner(Env):
    """What they share: speed along x, cost of control, and an observation without the place."""

    forward_reward_weight: float = static(default=1.0)
    ctrl_cost_weight: float = static(default=1e-3)
    reset_noise_scale: float = static(default=5e-3)
    exclude_current_positions_from_observation: bool = static(default=True)

    hidden: ClassVar[int] = 1  # coordinates that the observation leaves out
    velocity: ClassVar[str] = "uniform"  # how the initial velocity is drawn

    def start(self, key: Array) -> Start:
        return self.noisy_start(key, self.reset_noise_scale, self.velocity)

    def observation(self, state: EnvState) -> Array:
        position = state.qpos[:, self.hidden * self.exclude_current_positions_from_observation :]
        return jnp.concatenate([position, self.observed_velocity(state.qvel)], 1)

    def observed_velocity(self, qvel: Array) -> Array:
        """What is observed of ``qvel`` [m/s or rad/s], shape (world, nv): by default all. Gradients flow to it."""
        return qvel

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        speed = (after.qpos[:, 0] - before.qpos[:, 0]) / self.dt
        forward = self.forward_reward_weight * speed
        ctrl = self.ctrl_cost_weight * (action**2).sum(1)
        return forward - ctrl, {
            "reward_forward": forward,
            "reward_ctrl": -ctrl,
            "x_position": after.qpos[:, 0],
            "x_velocity": speed,
        }


@pytree
class HalfCheetah(Runner):
    """Half a cheetah runs; it never falls for good."""

    source: ClassVar[str] = "half_cheetah.xml"
    velocity: ClassVar[str] = "normal"

    frame_skip: int = static(default=5)
    ctrl_cost_weight: float = static(default=0.1)
    reset_noise_scale: float = static(default=0.1)


@pytree
class Upright(Runner):
    """What hopper and walker share: a reward while upright, and the end when they are not."""

    frame_skip: int = static(default=4)
    healthy_reward: float = static(default=1.0)
    terminate_when_unhealthy: bool = static(default=True)
    healthy_z_range: tuple[float, float] = static(default=(0.8, 2.0))
    healthy_angle_range: tuple[float, float] = static(default=(-1.0, 1.0))

    def observed_velocity(self, qvel: Array) -> Array:
        return jnp.clip(qvel, -10, 10)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        reward, terms = super().reward(before, after, action)
        survive = jnp.where(self.healthy(after), self.healthy_reward, 0.0).astype(reward.dtype)
        height = after.qpos[:, 1] - self.model.qpos0[:, 1]
        return reward + survive, {**terms, "reward_survive": survive, "z_distance_from_origin": height}

    def healthy(self, state: EnvState) -> Array:
        """Whether height [m] and angle [rad] of the trunk are in their ranges, bool, shape (world,)."""
        return within(state.qpos[:, 1], self.healthy_z_range) & within(state.qpos[:, 2], self.healthy_angle_range)

    def terminated(self, state: EnvState) -> Array:
        return ~self.healthy(state) & self.terminate_when_unhealthy


@pytree
class Walker2d(Upright):
    """Two legs walk."""

    source: ClassVar[str] = "walker2d_v5.xml"


@pytree
class Hopper(Upright):
    """One leg hops."""

    source: ClassVar[str] = "hopper.xml"

    healthy_state_range: tuple[float, float] = static(default=(-100.0, 100.0))
    healthy_z_range: tuple[float, float] = static(default=(0.7, float("inf")))
    healthy_angle_range: tuple[float, float] = static(default=(-0.2, 0.2))

    def healthy(self, state: EnvState) -> Array:
        """Whether height [m], angle [rad], and all else but x, are in their ranges, bool, shape (world,)."""
        rest = jnp.concatenate([state.qpos, state.qvel], 1)[:, 2:]
        return super().healthy(state) & within(rest, self.healthy_state_range).all(1)


@pytree
class Swimmer(Runner):
    """Three links swim in a viscous plane."""

    source: ClassVar[str] = "swimmer.xml"
    hidden: ClassVar[int] = 2

    frame_skip: int = static(default=4)
    ctrl_cost_weight: float = static(default=1e-4)
    reset_noise_scale: float = static(default=0.1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        reward, terms = super().reward(before, after, action)
        sideways = (after.qpos[:, 1] - before.qpos[:, 1]) / self.dt
        return reward, {**terms, **place(after), "y_velocity": sideways}


def within(x: Array, bounds: tuple[float, float]) -> Array:
    """Whether the values lie strictly between the bounds."""
    return (x > bounds[0]) & (x < bounds[1])
