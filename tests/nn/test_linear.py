"""Linear layers equal flax's, but compute matrix products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fphys import nn
from fphys.nn.linear import dot_general
from fphys.testing import check_grads, check_transforms

CASES = [
    ((5,), (5, 3), 1, ()),
    ((2, 4, 5), (5, 3), 1, ()),
    ((2, 4, 5), (5, 3, 2), 1, ()),  # attention's query, key and value
    ((2, 4, 3, 2), (3, 2, 5), 2, ()),  # and its output
    ((0, 4, 5), (5, 3), 1, ()),
    ((4, 2, 5), (4, 5, 3), 1, (0,)),  # a batch axis: unchanged
]


@pytest.mark.parametrize(("of_x", "of_kernel", "summed", "batch"), CASES)
def test_products_are_those_of_jax(of_x, of_kernel, summed, batch):
    rng = np.random.default_rng(0)
    x, kernel = (jnp.asarray(rng.standard_normal(shape)) for shape in (of_x, of_kernel))
    axes = tuple(range(len(of_x) - summed, len(of_x))), tuple(range(len(batch), len(batch) + summed))
    numbers = (axes, (batch, batch))
    np.testing.assert_allclose(dot_general(x, kernel, numbers), jax.lax.dot_general(x, kernel, numbers), atol=1e-14)
    check_grads(lambda x, kernel: dot_general(x, kernel, numbers), (x, kernel))


def test_other_axes_are_left_to_jax():
    x, kernel = jnp.arange(6.0).reshape(2, 3), jnp.arange(8.0).reshape(4, 2)
    numbers = (((0,), (1,)), ((), ()))
    np.testing.assert_array_equal(dot_general(x, kernel, numbers), jax.lax.dot_general(x, kernel, numbers))


def test_the_layer_equals_flax_and_takes_its_options():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 5)))
    for options in ({}, {"use_bias": False}, {"dtype": jnp.float32}, {"dot_general": jax.lax.dot_general}):
        ours, theirs = (kind(5, 3, rngs=nnx.Rngs(0), **options) for kind in (nn.Linear, nnx.Linear))
        np.testing.assert_array_equal(ours(x.astype(jnp.float32)), theirs(x.astype(jnp.float32)))
    module, params, aux = nn.init(lambda rngs: nn.Linear(5, 3, param_dtype=jnp.float64, rngs=rngs), jax.random.key(0))
    check_transforms(lambda x: nn.apply(module, params, aux, x)[0], (x,))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA does on a CPU")
@pytest.mark.parametrize("layer", ["linear", "attention"])
def test_no_gradient_is_transposed_in_memory(layer):
    """The incoming gradient, (batch, time, out), is not also written as (out, batch x time)."""
    kinds = {
        "linear": lambda rngs: nn.Linear(128, 320, rngs=rngs),
        "attention": lambda rngs: nn.TransformerBlock(128, 4, rngs=rngs).attention,
    }
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        module, params, aux = nn.init(kinds[layer], jax.random.key(0))
        grad = jax.jit(jax.grad(lambda params, x: (nn.apply(module, params, aux, x)[0] ** 2).sum()))
        text = grad.lower(params, jnp.ones((16, 24, 128))).compile().as_text()
    assert f"f32[{16 * 24},128]" in text
    assert f"f32[{320 if layer == 'linear' else 128},{16 * 24}]" not in text
