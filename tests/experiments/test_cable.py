import dataclasses

import numpy as np
from scipy.optimize import brentq

from fphys.experiments import cable
from fphys.experiments.cable import Config

SMALL = Config(cells=20, rings=2)


def catenary(end: np.ndarray, length: float, x: np.ndarray) -> np.ndarray:
    """Heights at distances x from the fixed end of a cable of this length that does not stretch."""
    across, up = float(np.hypot(*end[:2])), end[2]
    a = brentq(lambda a: 2 * a * np.sinh(across / 2 / a) - np.sqrt(length**2 - up**2), 0.05, 50)
    low = across / 2 - a * np.arctanh(up / length)
    return a * (np.cosh((x - low) / a) - np.cosh(low / a))


def test_the_cables_hang_through_their_rings_as_catenaries(play, full):
    config = Config() if full else SMALL
    metrics, result = play(cable, config)
    assert metrics["success"] and metrics["final_speed"] < 1e-3
    assert result["history/worst"][0] > 0.2 and result["history/worst"][-1] < 1e-6  # it converges quadratically
    for (y, z, length), x, ring in zip(result["unknown"], result["x"][-1], result["rings"], strict=True):
        end = np.array([cable.WALL, y, z]) - cable.ANCHOR
        heights = catenary(end, length, np.hypot(*(x - cable.ANCHOR)[:, :2].T))
        np.testing.assert_allclose(x[:, 2] - cable.ANCHOR[2], heights, atol=3e-3)
        assert abs(catenary(end, length, np.hypot(*ring[:2])) + cable.ANCHOR[2] - ring[2]) < 3e-3


def test_without_a_search_they_miss(play):
    metrics, _ = play(cable, dataclasses.replace(SMALL, iterations=0), video=False)
    assert not metrics["success"] and metrics["beside_ring"] > 0.05
