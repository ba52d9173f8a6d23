"""The value of each action."""

from collections.abc import Sequence

from flax import nnx

from ...typing import Array, Float, shaped
from ..linear import Linear
from .mlp import MLP


class QNetwork(nnx.Module):
    """Map an observation to a value per action (Mnih 2015): state value plus action advantages (Wang 2016)."""

    def __init__(self, observation: int, actions: int, *, hidden: Sequence[int] = (128, 128), rngs: nnx.Rngs):
        """Args: the size of an observation, the number of actions, and the widths of the hidden layers."""
        self.trunk = MLP(observation, hidden[:-1], hidden[-1], rngs=rngs)
        self.value = Linear(hidden[-1], 1, rngs=rngs)
        self.advantage = Linear(hidden[-1], actions, rngs=rngs)

    @shaped
    def __call__(self, x: Float[Array, "*batch observation"]) -> Float[Array, "*batch actions"]:
        """Q(s, a) = V(s) + A(s, a) - mean A(s, ·). Gradients flow to ``x`` and the parameters."""
        x = nnx.relu(self.trunk(x))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(-1, keepdims=True)
