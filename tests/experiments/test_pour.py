import dataclasses

import numpy as np
import pytest

from fphys import experiments
from fphys.experiments import pour, stiffness
from fphys.experiments.pour import Config

PARTICLES = ["pour", "dam-break", "hourglass", "jelly", "jet", "nozzle", "stiffness", "soft-walk", "soft-throw"]
DEFORMABLE = ["drape", "cable", "identify-elastic", "fold", "soft-arm", "mix", "pour-cup", "scoop", "swim"]
SMALL = Config(particles=432, across=8, duration=1.6)


def test_the_water_settles_level_and_none_is_lost(play, full):
    config = Config() if full else SMALL
    metrics, result = play(pour, config)
    assert metrics["success"] and metrics["lost"] == 0
    assert abs(metrics["twice_centre_error"]) < 0.03 and abs(metrics["height_error"]) < 0.03
    x = result["x"][-1, 0]
    assert len(x) == metrics["particles"] == config.particles
    assert ((x > 0) & (x < [1, 1, 1.1])).all()


def test_without_renewal_the_water_stands_too_high():
    """And what is measured notices it, and a lost particle."""
    params, state = pour.beginning(SMALL)
    state = pour.advance(params, state, 432, 0.0, round(1.6 / params.timestep) // 10)
    water = np.asarray(state.x[0, :432])
    wanted = 432 / 8**3
    assert 2 * water[:, 2].mean() > 1.05 * wanted
    assert pour.surface(water, params.spacing) > 1.05 * wanted
    assert pour.inside(water).all()
    assert not pour.inside(water - np.array([0.0, 0.0, 1.0])).all()


@pytest.mark.parametrize("name", [*PARTICLES, *DEFORMABLE])
def test_numbers_that_cannot_be_are_refused(name):
    module = experiments.load(name)
    for field in dataclasses.fields(module.Config):
        if isinstance(field.default, int | float):
            with pytest.raises(ValueError, match=f"--{field.name.replace('_', '-')} is -1"):
                module.main(module.Config(**{field.name: -1}), None)


def test_there_is_a_step_for_each_record():
    with pytest.raises(ValueError, match="--steps is 3, --records 6"):
        stiffness.main(stiffness.Config(steps=3), None)
