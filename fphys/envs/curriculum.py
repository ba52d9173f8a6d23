"""A curriculum: how difficult episodes are, from 0 to 1, by how often they succeed. Pure, and part of checkpoints."""

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..tree import Tree, pytree
from .env import EnvState

Array = jax.Array


@pytree
class Curriculum(Tree):
    """The level that new episodes begin with, and the success rate at that level."""

    level: Array  # difficulty, ()
    rate: Array  # running mean of successes, ()
    seen: Array  # episodes at this level, ()

    @classmethod
    def begin(cls, level: float = 0.0) -> "Curriculum":
        """At a level, nothing seen."""
        return cls(jnp.float32(level), jnp.float32(0), jnp.float32(0))


def set_difficulty(state: EnvState, level: Array | float) -> EnvState:
    """The difficulty, from 0 to 1 [no unit], of the episodes that begin from now on; a number, or shape (world,).

    No gradient flows to the level.

    Raises:
        ValueError: a level is NaN, if it is known when this is traced.
    """
    if not isinstance(level, jax.core.Tracer) and np.isnan(level).any():
        raise ValueError(f"the level is {level}, must be numbers from 0 to 1")
    level = jnp.clip(jnp.asarray(level, state.difficulty.dtype), 0, 1)
    return state.replace(difficulty=jnp.broadcast_to(level, state.difficulty.shape))


def auto_adapt(
    curriculum: Curriculum,
    success: Array,
    done: Array,
    *,
    up: float = 0.8,
    down: float = 0.4,
    step: float = 0.1,
    episodes: int = 100,
) -> Curriculum:
    """Raise the level if enough episodes succeed, lower it if too few do.

    Args:
        success: whether each world's episode succeeded, bool, shape (..., world) [no unit].
        done: the episodes that ended, of that shape; the others do not count.
        up, down: success rates above and below which the level moves.
        step: by how much.
        episodes: how many decide.

    Returns:
        The next curriculum. No gradient flows.
    """
    count = done.sum(dtype=jnp.float32)
    good = (success & done).sum(dtype=jnp.float32)
    seen = curriculum.seen + count
    rate = jnp.where(seen > 0, (curriculum.rate * curriculum.seen + good) / jnp.maximum(seen, 1), 0)
    enough = seen >= episodes
    move = jnp.where(rate >= up, step, jnp.where(rate < down, -step, 0.0))
    level = jnp.clip(curriculum.level + jnp.where(enough, move, 0.0), 0, 1)
    return Curriculum(level, jnp.where(enough, 0, rate), jnp.where(enough, 0, seen))
