"""Encoder, decoder and both together agree with torch's modules, given torch's weights; and one position at a time."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fphys import distributed, nn
from fphys.nn.transformer import SPLIT, exact_gelu
from fphys.testing import check_grads, check_transforms

pytestmark = [
    pytest.mark.usefixtures("flax_promotes"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor"),  # torch's, of a fast path that norm_first has not
]
RNG = np.random.default_rng(0)
TIGHT = {"atol": 1e-12, "rtol": 1e-12}  # float64, sums of at most twelve products
APPLY = jax.jit(nn.apply, static_argnames=("train", "causal", "method"))
X, MEMORY = RNG.standard_normal((3, 5, 8)), RNG.standard_normal((3, 6, 8))
VALID = np.arange(5) < np.array([[5], [3], [4]])
MEMORY_VALID = np.arange(6) < np.array([[2], [6], [4]])
LOOK = np.array(RNG.random((5, 5)) < 0.6) | np.eye(5, dtype=bool)  # each position sees itself
MEMORY_LOOK = np.array(RNG.random((5, 6)) < 0.6) | (np.arange(6) < 2)  # and what is never padding
FUTURE = np.triu(np.ones((5, 5), bool), 1)

LAYERS = {
    "as in the paper": {},
    "norms first": {"norm_first": True},
    "gelu": {"activation": "gelu", "epsilon": 1e-3},
    "no biases": {"use_bias": False, "norm_first": True},
}


def theirs(kind, dropout=0.0, activation="relu", epsilon=1e-5, norm_first=False, use_bias=True):
    """torch's layer or network, with weights that leave nothing at zero or one."""
    torch.manual_seed(0)
    options = {"activation": activation, "layer_norm_eps": epsilon, "norm_first": norm_first, "bias": use_bias}
    counts = (1, 2) if kind == "Transformer" else ()
    module = getattr(torch.nn, kind)(8, 2, *counts, 12, dropout=dropout, batch_first=True, **options).double()
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.randn_like(value) / 2)
    return module


def ours(kind, reference, dropout=0.0, activation="relu", **options):
    """Ours, with the weights of torch's."""
    counts = (1, 2) if kind == "Transformer" else ()
    function = {"relu": nn.relu, "gelu": exact_gelu}[activation]
    make = partial(getattr(nn, kind), 8, 2, *counts, 12, dropout=dropout, activation=function, **options)
    return filled(make, reference)


def filled(make, reference):
    module, params, aux = jax.eval_shape(partial(nn.init, make), jax.random.key(0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), params)
    return module, *nn.load_weights(module, zeros, aux, reference.state_dict())


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def hidden(**masks):
    """torch's masks, which say what is hidden."""
    return {name: tensor(~mask) for name, mask in masks.items()}


ENCODER = {
    "alone": ({}, {}),
    "mask": ({"mask": LOOK}, hidden(src_mask=LOOK)),
    "padding": ({"valid": VALID}, hidden(src_key_padding_mask=VALID)),
    "causal": ({"causal": True}, {"src_mask": tensor(FUTURE), "is_causal": True}),
    "all": (
        {"mask": LOOK, "valid": VALID, "causal": True},
        hidden(src_mask=LOOK & ~FUTURE, src_key_padding_mask=VALID),
    ),
}
DECODER = {
    "alone": ({}, {}),
    "masks": ({"mask": LOOK, "memory_mask": MEMORY_LOOK}, hidden(tgt_mask=LOOK, memory_mask=MEMORY_LOOK)),
    "all": (
        {"memory_mask": MEMORY_LOOK, "valid": VALID, "memory_valid": MEMORY_VALID, "causal": True},
        hidden(
            tgt_mask=~FUTURE,
            memory_mask=MEMORY_LOOK,
            tgt_key_padding_mask=VALID,
            memory_key_padding_mask=MEMORY_VALID,
        ),
    ),
}


def agree(kind, options, inputs, masks, hides, train=False, **mode):
    """Outputs, and gradients by input and by every weight, of a sum whose terms have weights of their own."""
    reference = theirs(kind, **options).train(train)
    module, params, aux = ours(kind, reference, **options)
    tensors = [tensor(x).requires_grad_() for x in inputs]
    wanted = reference(*tensors, **hides)
    weights = RNG.standard_normal(wanted.shape)
    (wanted * tensor(weights)).sum().backward()
    first, *others = (jnp.asarray(x) for x in inputs)
    masks = {name: jnp.asarray(mask) if isinstance(mask, np.ndarray) else mask for name, mask in masks.items()}
    names = {"TransformerDecoderLayer": ["memory"], "Transformer": ["tgt"]}.get(kind, [])

    def run(params, first, others):
        both = dict(zip(names, others, strict=True))
        found = nn.apply(module, params, aux, first, train=train, **both, **masks, **mode)[0]
        return (found * weights).sum(), found

    (_, found), grads = jax.jit(jax.value_and_grad(run, (0, 1, 2), has_aux=True))(params, first, others)
    np.testing.assert_allclose(found, wanted.detach(), **TIGHT)
    for grad, leaf in zip((grads[1], *grads[2]), tensors, strict=True):
        np.testing.assert_allclose(grad, leaf.grad, **TIGHT)
    torch_grads = {name: value.grad for name, value in reference.named_parameters()}
    wanted_grads, _ = nn.load_weights(module, params, aux, torch_grads)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11, rtol=1e-11), grads[0], wanted_grads)


