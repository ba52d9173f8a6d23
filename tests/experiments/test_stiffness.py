import pytest

from fphys.experiments import stiffness
from fphys.experiments.stiffness import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_stiffness_is_found_to_two_percent(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, steps=160, records=4, iterations=30, rate=0.15)
    metrics, result = play(stiffness, config)
    assert metrics["success"]
    assert metrics["young_error"] < 0.02
    assert abs(result["path"][0][0] / config.young - 1) > 0.5


def test_without_a_search_it_is_not_found(play):
    metrics, _ = play(stiffness, Config(steps=40, records=2, iterations=0))
    assert not metrics["success"]
