"""Training is timed against torch only if both sides compute the same."""

import json

import jax
import jax.numpy as jnp
import pytest

from fphys import losses, nn
from fphys.bench import main, training, training_models, training_torch

pytestmark = pytest.mark.extra("torch")


LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in training.LARGE]


@pytest.mark.parametrize("name", [name for name in training.MODELS if name not in training.LARGE] + LARGE)
def test_both_sides_have_the_same_losses(tmp_path, name):
    path = tmp_path / "bench.json"
    assert main(f"train.{name}.fphys", json_path=path, quick=True, worlds=(8,)) == 0
    eager, ours = json.loads(path.read_text())["results"]
    assert (eager["case"], ours["case"]) == (f"train.{name}.torch_eager", f"train.{name}.fphys")
    assert ours["relative_to"] == eager["case"] and ours["ratio"] > 0


@pytest.mark.parametrize("name", training.LARGE)
def test_the_large_models_are_the_same_network_in_torch(monkeypatch, name):
    """The loss of the first batch, with small images and few narrow blocks; full sizes train as well."""
    for module in (training_models, training_torch):
        monkeypatch.setattr(module, "PHOTO", 64)
    monkeypatch.setitem(training_models.BLOCKS, name, (16, 2, 2))
    (module, params, aux), (x, y) = training_models.built(name), training_models.batch(name, 4)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        scores, _ = jax.jit(lambda x: nn.apply(module, params, aux, x, train=True))(x)
    assert training_torch.stepper(name, 4)() == pytest.approx(
        float(losses.cross_entropy(scores, jnp.asarray(y))), rel=1e-5
    )


def test_a_loss_that_differs_is_not_timed(monkeypatch):
    monkeypatch.setattr(training, "reference", lambda name, size: [2.0, 1.0, 0.5, 0.3, 0.2])
    found = iter([1.0, 0.5, 0.3, 3.0])
    with pytest.raises(ValueError, match="the loss does not fall"):
        training.same("mlp", 8, lambda: next(found))(2.0)
    found = iter([1.0, 0.5, 0.3, 0.2001])
    with pytest.raises(ValueError, match=r"the losses of the first 5 steps are .*0.2001\], torch's"):
        training.same("mlp", 8, lambda: next(found))(2.0)
    found = iter([1.0, 0.5, 0.3, 0.2])
    training.same("mlp", 8, lambda: next(found))(2.0)


def test_all_cases_have_the_tag_and_the_bar():
    cases = [case for case in training.training_cases() if case.name.endswith(".fphys")]
    names = [case.name.split(".")[1] for case in cases]
    assert names == ["mlp", "cnn", "lstm", "gpt", "resnet18", "vit_tiny", "gpt384"]
    assert all("train" in case.tags and case.target == 1 / 0.95 for case in cases)
    assert [case.worlds for case in cases] == 4 * [(64, 256)] + 3 * [(8, 32)]
