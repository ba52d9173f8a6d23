"""Our own layers agree with torch's, given torch's weights."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fphys import nn
from fphys.testing import check_grads, check_transforms

RNG = np.random.default_rng(0)
TIGHT = {"atol": 1e-12, "rtol": 1e-12}
APPLY = jax.jit(nn.apply)


def normal(*shape):
    return RNG.standard_normal(shape)


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def first(x):
    """From channels-last to channels-first."""
    return tensor(np.moveaxis(np.asarray(x), -1, 1))


def last(y):
    return np.moveaxis(y.detach().numpy(), 1, -1)


def shapes(constructor):
    """Structure and shapes only; the numbers are torch's."""
    return jax.eval_shape(lambda key: nn.init(constructor, key), jax.random.key(0))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"padding": 2, "dilation": 2, "groups": 2}])
def test_convolutions(rank, options):
    ours, theirs = (getattr(where, f"Conv{rank}d") for where in (nn, torch.nn))
    module, params, aux = shapes(lambda rngs: ours(4, 6, 3, **options, rngs=rngs))
    reference = theirs(4, 6, 3, **options).double()
    kernel = np.moveaxis(reference.weight.detach().numpy(), (0, 1), (-1, -2))
    assert params["kernel"].shape == kernel.shape
    params = {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(reference.bias.detach().numpy())}
    x = normal(2, *range(7, 7 + rank), 4)
    np.testing.assert_allclose(APPLY(module, params, aux, x)[0], last(reference(first(x))), **TIGHT)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2, "padding": 1}, {"padding": 2, "dilation": 2}])
@pytest.mark.parametrize("size", [1, 2])
def test_convolutions_of_images_smaller_than_the_kernel_are_products(rank, options, size):
    reference = getattr(torch.nn, f"Conv{rank}d")(4, 6, 3, **options).double()
    ours = getattr(nn, f"Conv{rank}d")
    module, _, aux = shapes(lambda rngs: ours(4, 6, 3, **options, rngs=rngs))
    kernel = np.moveaxis(reference.weight.detach().numpy(), (0, 1), (-1, -2))
    params = {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(reference.bias.detach().numpy())}
    x = normal(2, *[size] * rank, 4)
    run = jax.jit(lambda params, x: nn.apply(module, params, aux, x)[0])
    np.testing.assert_allclose(run(params, x), last(reference(first(x))), **TIGHT)
    if rank == 2:
        check_grads(run, (params, x), directions=1)
    assert "conv_general_dilated" not in str(jax.make_jaxpr(jax.grad(lambda p: run(p, x).sum()))(params))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_padding_by_name_of_a_small_image(padding):
    x, kernel = jnp.asarray(normal(2, 2, 5, 4)), jnp.asarray(normal(2, 6, 4, 3))
    numbers = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(x, kernel, (1, 2), padding, dimension_numbers=numbers)
    found = nn.layers.convolve(x, kernel, (1, 2), padding, dimension_numbers=numbers)
    np.testing.assert_allclose(found, expected, **TIGHT)


def test_a_linear_layer_says_how_many_features_it_takes():
    layer = nn.Linear(4, 2, rngs=nn.Rngs(0))
    with pytest.raises(ValueError, match=r"takes 4 features on the last axis, the input is \(2, 3\)"):
        layer(jnp.ones((2, 3)))


def test_sizes_must_fit_the_axes():
    with pytest.raises(ValueError, match=r"stride is \(1, 2, 3\), must be one number or 2"):
        nn.Conv2d(1, 1, 3, stride=(1, 2, 3), rngs=nn.Rngs(0))


POOLS = [
    (nn.MaxPool2d(2), torch.nn.MaxPool2d(2)),
    (nn.MaxPool2d(3, 2, 1), torch.nn.MaxPool2d(3, 2, 1)),
    (nn.MaxPool2d((2, 3)), torch.nn.MaxPool2d((2, 3))),
    (nn.MaxPool2d(5), torch.nn.MaxPool2d(5)),  # too many cells to compare them one by one
    (nn.AvgPool2d(2), torch.nn.AvgPool2d(2)),
    (nn.AvgPool2d(3, 2, 1), torch.nn.AvgPool2d(3, 2, 1)),
    (nn.AdaptiveAvgPool2d(1), torch.nn.AdaptiveAvgPool2d(1)),
    (nn.AdaptiveAvgPool2d((3, 5)), torch.nn.AdaptiveAvgPool2d((3, 5))),
    (nn.AdaptiveAvgPool2d((9, 8)), torch.nn.AdaptiveAvgPool2d((9, 8))),
]


