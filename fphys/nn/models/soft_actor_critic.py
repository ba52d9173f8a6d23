"""A policy, two values of every action and a temperature, for soft actor-critic."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from ...typing import Array, Float, shaped
from .mlp import MLP


class SoftActorCritic(nnx.Module):
    """What soft actor-critic trains (Haarnoja et al. 2018, arXiv:1812.05905).

    The policy is a Gaussian before tanh, whose deviation depends on the observation. Actions are in (-1, 1).
    """

    def __init__(self, observation: int, actions: int, *, hidden: Sequence[int] = (256, 256), rngs: nnx.Rngs):
        """Args: the size of an observation, the size of an action, and the widths of the hidden layers."""
        self.actor = MLP(observation, hidden, 2 * actions, rngs=rngs)
        self.critics = nnx.List([MLP(observation + actions, hidden, 1, rngs=rngs) for _ in range(2)])
        self.log_temperature = nnx.Param(jnp.zeros(()))

    @shaped
    def __call__(self, x: Float[Array, "*batch observation"]) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        """The policy and the value of its most likely action, shape (...).

        The policy is the mean and the log standard deviation before tanh, both of shape (..., actions); the latter is
        cut off at -20 and 2. Gradients flow to ``x`` and the parameters.
        """
        mean, log_std = jnp.split(self.actor(x), 2, -1)
        return (mean, jnp.clip(log_std, -20, 2)), self.values(x, jnp.tanh(mean)).min(-1)

    @shaped
    def values(
        self, x: Float[Array, "*batch observation"], action: Float[Array, "*batch actions"]
    ) -> Float[Array, "*batch 2"]:
        """Both values of an action. Gradients flow to ``x``, the action and the parameters."""
        both = jnp.concatenate([x, action], -1)
        return jnp.concatenate([critic(both) for critic in self.critics], -1)
