"""The example that classifies digits learns, resumes, and reads the formats of files."""

import json

import numpy as np
import pytest

from ..data.test_readers import write_cifar, write_mnist

pytestmark = pytest.mark.extra("sklearn")


@pytest.fixture
def main(example):
    return example("classify")


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_digits_are_learned(tmp_path, main, full, model):
    epochs = 40 if full else 3
    found = [main(model=model, root=tmp_path, seed=s, epochs=epochs) for s in range(5 if full else 1)]
    assert np.median([run["test_accuracy"] for run in found]) > (0.97 if full else 0.85)
    folders = list((tmp_path / f"classify-{model}").iterdir())  # of the seeds, in any order
    assert all((folder / "accuracy.png").exists() for folder in folders)
    written = [json.loads((folder / "metrics.json").read_text())["metrics"] for folder in folders]
    ended = [run | {"steps": epochs * 22, "skipped": 0} for run in found]
    assert len(written) == len(ended) and all(run in written for run in ended)


def test_started_again_it_goes_on(tmp_path, main):
    saved = {"root": tmp_path, "checkpoints": tmp_path / "saved", "model": "mlp", "epochs": 1}
    assert main(**saved) == main(**saved)


def test_it_reads_mnist_and_cifar(tmp_path, main):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 16, (50, 8, 8, 1), np.uint8), rng.integers(0, 10, 50)
    for name, write in (("mnist", lambda folder: write_mnist(folder, images, labels, True)), ("cifar", None)):
        (tmp_path / name).mkdir()
        write(tmp_path / name) if write else write_cifar(tmp_path / name, images, labels)
        found = main(data=tmp_path / name, root=tmp_path, model="mlp", epochs=1, batch_size=8)
        assert 0 <= found["test_accuracy"] <= 1