@pytest.mark.parametrize(("ours", "theirs"), POOLS, ids=[str(ours) for ours, _ in POOLS])
def test_pools(ours, theirs):
    x = normal(2, 7, 8, 3)
    np.testing.assert_allclose(ours(jnp.asarray(x)), last(theirs(first(x))), **TIGHT)
    moved = first(x).requires_grad_()
    weights = normal(*ours(jnp.asarray(x)).shape)
    (theirs(moved) * first(weights)).sum().backward()
    grad = jax.grad(lambda x: (ours(x) * weights).sum())(jnp.asarray(x))
    np.testing.assert_allclose(grad, last(moved.grad), **TIGHT)


@pytest.mark.parametrize("size", [2, (2, 3)])
def test_ties_and_nan(size):
    x = RNG.integers(0, 2, (2, 10, 11, 3)).astype(float)
    ours, theirs = nn.MaxPool2d(size), torch.nn.MaxPool2d(size)
    moved = first(x).requires_grad_()
    theirs(moved).sum().backward()
    np.testing.assert_array_equal(jax.grad(lambda x: ours(x).sum())(jnp.asarray(x)), last(moved.grad))
    x[0, 1, 1, 0] = np.nan
    np.testing.assert_array_equal(ours(jnp.asarray(x)), last(theirs(first(x))))


@pytest.mark.parametrize(
    "pool", [nn.MaxPool2d(2), nn.MaxPool2d(3), nn.MaxPool2d(2, 1), nn.AvgPool2d(2), nn.MaxPool2d(5)]
)
def test_a_pool_takes_any_batch(pool):
    """No batch axis, or several."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, 7, 8, 3)))
    each = [[pool(x[i, j]) for j in range(5)] for i in range(2)]
    np.testing.assert_array_equal(pool(x), np.array(each))
    np.testing.assert_array_equal(jax.vmap(pool)(x[0]), pool(x[0]))
    with pytest.raises(ValueError, match=r"height, width, channel\), got \(7, 8\)"):
        pool(x[0, 0, :, :, 0])


@pytest.mark.parametrize("pool", [nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.AdaptiveAvgPool2d(1)])
def test_means_of_half_precision_and_of_integers(pool):
    x = np.arange(16).reshape(1, 4, 4, 1)
    np.testing.assert_allclose(pool(jnp.asarray(x, jnp.uint8)), pool(jnp.asarray(x, float)), rtol=1e-6)
    large = pool(jnp.full((1, 4, 4, 1), 30_000, jnp.float16))  # a sum of four is infinite
    assert large.dtype == jnp.float16
    np.testing.assert_array_equal(large, 30_000)


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (nn.MaxPool2d(5), r"must fit into the image of \(4, 4\)"),
        (nn.MaxPool2d((2, 7), padding=1), r"must fit into the image of \(4, 4\)"),
        (nn.MaxPool2d(2, padding=2), "padding must be at most half of the kernel_size"),
        (nn.MaxPool1d(1, padding=1), "padding must be at most half of the kernel_size"),
        (nn.MaxPool3d((2, 2, 3), padding=(1, 1, 2)), "padding must be at most half of the kernel_size"),
        (nn.AvgPool2d(5), r"must fit into the image of \(4, 4\)"),
        (nn.MaxPool1d(5), r"must fit into the image of \(4,\)"),
        (nn.MaxPool2d(2, 0), "kernel_size and stride must be at least 1"),
        (nn.MaxPool3d(0), "kernel_size and stride must be at least 1"),
    ],
)
def test_windows_that_cannot_be(pool, message):
    with pytest.raises(ValueError, match=message):
        pool(jnp.ones((4, 4, 4, 4)))


@pytest.mark.parametrize("rate", [-0.5, 1.5])
def test_rates_of_dropout_that_cannot_be(rate):
    with pytest.raises(ValueError, match=f"rate is {rate}, must be from 0 to 1"):
        nn.Dropout(rate, rngs=nn.Rngs(0))
    with pytest.raises(ValueError, match=f"rate is {rate}"):
        nn.models.MLP(2, (3,), 1, dropout=rate, rngs=nn.Rngs(0))


def test_a_pool_is_transformed():
    pool, x = nn.MaxPool2d(2), jnp.asarray(RNG.permutation(2 * 5 * 4 * 3).reshape(2, 5, 4, 3) / 10)
    check_transforms(pool, (x,))
    check_grads(lambda x: pool(x) ** 3, (x,))
    np.testing.assert_array_equal(jax.jvp(pool, (x,), (2 * x,))[1], 2 * pool(x))  # the tangent of the largest element
    np.testing.assert_allclose(jax.hessian(lambda x: (pool(x) ** 3).sum())(x).sum(), 6 * pool(x).sum(), rtol=1e-12)
    assert pool(jnp.arange(16).reshape(1, 4, 4, 1)).dtype == jnp.arange(1).dtype


def recurrent(kind, reference, **options):
    """Our layer with the weights of torch's."""
    module, params, aux = shapes(lambda rngs: getattr(nn, kind)(3, 5, **options, rngs=rngs))
    for layer, both in params["layers"].items():
        for direction, cell in both.items():
            end = f"l{layer}" + "_reverse" * direction
            for name, short in (("input", "ih"), ("hidden", "hh")):
                cell[name] = {
                    "kernel": jnp.asarray(getattr(reference, f"weight_{short}_{end}").detach().numpy().T),
                    "bias": jnp.asarray(getattr(reference, f"bias_{short}_{end}").detach().numpy()),
                }
    return module, params, aux


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_recurrence(kind, options):
    reference = getattr(torch.nn, kind)(3, 5, batch_first=True, **options).double()
    module, params, aux = recurrent(kind, reference, **options)
    x = normal(4, 6, 3)
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    carry = (normal(count, 4, 5), normal(count, 4, 5)) if kind == "LSTM" else normal(count, 4, 5)
    for start in (None, carry):
        (y, end), _ = APPLY(module, params, aux, x, carry=start)
        expected, last = reference(tensor(x), jax.tree.map(tensor, start))
        np.testing.assert_allclose(y, expected.detach(), **TIGHT)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b.detach(), **TIGHT), end, last)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrence_continues_from_its_carry(kind):
    module, params, aux = recurrent(kind, getattr(torch.nn, kind)(3, 5).double())
    x = jnp.asarray(normal(2, 6, 3))
    (whole, end), _ = APPLY(module, params, aux, x)
    (_, middle), _ = APPLY(module, params, aux, x[:, :4])
    (rest, last), _ = APPLY(module, params, aux, x[:, 4:], carry=middle)
    np.testing.assert_allclose(rest, whole[:, 4:], **TIGHT)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TIGHT), last, end)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_gradients_through_time(kind):
    module, params, aux = recurrent(kind, getattr(torch.nn, kind)(3, 5).double())
    check_grads(lambda p, x: nn.apply(module, p, aux, x)[0], (params, normal(2, 4, 3)), directions=2)


