"""BERT and BART: torch's numbers from Hugging Face's names, tokens one by one, and a task that is learned."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fphys import losses, nn, optim
from fphys.nn import models
from fphys.testing import check_grads
from fphys.typing import ShapeError, checked

from . import references as R

pytestmark = pytest.mark.usefixtures("flax_promotes")
RNG = np.random.default_rng(0)
APPLY = jax.jit(nn.apply, static_argnames=("train", "method", "length"))
SIZE = {"features": 16, "depth": 2, "num_heads": 4, "hidden_features": 24}
MAKE = {"BERT": partial(models.BERT, 50, 12, **SIZE), "BART": partial(models.BART, 50, 12, **SIZE)}
TOKENS, TARGET, SEGMENTS = RNG.integers(0, 50, (3, 9)), RNG.integers(0, 50, (3, 7)), RNG.integers(0, 2, (3, 9))
VALID = np.arange(9) < np.array([[9], [4], [7]])
CLOSE = {"atol": 2e-5, "rtol": 2e-5}  # float32: rounding of some hundred sums of numbers of about one


def reference(name):
    return R.randomised(getattr(R, name)(50, 12, 16, 2, 4, 24))


def filled(make, weights):
    made = jax.eval_shape(partial(nn.init, make), jax.random.key(0))
    return made[0], *nn.load_weights(*made, weights)


def bert(tokens, segments, valid):
    """What torch gives: states where there is no padding, pooled, logits."""
    with torch.no_grad():
        return [y.numpy() for y in reference("BERT")(*map(torch.from_numpy, (tokens, segments, valid)))]


INPUTS = {"segments": SEGMENTS, "valid": VALID}


@pytest.mark.parametrize("old", [False, True])
def test_bert_gives_what_torch_gives(old):
    weights = reference("BERT").hugging_face()
    if old:  # the names of the first files
        weights = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
            for name, value in weights.items()
        }
    model = filled(MAKE["BERT"], weights)
    states, pooled, logits = bert(TOKENS, SEGMENTS, VALID)
    found, _ = APPLY(*model, TOKENS, **INPUTS)
    assert found.states.dtype == np.float32 and np.std(states) > 0.1 < np.std(pooled)
    np.testing.assert_allclose(np.asarray(found.states)[VALID], states[VALID], **CLOSE)
    np.testing.assert_allclose(found.pooled, pooled, **CLOSE)
    np.testing.assert_allclose(
        np.asarray(APPLY(*model, TOKENS, **INPUTS, method="logits")[0])[VALID], logits[VALID], **CLOSE
    )


def test_bert_without_segments_and_padding():
    states, pooled, _ = bert(TOKENS, 0 * SEGMENTS, VALID | True)
    found, _ = APPLY(*filled(MAKE["BERT"], reference("BERT").hugging_face()), TOKENS)
    np.testing.assert_allclose(found.states, states, **CLOSE)
    np.testing.assert_allclose(found.pooled, pooled, **CLOSE)


def test_files_of_parts_of_bert(tmp_path):
    """Of BertModel, whose names have no prefix and which has no head, and of BertForMaskedLM, which has no pooler."""
    weights = reference("BERT").hugging_face()
    bare = {name.removeprefix("bert."): v for name, v in weights.items() if not name.startswith("cls.")}
    masked = {name: v for name, v in weights.items() if "pooler" not in name and "seq_relationship" not in name}
    _, pooled, logits = bert(TOKENS, SEGMENTS, VALID)
    found, _ = APPLY(*filled(partial(MAKE["BERT"], head=False), bare), TOKENS, **INPUTS)
    np.testing.assert_allclose(found.pooled, pooled, **CLOSE)
    model = filled(partial(MAKE["BERT"], pooler=False), masked)
    assert APPLY(*model, TOKENS, **INPUTS)[0].pooled is None
    found, _ = APPLY(*model, TOKENS, **INPUTS, method="logits")
    np.testing.assert_allclose(np.asarray(found)[VALID], logits[VALID], **CLOSE)
    with pytest.raises(ValueError, match="built with head=False"):
        nn.apply(*filled(partial(MAKE["BERT"], head=False), bare), TOKENS, method="logits")
    with pytest.raises(nn.WeightsError, match=r"head\.bias is missing; head\.dense"):
        filled(MAKE["BERT"], bare)

    torch.save(bare, tmp_path / "bare.pth")

    def build(rngs):
        return nn.weights.pretrained(MAKE["BERT"](rngs=rngs), "small", tmp_path / "bare.pth", new_head=True)

    _, params, _ = nn.init(build, jax.random.key(0))
    np.testing.assert_array_equal(params["pooler"]["bias"], bare["pooler.dense.bias"])
    assert params["head"]["dense"]["kernel"].std() > 0.1 and not params["head"]["bias"].any()


@pytest.fixture(scope="module")
def bart():
    model = reference("BART")
    with torch.no_grad():
        for name, value in model.named_parameters():  # so that it writes other tokens at each place
            value.add_("norm" in name and name.endswith("weight"))
            value.mul_(0.5 if "linear2" in name or "out_proj" in name or name.endswith("norm3.bias") else 1)
        model.places[1].weight.mul_(2)
    return model, filled(MAKE["BART"], model.hugging_face())


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_bart_gives_what_torch_gives(bart, prefix):
    theirs, model = bart
    if not prefix:  # as in the bare model's file
        weights = {k.removeprefix("model."): v for k, v in theirs.hugging_face().items() if k.startswith("model.")}
        model = filled(MAKE["BART"], weights)
    with torch.no_grad():
        wanted = theirs(*map(torch.from_numpy, (TOKENS, TARGET, VALID))).numpy()
    found, _ = APPLY(*model, TOKENS, target=TARGET, valid=VALID)
    assert found.dtype == np.float32 and np.std(wanted) > 0.1
    np.testing.assert_allclose(found, wanted, **CLOSE)


def test_bart_writes_what_torch_writes(bart):
    """By its cache, as torch does by computing all positions again for each token."""
    theirs, model = bart
    with torch.no_grad():
        wanted = theirs.generate(*map(torch.from_numpy, (TOKENS, TARGET[:, :2])), 9, torch.from_numpy(VALID)).numpy()
    assert len(np.unique(wanted)) > 5
    prompt = TARGET[:, :2].astype(np.int32)
    end = next(int(a) for row in wanted for a, b in itertools.pairwise(row) if a != b)  # something else follows it
    run = partial(nn.apply, *model, method="generate", length=9)
    one = jax.jit(jax.vmap(lambda x, prompt, valid: run(x, prompt=prompt, valid=valid)[0]))
    found = one(TOKENS[:, None], prompt[:, None], VALID[:, None])[:, 0]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)
    ended, _ = run(TOKENS, prompt=prompt, valid=VALID, end=end)
    for row, whole in zip(np.asarray(ended), wanted, strict=True):
        after = np.cumsum(whole == end) - (whole == end) > 0
        np.testing.assert_array_equal(row, np.where(after, end, whole))


def test_padding_of_the_source_does_not_count(bart):
    """The longest example alone, and the shorter ones in it, give the same with and without what is behind them."""
    _, model = bart
    whole, _ = APPLY(*model, TOKENS[1:2], target=TARGET[1:2], valid=VALID[1:2])
    short, _ = APPLY(*model, TOKENS[1:2, :4], target=TARGET[1:2])
    np.testing.assert_allclose(whole, short, **CLOSE)


@pytest.mark.parametrize("name", MAKE)
def test_gradients(name):
    """In float64, with random biases and norms. Keys' biases have none: all scores shift together."""
    module, params, aux = jax.eval_shape(partial(nn.init, partial(MAKE[name], depth=1)), jax.random.key(0))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda s: jnp.asarray(rng.standard_normal(s.shape) / s.size**0.25), params)
    more = {"target": TARGET[:, :4]} if name == "BART" else {"method": "logits"}
    run = lambda params: nn.apply(module, params, aux, TOKENS[:, :5], valid=VALID[:, :5], **more)[0]  # noqa: E731
    check_grads(run, (params,), directions=1, atol=1e-8)


