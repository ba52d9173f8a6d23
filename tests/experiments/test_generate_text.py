"""The language model learns more than pairs of characters know."""

import numpy as np
import pytest

from fphys.experiments import generate_text
from fphys.experiments.generate_text import Config

from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]

PERIOD = "aabb"  # a character alone does not say what follows, two do


@pytest.mark.parametrize("model", ["lstm", "gpt"])
def test_held_out_text_is_predicted_better_than_by_pairs(tmp_path, play, full, model):
    if full:
        config = Config(model=model)
    else:
        (tmp_path / "text").write_text(200 * PERIOD)
        small = {"steps": 40, "length": 16, "features": 16, "batch_size": 16, "characters": 40, "temperature": 0.1}
        config = Config(model=model, text=tmp_path / "text", learning_rate=0.02, **small)
    metrics, _ = play(generate_text, config, video=False)
    assert metrics["success"] and metrics["held_out_loss"] < metrics["bigram_entropy"]
    (folder,) = (tmp_path / "generate-text").iterdir()
    prompt, written = (folder / "written.txt").read_text().rstrip("\n").split("|", 1)
    assert len(written) == 500 if full else (prompt + written)[-40:] in 12 * PERIOD


def test_the_bigram_entropy_is_that_of_a_known_chain():
    """a -> b or c evenly, b and c -> a: ln 2 every other step."""
    chain = np.array([[0, 1, 0, 2, 0, 1, 0, 2, 0]])
    np.testing.assert_allclose(generate_text.bigram_entropy(chain), np.log(2) / 2)
    assert generate_text.bigram_entropy(np.array([[0, 1, 2, 0, 1, 2]])) == 0
