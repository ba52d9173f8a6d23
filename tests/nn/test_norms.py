"""Norms agree with torch's, and keep their digits when the mean is large."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from fphys import nn
from fphys.testing import check_grads

pytestmark = pytest.mark.usefixtures("flax_promotes")
RNG = np.random.default_rng(0)

NORMS = {
    "LayerNorm": (lambda rngs: nn.LayerNorm(6, rngs=rngs), lambda: torch.nn.LayerNorm(6), False),
    "GroupNorm": (lambda rngs: nn.GroupNorm(6, 3, rngs=rngs), lambda: torch.nn.GroupNorm(3, 6), True),
    "InstanceNorm": (lambda rngs: nn.InstanceNorm(6, rngs=rngs), lambda: torch.nn.InstanceNorm2d(6, affine=True), True),
    "BatchNorm": (lambda rngs: nn.BatchNorm(6, rngs=rngs), lambda: torch.nn.BatchNorm2d(6), True),
}


def torchs(theirs, x, first, scale, bias):
    """torch's norm of an image with the channels last."""
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(scale)), theirs.bias.copy_(torch.tensor(bias))
    x = x.permute(0, 3, 1, 2) if first else x
    return theirs(x).permute(0, 2, 3, 1) if first else theirs(x)


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_torchs(name):
    """Values, gradients and second derivatives with torch's default numbers, in float64."""
    ours, theirs, first = NORMS[name]
    scale, bias, x = RNG.standard_normal(6), RNG.standard_normal(6), RNG.standard_normal((3, 4, 5, 6)) + 10
    module, _, aux = nn.init(ours, jax.random.key(0))
    aux = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), aux)
    params = {"scale": jnp.asarray(scale), "bias": jnp.asarray(bias)}
    run = jax.jit(lambda params, x: nn.apply(module, params, aux, x, train=True))
    reference, moved = theirs().double(), torch.tensor(x, requires_grad=True)
    wanted = torchs(reference, moved, first, scale, bias)
    y, after = run(params, jnp.asarray(x))
    np.testing.assert_allclose(y, wanted.detach(), atol=1e-12)
    np.testing.assert_allclose(nn.apply(module, params, aux, x, train=True)[0], y, atol=1e-12)  # NumPy's array
    (wanted**3).sum().backward()
    loss = lambda x: (run(params, x)[0] ** 3).sum()  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.asarray(x)), moved.grad, atol=1e-9)
    check_grads(jax.grad(loss), (jnp.asarray(x),), directions=1)
    if name == "BatchNorm":
        np.testing.assert_allclose(after["mean"], reference.running_mean, rtol=1e-12)
        count = x[..., 0].size
        np.testing.assert_allclose(after["var"] - 0.9, (reference.running_var - 0.9) * (count - 1) / count, rtol=1e-6)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("mean", [100.0, 1000.0])
def test_digits_are_kept_when_the_mean_is_large(name, mean):
    """Without the shift the error is 4e-3 and more. The bound is torch's at mean 0: 10 units in the last place."""
    constructor, _, _ = NORMS[name]
    x = (RNG.standard_normal((16, 8, 8, 6)) + mean).astype(np.float32)
    module, params, aux = nn.init(constructor, jax.random.key(0))
    axes = {"LayerNorm": (3,), "GroupNorm": (1, 2, 4), "InstanceNorm": (1, 2), "BatchNorm": (0, 1, 2)}[name]
    wide = x.astype(np.float64).reshape(16, 8, 8, 3, 2) if name == "GroupNorm" else x.astype(np.float64)
    wanted = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    y, after = jax.jit(lambda x: nn.apply(module, params, aux, x, train=True))(x)
    np.testing.assert_allclose(y, wanted.reshape(x.shape), atol=10 * 2.0**-23 * np.abs(wanted).max())
    if name == "BatchNorm":  # the running mean is of the input, not of what was shifted
        np.testing.assert_allclose(after["mean"], 0.1 * wide.mean(axes), rtol=1e-5)


def test_a_mask_hides_even_nan():
    x, mask = RNG.standard_normal((4, 6)).astype(np.float32), np.ones((4, 6), bool)
    x[:, 3:], mask[:, 3:] = np.nan, False
    for norm in (nn.LayerNorm, nn.BatchNorm, nn.InstanceNorm, nn.GroupNorm):
        options = {"num_groups": 1} if norm is nn.GroupNorm else {}
        parent = norm.__mro__[1](6, rngs=nn.Rngs(0), epsilon=1e-5, use_fast_variance=False, **options)
        ours = norm(6, rngs=nn.Rngs(0), epsilon=1e-5, **options)
        expanded = (x[:, None], mask[:, None]) if norm is nn.InstanceNorm else (x, mask)
        found, wanted = (f(jnp.asarray(expanded[0]), mask=jnp.asarray(expanded[1])) for f in (ours, parent))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_half_precision_stays_half():
    norm = nn.LayerNorm(6, rngs=nn.Rngs(0), param_dtype=jnp.bfloat16)
    x = jnp.asarray(RNG.standard_normal((3, 6)), jnp.bfloat16)
    theirs = nnx.LayerNorm(6, epsilon=1e-5, rngs=nn.Rngs(0), param_dtype=jnp.bfloat16)
    np.testing.assert_array_equal(norm(x), theirs(x))
    assert norm(x).dtype == jnp.bfloat16


