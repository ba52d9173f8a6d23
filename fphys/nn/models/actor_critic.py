"""A policy and the value of a state, for policy gradients."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from ...typing import Array, Float, shaped
from .mlp import MLP

_HIDDEN, _SMALL, _ONE = (nnx.initializers.orthogonal(scale) for scale in (2**0.5, 0.01, 1.0))


class ActorCritic(nnx.Module):
    """Two networks with orthogonal initial weights, small in the policy's last layer (Andrychowicz 2021)."""

    def __init__(
        self,
        observation: int,
        actions: int,
        *,
        hidden: Sequence[int] = (64, 64),
        continuous: bool = True,
        rngs: nnx.Rngs,
    ):
        """Args: the size of an observation, and of an action (the number of actions if not ``continuous``)."""
        options = {"activation": nnx.tanh, "kernel_init": _HIDDEN, "rngs": rngs}
        self.actor = MLP(observation, hidden, actions, last_init=_SMALL, **options)
        self.critic = MLP(observation, hidden, 1, last_init=_ONE, **options)
        self.log_std = nnx.Param(jnp.zeros(actions)) if continuous else None

    @shaped
    def __call__(
        self, x: Float[Array, "*batch observation"]
    ) -> tuple[jax.Array | tuple[jax.Array, jax.Array], jax.Array]:
        """The policy and the value, shape (...).

        The policy is the logits, shape (..., actions). If continuous, it is the mean and the log standard deviation,
        both of that shape. Gradients flow to ``x`` and the parameters.
        """
        policy, value = self.actor(x), self.critic(x)[..., 0]
        if self.log_std is None:
            return policy, value
        return (policy, jnp.broadcast_to(self.log_std[...].astype(policy.dtype), policy.shape)), value
