"""The replay memory against flashbax's, and what is drawn from it."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.rl import replay

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what JAX deprecates
    import flashbax

LIKE = {"x": jax.ShapeDtypeStruct((2,), jnp.float32), "ended": jax.ShapeDtypeStruct((), jnp.bool_)}
ADD = jax.jit(replay.Replay.add, donate_argnums=0)


def batches(seed: int) -> list[dict[str, jax.Array]]:
    """Five batches of three items: they go round a memory of seven twice, and never end at its end."""
    rng = np.random.default_rng(seed)
    return [
        {"x": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), "ended": jnp.asarray(rng.random(3) < 0.5)}
        for _ in range(5)
    ]


def test_the_memory_is_flashbaxs():
    other = flashbax.make_item_buffer(7, 1, 1, add_batches=True)
    reference = other.init(jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), LIKE))
    memory, add = replay.init(LIKE, 7), jax.jit(other.add)
    for i, batch in enumerate(batches(0)):
        memory, reference = ADD(memory, batch), add(reference, batch)
        assert memory.count == min(3 * (i + 1), 7) and memory.place == reference.current_index
        for name, kept in memory.items.items():
            np.testing.assert_array_equal(kept, reference.experience[name][0], err_msg=name)


def test_draws_are_uniform_over_what_is_held_and_items_stay_together():
    memory = replay.init(LIKE, 10)
    for i, batch in enumerate(batches(1)[:2]):
        number = jnp.arange(3 * i, 3 * i + 3) + 1
        memory = ADD(memory, batch | {"x": jnp.stack([number, -number], 1).astype(jnp.float32)})
    drawn = jax.jit(memory.sample, static_argnums=1)(jax.random.key(0), 6000)
    np.testing.assert_array_equal(drawn["x"][:, 0], -drawn["x"][:, 1])
    number = np.asarray(drawn["x"][:, 0], int)
    np.testing.assert_array_equal(drawn["ended"], memory.items["ended"][number - 1])
    counts = np.bincount(number, minlength=11)
    assert counts[0] == 0 and counts[7:].sum() == 0  # of the four that are empty
    assert np.abs(counts[1:7] - 1000).max() < 5 * (6000 * 1 / 6 * 5 / 6) ** 0.5  # five standard deviations


def test_every_seed_has_its_own_memory():
    both = jax.tree.map(lambda *x: np.stack(x), *(batches(seed) for seed in (2, 3)))
    memory = jax.tree.map(lambda x: jnp.stack([x, x]), replay.init(LIKE, 7))
    add = jax.jit(jax.vmap(replay.Replay.add))
    for batch in both:
        memory = add(memory, batch)
    draw = functools.partial(replay.Replay.sample, size=4)
    keys = jax.random.split(jax.random.key(0), 2)
    drawn = jax.jit(jax.vmap(draw))(memory, keys)
    one = replay.init(LIKE, 7)
    for batch in batches(3):
        one = ADD(one, batch)
    np.testing.assert_array_equal(memory.items["x"][1], one.items["x"])
    np.testing.assert_array_equal(drawn["x"][1], jax.jit(draw)(one, keys[1])["x"])


def test_a_batch_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="3 items do not fit into a memory of 2"):
        replay.init(LIKE, 2).add(batches(0)[0])
