from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from fphys.experiments import stir
from fphys.experiments.stir import Config


@pytest.mark.slow
def test_the_ball_reaches_the_corner(play):
    metrics, result = play(stir, Config())
    assert metrics["success"] and metrics["from_corner"] < stir.BAR < 0.15 < metrics["first_from_corner"]
    assert metrics["least_gap"] > -stir.DEEPEST and metrics["outside"] == 0
    assert (abs(result["torque"]) <= np.array([87.0] * 4 + [12.0] * 3)).all()


@pytest.mark.slow
def test_the_first_push_is_played(play):
    """In reduced size without a search."""
    metrics, _ = play(stir, Config(duration=0.6, iterations=0))
    assert metrics["outside"] == 0 and metrics["least_gap"] > -stir.DEEPEST
    assert metrics["from_corner"] == pytest.approx(metrics["first_from_corner"], rel=1e-12)


def test_the_gradient_agrees_with_differences():
    with jax.enable_x64(True):
        scene, now = stir.beginning(Config())
        points = 0.2 * stir.first_guess()[:, None]  # so slow that no motor is at its limit
        steps, fine = 25, stir.substeps(0.04)
        slope = stir.slopes(scene, now, points, steps, fine)[1]
        found = float(np.linalg.norm(slope))
        ahead, h = slope / found, 1e-7
        sides = [float(stir.slopes(scene, now, points + s * h * ahead, steps, fine)[0]) for s in (1, -1)]
        assert (sides[0] - sides[1]) / (2 * h) == pytest.approx(found, rel=1e-4)


def test_the_search_goes_on_from_the_best_step():
    """Of a distance that has a kink at the goal, where every step that is too long is worse."""
    goal, seen = np.full((stir.FREE, 1, 3), 0.05), []

    def costs_at(points):
        return (jax.numpy.linalg.norm(points - goal, axis=(0, 2)),) * 2

    def slope_at(points):
        return jax.numpy.linalg.norm(points - goal[:, 0]), points - goal[:, 0]

    run: Any = SimpleNamespace(progress=lambda n, _: range(n), log=lambda _, cost, distance: seen.append(cost))
    with jax.enable_x64(True):
        best = np.asarray(stir.search(Config(iterations=25), run, costs_at, slope_at))
    assert np.linalg.norm(best - goal[:, 0]) == pytest.approx(seen[-1], abs=1e-12) and seen[-1] < 1e-3
    assert (np.diff(seen) <= 0).all()


def test_the_gap_is_that_of_a_ball_and_a_box():
    half = np.array([0.04, *stir.BLADE / 2])
    for x, gap in (([0.2, 0, 0], 0.16), ([0, 0, 0.1], 0.04), ([0, 0, 0], -0.04), (half + [0.03, 0.04, 0], 0.05)):
        assert np.isclose(stir.between(jax.numpy.asarray([x]), 0.04)[0], gap - stir.RADIUS, atol=1e-4)


def test_a_tank_is_whole_cells():
    with pytest.raises(ValueError, match="the tank must be whole cells"):
        Config(cell=0.05)
