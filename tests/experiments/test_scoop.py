import dataclasses

import pytest

from fphys.experiments import scoop


def test_a_deeper_scoop_lifts_more(play, full):
    """In reduced size only the two ends of the first round, on a coarse grid."""
    config = scoop.Config() if full else scoop.Config(worlds=2, rounds=1, cell=0.03)
    metrics, result = play(scoop, config)
    if full:
        assert metrics["success"] and abs(metrics["error"]) < scoop.BAR
    shallow, deep = result["grams"][0], result["grams"][config.worlds - 1]
    assert 100 < shallow < 200  # g of 17 kg
    low, high = (450, 600) if full else (350, 450)  # 515 g; the coarse grid lifts a fifth less
    assert low < deep < high
    assert result["force"][:, 0].max() > 5.0  # the motor feels the sand


def test_one_world_is_no_search():
    with pytest.raises(ValueError, match="--worlds is 1: it must be 2 or more"):
        scoop.main(dataclasses.replace(scoop.Config(), worlds=1), None)
