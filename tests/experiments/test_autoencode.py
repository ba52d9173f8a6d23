"""Digits remain what they are when the autoencoder draws them again."""

import pytest

from fphys.experiments import autoencode
from fphys.experiments.autoencode import Config

from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]
pytestmark = pytest.mark.extra("sklearn")


@pytest.mark.slow
def test_reconstructions_have_the_label_of_their_source(tmp_path, play, full):
    metrics, _ = play(autoencode, Config() if full else Config(epochs=15, judge_epochs=4), video=False)
    assert metrics["same_label"] >= (0.9 if full else 0.6), metrics
    assert metrics["judge_accuracy"] > (0.95 if full else 0.8)
    (folder,) = (tmp_path / "autoencode").iterdir()
    assert {"autoencode.png", "loss.png"} <= {path.name for path in folder.iterdir()}
