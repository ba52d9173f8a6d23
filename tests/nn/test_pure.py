"""Modules as pure functions: their state goes in and comes out, under every transform."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import nn
from fphys.testing import check_grads, check_transforms

pytestmark = pytest.mark.usefixtures("flax_promotes")


class Everything(nn.Module):
    """Batch normalisation, dropout, recurrence, a shared parameter, and a number that is not trained."""

    def __init__(self, *, rngs):
        self.first = nn.Linear(3, 4, rngs=rngs)
        self.norm = nn.BatchNorm(4, momentum=0.75, rngs=rngs)
        self.dropout = nn.Dropout(0.5, rngs=rngs)
        self.blocks = nn.List([nn.Linear(4, 4, rngs=rngs), nn.tanh])
        self.shared = self.blocks[0]
        self.lstm = nn.LSTM(4, 4, rngs=rngs)
        self.calls = nn.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        self.calls[...] += 1
        x = self.dropout(self.norm(self.first(x)))
        for block in (*self.blocks, self.shared):
            x = block(x)
        return self.lstm(x[:, None])[0][:, 0]

    def encode(self, x, scale=1.0):
        return self.first(x) * scale


def double(tree):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, tree)


@pytest.fixture(scope="module")
def made():
    module, params, aux = nn.init(Everything, jax.random.key(0))
    return module, double(params), double(aux), np.random.default_rng(0).standard_normal((8, 3))


def test_parts_are_trees_and_the_rest_is_static(made):
    module, params, aux, _ = made
    assert jax.tree.leaves(module) == [] and hash(module) == hash(nn.init(Everything, jax.random.key(1))[0])
    assert module == nn.init(Everything, jax.random.key(1))[0] and module.type is Everything
    assert params.keys() == {"first", "norm", "blocks", "lstm"}  # `shared` is `blocks[0]`, which appears once
    assert jax.tree.map(jnp.shape, aux) == {"norm": {"mean": (4,), "var": (4,)}, "calls": ()}


def test_state_is_kept_only_in_aux(made):
    module, params, aux, x = made
    before = jax.tree.map(np.array, (params, aux))
    first, after = nn.apply(module, params, aux, x, train=True, key=jax.random.key(1))
    second, again = nn.apply(module, params, aux, x, train=True, key=jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, (first, after), (second, again))
    jax.tree.map(np.testing.assert_array_equal, before, (params, aux))
    assert after["calls"] == 1 and nn.apply(module, params, after, x)[1]["calls"] == 2
    assert not np.array_equal(first, nn.apply(module, params, aux, x, train=True, key=jax.random.key(2))[0])


def test_training_updates_the_statistics_and_evaluation_uses_them(made):
    module, params, aux, x = made
    hidden = x @ params["first"]["kernel"] + params["first"]["bias"][None]
    _, after = nn.apply(module, params, aux, x, train=True, key=jax.random.key(0))
    np.testing.assert_allclose(after["norm"]["mean"], 0.25 * hidden.mean(0), atol=1e-12)
    np.testing.assert_allclose(after["norm"]["var"], 0.75 + 0.25 * hidden.var(0), atol=1e-12)
    shifted = after | {"norm": jax.tree.map(lambda leaf: leaf + 1, after["norm"])}
    for statistics in (after, shifted):
        kept, unchanged = nn.apply(module, params, statistics, x)
        jax.tree.map(np.testing.assert_array_equal, unchanged["norm"], statistics["norm"])
    assert not np.allclose(kept, nn.apply(module, params, after, x)[0])


def test_jit_agrees_and_compiles_once(made):
    module, params, aux, x = made
    traces = []

    @partial(jax.jit, static_argnames="train")
    def run(module, params, aux, x, train, key):
        traces.append(train)
        return nn.apply(module, params, aux, x, train=train, key=key)

    for seed in (1, 2):
        key = jax.random.key(seed)
        for train in (True, False):
            expected = nn.apply(module, params, aux, x, train=train, key=key)
            found = run(nn.init(Everything, key)[0], params, aux, x, train, key)
            jax.tree.map(partial(np.testing.assert_allclose, atol=1e-12), found, expected)
    assert traces == [True, False]


@pytest.mark.parametrize("train", [True, False])
def test_gradients(made, train):
    module, params, aux, x = made
    statistics = {"norm": {"mean": aux["norm"]["mean"] + 0.3, "var": aux["norm"]["var"] * 1.7}, "calls": aux["calls"]}

    def loss(params, x):
        return nn.apply(module, params, statistics, x, train=train, key=jax.random.key(3))[0]

    check_grads(loss, (params, x), directions=2, atol=1e-9)  # zero for a bias before a normalisation


def test_transforms(made):
    """Without training, rows are independent of each other, so they count as worlds."""
    module, params, aux, x = made
    check_transforms(lambda x: nn.apply(module, params, aux, x)[0], (x[:3],), batches=(2,), max_patterns=2)


def test_vmap_over_keys_is_an_ensemble(made):
    x = made[3].astype(np.float32)
    keys = jax.random.split(jax.random.key(5), 3)
    module, params, aux = jax.jit(jax.vmap(partial(nn.init, Everything)))(keys)

    def run(params, aux, key):
        return nn.apply(module, params, aux, x, train=True, key=key)

    ys, after = jax.jit(jax.vmap(run))(params, aux, keys)
    for i in range(3):
        member = jax.tree.map(lambda leaf, i=i: leaf[i], (params, aux, keys))
        y, state = jax.jit(run)(*member)
        np.testing.assert_allclose(ys[i], y, atol=1e-6)
        jax.tree.map(lambda many, one, i=i: np.testing.assert_allclose(many[i], one, atol=1e-6), after, state)


def test_scan_carries_aux(made):
    module, params, aux, x = made

    def step(aux, key):
        y, aux = nn.apply(module, params, aux, x, train=True, key=key)
        return aux, y

    keys = jax.random.split(jax.random.key(0), 4)
    last, _ = jax.lax.scan(step, aux, keys)
    for key in keys:
        _, aux = nn.apply(module, params, aux, x, train=True, key=key)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-12), last, aux)
    assert last["calls"] == 4


def test_every_stream_has_its_own_numbers():
    def two(rngs):
        return nn.Sequential(nn.Dropout(0.5, rngs=rngs), lambda x: x * 2, nn.Dropout(0.5, rngs=rngs))

    module, params, aux = nn.init(two, jax.random.key(0))
    assert params == aux == {} and len(module.streams) == 2
    y, _ = nn.apply(module, params, aux, jnp.ones(4000), train=True, key=jax.random.key(0))
    assert 0.22 < np.mean(np.asarray(y) > 0) < 0.28  # if both masks were the same, one half would be kept


def test_another_method_and_further_inputs(made):
    module, params, aux, x = made
    one, _ = nn.apply(module, params, aux, x, method="encode")
    two, _ = nn.apply(module, params, aux, x, method="encode", scale=2.0)
    np.testing.assert_array_equal(2 * one, two)


@pytest.mark.parametrize("wrap", [lambda f: f, partial(jax.jit, static_argnames="train")], ids=["eager", "jit"])
def test_random_numbers_need_a_key(made, wrap):
    module, params, aux, x = made
    with pytest.raises(ValueError, match=r"Everything draws random numbers .* train=True.*pass key="):
        wrap(nn.apply)(module, params, aux, x, train=True)
    wrap(nn.apply)(module, params, aux, x, train=False)


def test_networks_are_imported_when_they_are_used():
    program = "import sys, fphys; assert not {'flax', 'optax'} & set(sys.modules); fphys.nn.init, fphys.optim.Adam"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_a_constructor_must_give_a_module():
    with pytest.raises(TypeError, match="constructor returned a int"):
        nn.init(lambda rngs: 3, jax.random.key(0))


def test_variables_that_appear_late_are_refused():
    class Late(nn.Module):
        def __init__(self, *, rngs):
            pass

        def __call__(self, x):
            self.seen = nn.Variable(x)
            return x

    module, params, aux = nn.init(Late, jax.random.key(0))
    with pytest.raises(ValueError, match=r"Late changed the structure of aux.*\['seen'\]"):
        nn.apply(module, params, aux, jnp.ones(2))
