"""Models: sizes, shapes, gradients, training and evaluation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import losses, nn, optim
from fphys.nn import models
from fphys.testing import check_grads
from fphys.typing import ShapeError, checked

pytestmark = pytest.mark.usefixtures("flax_promotes")
RNG = np.random.default_rng(0)
APPLY = jax.jit(nn.apply, static_argnames=("train", "method"))

PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg11_bn": 132_868_840,
    "vgg16_bn": 138_365_992,
    "vit_b_16": 86_567_656,
    "gpt2": 124_439_808,
    "bert_base": 110_106_428 - 1538,
    "bart_base": 139_420_416 - 4 * 768,
}
"""As stated by torchvision, OpenAI and Hugging Face: BERT without the 1538 for the next sentence, and BART without four
positions that are never used."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_full_models_have_the_published_size(name):
    """Shapes only: nothing is computed."""
    text = {"gpt2": 50257, "bert_base": 768, "bart_base": 50265}.get(name)
    x = jnp.zeros((2, 40), int) if text else jnp.zeros((2, 224, 224, 3), jnp.float32)
    more = {"target": x} if name == "bart_base" else {}
    module, params, aux = jax.eval_shape(partial(nn.init, getattr(models, name)), jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == PARAMETERS[name]
    run = partial(nn.apply, module, train=True, key=jax.random.key(0))
    y, after = jax.eval_shape(run, params, aux, x, **more)
    y = jax.tree.leaves(y)[0]
    assert y.shape == ((2, 40, text) if text else (2, 1000)) and y.dtype == jnp.float32
    assert jax.tree.structure(after) == jax.tree.structure(aux)


def pixels(*shape):
    return RNG.uniform(0, 1, shape)


TINY = {
    "MLP": (partial(models.MLP, 5, (7, 6), 3, activation=nn.tanh, dropout=0.2), pixels(4, 5), (4, 3)),
    "CNN": (partial(models.CNN, (8, 8, 1), 3, widths=(2, 3), hidden=5, dropout=0.2), pixels(4, 8, 8, 1), (4, 3)),
    "ResNet": (
        partial(models.ResNet, models.BasicBlock, (1, 1, 1, 1), 3, widths=(2, 3, 4, 5)),
        pixels(4, 32, 32, 3),
        (4, 3),
    ),
    "VGG": (partial(models.VGG, ((2,), (3,)), 3, hidden=4), pixels(2, 28, 28, 3), (2, 3)),
    "ViT": (partial(models.ViT, 8, 4, 3, features=8, depth=1, num_heads=2), pixels(2, 8, 8, 3), (2, 3)),
    "GPT2": (partial(models.GPT2, 11, 9, features=8, depth=1, num_heads=2), RNG.integers(0, 11, (2, 6)), (2, 6, 11)),
    "BERT": (
        partial(models.BERT, 11, 9, features=8, depth=1, num_heads=2, head=False),
        RNG.integers(0, 11, (2, 6)),
        (2, 6, 8),
    ),
    "LSTM": (partial(models.LSTMLanguageModel, 11, features=4, hidden=5), RNG.integers(0, 11, (2, 6)), (2, 6, 11)),
    "VAE": (partial(models.VAE, 12, 8, 3), pixels(4, 12), (4, 12)),
    "QNetwork": (partial(models.QNetwork, 4, 2, hidden=(6, 5)), pixels(3, 4), (3, 2)),
    "ActorCritic": (partial(models.ActorCritic, 4, 2, hidden=(6, 5)), pixels(3, 4), (3, 2)),
    "ActorCritic, discrete": (partial(models.ActorCritic, 4, 2, continuous=False), pixels(3, 4), (3, 2)),
    "SoftActorCritic": (partial(models.SoftActorCritic, 4, 2, hidden=(6, 5)), pixels(3, 4), (3, 2)),
}


@pytest.fixture(params=TINY)
def tiny(request):
    """In float64, with random biases and norms, so that nothing is at a kink."""
    constructor, x, shape = TINY[request.param]
    module, params, aux = jax.eval_shape(partial(nn.init, constructor), jax.random.key(0))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda s: jnp.asarray(rng.standard_normal(s.shape) / max(1, s.size) ** 0.25), params)
    return (
        module,
        params,
        jax.tree.map(lambda s: jnp.asarray(rng.uniform(0.5, 1.5, s.shape)), aux),
        jnp.asarray(x),
        shape,
    )


def test_shapes_and_gradients(tiny):
    module, params, aux, x, shape = tiny

    def run(params, train):
        y, after = nn.apply(module, params, aux, x, train=train, key=jax.random.key(2))
        assert jax.tree.structure(after) == jax.tree.structure(aux)
        return y

    for train in (True, False):
        y = jax.eval_shape(partial(run, train=train), params)
        assert jax.tree.leaves(y)[0].shape == shape
    check_grads(partial(run, train=False), (params,), directions=1, atol=1e-8)


def test_arguments_are_checked_when_asked(tiny):
    module, params, aux, x, _ = tiny
    with checked():
        jax.eval_shape(partial(nn.apply, module), params, aux, x)
        with pytest.raises(ShapeError, match=r"__call__: (x|tokens) is"):
            nn.apply(module, params, aux, x.astype(bool))


