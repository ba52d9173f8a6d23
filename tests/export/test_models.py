"""Every model of ``fphys.nn.models`` as ONNX, open batch: onnxruntime agrees, it comes back with its gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

from fphys import nn
from fphys.export import from_onnx, to_onnx

pytestmark = pytest.mark.extra("jax2onnx", "onnxruntime")
RNG = np.random.default_rng(0)
models = nn.models


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def tokens():
    return RNG.integers(0, 20, (2, 5)).astype(np.int32)


class Copyist(models.BART):
    """Reads what it writes, so that it has one input."""

    def __call__(self, tokens):
        return super().__call__(tokens, tokens)


SMALL = {"widths": (4, 4, 6, 6)}
MODELS = {
    "mlp": (partial(models.MLP, 6, (16, 16), 4), real(3, 6)),
    "resnet": (partial(models.ResNet, models.BasicBlock, (1, 1, 1, 1), 5, **SMALL), real(2, 32, 32, 3)),
    "gpt2": (partial(models.GPT2, 20, 8, features=16, depth=1, num_heads=2), tokens()),
    "lstm": (partial(models.LSTMLanguageModel, 20, features=4, hidden=6, num_layers=1), tokens()),
}
LARGE = {
    "resnet18": (partial(models.resnet18, num_classes=10), real(2, 64, 64, 3)),
    "bottleneck": (partial(models.ResNet, models.Bottleneck, (1, 1, 1, 1), 5, **SMALL), real(2, 32, 32, 3)),
    "cnn": (partial(models.CNN, (8, 8, 1), 3, widths=(2, 3), hidden=5), real(2, 8, 8, 1)),
    "vgg": (partial(models.VGG, ((2,), (3,)), 3, hidden=4), real(2, 28, 28, 3)),
    "vit": (partial(models.ViT, 8, 4, 3, features=8, depth=1, num_heads=2), real(2, 8, 8, 3)),
    "bert": (partial(models.BERT, 20, 8, features=16, depth=1, num_heads=2, head=False), tokens()),
    "bart": (partial(Copyist, 20, 8, features=16, depth=1, num_heads=2), tokens()),
    "vae": (partial(models.VAE, 12, 8, 3), real(2, 12)),
    "q": (partial(models.QNetwork, 4, 2, hidden=(6, 5)), real(2, 4)),
    "actor critic": (partial(models.ActorCritic, 4, 2, hidden=(6, 5)), real(2, 4)),
    "discrete": (partial(models.ActorCritic, 4, 2, continuous=False), real(2, 4)),
    "soft actor critic": (partial(models.SoftActorCritic, 4, 2, hidden=(6, 5)), real(2, 4)),
}


def close(found, wanted):
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("name", [*MODELS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_out_and_back_with_the_gradient_of_every_weight(tmp_path, x32, name):
    constructor, x = (MODELS | LARGE)[name]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # flax needs them
        module, params, aux = jax.jit(partial(nn.init, constructor))(jax.random.key(0))
        leaves, tree = jax.tree.flatten(params)  # no two weights alike, and none equal to a statistic
        params = tree.unflatten([p + 0.1 * real(*p.shape) for p in leaves])

        @jax.jit
        def fn(params, x):
            return tuple(jax.tree.leaves(nn.apply(module, params, aux, jnp.asarray(x))[0]))

        path = to_onnx(tmp_path / "net.onnx", partial(fn, params), x)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        again, weights = from_onnx(path)
        back = jax.jit(lambda weights, x: tuple(jax.tree.leaves(again(weights, x))))
        more = np.concatenate([x, x[:1], x])  # another batch than the example's
        wanted = fn(params, more)
        for a, b, c in zip(session.run(None, {"in_0": more}), back(weights, more), wanted, strict=True):
            close(a, c)
            close(b, c)

        def by_weights(fn, weights):
            return jax.jit(jax.grad(lambda w: sum(jnp.mean(jnp.square(y - 1)) for y in fn(w, more))))(weights)

        mine = [(np.ravel(p), np.ravel(g)) for p, g in zip(*map(jax.tree.leaves, (params, by_weights(fn, params))))]
        theirs = by_weights(back, weights)
        found = [(np.ravel(w), np.ravel(theirs[key])) for key, w in weights.items()]
        steepest = max(np.abs(slope).max() for _, slope in mine)
        for values, slope in mine:  # the file may turn a weight, or hold a tied one twice: its values tell which it is
            order = np.argsort(values)
            same = [g[np.argsort(w)] for w, g in found if np.array_equal(np.sort(w), values[order])]
            np.testing.assert_allclose(sum(same), slope[order], rtol=0, atol=1e-5 * steepest)