def test_dropout_is_drawn_in_training(bart):
    _, model = bart
    run = partial(APPLY, *model, TOKENS, target=TARGET, train=True)
    one, other = (run(key=jax.random.key(seed))[0] for seed in (1, 2))
    assert not np.allclose(one, other)


@pytest.mark.parametrize("name", MAKE)
def test_the_state_is_written_and_read(tmp_path, name):
    module, params, aux = filled(MAKE[name], reference(name).hugging_face())
    nn.write_weights(tmp_path / "w.safetensors", params, aux)
    empty = jax.tree.map(jnp.zeros_like, params)
    again = nn.load_weights(module, empty, aux, nn.read_weights(tmp_path / "w.safetensors"))
    jax.tree.map(np.testing.assert_array_equal, again, (params, aux))


def test_what_does_not_fit_is_refused(bart):
    theirs, model = bart
    long = np.zeros((1, 13), int)
    encoder = filled(MAKE["BERT"], reference("BERT").hugging_face())
    with pytest.raises(ValueError, match="tokens have 13 positions, must have at most 12"):
        nn.apply(*encoder, long)
    with pytest.raises(ValueError, match=r"valid has shape \(3, 4\), must be \(batch, key\) = \(3, 9\)"):
        nn.apply(*encoder, TOKENS, valid=VALID[:, :4])
    with pytest.raises(ValueError, match="source has 13 positions, must have at most 12"):
        nn.apply(*model, long, target=TARGET[:1])
    with pytest.raises(ValueError, match="target has 13 positions, must have at most 12"):
        nn.apply(*model, TOKENS[:1], target=long)
    for prompt, length in ((TARGET[:, :0], 3), (TARGET[:, :2], 12), (TARGET[:, :2], 0)):
        with pytest.raises(
            ValueError, match=rf"prompt has {prompt.shape[1]} tokens and length is {length}, .* most 13"
        ):
            nn.apply(*model, TOKENS, method="generate", prompt=prompt, length=length)
    with (
        checked(),
        pytest.raises(ShapeError, match=r"target is int64 of shape \(2, 7\), .* source is int64 of shape \(3"),
    ):
        nn.apply(*model, TOKENS, target=TARGET[:2])
    state = theirs.hugging_face()
    with pytest.raises(nn.WeightsError, match=r"lm_head\.weight differs from shared\.weight"):
        filled(MAKE["BART"], state | {"lm_head.weight": torch.zeros(50, 16)})
    with pytest.raises(nn.WeightsError, match="final_logits_bias is not zero"):
        filled(MAKE["BART"], state | {"final_logits_bias": torch.ones(1, 50)})
    with pytest.raises(nn.WeightsError, match=r"decoder\.weight differs from embeddings\.word_embeddings\.weight"):
        filled(
            MAKE["BERT"],
            reference("BERT").hugging_face() | {"cls.predictions.decoder.weight": torch.zeros(50, 16)},
        )


