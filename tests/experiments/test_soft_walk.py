import pytest

from fphys.experiments import soft_walk
from fphys.experiments.soft_walk import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_walker_gets_farther_than_its_length(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, iterations=12)
    metrics, result = play(soft_walk, config)
    assert metrics["success"] and metrics["body_lengths"] >= 1
    walked = result["x"][-1, 0, :, 0].mean() - (soft_walk.START + soft_walk.LENGTH / 2)
    assert walked / soft_walk.LENGTH == pytest.approx(metrics["body_lengths"], abs=1e-6)
    assert abs(result["signals"]).max() <= 1
