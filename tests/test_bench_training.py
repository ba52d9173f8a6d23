"""Training is timed against torch only if both sides compute the same."""

import json

import pytest

from fphys.bench import main, training

pytestmark = pytest.mark.extra("torch")


@pytest.mark.parametrize("name", training.MODELS)
def test_both_sides_have_the_same_losses(tmp_path, name):
    path = tmp_path / "bench.json"
    assert main(f"train.{name}.fphys", json_path=path, quick=True, worlds=(8,)) == 0
    eager, ours = json.loads(path.read_text())["results"]
    assert (eager["case"], ours["case"]) == (f"train.{name}.torch_eager", f"train.{name}.fphys")
    assert ours["relative_to"] == eager["case"] and ours["ratio"] > 0


def test_a_loss_that_differs_is_not_timed(monkeypatch):
    monkeypatch.setattr(training, "reference", lambda name, size: [2.0, 1.0, 0.5, 0.3, 0.2])
    losses = iter([1.0, 0.5, 0.3, 3.0])
    with pytest.raises(ValueError, match="the loss does not fall"):
        training.same("mlp", 8, lambda: next(losses))(2.0)
    losses = iter([1.0, 0.5, 0.3, 0.2001])
    with pytest.raises(ValueError, match=r"the losses of the first 5 steps are .*0.2001\], torch's"):
        training.same("mlp", 8, lambda: next(losses))(2.0)
    losses = iter([1.0, 0.5, 0.3, 0.2])
    training.same("mlp", 8, lambda: next(losses))(2.0)


def test_all_cases_have_the_tag_and_the_bar():
    cases = [case for case in training.training_cases() if case.name.endswith(".fphys")]
    assert [case.name.split(".")[1] for case in cases] == ["mlp", "cnn", "lstm", "gpt"]
    assert all("train" in case.tags and case.target == 1 / 0.95 and case.worlds == (64, 256) for case in cases)