@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_of_both_orders_and_of_the_start(backwards):
    module, params, aux = recurrent("LSTM", torch.nn.LSTM(3, 5, bidirectional=True).double(), bidirectional=True)
    weights = np.repeat([0.0, 1.0] if backwards else [1.0, 0.0], 5)  # selects one direction

    def run(params, x, carry):
        y, (h, c) = nn.apply(module, params, aux, x, carry=carry)[0]
        return (y**2 * weights[None, None]).sum(), h, c

    check_grads(run, (params, normal(2, 4, 3), (normal(2, 2, 5), normal(2, 2, 5))), directions=2)
    loss = lambda x: run(params, x, None)[0]  # noqa: E731
    check_grads(jax.grad(loss), (normal(2, 4, 3),), directions=2)


def test_the_gradient_of_a_recurrent_kernel_is_one_product():
    module, params, aux = nn.init(lambda rngs: nn.LSTM(3, 5, rngs=rngs), jax.random.key(0))
    loss = lambda p: nn.apply(module, p, aux, jnp.ones((2, 4, 3), jnp.float32))[0][0].sum()  # noqa: E731
    loops = [eq for eq in jax.make_jaxpr(jax.grad(loss))(params).eqns if eq.primitive.name == "scan"]
    assert len(loops) == 2
    for loop in loops:
        products = [eq for eq in loop.params["jaxpr"].eqns if eq.primitive.name == "dot_general"]
        assert len(products) == 1 and products[0].outvars[0].aval.shape != (5, 20)


@pytest.mark.slow
def test_transforms_of_a_recurrence():
    module, params, aux = recurrent("LSTM", torch.nn.LSTM(3, 5).double())
    check_transforms(lambda x: nn.apply(module, params, aux, x)[0][0], (normal(3, 4, 3),), batches=(2,), max_patterns=2)


def test_one_sequence_needs_a_batch():
    with pytest.raises(ValueError, match=r"\(6, 3\), must be \(batch, time, features\)"):
        nn.LSTM(3, 5, rngs=nn.Rngs(0))(jnp.zeros((6, 3)))


