import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.experiments import film, nozzle
from fphys.particles import flow
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


def test_the_gradient_by_the_shape_is_what_differences_say(full):
    """Within rounding of the function, and over a change by half a cell."""
    with jax.enable_x64(True):
        rig = nozzle.beginning(8 if full else 5, 2, 1, np.float64)
        value = jax.jit(lambda shape: nozzle.cost(rig, shape)[0])
        shape = nozzle.guess() + jnp.array([[0.1, 0.05, 0.3], [0.0, -0.1, -0.2]])
        slope = np.asarray(jax.jit(jax.grad(lambda shape: nozzle.cost(rig, shape)[0]))(shape))
        way = slope / np.linalg.norm(slope)
        for size, error in ((1e-6, 1e-4), (0.5 * rig.params.cell / nozzle.BEND, 0.2)):
            change = float(value(shape + size * way) - value(shape - size * way)) / (2 * size)
            assert change == pytest.approx(np.linalg.norm(slope), rel=error)
    assert (np.abs(slope) > 0).all()


def test_the_nozzle_holds_what_the_source_gives():
    """All of it leaves by the mouth, between floor and roof, and faster as the mouth is narrower."""
    with jax.enable_x64(True):
        rig = nozzle.beginning(5, 2, 1, np.float64)
        now = rig.state, flow.init(rig.state, [rig.source], rig.drains)
        state, tally = jax.jit(
            lambda now: nozzle.pour(rig, nozzle.walls(rig, nozzle.guess()[None]), now, round(0.6 / rig.beat))[0]
        )(now)
    x, v, there = (np.asarray(a[0]) for a in (state.x, state.v, flow.alive(state)))
    within = there & (x[:, 0] < nozzle.LONG)
    low, high = nozzle.section(nozzle.guess(), x[within, 0], 1.5 * rig.params.cell)
    assert (x[within, 1] > low).all() and (x[within, 1] < high).all()
    assert not tally.lost.any() and not state.status.any() and int(tally.removed.sum()) > 20
    out = there & (x[:, 0] > nozzle.LONG)
    assert v[out, 0].mean() > 1.2 * nozzle.INFLOW
