import dataclasses

import numpy as np

from fphys.experiments import fold
from fphys.experiments.fold import Config

SMALL = Config(cells=7, iterations=12, duration=1.2)


def test_the_cloth_is_folded_and_its_layers_stay_apart(play, full):
    metrics, result = play(fold, Config() if full else SMALL)
    assert metrics["success"] and metrics["layers_apart"] > 0
    x, upper, mirror = result["x"][-1, 0], result["upper"], result["mirror"]
    beside = np.linalg.norm((x[upper] - result["x"][0, 0][mirror])[:, :2], axis=1)
    assert np.sqrt((beside**2).mean()) < fold.BAR
    assert (x[upper, 1] < 0).all() and 3 * result["history/distance"].min() < result["history/distance"][0]


def test_the_guess_does_not_fold_it(play):
    metrics, _ = play(fold, dataclasses.replace(SMALL, iterations=0), video=False)
    assert not metrics["success"] and metrics["beside_mirror"] > 0.05


def test_every_vertex_of_the_upper_half_has_a_mirror_image():
    for cells in (7, 14):
        _, start = fold.beginning(Config(cells=cells))
        upper, mirror = fold.halves(start)
        np.testing.assert_allclose(start[mirror], start[upper] * [1, -1, 1], atol=1e-12)
        assert len(upper) == len(set(mirror)) and 2 * len(upper) < len(start)
