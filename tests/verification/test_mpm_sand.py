"""Collapse of a round column of sand: how far it runs out, against Lube et al. and Lajeunesse et al., both 2004."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import mpm


def runout(aspect: float, cells: int) -> float:
    """(R_end - R_0) / R_0 of a quarter of a round column of height ``aspect`` R_0, on a base that holds it.

    The angle of internal friction is 31 degrees, fixed beforehand; the front is where the deposit, particles counted
    into rings of a cell, gets thinner than half a cell, a layer of particles.
    """
    radius, gravity = 0.1, 9.81
    cell = radius / cells
    wide = int(np.ceil(cells * (3.4 + (1.24 * aspect if aspect < 1.7 else 1.6 * np.sqrt(aspect)))))  # room for spray
    high = int(np.ceil(cells * aspect)) + 2
    young, density, friction = 1.25e4 * cells, 1600.0, np.radians(31.0)  # towards rigid grains with the cells
    step = 0.4 * cell / np.sqrt(young * 1.35 / density)
    walls = mpm.Walls(("slip", "separate", "slip", "separate", "sticky", "open"))  # the far ones stop spray alone
    params = mpm.Params(
        mpm.MohrCoulomb(density, young, 0.3, friction),
        step,
        (0.0, 0.0, -gravity),
        walls,
        cell=cell,
        shape=(wide, wide, high),
    )
    line = np.arange(0.25, cells * max(1.0, aspect), 0.5) * cell
    x = np.stack(np.meshgrid(line, line, line, indexing="ij"), -1).reshape(-1, 3)
    x = x[(np.linalg.norm(x[:, :2], axis=1) < radius) & (x[:, 2] < aspect * radius)]
    state = mpm.init(params, x.astype(np.float32)[None])
    duration = 4.0 * np.sqrt(aspect * radius / gravity) + 2.0 * np.sqrt(radius / gravity)
    steps = int(duration / step)
    final = jax.jit(lambda s: jax.lax.fori_loop(0, steps, lambda _, s: mpm.step(params, s), s))(state)
    assert jnp.isfinite(final.x).all() and int(final.status[0]) == 0
    assert np.linalg.norm(final.v[0], axis=1).mean() < 5e-3  # no sheet slides on
    distance = np.linalg.norm(np.asarray(final.x[0, :, :2]), axis=1)
    rings = np.arange(0.0, wide) * cell
    volume = np.histogram(distance, rings)[0] * (cell / 2) ** 3
    height = volume / (np.pi / 4 * np.diff(rings**2))
    return float(rings[1:][height > 0.5 * cell].max() / radius - 1)


@pytest.mark.parametrize(
    ("aspect", "theory"), [pytest.param(0.9, 1.24 * 0.9, marks=pytest.mark.slow), (3.0, 1.6 * 3.0**0.5)]
)
def test_columns_run_out(aspect: float, theory: float, full: bool):
    """1.24 a below 1.7, 1.6 sqrt(a) above: within 15 % at 30 cells per radius; at 10 within 25 %.

    Lajeunesse has 2 sqrt(a) for tall columns: ours, at 30 cells, is between the two.
    """
    cells, tolerance = (30, 0.15) if full else (10, 0.25)
    found = runout(aspect, cells)
    assert found == pytest.approx(theory, rel=tolerance)
    if full and aspect > 1.7:
        assert theory < found < 2 * aspect**0.5
        assert found == pytest.approx(2 * aspect**0.5, rel=0.15)


def test_a_flat_column_runs_out_as_lajeunesse_measured(full: bool):
    """a for a = 0.6. The front is found to a cell, of a tenth or a twentieth of the radius, and comes from below."""
    cells, tolerance = (20, 0.1) if full else (10, 0.2)
    assert runout(0.6, cells) == pytest.approx(0.6, rel=tolerance)
