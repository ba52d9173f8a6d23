"""Scenes of particles in space: a dam that breaks, an hourglass, jelly."""

import numpy as np
import pytest

from fphys.experiments import dam_break, film, hourglass, jelly
from fphys.render import frames


@pytest.fixture
def few(monkeypatch, full):
    """Fewer and smaller pictures."""

    def small(model, states, camera, height, width, **given):
        return frames(model, states, camera, height // 4, width // 4, **given)

    def less(module):
        if not full:
            monkeypatch.setattr(module, "SHOWN", 10)
            monkeypatch.setattr(film, "frames", small)

    return less


def test_a_dam_breaks_and_the_front_reaches_the_block(play, few, full):
    few(dam_break)
    metrics, result = play(dam_break, dam_break.Config() if full else dam_break.Config(across=12, duration=0.5))
    assert metrics["success"] and metrics["lost"] == 0
    assert metrics["particles"] >= (50_000 if full else 2000)
    assert result["x"].shape[0] == len(result["time"]) == len(result["energy"]) and result["x"].shape[2] <= 20_000
    assert (np.diff(result["front"][: round(0.4 * len(result["front"]))]) >= 0).all()


def test_what_is_lost_in_the_tank_is_noticed():
    x = np.array([[1.0, 0.5, 0.1], [1.0, 0.5, -0.1], [3.6, 0.5, 0.1], dam_break.BLOCK[0], [2.4, 0.5, 0.1]])
    assert dam_break.inside(x, 0.04).tolist() == [True, False, False, False, True]


def test_sand_runs_through_the_neck(play, few, full):
    few(hourglass)
    metrics, result = play(hourglass, hourglass.Config() if full else hourglass.Config(across=4.0, duration=0.4))
    assert metrics["lost"] == 0 and (metrics["success"] or not full)
    assert metrics["particles"] >= (50_000 if full else 2000)
    assert result["below"][0] == 0 and metrics["below"] > (0.9 if full else 0.1)


def test_the_glass_is_where_it_should_be():
    params, state, glass = hourglass.beginning(hourglass.Config(across=4.0))
    x = np.asarray(state.x[0])
    assert hourglass.inside(x, params.cell).all() and not hourglass.inside(x + [0.1, 0.1, 0.0], params.cell).all()
    samples = np.asarray(glass.samples).reshape(glass.count)
    z = np.asarray(params.lower)[2] + float(glass.size[2]) * np.arange(glass.count[2])
    middle = glass.count[0] // 2
    np.testing.assert_allclose(samples[middle, middle, len(z) // 2], hourglass.NECK, rtol=1e-5)  # on the axis
    assert (samples[0, 0] < 0).all() and (samples[middle, middle] > 0).all()


def test_a_rate_that_falls_is_noticed():
    when = np.linspace(0, 4, 100)
    steady, falling = np.clip(0.25 * when, 0, 1), 1 - np.exp(-when)
    rates = [[hourglass.rate(when, below, *part) for part in ((0.1, 0.4), (0.4, 0.7))] for below in (steady, falling)]
    np.testing.assert_allclose(rates[0], 0.25)
    assert rates[1][1] / rates[1][0] < 1 - hourglass.STEADY
    assert np.isnan(hourglass.rate(when, 0.0 * when, 0.4, 0.7))


def test_jelly_piles_up_and_stays_whole(play, few, full):
    few(jelly)
    metrics, result = play(jelly, jelly.Config() if full else jelly.Config(bodies=3, across=16, duration=0.4))
    assert metrics["least_volume_ratio"] > 0 and (metrics["success"] or not full)
    assert metrics["particles"] >= (50_000 if full else 1000)
    x = result["x"][:, 0]
    assert x[..., 2].min() > 0 and x[-1, :, 2].mean() < x[0, :, 2].mean() - 0.05
    assert result["color"].shape == (x.shape[1], 3) and len(np.unique(result["color"], axis=0)) > 2
