"""Arms that reach and push: Gymnasium's Reacher-v5 and Pusher-v5."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..rigid.last import LastSolve
from ..rigid.tree.kinematics import motions
from ..tree import pytree, static
from .env import Env, EnvState, Start

Array = jax.Array


def positions(env: Env, last: LastSolve, *bodies: str) -> dict[str, Array]:
    """Positions of bodies by name [m], each (world, 3)."""
    pos = motions(env.model, last.state).pos
    return {name: pos[:, env.model.id("body", name)] for name in bodies}


@pytree
class Reacher(Env):
    """Two links reach for a target in the plane."""

    source: ClassVar[str] = "reacher.xml"

    frame_skip: int = static(default=2)
    max_episode_steps: int | None = static(default=50)
    reward_dist_weight: float = static(default=1.0)
    reward_control_weight: float = static(default=1.0)

    def start(self, key: Array) -> Start:
        keys = jax.random.split(key, 4)
        real = self.model.qpos0.dtype
        radius, angle = jax.random.uniform(keys[0], (), real), jax.random.uniform(keys[1], (), real, 0, 2 * jnp.pi)
        goal = 0.2 * jnp.sqrt(radius) * jnp.stack([jnp.cos(angle), jnp.sin(angle)])  # uniform in the disk
        qpos = self.model.qpos0[0] + jax.random.uniform(keys[2], (4,), real, -0.1, 0.1)
        qvel = jax.random.uniform(keys[3], (4,), real, -0.005, 0.005)
        return Start(qpos.at[2:].set(goal), qvel.at[2:].set(0))

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        found = positions(self, last, "fingertip", "target")
        return {"offset": found["fingertip"] - found["target"]}

    def observation(self, state: EnvState) -> Array:
        angle = state.qpos[:, :2]
        parts = [jnp.cos(angle), jnp.sin(angle), state.qpos[:, 2:], state.qvel[:, :2], state.seen["offset"][:, :2]]
        return jnp.concatenate(parts, 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        near = -jnp.linalg.norm(after.seen["offset"], axis=1) * self.reward_dist_weight
        ctrl = -(action**2).sum(1) * self.reward_control_weight
        return near + ctrl, {"reward_dist": near, "reward_ctrl": ctrl}


@pytree
class Pusher(Env):
    """An arm of seven joints pushes a cylinder to a goal."""

    source: ClassVar[str] = "pusher_v5.xml"

    frame_skip: int = static(default=5)
    max_episode_steps: int | None = static(default=100)
    reward_near_weight: float = static(default=0.5)
    reward_dist_weight: float = static(default=1.0)
    reward_control_weight: float = static(default=0.1)

    def start(self, key: Array) -> Start:
        """The cylinder is uniform in a rectangle, more than 0.17 m from the goal at the origin."""
        real = self.model.qpos0.dtype
        keys = jax.random.split(key)

        def draw(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            key, _ = carry
            key, used = jax.random.split(key)
            low, high = jnp.asarray([-0.3, -0.2], real), jnp.asarray([0.0, 0.2], real)
            return key, jax.random.uniform(used, (2,), real, low, high)

        first = draw((keys[0], jnp.zeros(2, real)))
        _, place = jax.lax.while_loop(lambda c: jnp.linalg.norm(c[1]) <= 0.17, draw, first)
        qpos = self.model.qpos0[0].at[-4:].set(jnp.concatenate([place, jnp.zeros(2, real)]))
        qvel = jax.random.uniform(keys[1], (self.model.structure.nv,), real, -0.005, 0.005)
        return Start(qpos, qvel.at[-4:].set(0))

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        return positions(self, last, "tips_arm", "object", "goal")

    def observation(self, state: EnvState) -> Array:
        seen = [state.seen[name] for name in ("tips_arm", "object", "goal")]
        return jnp.concatenate([state.qpos[:, :7], state.qvel[:, :7], *seen], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        distance = lambda a, b: jnp.linalg.norm(after.seen[a] - after.seen[b], axis=1)  # noqa: E731
        near = -distance("object", "tips_arm") * self.reward_near_weight
        goal = -distance("object", "goal") * self.reward_dist_weight
        ctrl = -(action**2).sum(1) * self.reward_control_weight
        return goal + ctrl + near, {"reward_dist": goal, "reward_ctrl": ctrl, "reward_near": near}
