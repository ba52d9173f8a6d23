"""Random boxes in water and sand, from a twentieth to twenty times as dense: nothing breaks, energy does not grow."""

import numpy as np
import pytest

import fphys

from .boxes import lived, scenes

SCENES = {2: 500, 3: 167}
"""Of each kind in the plane and in space, in full size: two thousand together."""

MORE = 0.01
"""Of the energy at the start: what rounding and the time step may add."""

CELL = 2.0
"""In spacings of particles."""

DEEP = 0.25
"""Of a particle in a box, in spacings, of which there is no doubt."""


@pytest.mark.usefixtures("x32")
@pytest.mark.parametrize(
    ("kind", "dim"),
    [
        ("water", 2),
        ("fluid", 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("sand", 2), ("water", 3), ("sand", 3), ("fluid", 3))
        ),
    ],
)
def test_random_boxes(kind: str, dim: int, full: bool):
    """At the longest substep that each solver allows."""
    total, batch, seconds = (SCENES[dim], 25, 2.0) if full else (4, 4, 0.1)
    for seed in range(0, total, batch):
        found = lived(scenes(kind, dim, min(batch, total - seed), seed), seconds)
        assert found.sound.all()
        crushed = (found.status & int(fphys.Status.THROUGH)) > 0  # in MPM it would say that a particle passed a box
        assert np.isin(found.status - crushed * int(fphys.Status.THROUGH), (0, int(fphys.Status.CFL))).all()
        if kind == "fluid":  # what heavy boxes crush is in them, or just before; what is deep in one is reported
            assert crushed[found.depth > DEEP].all() and (found.depth[crushed] > -DEEP).all()
        else:
            assert not crushed.any()
        assert found.rise.max() < MORE
        assert found.lost.max() < (CELL / 2 if kind == "fluid" else 0.5)
