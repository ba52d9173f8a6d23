import dataclasses

import numpy as np
import pytest

from fphys.experiments import pour_cup


def test_the_wanted_volume_is_poured(play, full):
    """In reduced size only the two ends of the first round."""
    config = pour_cup.Config() if full else pour_cup.Config(worlds=2, rounds=1, litres=0.05)
    metrics, result = play(pour_cup, config)
    if full:
        assert metrics["success"] and abs(metrics["error"]) < pour_cup.BAR
    assert metrics["beside_the_cups"] < 0.03
    assert result["litres"][0] < 0.1 and result["litres"][config.worlds - 1] > 0.45  # the farther, the more
    assert result["torque"].max() > 0.5  # the motor feels the water


def test_interpolation_finds_the_angle():
    assert pour_cup.between(np.array([2.0, 1.0, 3.0]), np.array([0.4, 0.0, 0.8]), 0.2) == pytest.approx(1.5)


def test_one_world_is_no_search():
    with pytest.raises(ValueError, match="--worlds is 1: it must be 2 or more"):
        pour_cup.main(dataclasses.replace(pour_cup.Config(), worlds=1), None)
