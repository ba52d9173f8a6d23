"""A seven-joint arm reaches a point: FrankaReach."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ..model import Model, State, init
from ..rigid.inverse import smooth_inverse
from ..rigid.tree.kinematics import kinematics
from ..tree import pytree, static
from .env import Env, EnvState, Spec, Start
from .randomize import Ranges

Array = jax.Array


@pytree
class FrankaReach(Env):
    """A Franka Panda moves its flange to a point: reward falls with the distance, minus effort.

    An action, from -1 to 1, is a joint's speed over the manufacturer's limit. Computed torque follows it: like the
    robot's own controller, the law knows the masses and carries the arm's weight. It does not know the friction, nor by
    how much the motors are too strong or too weak. Torques stay within the motors' limits. An episode begins near the
    ready pose. The target is where the flange is in another pose, so it can be reached; the difficulty says how far
    away that pose is. It is a success if the flange is within ``tolerance`` of the target when the time is up.
    """

    source: ClassVar[str] = "franka"
    varied: ClassVar[Ranges] = (("actuator.gear", 0.95, 1.05), ("dof.damping", 0.5, 2.0))
    speeds: ClassVar[tuple[float, ...]] = (2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61)  # of the joints [rad/s]
    spread: ClassVar[tuple[float, ...]] = (1.2, 0.7, 0.6, 0.7, 0.6, 0.8, 0.6)  # of the targets' poses [rad]

    frame_skip: int = static(default=20)  # 25 actions a second
    max_episode_steps: int | None = static(default=50)
    following: float = static(default=25.0)  # acceleration for an error of speed [1/s]
    tolerance: float = static(default=0.02)  # [m]
    ctrl_cost_weight: float = static(default=0.01)
    reset_noise_scale: float = static(default=0.1)  # [rad]

    @property
    def action_spec(self) -> Spec:
        return Spec.unit(self.model.structure.nu, self.model.qpos0.dtype)

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        home = self.model.key.qpos[self.model.id("key", "home")]
        noise = jax.vmap(lambda key: jax.random.uniform(key, (2, *home.shape), home.dtype, -1, 1))(keys)
        far = (0.1 + 0.9 * difficulty)[:, None] * jnp.asarray(self.spread, home.dtype)[None]
        there = init(model, len(keys)).replace(qpos=home[None] + far * noise[:, 0])
        qpos = home[None] + self.reset_noise_scale * noise[:, 1]
        return Start(qpos, jnp.zeros_like(qpos), self.replace(model=model)._flange(there))

    def control(self, physics: State, action: Array) -> Array:
        known = dataclasses.replace(
            self.model, dof=self.model.dof.replace(damping=jnp.zeros_like(self.model.dof.damping))
        )
        speed = jnp.clip(action, -1, 1) * jnp.asarray(self.speeds, action.dtype)[None]
        return smooth_inverse(known, physics, self.following * (speed - physics.qvel))

    def measure(self, physics: State) -> dict[str, Array]:
        return {"flange": self._flange(physics)}

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.qpos, state.qvel, state.goal - state.seen["flange"]], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        square = ((after.goal - after.seen["flange"]) ** 2).sum(1)
        distance, cost = jnp.sqrt(square + 1e-8), self.ctrl_cost_weight * (action**2).sum(1)
        near = 1 / (1 + square / 0.05**2)
        return near - distance - cost, {
            "reward_near": near,
            "reward_distance": -distance,
            "reward_ctrl": -cost,
            "distance": distance,
            "success": (distance < self.tolerance) & self.at_limit(before),
        }

    def _flange(self, physics: State) -> Array:
        """Where the flange is [m], (world, 3)."""
        return kinematics(self.model, physics).site.pos[:, self.model.id("site", "end_effector")]
