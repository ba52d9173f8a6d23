"""The deformables' benchmark cases time only what is right, and say how exact it is."""

import jax
import numpy as np
import pytest

from fphys.bench import deformables


def test_a_cloth_is_compared_with_the_exact_motion_of_its_springs():
    """The share of the motion that is right falls as the error does: half with half as long substeps."""
    params, state = deformables.cloth(1, 16)
    exact, off = deformables.swung(params, state), []
    for substeps in (10, 20):
        end = jax.jit(deformables.cloth_steps)(params.replace(substeps=substeps), state)
        off.append(1 - deformables.accuracy(state.x[0], exact, end.x[0]))
    assert off[0] < 1 - deformables.LEAST and 0.4 < off[1] / off[0] < 0.6
    finer = deformables.swung(params, state, 80)
    assert np.abs(finer - exact).max() < 0.02 * off[0] * np.abs(exact - state.x[0]).max()


def test_a_wrong_motion_is_refused():
    work = deformables._cloth_forward(1, 16)
    still = work.args[1]
    with pytest.raises(ValueError, match="vertices are off by 100% of their motion"):
        work.validate(still)
    with pytest.raises(ValueError, match="off by nan% of their motion"):
        deformables.accuracy(still.x, still.x + 1, still.x + np.nan)


def test_every_size_has_a_step_and_its_gradient():
    names = [case.name for case in deformables.deformable_cases()]
    for size in (*(f"cloth.{n}" for n in deformables.CLOTHS), *(f"solid.{n}" for n in deformables.SOLIDS)):
        assert {f"deformables.{size}.step", f"deformables.{size}.step_grad"} <= set(names)