@pytest.mark.parametrize(
    ("layer", "masks"), [*((layer, "all") for layer in LAYERS), *(("norms first", m) for m in ENCODER if m != "all")]
)
def test_an_encoder_layer_is_torchs(layer, masks):
    agree("TransformerEncoderLayer", LAYERS[layer], [X], *ENCODER[masks])


@pytest.mark.parametrize(
    ("layer", "masks"), [*((layer, "all") for layer in LAYERS), *(("norms first", m) for m in DECODER if m != "all")]
)
def test_a_decoder_layer_is_torchs(layer, masks):
    agree("TransformerDecoderLayer", LAYERS[layer], [X, MEMORY], *DECODER[masks])


def test_the_whole_transformer_is_torchs():
    other = MEMORY_VALID[::-1]  # the decoder need not see what the encoder saw
    masks = {"src_valid": MEMORY_VALID, "memory_valid": other, "tgt_valid": VALID, "causal": True}
    hides = hidden(
        src_key_padding_mask=MEMORY_VALID,
        memory_key_padding_mask=other,
        tgt_key_padding_mask=VALID,
        tgt_mask=~FUTURE,
    )
    agree("Transformer", LAYERS["norms first"], [MEMORY, X], masks, hides)


def kept(keep, shape):
    """Which numbers are kept when training: of any 16, as many as the rate says."""
    return (np.arange(np.prod(shape)).reshape(shape) * 7 + len(shape)) % 16 < 16 * keep


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_is_where_torch_has_it(monkeypatch, norm_first):
    """With the numbers that are dropped chosen by a rule instead of at random, training agrees number for number."""

    def torch_drop(x, p=0.5, training=True, inplace=False):
        return x * tensor(kept(1 - p, x.shape)) / (1 - p) if training else x

    def torch_attend(q, k, v, mask=None, p=0.0, *_, **__):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return torch_drop((scores if mask is None else scores + mask).softmax(-1), p) @ v

    monkeypatch.setattr(jax.random, "bernoulli", lambda key, p, shape, **_: jnp.asarray(kept(p, shape)))
    monkeypatch.setattr(torch.nn.functional, "dropout", torch_drop)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", torch_attend)
    options, mode = {"dropout": 0.25, "norm_first": norm_first}, {"train": True, "key": jax.random.key(0)}
    agree("TransformerEncoderLayer", options, [X], *ENCODER["all"], **mode)
    agree("TransformerDecoderLayer", options, [X, MEMORY], *DECODER["all"], **mode)


def test_dropout_draws_when_it_trains_only():
    model = ours("TransformerEncoderLayer", theirs("TransformerEncoderLayer"), dropout=0.3)
    run = partial(APPLY, *model, jnp.asarray(X))
    one, same, other = (run(train=True, key=jax.random.key(seed))[0] for seed in (1, 1, 2))
    still, _ = run(key=jax.random.key(1))
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(still, run()[0])
    assert not np.allclose(one, other) and not np.allclose(one, still)
    with pytest.raises(ValueError, match="pass key="):
        run(train=True)


def test_stacks_with_and_without_a_norm():
    """Of torch's fast path, too, which it takes in evaluation without gradients."""
    layer = theirs("TransformerEncoderLayer")
    reference = torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(8).double(), enable_nested_tensor=False).eval()
    make = lambda rngs, norm=True: nn.TransformerEncoder(  # noqa: E731
        partial(nn.TransformerEncoderLayer, 8, 2, 12), 2, nn.LayerNorm(8, rngs=rngs) if norm else None, rngs=rngs
    )
    model = filled(make, reference)
    with torch.no_grad():
        wanted = reference(tensor(X), src_key_padding_mask=tensor(~VALID)).numpy()
    found, _ = APPLY(*model, jnp.asarray(X), valid=jnp.asarray(VALID))
    np.testing.assert_allclose(np.asarray(found)[VALID], wanted[VALID], **TIGHT)

    bare = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    found, _ = APPLY(*filled(partial(make, norm=False), bare), jnp.asarray(X))
    np.testing.assert_allclose(found, bare(tensor(X)).detach(), **TIGHT)

    decoder = torch.nn.TransformerDecoder(theirs("TransformerDecoderLayer"), 2).eval()
    make = partial(nn.TransformerDecoder, partial(nn.TransformerDecoderLayer, 8, 2, 12), 2)
    found, _ = APPLY(*filled(make, decoder), jnp.asarray(X), memory=jnp.asarray(MEMORY))
    np.testing.assert_allclose(found, decoder(tensor(X), tensor(MEMORY)).detach(), **TIGHT)


