"""A quadruped runs: Gymnasium's Ant-v5.

J. Schulman et al., "High-dimensional continuous control using generalized advantage estimation", 2015.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..rigid.last import LastSolve, contact_wrenches
from ..rigid.tree.kinematics import motions
from ..tree import pytree, static
from .env import Env, EnvState, Start

Array = jax.Array


@pytree
class Ant(Env):
    """A quadruped runs: reward is its speed [m/s], plus 1 while healthy, minus the costs of control and contact."""

    source: ClassVar[str] = "ant.xml"

    frame_skip: int = static(default=5)
    forward_reward_weight: float = static(default=1.0)
    ctrl_cost_weight: float = static(default=0.5)
    contact_cost_weight: float = static(default=5e-4)
    healthy_reward: float = static(default=1.0)
    main_body: int | str = static(default=1)
    terminate_when_unhealthy: bool = static(default=True)
    healthy_z_range: tuple[float, float] = static(default=(0.2, 1.0))
    contact_force_range: tuple[float, float] = static(default=(-1.0, 1.0))
    reset_noise_scale: float = static(default=0.1)
    exclude_current_positions_from_observation: bool = static(default=True)
    include_cfrc_ext_in_observation: bool = static(default=True)

    def start(self, key: Array) -> Start:
        return self.noisy_start(key, self.reset_noise_scale, "normal")

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        body = self.model.id("body", self.main_body) if isinstance(self.main_body, str) else self.main_body
        force = jnp.clip(contact_wrenches(self.model, last, ctrl), *self.contact_force_range)
        return {"position": motions(self.model, last.state).pos[:, body, :2], "contact": force}

    def observation(self, state: EnvState) -> Array:
        parts = [state.qpos[:, 2 * self.exclude_current_positions_from_observation :], state.qvel]
        if self.include_cfrc_ext_in_observation:
            parts.append(state.seen["contact"][:, 1:].reshape(len(state.qpos), -1))
        return jnp.concatenate(parts, 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        velocity = (after.seen["position"] - before.seen["position"]) / self.dt[:, None]
        forward = self.forward_reward_weight * velocity[:, 0]
        survive = jnp.where(self.healthy(after), self.healthy_reward, 0.0).astype(forward.dtype)
        ctrl = self.ctrl_cost_weight * (action**2).sum(1)
        contact = self.contact_cost_weight * (after.seen["contact"] ** 2).sum((1, 2))
        return forward + survive - (ctrl + contact), {
            "reward_forward": forward,
            "reward_ctrl": -ctrl,
            "reward_contact": -contact,
            "reward_survive": survive,
            "x_velocity": velocity[:, 0],
            "y_velocity": velocity[:, 1],
            **place(after),
        }

    def healthy(self, state: EnvState) -> Array:
        """Whether the state is finite and the torso's height in ``healthy_z_range`` [m], bool, shape (world,)."""
        low, high = self.healthy_z_range
        finite = jnp.isfinite(state.qpos).all(1) & jnp.isfinite(state.qvel).all(1)
        return finite & (state.qpos[:, 2] >= low) & (state.qpos[:, 2] <= high)

    def terminated(self, state: EnvState) -> Array:
        return ~self.healthy(state) & self.terminate_when_unhealthy


def place(state: EnvState) -> dict[str, Array]:
    """Where a free body is in the plane."""
    x, y = state.qpos[:, 0], state.qpos[:, 1]
    return {"x_position": x, "y_position": y, "distance_from_origin": jnp.sqrt(x**2 + y**2)}
