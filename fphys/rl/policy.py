"""What training returns: a policy, from observations to actions; and its evaluation."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from .. import nn
from ..envs import Env
from ..tree import Tree, pytree, static
from .moments import Moments
from .numbers import expect_steps

Array = jax.Array


@pytree
class Policy(Tree):
    """A trained policy: ``action = policy(observation)``, or ``policy(observation, key)`` with its noise.

    Gradients flow to the observation and to ``params``.
    """

    module: Any  # the network's structure
    params: Any  # the network's parameters
    moments: Moments  # of the observations
    low: Array  # bounds of the action
    high: Array  # each of shape (action,)
    squash: bool = static(default=False)  # whether tanh keeps actions within the bounds, or they are cut off

    __eq__, __hash__ = object.__eq__, object.__hash__  # for jax.jit(policy)

    def __call__(self, observation: Array, key: Array | None = None) -> Array:
        """Actions of shape (world, action), from observations (world, n). Gradients flow to both arguments' arrays."""
        (mean, log_std), _ = nn.apply(self.module, self.params, {}, self.moments.normalize(observation))[0]
        if key is not None:
            mean = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)
        low, high = self.low.astype(mean.dtype), self.high.astype(mean.dtype)
        if self.squash:
            return _as(observation, squashed(mean, low, high))
        low, high = (bound.reshape(*[1] * (mean.ndim - 1), -1) for bound in (low, high))
        return _as(observation, jnp.clip(mean, low, high))


@pytree
class Greedy(Tree):
    """The best of finitely many actions: ``action = policy(observation)``. No gradient flows."""

    module: Any  # the structure of a network of action values
    params: Any  # the network's parameters
    moments: Moments  # of the observations
    actions: Array  # shape (choice, action)

    __eq__, __hash__ = object.__eq__, object.__hash__  # for jax.jit(policy)

    def __call__(self, observation: Array) -> Array:
        """Actions of shape (world, action), from observations (world, n)."""
        values, _ = nn.apply(self.module, self.params, {}, self.moments.normalize(observation))
        return _as(observation, self.actions[jnp.argmax(values, -1)])


def _as(observation: Array, action: Array) -> Array:
    """The action in the observation's type, unless that is of whole numbers."""
    return action.astype(observation.dtype) if jnp.issubdtype(observation.dtype, jnp.floating) else action


def squashed(x: Array, low: Array, high: Array) -> Array:
    """tanh, scaled to the bounds where there are any; bounds of shape (action,)."""
    bounded = jnp.isfinite(low) & jnp.isfinite(high)
    low, high, bounded = (v.reshape(*[1] * (x.ndim - 1), -1) for v in (low, high, bounded))
    middle, half = (jnp.where(bounded, v, 0) for v in ((low + high) / 2, (high - low) / 2))
    return jnp.where(bounded, middle + half * jnp.tanh(x), x)


def log_slope(x: Array) -> Array:
    """log(1 - tanh(x)^2), the logarithm of tanh's derivative, without cancellation for large x."""
    return 2 * (math.log(2) - x - jax.nn.softplus(-2 * x))


def evaluate(env: Env, policy: Any, key: Array, steps: int | None = None) -> tuple[Array, Array]:
    """Return and length of the first episode of every world. Traceable.

    Args:
        policy: ``policy(observation) -> action``.
        steps: by default the environment's time limit; an episode that is longer counts as far as it got.

    Returns:
        Sum of rewards, shape (world,), not finite where a reward was not; steps, int32 (world,). Gradients flow
        through ``env.step``.

    Raises:
        ValueError: neither the environment nor ``steps`` sets a limit, or ``steps`` is below 1.
    """
    if (steps := expect_steps(steps) or env.max_episode_steps) is None:
        raise ValueError("the environment has no time limit: say how many steps to take")
    state, observation = env.reset(key)

    def act(carry: tuple[Any, Array, Array, Array, Array], _: None) -> tuple[Any, None]:
        state, observation, total, length, running = carry
        state, observation, reward, terminated, truncated, _info = env.step(state, policy(observation))
        total = total + jnp.where(running, reward, 0)
        length = length + running.astype(length.dtype)
        return (state, observation, total, length, running & ~(terminated | truncated)), None

    start = (state, observation, jnp.zeros_like(state.total), jnp.zeros_like(state.length), state.length == 0)
    (_, _, total, length, _), _ = jax.lax.scan(act, start, None, steps)
    return total, length