def test_layers_begin_with_weights_of_their_own():
    encoder = nn.TransformerEncoder(partial(nn.TransformerEncoderLayer, 8, 2), 2, rngs=nn.Rngs(0))
    first, second = (layer.linear1.kernel[...] for layer in encoder.layers)
    assert not np.array_equal(first, second)
    with pytest.raises(TypeError, match=r"must be its constructor, partial\(nn\.TransformerEncoderLayer, features"):
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, rngs=nn.Rngs(0)), 2, rngs=nn.Rngs(0))


@pytest.mark.parametrize(("norm_first", "count"), [(False, 2), (True, 1)])
def test_one_position_at_a_time(norm_first, count):
    """The cache gives what the whole sequence gives, to rounding, and its gradient."""
    reference = torch.nn.TransformerDecoder(theirs("TransformerDecoderLayer", norm_first=norm_first), count)
    layer = partial(nn.TransformerDecoderLayer, 8, 2, 12, norm_first=norm_first)  # with dropout, which is off
    module, params, aux = filled(partial(nn.TransformerDecoder, layer, count), reference)
    x, memory, valid = jnp.asarray(X), jnp.asarray(MEMORY), jnp.asarray(MEMORY_VALID)

    def whole(params, x, memory):
        return nn.apply(module, params, aux, x, memory=memory, memory_valid=valid, causal=True)[0]

    def steps(params, x, memory):
        def one(caches, inputs):
            now, at = inputs
            y, caches = nn.apply(
                module, params, aux, now[:, None], caches=caches, at=at, memory_valid=valid, method="step"
            )[0]
            return caches, y[:, 0]

        start, _ = nn.apply(module, params, aux, memory, length=5, method="start")
        return jax.lax.scan(one, start, (x.swapaxes(0, 1), jnp.arange(x.shape[1])))[1].swapaxes(0, 1)

    arguments = params, x, memory

    @jax.jit
    def both(*arguments):
        (found, pull), (wanted, pull_whole) = jax.vjp(steps, *arguments), jax.vjp(whole, *arguments)
        return found, wanted, pull(wanted), pull_whole(wanted)

    found, wanted, grads, wanted_grads = both(*arguments)
    np.testing.assert_allclose(found, wanted, **TIGHT)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-11, rtol=1e-11), grads, wanted_grads)
    late = jax.jit(steps)(params, jnp.concatenate([x, x[:, :1]], 1), memory)
    np.testing.assert_array_equal(np.isnan(late).all((0, 2)), np.arange(6) == 5)  # no room is left for the sixth


def test_a_batch_is_a_map_over_its_examples():
    module, params, aux = ours("TransformerDecoderLayer", theirs("TransformerDecoderLayer"))
    run = lambda x, memory: nn.apply(module, params, aux, x, memory=memory, causal=True)[0]  # noqa: E731
    x, memory = jnp.asarray(X), jnp.asarray(MEMORY)
    one = jax.jit(jax.vmap(run))(x[:, None], memory[:, None])
    np.testing.assert_allclose(one[:, 0], jax.jit(run)(x, memory), **TIGHT)


@pytest.mark.slow
def test_transforms_of_a_layer():
    module, params, aux = ours("TransformerDecoderLayer", theirs("TransformerDecoderLayer"))
    run = lambda x, memory: nn.apply(module, params, aux, x, memory=memory, causal=True)[0]  # noqa: E731
    check_transforms(run, (jnp.asarray(X), jnp.asarray(MEMORY)), batches=(2,), max_patterns=2)
    check_grads(run, (X, MEMORY), directions=2)


def test_the_state_is_written_and_read(tmp_path):
    module, params, aux = ours("Transformer", theirs("Transformer"))
    nn.write_weights(tmp_path / "w.safetensors", params, aux)
    empty = jax.tree.map(jnp.zeros_like, params)
    again = nn.load_weights(module, empty, aux, nn.read_weights(tmp_path / "w.safetensors"))
    jax.tree.map(np.testing.assert_array_equal, again, (params, aux))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_sixteen_bits(dtype):
    module, params, aux = ours("Transformer", theirs("Transformer", norm_first=True), norm_first=True)
    inputs = {"tgt": jnp.asarray(X), "memory_valid": jnp.asarray(MEMORY_VALID)}
    wanted, _ = APPLY(module, params, aux, jnp.asarray(MEMORY), **inputs, causal=True)
    small = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    inputs["tgt"] = inputs["tgt"].astype(dtype)
    found, _ = APPLY(module, small, aux, jnp.asarray(MEMORY, dtype), **inputs, causal=True)
    assert found.dtype == dtype
    # each of some thirty operations in a row rounds by half an epsilon; the last norm makes all about one
    np.testing.assert_allclose(found.astype(np.float64), wanted, atol=30 * float(jnp.finfo(dtype).eps))


