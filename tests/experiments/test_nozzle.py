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


@pytest.mark.slow
def test_the_jet_lands_in_the_bucket(play, few, full):
    config = nozzle.Config() if full else nozzle.Config(across=6, coarse=6, iterations=4, duration=1.1)
    metrics, result = play(nozzle, config)
    assert metrics["particles"] >= (25_000 if full else 2000)
    assert metrics["share_in_the_bucket"] >= (nozzle.BAR if full else 0.4) > 0.1 > metrics["first_share"]
    miss = abs(result["history/miss"])  # the reduced search ends early
    assert miss.min() < (0.1 if full else 0.6) * miss[0]
    assert result["litres"].shape == (len(result["time"]), 2) and (np.diff(result["litres"], axis=0) >= 0).all()


def test_the_gradient_by_the_shape_is_what_differences_say(full):
    """Within rounding of the function, and over a change by half a cell."""
    with jax.enable_x64(True):
        rig = nozzle.beginning(8 if full else 6, 2, 1, np.float64)
        both = jax.jit(jax.value_and_grad(lambda shape: nozzle.cost(rig, shape)[0]))
        shape = nozzle.guess() + jnp.array([[0.1, 0.05, 0.3], [0.0, -0.1, -0.2]])
        slope = np.asarray(both(shape)[1])
        way = slope / np.linalg.norm(slope)
        for size, error in ((1e-6, 1e-4), (0.5 * rig.params.cell / nozzle.BEND, 0.2)):
            change = float(both(shape + size * way)[0] - both(shape - size * way)[0]) / (2 * size)
            assert change == pytest.approx(np.linalg.norm(slope), rel=error)
    assert (np.abs(slope) > 0).all()


@pytest.mark.parametrize("across", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_the_nozzle_holds_what_the_source_gives(across):
    """All of it leaves by the mouth, which is as wide as the section says, and nothing stops the jet behind it."""
    with jax.enable_x64(True):
        rig = nozzle.beginning(across, 2, 1, np.float64)
        now = rig.state, flow.init(rig.state, [rig.source], rig.drains)
        state, tally = jax.jit(
            lambda now: nozzle.pour(rig, nozzle.walls(rig, nozzle.guess()[None]), now, round(0.9 / rig.beat))[0]
        )(now)
    x, v, there = (np.asarray(a[0]) for a in (state.x, state.v, flow.alive(state)))
    cell, within = rig.params.cell, there & (x[:, 0] < nozzle.LONG)
    low, high = nozzle.section(nozzle.guess(), x[within, 0], 0.5 * cell)
    assert (x[within, 1] > low).all() and (x[within, 1] < high).all()
    part = np.linspace(nozzle.LONG - 0.2, nozzle.LONG, 41)
    low, high = nozzle.section(nozzle.guess(), part)
    filled = (there & (x[:, 0] > part[0]) & (x[:, 0] < part[-1])).sum() * (cell / 2) ** 2
    assert filled == pytest.approx(np.trapezoid(high - low, part), rel=0.12)
    assert not tally.lost.any() and not state.status.any() and int(tally.removed.sum()) > 20
    out = there & (x[:, 0] > nozzle.LONG)
    assert v[out, 0].min() > 1.2 * nozzle.INFLOW


def test_a_nozzle_of_broken_cells_is_refused():
    with pytest.raises(ValueError, match="--coarse is 5: it must be even"):
        nozzle.Config(coarse=5)
