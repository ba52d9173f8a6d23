import numpy as np
import pytest

from fphys.experiments import film, nozzle
from fphys.render import frames


@pytest.fixture
def few(monkeypatch, full):
    """Fewer and smaller pictures, and a coarser motion."""

    def small(model, states, camera, height, width, **given):
        return frames(model, states, camera, height // 4, width // 4, **given)

    if not full:
        monkeypatch.setattr(nozzle, "SHOWN", 10)
        monkeypatch.setattr(film, "frames", small)


def test_the_jet_lands_in_the_bucket(play, few, full):
    config = nozzle.Config() if full else nozzle.Config(across=6, coarse=5, iterations=7, rate=0.25, duration=1.3)
    metrics, result = play(nozzle, config)
    assert metrics["particles"] >= (50_000 if full else 2000)
    assert metrics["share_in_the_bucket"] >= (nozzle.BAR if full else 0.4) > 0.1 > metrics["first_share"]
    miss = abs(result["history/miss"])  # the reduced search ends early
    assert miss.min() < (0.1 if full else 0.6) * miss[0]
    assert result["litres"].shape == (len(result["time"]), 2) and (np.diff(result["litres"], axis=0) >= 0).all()
