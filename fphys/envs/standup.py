"""An adult stands up from lying on his back: HumanoidStandup."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..math import matmul, rotation
from ..model import Model, State
from ..rigid.tree.kinematics import kinematics
from ..tree import pytree, static
from .env import Env, EnvState, Start
from .randomize import Ranges

Array = jax.Array


@pytree
class Standup(Env):
    """A humanoid of 73 kg stands up: reward grows with its head's height and its upright trunk, minus effort.

    At full difficulty an episode begins with it lying on its back, at 0 standing; between them it leans back, by that
    share of a right angle. Actions are the motors' controls. It sees its height, which way is up, its velocities in its
    own axes, and its joints; it sees neither place nor heading. It is a success if the head is at ``wanted_height`` of
    its height in standing when the time is up.
    """

    source: ClassVar[str] = "humanoid"
    varied: ClassVar[Ranges] = (
        ("actuator.gear", 0.8, 1.2),
        ("body.mass", 0.9, 1.1),
        ("geom.friction", 0.7, 1.3),
        ("push", 0.0, 0.3),
    )

    frame_skip: int = static(default=5)  # 40 actions a second
    max_episode_steps: int | None = static(default=200)
    standing: float = static(default=1.61)  # height of the head's centre [m]
    wanted_height: float = static(default=0.85)
    upright_weight: float = static(default=0.5)
    ctrl_cost_weight: float = static(default=0.01)
    reset_noise_scale: float = static(default=0.05)  # of joints [rad]

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        home = self.model.key.qpos[self.model.id("key", "home")]
        noise = jax.vmap(lambda key: jax.random.uniform(key, home[7:].shape, home.dtype, -1, 1))(keys)
        lean = jnp.pi / 2 * difficulty
        zero, high = jnp.zeros_like(lean), home[2] * jnp.cos(lean) + 0.13 * jnp.sin(lean)  # 0.13 m: half the trunk
        root = jnp.stack([zero, zero, high, jnp.cos(lean / 2), zero, -jnp.sin(lean / 2), zero], 1)
        qpos = jnp.concatenate([root, home[None, 7:] + self.reset_noise_scale * noise], 1)
        return Start(qpos, jnp.zeros_like(qpos[:, :-1]))

    def measure(self, physics: State) -> dict[str, Array]:
        """Height of the head [m], and cosine of the trunk's tilt, both of shape (world,)."""
        found, m = kinematics(self.model, physics), self.model
        up = found.site.mat[:, m.id("site", "chest"), 2, 2]
        return {"head": found.geom.pos[:, m.id("geom", "head"), 2], "upright": up}

    def observation(self, state: EnvState) -> Array:
        turn = rotation(state.qpos[:, 3:7])
        velocity = matmul(state.qvel[:, None, :3], turn)[:, 0]
        height = jnp.stack([state.qpos[:, 2], state.seen["head"], state.seen["upright"]], 1)
        return jnp.concatenate([height, turn[:, 2], velocity, state.qvel[:, 3:], state.qpos[:, 7:]], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        height = after.seen["head"] / self.standing
        upright, cost = self.upright_weight * after.seen["upright"], self.ctrl_cost_weight * (action**2).sum(1)
        return height + upright - cost, {
            "reward_height": height,
            "reward_upright": upright,
            "reward_ctrl": -cost,
            "head": after.seen["head"],
            "success": (height > self.wanted_height) & self.at_limit(before),
        }
