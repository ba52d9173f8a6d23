"""The example of an autoencoder: its digits remain what they are."""

import json

import pytest

pytestmark = pytest.mark.extra("sklearn")


def test_reconstructions_have_the_label_of_their_source(tmp_path, example, full):
    options = {} if full else {"epochs": 15, "judge_epochs": 4}
    found = example("autoencode")(root=tmp_path, **options)
    assert found["same_label"] >= (0.9 if full else 0.6), found
    assert found["judge_accuracy"] > (0.95 if full else 0.8)
    (folder,) = (tmp_path / "autoencode").iterdir()
    assert {"digits.png", "loss.png"} <= {path.name for path in folder.iterdir()}
    assert json.loads((folder / "metrics.json").read_text())["metrics"] == found
