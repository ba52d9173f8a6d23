"""Convolutions of a training step run on all threads, and the options for a CPU are not used elsewhere."""

import jax
import jax.numpy as jnp
import pytest

from fphys import nn, optim, train
from fphys.train import compiling

MODEL = lambda rngs: nn.models.CNN((8, 8, 1), 10, rngs=rngs)  # noqa: E731


def compiled(options):
    """The compiled text of a CNN's training step."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        module, params, aux = nn.init(MODEL, jax.random.key(0))
        optimizer = optim.SGD(0.1)

        def loss_fn(params, aux, x, key):
            y, aux = nn.apply(module, params, aux, x, train=True)
            return (y**2).mean(), aux, {}

        state = train.init(params, optimizer, aux=aux)
        step = jax.jit(lambda state, x: train.step(loss_fn, optimizer, state, x), compiler_options=options)
        return step.lower(state, jnp.zeros((8, 8, 8, 1), jnp.float32)).compile().as_text()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA does on a CPU")
def test_convolutions_are_not_left_to_the_library():
    assert compiling._known(), "this jaxlib does not know the options: are convolutions quick without?"
    text = compiled(train.compiler_options())
    fused = [part for part in text.split("\n\n") if part.lstrip().startswith("%fused_computation")]
    assert " convolution(" in text and not any(" convolution(" in part for part in fused)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA does on a CPU")
@pytest.mark.parametrize("options", [train.compiler_options(), {}])
def test_an_image_is_stored_before_it_is_transposed(options):
    """The kernel's gradient transposes the image, which would read scattered elements if its pooling were fused."""
    fused = [part for part in compiled(options).split("\n\n") if part.lstrip().startswith("%fused_computation")]
    turned = [part for part in fused if " transpose(" in part or " copy(" in part]
    assert turned
    assert any(" maximum(" in part for part in turned) != bool(options)


def test_there_are_no_options_elsewhere(monkeypatch):
    monkeypatch.setattr(compiling, "_OPTIONS", {"xla_no_such_option": "1"})
    compiling._known.cache_clear()
    assert train.compiler_options() == {}
    compiling._known.cache_clear()
    monkeypatch.undo()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert train.compiler_options() == {}


def test_fit_compiles_with_them(monkeypatch):
    jit, seen = jax.jit, []
    monkeypatch.setattr(jax, "jit", lambda *args, **options: seen.append(options) or jit(*args, **options))
    train.fit(lambda p, aux, x, key: ((p * x).sum(), aux, {}), jnp.ones(2), optim.sgd(0.1), [jnp.ones(2)])
    assert {"donate_argnums": 0, "compiler_options": train.compiler_options()} in seen