def test_it_learns_to_write_backwards():
    """Five letters of eight, in the other order, after some seconds of Adam: all that were held out."""
    begin, letters, size = 8, 8, 5
    make = partial(models.BART, letters + 1, 8, features=32, depth=1, num_heads=4, dropout=0.0)
    module, params, aux = jax.jit(partial(nn.init, make))(jax.random.key(0))
    optimizer = optim.Adam(optim.warmup(optim.CosineAnnealingLR(5e-3, 450), 50))

    def step(carry, key):
        params, state = carry
        source = jax.random.randint(key, (32, size), 0, letters)
        labels = source[:, ::-1]
        target = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=begin)

        def loss(params):
            return losses.cross_entropy(nn.apply(module, params, aux, source, target=target)[0], labels)

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return (optim.apply_updates(params, updates), state), None

    keys = jax.random.split(jax.random.key(1), 500)
    (params, _), _ = jax.jit(partial(jax.lax.scan, step))((params, optimizer.init(params)), keys)
    source = jax.random.randint(jax.random.key(2), (200, size), 0, letters)
    prompt = jnp.full((200, 1), begin)
    written, _ = APPLY(module, params, aux, source, method="generate", prompt=prompt, length=size)
    assert np.mean(np.all(written == source[:, ::-1], 1)) > 0.95
