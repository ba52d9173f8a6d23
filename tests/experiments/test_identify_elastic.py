import dataclasses

import numpy as np
import pytest

from fphys.experiments import identify_elastic
from fphys.experiments.identify_elastic import Config

SMALL = Config(cells=(4, 3), steps=8, noise=1e-5, iterations=30)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_field_is_found_to_two_percent(play, full, seed):
    config = dataclasses.replace(Config() if full else SMALL, seed=seed)
    metrics, result = play(identify_elastic, config)
    assert metrics["success"] and metrics["error"] < 0.02 < 0.2 < metrics["error_of_guess"]
    assert np.abs(result["young"] / result["truth"] - 1).max() == pytest.approx(metrics["worst_element"])
    assert np.ptp(result["truth"]) > 0.5 * identify_elastic.YOUNG
    assert result["history/misfit"][-1] < 1.1  # what is left is the noise


def test_a_mesh_has_cells(play):
    with pytest.raises(ValueError, match=r"--cells is \(0, 3\)"):
        play(identify_elastic, Config(cells=(0, 3)))
