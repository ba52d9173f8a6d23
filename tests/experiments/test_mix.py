import numpy as np
import pytest

from fphys.experiments import mix


def test_all_five_solvers_push_each_other(play):
    metrics, result = play(mix, mix.Config(duration=0.2, steps=0))
    assert metrics["water_lost"] == metrics["sand_lost"] == 0
    assert abs(metrics["wood_below_level"]) < mix.WOOD and abs(metrics["rubber_below_level"]) < mix.WOOD
    assert np.ptp(result["qpos"][:, 0, 0]) > 1e-3  # the paddle moves
    assert result["x"][-1, 0, -result["parts"][3] :, 2].min() < mix.HIGH - 0.02  # the cloth bears the sand


@pytest.mark.slow
def test_one_gradient_goes_through_all_five(play):
    metrics, _ = play(mix, mix.Config())
    assert metrics["success"] and metrics["gradient_error"] < mix.BAR
