import jax
import numpy as np
import pytest

import fphys
from fphys.errors import FphysError
from fphys.experiments import identify_contact
from fphys.experiments.identify_contact import Config

TRUTH = {"friction/puck-floor": 0.24, "damping/puck-floor": 45.0}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_it_finds_friction_and_restitution_and_predicts_another_throw(play, full, seed):
    metrics, result = play(identify_contact, Config(seed=seed) if full else Config(seed=seed, windows=(0.2,)))
    assert list(result["names"]) == list(TRUTH)
    np.testing.assert_allclose(np.abs(result["parameters"][0] / list(TRUTH.values()) - 1), 0.3)
    np.testing.assert_allclose(result["parameters"][-1], list(TRUTH.values()), rtol=0.02)
    assert metrics["success"]
    assert metrics["predicted_rms_relative_before"] > 0.3
    # the noise of the first row, which the prediction starts from, moves the times of the bounces: by the truth 0.05
    assert metrics["predicted_rms_relative"] < 0.1
    assert 0.01 < metrics["predicted_rms_relative_by_truth"] < 0.1
    for name, true in TRUTH.items():
        assert abs(np.log(metrics["found"][name] / true)) < 4 * metrics["standard_deviation"][name]


def test_parameters_go_into_every_pair():
    text = """
    <mujoco><worldbody><geom name="floor" type="plane" size="0 0 1"/>
      <body><joint type="slide" axis="0 0 1"/><geom name="a" size="0.1"/><geom name="b" size="0.1"/></body></worldbody>
      <contact><pair geom1="floor" geom2="a" solref="-2000 -5"/>
        <pair name="second" geom1="floor" geom2="b" friction="0.5" solref="0.02 0.7"/></contact></mujoco>"""
    with jax.enable_x64(True):
        model = fphys.load(text)
        assert identify_contact.parameter_names(model) == [
            *("friction/0", "friction/second", "damping/0", "damping/second"),
        ]
        np.testing.assert_allclose(identify_contact.guess(model), [1.0, 0.5, 5.0, 0.7])
        values = jax.numpy.asarray([[0.1, 0.2, 3.0, 0.4], [0.5, 0.6, 7.0, 0.8]])
        changed = identify_contact.with_parameters(model, values)
        np.testing.assert_allclose(changed.pair.friction[1, :, :2], [[0.5, 0.5], [0.6, 0.6]])
        np.testing.assert_allclose(changed.pair.solref[0], [[-2000.0, -3.0], [0.02, 0.4]])


def test_a_model_that_names_no_contact_is_refused():
    with pytest.raises(FphysError, match=r"names no contact.*<pair"):
        identify_contact.scene("double-pendulum")
