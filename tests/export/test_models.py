"""The models of ``fphys.nn.models`` as ONNX agree in onnxruntime, and can be read back."""

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


def image(size):
    return RNG.standard_normal((2, size, size, 3)).astype(np.float32)


def tokens():
    return RNG.integers(0, 20, (2, 5)).astype(np.int32)


MODELS = {
    "mlp": (partial(nn.models.MLP, 6, (16, 16), 4), lambda full: RNG.standard_normal((3, 6)).astype(np.float32)),
    "resnet18": (partial(nn.models.resnet18, num_classes=10), lambda full: image(64 if full else 32)),
    "gpt2": (partial(nn.models.GPT2, 20, 8, features=16, depth=1, num_heads=2), lambda full: tokens()),
}


@pytest.mark.parametrize("name", MODELS)
def test_equal_in_onnxruntime_and_read_back(tmp_path, x32, full, name):
    constructor, example = MODELS[name]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # flax needs them
        module, params, aux = nn.init(constructor, jax.random.key(0))
        x = example(full)

        def fn(x):
            return nn.apply(module, params, aux, jnp.asarray(x))[0]

        path = to_onnx(tmp_path / "net.onnx", fn, x, batch=None)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: x})
        wanted = np.asarray(fn(x))
        np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1, np.abs(wanted).max()))
        again, weights = from_onnx(path)
        np.testing.assert_allclose(jax.jit(again)(weights, x), wanted, atol=1e-5 * max(1, np.abs(wanted).max()))
