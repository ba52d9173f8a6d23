"""A hand turns a cube in its palm: ShadowHandManipulate."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..math import quat_mul, rotation
from ..model import Model, State
from ..tree import pytree, static
from .env import Env, EnvState, Spec, Start
from .randomize import Ranges

Array = jax.Array


@pytree
class ShadowHandManipulate(Env):
    """A Shadow Hand, palm up, turns a cube about the vertical axis: reward falls with the angle that is left.

    An action, from -1 to 1, moves the setpoints of the hand's servos away from the pose in which it holds the cube, by
    half of their ranges at most. The cube has 60 mm and 80 g, and lies in the palm. The angle is 10 degrees at
    difficulty 0 and a quarter turn, counter-clockwise seen from above, at 1. The policy sees the angle that is left,
    the cube's pose and motion, and the joints. An episode ends when the cube falls. It is a success if the cube is
    still in the hand and within ``tolerance`` of the angle when the time is up.
    """

    source: ClassVar[str] = "hand-cube"
    varied: ClassVar[Ranges] = (("actuator.gainprm", 0.9, 1.1), ("body.mass", 0.8, 1.2), ("geom.friction", 0.7, 1.3))

    frame_skip: int = static(default=10)  # 25 actions a second
    max_episode_steps: int | None = static(default=100)
    tolerance: float = static(default=0.3)  # [rad]
    lowest_height: float = static(default=0.30)  # of the cube's centre [m]; 0.348 in the palm
    ctrl_cost_weight: float = static(default=0.005)
    reset_noise_scale: float = static(default=0.02)  # of joints [rad]
    reset_angle: float = static(default=0.1)  # of the cube [rad]

    @property
    def action_spec(self) -> Spec:
        return Spec.unit(self.model.structure.nu, self.model.qpos0.dtype)

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        home = self.model.key.qpos[self.model.id("key", "palm")]
        noise = jax.vmap(lambda key: jax.random.uniform(key, (25,), home.dtype, -1, 1))(keys)
        joints = home[None, :24] + self.reset_noise_scale * noise[:, :24]
        half = self.reset_angle / 2 * noise[:, 24]
        turn = jnp.stack([jnp.cos(half), 0 * half, 0 * half, jnp.sin(half)], 1)
        place, attitude = jnp.broadcast_to(home[24:], (len(keys), 7))[:, :3], quat_mul(turn, home[None, 27:])
        angle = jnp.radians(10 + 80 * difficulty)
        qpos = jnp.concatenate([joints, place, attitude], 1)
        return Start(qpos, jnp.zeros_like(qpos[:, :-1]), heading(attitude) + angle)

    def control(self, physics: State, action: Array) -> Array:
        low, high = (self.model.actuator.ctrlrange[..., i] for i in (0, 1))
        home = self.model.key.ctrl[self.model.id("key", "palm")][None]
        return jnp.clip(home + jnp.clip(action, -1, 1) * (high - low) / 2, low, high)

    def left(self, state: EnvState) -> Array:
        """The angle that is left to turn [rad], from -pi to pi, (world,)."""
        left = state.goal - heading(state.qpos[:, 27:])
        return jnp.arctan2(jnp.sin(left), jnp.cos(left))

    def observation(self, state: EnvState) -> Array:
        left, home = self.left(state), self.model.key.qpos[self.model.id("key", "palm")][None, 24:27]
        parts = state.qpos[:, :24], 0.1 * state.qvel[:, :24], jnp.stack([jnp.cos(left), jnp.sin(left)], 1)
        cube = 10 * (state.qpos[:, 24:27] - home), rotation(state.qpos[:, 27:]).reshape(-1, 9), state.qvel[:, 24:]
        return jnp.concatenate([*parts, *cube], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        left, home = self.left(after), self.model.key.qpos[self.model.id("key", "palm")][None, 24:27]
        near, far = 1 / (1 + (left / 0.2) ** 2), 1 + jnp.cos(left)
        slid = ((after.qpos[:, 24:27] - home) ** 2).sum(1) / 0.05**2
        cost = self.ctrl_cost_weight * (action**2).sum(1) + 0.1 * slid
        return near + far - cost, {
            "reward_near": near,
            "reward_far": far,
            "reward_cost": -cost,
            "distance": jnp.abs(left),
            "success": (jnp.abs(left) < self.tolerance) & ~self.terminated(after) & self.at_limit(before),
        }

    def terminated(self, state: EnvState) -> Array:
        return state.qpos[:, 26] < self.lowest_height


def heading(quat: Array) -> Array:
    """Angle of a body's x axis in the horizontal plane [rad], (world,), from quaternions (world, 4)."""
    w, x, y, z = quat.T
    return jnp.arctan2(2 * (x * y + w * z), 1 - 2 * (y**2 + z**2))