def block(features, heads, mask=None):
    """x + attention(norm(x)), then the MLP, written in torch."""
    layer = torch.nn.TransformerEncoderLayer(
        features, heads, 4 * features, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    return layer.eval(), lambda x: layer(x, src_mask=mask)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.usefixtures("flax_promotes")
def test_transformer_block(causal):
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64) if causal else None
    layer, run = block(8, 2, mask)
    module, params, aux = shapes(partial(nn.TransformerBlock, 8, 2, causal=causal, activation=exact_gelu))
    weights = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    for ours, theirs in (("norm1", "norm1"), ("norm2", "norm2"), ("up", "linear1"), ("down", "linear2")):
        kernel = weights[f"{theirs}.weight"]
        params[ours] = {"scale" if kernel.ndim == 1 else "kernel": kernel.T, "bias": weights[f"{theirs}.bias"]}
    for i, name in enumerate(("query", "key", "value")):
        rows = slice(8 * i, 8 * i + 8)
        params["attention"][name] = {
            "kernel": weights["self_attn.in_proj_weight"][rows].T.reshape(8, 2, 4),
            "bias": weights["self_attn.in_proj_bias"][rows].reshape(2, 4),
        }
    params["attention"]["out"] = {
        "kernel": weights["self_attn.out_proj.weight"].T.reshape(2, 4, 8),
        "bias": weights["self_attn.out_proj.bias"],
    }
    x = normal(3, 5, 8)
    params = jax.tree.map(jnp.asarray, params)
    np.testing.assert_allclose(APPLY(module, params, aux, x)[0], run(tensor(x)).detach(), **TIGHT)
    check_grads(lambda p, x: nn.apply(module, p, aux, x)[0], (params, x), directions=1, atol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.usefixtures("flax_promotes")
def test_padding_and_causality_together(dtype):
    """A mask of keys alone, (batch, 1, 1, key), as torch's key_padding_mask."""
    reference = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    module, params, aux = nn.init(lambda rngs: nn.MultiHeadAttention(2, 8, rngs=rngs), jax.random.key(0))
    params, aux = nn.load_weights(module, params, aux, reference.state_dict())
    x, seen = normal(2, 5, 8).astype(np.float32), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    future = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    hidden = {"key_padding_mask": tensor(~seen), "attn_mask": future, "need_weights": False}
    wanted = reference(*[tensor(x)] * 3, **hidden)[0].detach()
    params, x = jax.tree.map(lambda leaf: leaf.astype(dtype), (params, jnp.asarray(x)))
    found, _ = nn.apply(module, params, aux, x, mask=jnp.asarray(seen)[:, None, None], is_causal=True)
    np.testing.assert_allclose(found.astype(np.float32), wanted, atol=20 * float(jnp.finfo(dtype).eps))


@pytest.mark.usefixtures("flax_promotes")
def test_a_causal_block_goes_on_from_its_cache():
    def cached(rngs, length=5):
        block = nn.TransformerBlock(8, 2, causal=True, rngs=rngs)
        block.attention.decode = True
        block.attention.init_cache((2, length, 8))
        return block

    whole, params, _ = nn.init(partial(nn.TransformerBlock, 8, 2, causal=True), jax.random.key(0))
    module, _, aux = nn.init(cached, jax.random.key(0))
    x = jnp.asarray(normal(2, 5, 8), jnp.float32)
    wanted, _ = nn.apply(whole, params, {}, x)
    for at in range(5):
        y, aux = nn.apply(module, params, aux, x[:, at : at + 1])
        np.testing.assert_allclose(y[:, 0], wanted[:, at], atol=1e-5)
    with pytest.raises(ValueError, match="room for 5 positions, and all are taken"):
        nn.apply(module, params, aux, x[:, :1])
    assert np.isnan(APPLY(module, params, aux, x[:, :1])[0]).all()  # which jit cannot refuse


def exact_gelu(x):
    return nn.gelu(x, approximate=False)


def test_heads_must_divide_the_features():
    with pytest.raises(ValueError, match="features is 9, must be a multiple of num_heads, 2"):
        nn.TransformerBlock(9, 2, rngs=nn.Rngs(0))


ACTIVATIONS = {
    "relu": "relu", "relu6": "relu6", "silu": "silu", "elu": "elu", "celu": "celu", "selu": "selu", "mish": "mish",
    "leaky_relu": "leaky_relu", "sigmoid": "sigmoid", "log_sigmoid": "logsigmoid", "hard_sigmoid": "hardsigmoid",
    "hard_swish": "hardswish", "hard_tanh": "hardtanh", "tanh": "tanh", "softplus": "softplus", "soft_sign": "softsign",
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    x = np.concatenate([normal(50), 5 * normal(50)])
    expected = getattr(torch.nn.functional, ACTIVATIONS[name])(tensor(x))
    np.testing.assert_allclose(getattr(nn, name)(x), expected, atol=1e-7)