def test_gpt_sees_only_the_past():
    module, params, aux = jax.jit(partial(nn.init, TINY["GPT2"][0]))(jax.random.key(0))
    tokens = jnp.asarray(TINY["GPT2"][1])
    changed = tokens.at[:, 4].set((tokens[:, 4] + 1) % 11)
    one, other = (APPLY(module, params, aux, t)[0] for t in (tokens, changed))
    np.testing.assert_array_equal(one[:, :4], other[:, :4])
    assert (np.abs(one - other)[:, 4:].max(-1) > 0).all()
    with pytest.raises(ValueError, match="tokens have 10 positions, must have at most 9"):
        nn.apply(module, params, aux, jnp.zeros((1, 10), int))


def test_lstm_model_continues_with_its_carry():
    module, params, aux = jax.jit(partial(nn.init, TINY["LSTM"][0]))(jax.random.key(0))
    tokens = jnp.asarray(TINY["LSTM"][1])
    (whole, _), _ = APPLY(module, params, aux, tokens)
    (_, carry), _ = APPLY(module, params, aux, tokens[:, :4])
    (rest, _), _ = APPLY(module, params, aux, tokens[:, 4:], carry=carry)
    np.testing.assert_allclose(rest, whole[:, 4:], atol=1e-6)


def test_vae_draws_when_it_trains_only():
    module, params, aux = jax.jit(partial(nn.init, TINY["VAE"][0]))(jax.random.key(0))
    x = jnp.asarray(TINY["VAE"][1], jnp.float32)
    still, _ = nn.apply(module, params, aux, x)
    (code, _), _ = nn.apply(module, params, aux, x, method="encode")
    np.testing.assert_array_equal(still.logits, nn.apply(module, params, aux, code, method="decode")[0])
    with pytest.raises(ValueError, match="pass key="):
        nn.apply(module, params, aux, x, train=True)
    draws = [APPLY(module, params, aux, x, train=True, key=jax.random.key(seed))[0].logits for seed in (1, 2)]
    assert not np.array_equal(*draws)


def test_evidence_lower_bound():
    """At mean 0 and variance 1 the divergence is zero. Elsewhere it is checked by sampling."""
    mean, log_var, x = jnp.array([[0.5, -1.0]]), jnp.array([[0.2, -0.4]]), jnp.array([[0.3, 1.0, 0.0]])
    logits = jnp.array([[0.1, 2.0, -3.0]])
    pixels = losses.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    np.testing.assert_allclose(models.elbo_loss(models.Coded(logits, 0 * mean, 0 * log_var), x), pixels)
    z = mean + jnp.exp(log_var / 2) * jax.random.normal(jax.random.key(0), (200_000, 2))
    sampled = (jax.scipy.stats.norm.logpdf(z, mean, jnp.exp(log_var / 2)) - jax.scipy.stats.norm.logpdf(z)).sum(-1)
    found = models.elbo_loss(models.Coded(logits, mean, log_var), x) - pixels
    assert abs(found - sampled.mean()) < 5 * sampled.std() / len(sampled) ** 0.5


def test_advantages_do_not_move_the_mean():
    module, params, aux = jax.jit(partial(nn.init, TINY["QNetwork"][0]))(jax.random.key(0))
    x = jnp.asarray(TINY["QNetwork"][1], jnp.float32)
    moved = params | {"advantage": jax.tree.map(lambda leaf: leaf + 1.5, params["advantage"])}
    one, other = (APPLY(module, p, aux, x)[0] for p in (params, moved))
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(models.CNN, (3, 8, 1), 2), "image is 3 x 8, must be at least 4 x 4"),
        (partial(models.ViT, 30, 8), "image_size is 30, must be a multiple of patch_size, 8"),
    ],
)
def test_impossible_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        nn.init(make, jax.random.key(0))


@pytest.mark.extra("sklearn")
@pytest.mark.parametrize("name", ["MLP", pytest.param("CNN", marks=pytest.mark.slow)])
def test_digits_are_learned(name):
    """Scikit-learn's digits, a fixed split: 40 epochs of Adam in batches of 64."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    shape, make = {
        "MLP": ((64,), partial(models.MLP, 64, (64,), 10)),
        "CNN": ((8, 8, 1), partial(models.CNN, (8, 8, 1), 10, widths=(8, 16), hidden=32)),
    }[name]
    images = images.reshape(-1, *shape)
    split = 22 * 64
    module, params, aux = nn.init(make, jax.random.key(0))
    optimizer = optim.Adam(3e-3)

    def step(carry, batch):
        params, state = carry

        def loss(params):
            logits, _ = nn.apply(module, params, aux, batch[0], train=True)
            return losses.cross_entropy(logits, batch[1])

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return (optim.apply_updates(params, updates), state), value

    @jax.jit
    def train(params):
        def epoch(carry, key):
            order = jax.random.permutation(key, split).reshape(-1, 64)
            return jax.lax.scan(step, carry, (jnp.asarray(images)[order], jnp.asarray(labels)[order]))

        start = params, optimizer.init(params)
        return jax.lax.scan(epoch, start, jax.random.split(jax.random.key(1), 40))[0][0]

    logits, _ = APPLY(module, train(params), aux, images[split:])
    assert np.mean(np.argmax(logits, -1) == labels[split:]) > 0.96
