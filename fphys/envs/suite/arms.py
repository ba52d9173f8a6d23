"""Reacher and finger: the control suite's arms with two motors."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ...model import Model, State, init
from ...rigid.collide.collision import contacts
from ...rigid.last import LastSolve
from ...rigid.sensor import sensors
from ...rigid.tree.kinematics import kinematics
from ...tree import pytree, static
from ..env import EnvState, Start
from .base import SuiteEnv

Array = jax.Array


@pytree
class Reacher(SuiteEnv):
    """Reach a target of random position, which is large or small: "reacher-easy", "reacher-hard"."""

    source: ClassVar[str] = "reacher.xml"

    radius: float = static(default=0.05)  # of the target [m]

    def start(self, key: Array) -> Start:
        keys, real = jax.random.split(key, 3), self.model.qpos0.dtype
        qpos = self.random_joints(keys[0])
        angle = jax.random.uniform(keys[1], (), real, 0, 2 * np.pi)
        distance = jax.random.uniform(keys[2], (), real, 0.05, 0.2)
        return Start(qpos, jnp.zeros_like(qpos), distance * jnp.stack([jnp.sin(angle), jnp.cos(angle)]))

    def measure(self, physics: State) -> dict[str, Array]:
        return {"finger": kinematics(self.model, physics).geom.pos[:, self.model.id("geom", "finger"), :2]}

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.qpos, state.goal - state.seen["finger"], state.qvel], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        distance = jnp.linalg.norm(after.goal - after.seen["finger"], axis=1)
        reach = self.radius + self.model.geom.size[:, self.model.id("geom", "finger"), 0]
        return (distance <= reach).astype(distance.dtype), {"distance": distance}


@pytree
class Finger(SuiteEnv):
    """What the finger's tasks share: an arm touches a body on a hinge."""

    source: ClassVar[str] = "finger.xml"
    attempts: ClassVar[int] = 1000

    frame_skip: int = static(default=2)

    def start(self, key: Array) -> Start:
        qpos = self.random_joints(key)
        return Start(qpos, jnp.zeros_like(qpos))

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        """Starts are drawn again, up to 1000 times, until nothing touches. No gradient flows to them."""
        model, env = jax.lax.stop_gradient((model, self))

        def draw(attempt: Array) -> tuple[Start, Array]:
            start = jax.vmap(lambda key: env.start(jax.random.fold_in(key, attempt)))(keys)
            found = contacts(model, init(model, len(keys)).replace(qpos=start.qpos))
            return start, (found.pair >= 0).any(1)

        def again(carry: tuple[Array, Start, Array]) -> tuple[Array, Start, Array]:
            attempt, start, touches = carry
            fresh, also = draw(attempt)
            pick = lambda new, old: jnp.where(touches.reshape(-1, *[1] * (old.ndim - 1)), new, old)  # noqa: E731
            return attempt + 1, jax.tree.map(pick, fresh, start), touches & also

        first = (jnp.int32(1), *draw(jnp.int32(0)))
        return jax.lax.while_loop(lambda c: c[2].any() & (c[0] < self.attempts), again, first)[1]

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        return {"touch": self.touch(last, ctrl, "touchtop", "touchbottom")}

    def measure(self, physics: State) -> dict[str, Array]:
        places = sensors(self.model, physics, names=["tip", "spinner"])
        return {"tip": places[:, :3:2] - places[:, 3::2], "spinner": places[:, 3::2]}  # in the plane of x and z

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.qpos[:, :2], state.seen["tip"], state.qvel, state.seen["touch"]], 1)


@pytree
class FingerSpin(Finger):
    """Spin the body at 15 rad/s: "finger-spin"."""

    @classmethod
    def prepared(cls, model: Model) -> Model:
        """The hinge's damping is 0.03 N m s/rad."""
        damping = model.dof.damping.at[:, model.structure.joint.dof[model.id("joint", "hinge")]].set(0.03)
        return model.replace(dof=model.dof.replace(damping=damping))

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        spin = after.qvel[:, 2]
        return (spin <= -15).astype(spin.dtype), {"spin": spin}


@pytree
class FingerTurn(Finger):
    """Turn the body until its tip is in a target, which is large or small: "finger-turn_easy", "finger-turn_hard"."""

    radius: float = static(default=0.07)  # of the target [m]

    def start(self, key: Array) -> Start:
        """The goal is a place on the circle of the body's end, (2,), along x and z."""
        keys = jax.random.split(key)
        angle = jax.random.uniform(keys[1], (), self.model.qpos0.dtype, -np.pi, np.pi)
        end = self.model.geom.size[0, self.model.id("geom", "cap1")].sum()
        hinge = self.model.body.pos[0, self.model.id("body", "spinner"), ::2]
        goal = hinge + end * jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        return super().start(keys[0])._replace(goal=goal)

    def observation(self, state: EnvState) -> Array:
        target, distance = self.target(state)
        return jnp.concatenate([super().observation(state), target, distance[:, None]], 1)

    def target(self, state: EnvState) -> tuple[Array, Array]:
        """The target from the hinge, (world, 2), and the tip's distance from its surface, (world,) [m]."""
        target = state.goal - state.seen["spinner"]
        return target, jnp.linalg.norm(target - state.seen["tip"], axis=1) - self.radius

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        _, distance = self.target(after)
        return (distance <= 0).astype(distance.dtype), {"distance": distance}