def test_attention_in_float16_and_its_gradient_are_those_of_float32():
    """Also on a CPU, for which XLA has no products of float16 with sums in float32; with a mask and dropout, too."""
    q, k, v = (jnp.asarray(RNG.standard_normal((2, 5, 3, 8)), jnp.float16) for _ in range(3))
    options = {"is_causal": True, "dropout_rng": jax.random.key(0), "dropout_rate": 0.2, "deterministic": False}

    def loss(q, k, v):
        return (nn.attention(q, k, v, **options).astype(jnp.float32) ** 2).sum()

    assert nn.attention(q, k, v).dtype == jnp.float16
    found = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(q, k, v)
    wanted = jax.value_and_grad(loss, argnums=(0, 1, 2))(*(a.astype(jnp.float32) for a in (q, k, v)))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-3)  # float16 has three digits


def test_attention_in_float64_has_its_digits():
    """Flax's rounds the scores to float32, an error of 8e-8."""
    reference = torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = RNG.standard_normal((3, 5, 8))
    wanted = reference(*[torch.tensor(x)] * 3)[0].detach()
    module, params, aux = nn.init(lambda rngs: nn.MultiHeadAttention(2, 8, rngs=rngs), jax.random.key(0))
    rows = reference.in_proj_weight.detach().numpy().reshape(3, 8, 8), reference.in_proj_bias.detach().numpy()
    for i, part in enumerate(("query", "key", "value")):
        params[part] = {"kernel": rows[0][i].T.reshape(8, 2, 4), "bias": rows[1].reshape(3, 2, 4)[i]}
    out = reference.out_proj
    params["out"] = {"kernel": out.weight.detach().numpy().T.reshape(2, 4, 8), "bias": out.bias.detach().numpy()}
    found, _ = nn.apply(module, jax.tree.map(jnp.asarray, params), aux, jnp.asarray(x))
    np.testing.assert_allclose(found, wanted, atol=1e-14)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("mean", [1000.0, 2000.0])
def test_float16_keeps_its_digits(name, mean):
    """Float32 alone does not keep them: 2000 squared leaves it a quarter, and the variance is one."""
    constructor, theirs, first = NORMS[name]
    x = (RNG.standard_normal((4, 4, 8, 6)) + mean).astype(np.float16)
    module, params, aux = nn.init(constructor, jax.random.key(0))
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), params)
    wanted = torchs(theirs().double(), torch.tensor(x, dtype=torch.float64), first, np.ones(6), np.zeros(6)).detach()
    y, after = jax.jit(lambda x: nn.apply(module, half, aux, x, train=True))(x)
    assert y.dtype == (jnp.float32 if name == "BatchNorm" else jnp.float16)  # as its statistics
    np.testing.assert_allclose(y, wanted, atol=2.0**-9)  # a unit in the last place
    if name == "BatchNorm":
        np.testing.assert_allclose(after["mean"], 0.1 * x.astype(np.float64).mean((0, 1, 2)), rtol=1e-6)
    far = np.where(np.arange(6) % 2, 60_000, -60_000).astype(np.float16)[None, None, None].repeat(8, 2)
    assert np.isfinite(nn.apply(module, params, aux, jnp.asarray(far))[0]).all()  # their difference is not finite


@pytest.mark.parametrize("shape", [(1, 5, 1), (3, 5, 1), (3, 5, 6)])
@pytest.mark.parametrize("norm", [nn.GroupNorm, nn.InstanceNorm])
def test_masks_broadcast(norm, shape):
    x = RNG.standard_normal((3, 5, 6)).astype(np.float32)
    mask = np.broadcast_to((np.arange(5) < 3)[None, :, None], shape)
    own = norm(6, 2, rngs=nn.Rngs(0)) if norm is nn.GroupNorm else norm(6, rngs=nn.Rngs(0))
    wanted = own(jnp.asarray(x[:, :3]))
    np.testing.assert_allclose(own(jnp.asarray(x), mask=jnp.asarray(mask))[:, :3], wanted, atol=1e-6)


def test_scales_of_weight_normalisation_are_trained():
    """torch's from the same numbers, values and gradients."""

    def normed(rngs):
        return nn.WeightNorm(nn.Linear(3, 4, rngs=rngs), rngs=rngs)

    module, params, aux = nn.init(normed, jax.random.key(0))
    assert not jax.tree.leaves(aux)
    scale, kernel, bias = (RNG.standard_normal(shape).astype(np.float32) for shape in ((4,), (3, 4), (4,)))
    params = {"layer_instance": {"bias": bias, "kernel": kernel}, "scales": {("kernel",): scale}}
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    value, grads = jax.value_and_grad(lambda p: (nn.apply(module, p, aux, x)[0] ** 2).sum())(params)
    reference = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4))
    parts = reference.parametrizations.weight
    with torch.no_grad():
        parts.original0.copy_(torch.tensor(scale[:, None])), parts.original1.copy_(torch.tensor(kernel.T))
        reference.bias.copy_(torch.tensor(bias))
    wanted = (reference(torch.tensor(x)) ** 2).sum()
    wanted.backward()
    np.testing.assert_allclose(value, wanted.detach(), rtol=1e-5)
    np.testing.assert_allclose(grads["scales"][("kernel",)], parts.original0.grad[:, 0], rtol=1e-4)
    np.testing.assert_allclose(grads["layer_instance"]["kernel"], parts.original1.grad.T, rtol=1e-4, atol=1e-4)


def test_spectral_normalisation_updates_its_statistics_alone():
    module, params, aux = nn.init(
        lambda rngs: nn.SpectralNorm(nn.Linear(3, 4, rngs=rngs), rngs=rngs), jax.random.key(0)
    )
    x = jnp.eye(3, dtype=jnp.float32)
    for _ in range(30):
        y, aux = nn.apply(module, params, aux, x, train=True)
    kernel = params["layer_instance"]["kernel"]
    np.testing.assert_allclose(y, kernel / np.linalg.norm(kernel, 2), rtol=1e-4, atol=1e-6)
    assert set(params) == {"layer_instance"} and nn.apply(module, params, aux, x)[1].keys() == aux.keys()
