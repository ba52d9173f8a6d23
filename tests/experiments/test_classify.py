"""Digits are learned, the training resumes, and files of MNIST and CIFAR-10 are read."""

import numpy as np
import pytest

from fphys.experiments import classify
from fphys.experiments.classify import Config

from ..data.test_readers import write_cifar, write_mnist
from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]
pytestmark = pytest.mark.extra("sklearn")


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_digits_are_learned(play, full, model):
    epochs = 40 if full else 3
    seeds = range(5 if full else 1)
    found = [play(classify, Config(model=model, seed=s, epochs=epochs), video=False)[0] for s in seeds]
    assert np.median([metrics["test_accuracy"] for metrics in found]) > (0.97 if full else 0.85)
    assert all((metrics["steps"], metrics["skipped"]) == (epochs * 22, 0) for metrics in found)


def test_started_again_it_goes_on(tmp_path, play):
    config = Config(checkpoints=tmp_path / "saved", model="mlp", epochs=1)
    first, history = play(classify, config, video=False)
    again, nothing = play(classify, config, video=False)
    assert first == again
    assert history and not nothing


def test_it_reads_mnist_and_cifar(tmp_path, play):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 16, (50, 8, 8, 1), np.uint8), rng.integers(0, 10, 50)
    for name, write in (("mnist", lambda folder: write_mnist(folder, images, labels, True)), ("cifar", None)):
        (tmp_path / name).mkdir()
        write(tmp_path / name) if write else write_cifar(tmp_path / name, images, labels)
        metrics, _ = play(classify, Config(data=tmp_path / name, model="mlp", epochs=1, batch_size=8), video=False)
        assert 0 <= metrics["test_accuracy"] <= 1
