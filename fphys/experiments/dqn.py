"""A pole is balanced on a cart by deep Q-learning (fphys.rl.dqn), the cart in plain JAX.

The training ends when a hundred episodes of the greedy policy reach the goal on average. Another hundred episodes test
it. Carts, memory and updates run together in one compiled loop.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.envs import Episode, Info, Spec
from fphys.rl import dqn, evaluate
from fphys.runs import Run
from fphys.tree import Tree, pytree, static

Array = jax.Array

PUSH = 10.0  # N


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 30_000
    """Updates of the network at most; each cart acts once between two of them."""
    carts: int = 8
    """Carts that act side by side."""
    batch_size: int = 128
    """Transitions of an update."""
    memory: int = 50_000
    """Transitions that are remembered."""
    goal: float = 495.0
    """Mean return at which training ends."""
    every: int = 1000
    """Updates between two looks at the greedy policy."""
    seed: int = 0
    """Of the weights, the starts and the actions."""


def move(x: Array, force: Array) -> tuple[Array, Array]:
    """Push for 0.02 s (Barto, Sutton and Anderson 1983): the next x, and whether the pole fell or the cart left.

    Shapes (..., 4) and (...) [N]; cart of 1 kg, pole of 0.1 kg and 1 m, Euler's rule.
    """
    speed, angle, spin = jnp.moveaxis(x[..., 1:], -1, 0)
    pull = (force + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
    twist = (9.8 * jnp.sin(angle) - jnp.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))
    push = pull - 0.05 * twist * jnp.cos(angle) / 1.1
    x = x + 0.02 * jnp.stack([speed, push, spin, twist], -1)
    return x, (jnp.abs(x[..., 0]) > 2.4) | (jnp.abs(x[..., 2]) > jnp.deg2rad(12.0))


@pytree
class CartState(Tree):
    """The carts in the middle of their episodes."""

    x: Array  # (cart, 4): position [m], speed [m/s], angle [rad], its speed [rad/s]
    key: Array  # of the next starts
    length: Array  # steps of this episode, int32 (cart,)
    total: Array  # sum of its rewards (cart,)
    episode: Array  # finished episodes, int32 (cart,)
    faults: Array  # none, int32 (cart,)


@pytree
class Carts(Tree):
    """Gymnasium's CartPole-v1 with the interface of :class:`fphys.envs.Env`; the reward is -1 where the pole falls."""

    num_envs: int = static(default=8)
    max_episode_steps: int = static(default=500)
    action_spec = Spec((1,), jnp.float32, np.array([-PUSH]), np.array([PUSH]))
    observation_spec = Spec((4,), jnp.float32, np.full(4, -np.inf), np.full(4, np.inf))

    def start(self, key: Array) -> Array:
        return jax.random.uniform(key, (self.num_envs, 4), jnp.float32, -0.05, 0.05)

    def reset(self, key: Array) -> tuple[CartState, Array]:
        """Carts at the start of their first episode, and their observation (cart, 4)."""
        keys, zero = jax.random.split(key), jnp.zeros(self.num_envs, jnp.int32)
        x = self.start(keys[0])
        return CartState(x, keys[1], zero, jnp.zeros(self.num_envs, jnp.float32), zero, zero), x

    def step(self, state: CartState, action: Array) -> tuple[CartState, Array, Array, Array, Array, Info]:
        """Push every cart by ``action`` [N], shape (cart, 1); see :meth:`fphys.envs.Env.step`."""
        x, fallen = move(state.x, action[:, 0])
        reward = -fallen.astype(x.dtype)
        total, length = state.total + reward, state.length + 1
        truncated = length >= self.max_episode_steps
        done = fallen | truncated
        keys = jax.random.split(state.key)
        after = CartState(
            jnp.where(done[:, None], self.start(keys[0]), x),
            keys[1],
            jnp.where(done, 0, length),
            jnp.where(done, 0, total),
            state.episode + done.astype(jnp.int32),
            state.faults,
        )
        info = Info(x, Episode(total, length, state.episode), {}, jnp.zeros(self.num_envs, jnp.uint32))
        return after, after.x, reward, fallen, truncated, info


def main(config: Config, run: Run) -> dict[str, Any]:
    """Train and test."""
    env: Any = Carts(config.carts)
    agent = dqn.Config(
        steps=config.steps * config.carts,
        levels=2,
        horizon=config.every,
        updates_per_step=1 / config.carts,
        warmup=0,
        capacity=config.memory,
        batch_size=config.batch_size,
        normalize=False,
    )
    dqn.expect(env, agent)
    keys = jax.random.split(jax.random.key(config.seed), 3)
    module, state = jax.jit(functools.partial(dqn.init, env, agent))(keys[0])
    advance = jax.jit(functools.partial(dqn.update, env, agent, module), donate_argnums=0)
    lengths = jax.jit(lambda policy, key: evaluate(env.replace(num_envs=100), policy, key)[1])
    policy = lambda state: jax.tree.map(jnp.copy, dqn.policy(env, module, state))  # noqa: E731  (advance reuses memory)
    best, reached = policy(state), -1.0
    for i in run.progress(config.steps // config.every):
        state, scalars = advance(state)
        latest = policy(state)
        found = float(lengths(latest, jax.random.fold_in(keys[1], i)).mean())
        run.log((i + 1) * config.every, mean_return=found, loss=scalars["loss"])
        if found > reached:
            best, reached = latest, found
        if reached >= config.goal:
            break
    tested = lengths(best, keys[2])
    run.plot("dqn", lambda axes: (run.curves(axes, "mean_return"), axes.set(ylabel="steps that the pole stands")))
    return {
        "success": reached >= config.goal,
        "mean_return": float(tested.mean()),
        "worst_return": float(tested.min()),
        "updates": int(state.learner.step),
        "episodes": len(tested),
    }
