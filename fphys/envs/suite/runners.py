"""Cheetah, walker and hopper: the control suite's runners in a plane."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ...model import Model, State, init
from ...rigid.last import LastSolve, inertial_positions, unsolved
from ...rigid.step import step
from ...rigid.tree.kinematics import motions
from ...tree import pytree, static
from ..env import EnvState, Start
from .base import SuiteEnv, tolerance

Array = jax.Array


@pytree
class Cheetah(SuiteEnv):
    """Run at 10 m/s: "cheetah-run"."""

    source: ClassVar[str] = "cheetah.xml"
    settling: ClassVar[int] = 200

    speed: float = static(default=10.0)

    def start(self, key: Array) -> Start:
        s = self.model.structure
        limited = np.isin(s.dof.joint, s.limit.joint)
        qpos = jnp.where(limited, self.random_joints(key), self.model.qpos0[0])
        return Start(qpos, jnp.zeros_like(qpos))

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        """The joints are random; then it falls and comes to rest."""
        return self.settled(jax.vmap(self.start)(keys).qpos, model)

    def settled(self, qpos: Array, model: Model) -> Start:
        """Where 200 steps lead from positions (world, nq); beginning an episode takes their time. No gradient flows.

        The first step has the accelerations of the reference position: dm_control computes those of the random one
        after it.
        """
        model, qpos = jax.lax.stop_gradient((model, qpos))
        rest = init(model, len(qpos))
        first = step(model, rest)
        first = first.replace(qpos=qpos + (first.qpos - rest.qpos))
        physics, _ = jax.lax.scan(lambda s, _: (step(model, s), None), first, None, self.settling - 1)
        return Start(physics.qpos, physics.qvel)

    def measure(self, physics: State) -> dict[str, Array]:
        return {"speed": self.velocity_along_x(physics)}

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.qpos[:, 1:], state.qvel], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        speed, fast = after.seen["speed"], (self.speed, np.inf)
        return tolerance(speed, fast, self.speed, "linear", 0.0), {"speed": speed}


@pytree
class Walker(SuiteEnv):
    """Stand upright; with a speed [m/s], also move: "walker-stand", "walker-walk" (1 m/s), "walker-run" (8 m/s)."""

    source: ClassVar[str] = "walker.xml"

    frame_skip: int = static(default=10)
    speed: float = static(default=1.0)
    height: float = static(default=1.2)  # of the torso [m]

    def start(self, key: Array) -> Start:
        qpos = self.random_joints(key)
        return Start(qpos, jnp.zeros_like(qpos))

    def measure(self, physics: State) -> dict[str, Array]:
        torso, turns = self.model.id("body", "torso"), self.turns(physics)
        return {
            "orientations": turns[:, 1:, 0, ::2].reshape(len(turns), -1),  # x components of the bodies' x and z axes
            "upright": turns[:, torso, 2, 2],
            "height": motions(self.model, physics).pos[:, torso, 2],
            "speed": self.velocity_along_x(physics),
        }

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.seen["orientations"], state.seen["height"][:, None], state.qvel], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        seen = after.seen
        standing = tolerance(seen["height"], (self.height, np.inf), self.height / 2)
        reward = (3 * standing + (1 + seen["upright"]) / 2) / 4
        if self.speed:
            moving = tolerance(seen["speed"], (self.speed, np.inf), self.speed / 2, "linear", 0.5)
            reward = reward * (5 * moving + 1) / 6
        return reward, {name: seen[name] for name in ("upright", "height", "speed")}


@pytree
class Hopper(SuiteEnv):
    """Stand on one leg; with a speed [m/s], hop: "hopper-stand" (with little control), "hopper-hop" (2 m/s)."""

    source: ClassVar[str] = "hopper.xml"

    frame_skip: int = static(default=4)
    speed: float = static(default=2.0)
    height: float = static(default=0.6)  # of the torso above the foot [m]

    def start(self, key: Array) -> Start:
        qpos = self.random_joints(key)
        return Start(qpos, jnp.zeros_like(qpos))

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        return {"touch": self.touch(last, ctrl, "touch_toe", "touch_heel")}

    def measure(self, physics: State) -> dict[str, Array]:
        centre = inertial_positions(self.model, unsolved(physics))[..., 2]
        torso, foot = (centre[:, self.model.id("body", name)] for name in ("torso", "foot"))
        return {"height": torso - foot, "speed": self.velocity_along_x(physics)}

    def observation(self, state: EnvState) -> Array:
        return jnp.concatenate([state.qpos[:, 1:], state.qvel, state.seen["touch"]], 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        height, speed = after.seen["height"], after.seen["speed"]
        reward = tolerance(height, (self.height, 2.0))
        if self.speed:
            reward = reward * tolerance(speed, (self.speed, np.inf), self.speed / 2, "linear", 0.5)
        else:
            reward = reward * (tolerance(action, (0.0, 0.0), 1.0, "quadratic", 0.0).mean(1) + 4) / 5
        return reward, {"height": height, "speed": speed}
