import numpy as np
import pytest

from fphys.experiments import jet
from fphys.experiments.jet import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_four_fifths_of_the_jet_land_in_the_bucket(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, iterations=7)
    metrics, result = play(jet, config)
    assert metrics["success"]
    assert metrics["share_in_the_bucket"] >= 0.8 > 0.5 > metrics["first_share"]
    x = result["x"][-1, 0]
    caught = (abs(x[:, 0] - 1.3) < 0.36) & (x[:, 1] > 0) & (x[:, 1] < 0.48)
    assert caught.mean() == metrics["share_in_the_bucket"]
    assert np.isfinite(result["velocity"]).all()
