"""The example that writes text learns more than pairs of characters know."""

import json
import runpy

import numpy as np
import pytest

from .conftest import FOLDER

PERIOD = "aabb"  # a character alone does not say what follows, two do


@pytest.mark.parametrize("model", ["lstm", "gpt"])
def test_held_out_text_is_predicted_better_than_by_pairs(tmp_path, example, full, model):
    if full:
        found = example("generate_text")(model=model, root=tmp_path)
    else:
        (tmp_path / "text").write_text(200 * PERIOD)
        small = {"steps": 40, "length": 16, "features": 16, "batch_size": 16, "characters": 40, "temperature": 0.1}
        found = example("generate_text")(
            model=model, text=tmp_path / "text", root=tmp_path, learning_rate=0.02, **small
        )
    assert found["held_out_loss"] < found["bigram_entropy"]
    (folder,) = (tmp_path / f"generate-text-{model}").iterdir()
    assert (folder / "loss.png").exists()
    assert json.loads((folder / "metrics.json").read_text())["metrics"].items() >= found.items()
    prompt, written = (folder / "written.txt").read_text().rstrip("\n").split("|", 1)
    assert len(written) == 500 if full else (prompt + written)[-40:] in 12 * PERIOD


def test_the_bigram_entropy_is_that_of_a_known_chain():
    """a -> b or c evenly, b and c -> a: ln 2 every other step."""
    entropy = runpy.run_path(str(FOLDER / "generate_text.py"))["bigram_entropy"]
    chain = np.array([[0, 1, 0, 2, 0, 1, 0, 2, 0]])
    np.testing.assert_allclose(entropy(chain), np.log(2) / 2)
    assert entropy(np.array([[0, 1, 2, 0, 1, 2]])) == 0