def test_devices_share_the_weights_of_every_branch():
    _, params, _ = jax.eval_shape(partial(nn.init, partial(nn.Transformer, 8, 2, 1, 1, 12)), jax.random.key(0))
    alone = jax.sharding.Mesh(np.array(jax.devices()[:1])[None], ("world", "model"))
    placed = distributed.place(jax.tree.map(lambda s: jnp.zeros(s.shape), params), SPLIT, alone)
    split = {name for name, leaf in nn.weights.flat(placed).items() if "model" in leaf.sharding.spec}
    whole = {name for name in nn.weights.flat(placed) if re.search(r"norm|(linear2|out)\.bias", name)}
    assert split == nn.weights.flat(placed).keys() - whole


ENCODES, DECODES = (partial(getattr(nn, f"Transformer{kind}Layer"), 8, 2, 12) for kind in ("Encoder", "Decoder"))


@pytest.mark.parametrize(
    ("make", "inputs", "message"),
    [
        (ENCODES, {"x": X[..., :7]}, r"x has shape \(3, 5, 7\), must be .* = \(batch, any, 8\)"),
        (ENCODES, {"x": X[0]}, r"x has shape \(5, 8\), must be \(batch, position, features\)"),
        (ENCODES, {"x": X, "mask": LOOK[:4]}, r"mask has shape \(4, 5\), .* = \(3, 2, 5, 5\)"),
        (ENCODES, {"x": X, "mask": LOOK[0]}, r"mask has shape \(5,\), .* = \(3, 2, 5, 5\)"),
        (ENCODES, {"x": X, "valid": VALID.T}, r"valid has shape \(5, 3\), must be \(batch, key\) = \(3, 5\)"),
        (DECODES, {"x": X, "memory": MEMORY[:2]}, r"memory has shape \(2, 6, 8\), must be .* = \(3, any, 8\)"),
        (DECODES, {"x": X, "memory": MEMORY, "memory_valid": VALID}, r"\(3, 5\), must be \(batch, key\) = \(3, 6\)"),
    ],
)
def test_wrong_shapes_are_refused(make, inputs, message):
    live = make(rngs=nn.Rngs(0))
    live.eval()
    with pytest.raises(ValueError, match=message):
        live(**{name: jnp.asarray(x) for name, x in inputs.items()})


@pytest.mark.parametrize("inputs", [{"mask": np.zeros((5, 5))}, {"valid": np.ones((3, 5), int)}])
def test_masks_of_numbers_are_refused(inputs):
    live = ENCODES(rngs=nn.Rngs(0))
    ((name, mask),) = inputs.items()
    with pytest.raises(TypeError, match=f"{name} is {mask.dtype}, must be bool, True where a position attends"):
        live(jnp.asarray(X), **{name: jnp.asarray(mask)})


@pytest.mark.parametrize("kind", ["Encoder", "Decoder"])
def test_impossible_layers_are_refused(kind):
    make = getattr(nn, f"Transformer{kind}Layer")
    with pytest.raises(ValueError, match="features is 9, must be a multiple of num_heads, 2"):
        make(9, 2, rngs=nn.Rngs(0))
    with pytest.raises(TypeError, match=r"activation is 'gelu', must be a function, such as nn\.gelu"):
        make(8, 2, activation="gelu", rngs=nn.Rngs(0))


@pytest.mark.parametrize("axes", [(None, None), (slice(None), None), (slice(None), slice(None))])
def test_a_mask_may_have_axes_of_batch_and_head(axes):
    """A mask that is the same for all gives the same with every number of axes."""
    module, params, aux = ours("TransformerEncoderLayer", theirs("TransformerEncoderLayer"))
    wanted, _ = APPLY(module, params, aux, jnp.asarray(X), mask=jnp.asarray(LOOK))
    sizes = [size if axis is not None else 1 for size, axis in zip((3, 2), axes, strict=True)]
    wide = np.broadcast_to(LOOK, (*sizes, 5, 5))
    wide = wide[:, 0] if axes == (slice(None), None) else wide
    found, _ = APPLY(module, params, aux, jnp.asarray(X), mask=jnp.asarray(wide))
    np.testing.assert_allclose(found, wanted, **TIGHT)
