"""A small quadrotor hovers at a point: QuadrotorHover."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..math import matmul, quat_mul, quat_unit, rotation
from ..model import Model, State
from ..tree import pytree, static
from .env import Env, EnvState, Spec, Start
from .randomize import Ranges

Array = jax.Array


@pytree
class QuadrotorHover(Env):
    """A quadrotor of 27 g flies to a point and stays there: reward falls with the distance, tilt and turning.

    An action, from -1 to 1, changes a rotor's thrust by its share of the nominal weight: 0 carries it, -1 stops the
    rotor. An episode begins away from the point, tilted and moving, the more so the higher the difficulty. The policy
    sees where the point is, its velocity and its attitude, and does not know its mass or the wind. An episode ends in
    failure ``farthest`` away from the point. It is a success if the quadrotor is within ``tolerance`` of the point when
    the time is up.
    """

    source: ClassVar[str] = "quadrotor"
    varied: ClassVar[Ranges] = (("body.inertia", 0.95, 1.05), ("body.mass", 0.8, 1.2), ("wind", 0.0, 3.0))

    frame_skip: int = static(default=4)  # 50 actions a second
    max_episode_steps: int | None = static(default=250)
    tolerance: float = static(default=0.05)  # [m]
    farthest: float = static(default=3.0)  # [m]
    spin_cost_weight: float = static(default=5e-3)  # [s^2/rad^2]
    ctrl_cost_weight: float = static(default=0.01)
    reset_distance: float = static(default=0.5)  # along each axis, up to [m]
    reset_tilt: float = static(default=0.8)  # about each horizontal axis, up to [rad]
    reset_speed: float = static(default=1.0)  # along each axis, up to [m/s]
    reset_spin: float = static(default=2.0)  # about each axis, up to [rad/s]

    @property
    def action_spec(self) -> Spec:
        return Spec.unit(self.model.structure.nu, self.model.qpos0.dtype)

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        """Within a tenth of the greatest distance, tilt and so on at difficulty 0; with any heading."""
        home = self.model.key.qpos[self.model.id("key", "hover")]
        noise = jax.vmap(lambda key: jax.random.uniform(key, (4, 3), home.dtype, -1, 1))(keys)
        heading = jnp.pi / 2 * noise[:, 1, 2]  # half of it
        noise = noise * (0.1 + 0.9 * difficulty)[:, None, None]
        tilt = jnp.tan(self.reset_tilt / 2 * noise[:, 1, :2])
        one, zero = jnp.ones_like(heading), jnp.zeros_like(heading)
        turn = jnp.stack([jnp.cos(heading), zero, zero, jnp.sin(heading)], 1)
        attitude = quat_mul(turn, quat_unit(jnp.stack([one, *tilt.T, zero], 1)))
        target = jnp.broadcast_to(home[None, :3], noise[:, 0].shape)
        qpos = jnp.concatenate([target + self.reset_distance * noise[:, 0], attitude], 1)
        qvel = jnp.concatenate([self.reset_speed * noise[:, 2], self.reset_spin * noise[:, 3]], 1)
        return Start(qpos, qvel, target)

    def control(self, physics: State, action: Array) -> Array:
        return self.model.key.ctrl[self.model.id("key", "hover")][None] * (1 + jnp.clip(action, -1, 1))

    def observation(self, state: EnvState) -> Array:
        """In its own axes: where the point is [m], velocity [m/s], spin [10 rad/s] and which way is up; no heading.

        Shape (world, 12).
        """
        turn = rotation(state.qpos[:, 3:7])
        own = lambda v: matmul(v[:, None], turn)[:, 0]  # noqa: E731
        parts = own(state.goal - state.qpos[:, :3]), own(state.qvel[:, :3]), 0.1 * state.qvel[:, 3:], turn[:, 2]
        return jnp.concatenate(parts, 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        square = ((after.goal - after.qpos[:, :3]) ** 2).sum(1)
        distance, near = jnp.sqrt(square + 1e-8), 1 / (1 + square / 0.1**2)
        far = 1 - distance / self.farthest
        tilt = 2 * (after.qpos[:, 4] ** 2 + after.qpos[:, 5] ** 2)  # 1 - cosine
        cost = 0.1 * tilt + self.spin_cost_weight * (after.qvel[:, 3:] ** 2).sum(1)
        cost = cost + self.ctrl_cost_weight * (action**2).sum(1)
        return near + far - cost, {
            "reward_near": near,
            "reward_far": far,
            "reward_cost": -cost,
            "distance": distance,
            "success": (distance < self.tolerance) & self.at_limit(before),
        }

    def terminated(self, state: EnvState) -> Array:
        return ((state.goal - state.qpos[:, :3]) ** 2).sum(1) > self.farthest**2
