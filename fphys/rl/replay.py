"""Replay memory: what was seen, kept to be drawn again, the newest in the place of the oldest (Lin 1992)."""

from typing import Any

import jax
import jax.numpy as jnp

from ..tree import Tree, pytree, static

Array = jax.Array


@pytree
class Replay(Tree):
    """Items side by side, of which ``count`` are filled. Under ``vmap`` each seed has its own."""

    items: Any  # a pytree of arrays, each (capacity, ...)
    place: Array  # where the next item goes, int32, shape ()
    count: Array  # how many items there are, int32, shape ()
    capacity: int = static()

    def add(self, batch: Any) -> "Replay":
        """Remember a batch, one item of each world; arrays of shape (world, ...) and the types of ``items``.

        Raises:
            ValueError: the batch is larger than the memory.
        """
        size = len(jax.tree.leaves(batch)[0])
        if size > self.capacity:
            raise ValueError(f"{size} items do not fit into a memory of {self.capacity}: raise its capacity")
        places = (self.place + jnp.arange(size, dtype=jnp.int32)) % self.capacity
        items = jax.tree.map(lambda old, new: old.at[places].set(new), self.items, batch)
        count = jnp.minimum(self.count + size, self.capacity)
        return self.replace(items=items, place=(self.place + size) % self.capacity, count=count)

    def sample(self, key: Array, size: int) -> Any:
        """Draw ``size`` items with replacement, each with the same probability; zeros if there is none.

        ``key`` is a random key, shape (). The result's arrays have shape (size, ...).
        """
        places = jax.random.randint(key, (size,), 0, jnp.maximum(self.count, 1))
        return jax.tree.map(lambda kept: kept[places], self.items)


def init(like: Any, capacity: int) -> Replay:
    """An empty memory for items with the shapes and types of ``like``, a pytree of one item's arrays."""
    items = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), like)
    return Replay(items, jnp.int32(0), jnp.int32(0), capacity)
