"""The comparison of contact gradients finds what docs/contact-gradients.md says."""

import numpy as np

from fphys.experiments import contact_gradients
from fphys.experiments.contact_gradients import Config


def test_only_the_gradient_from_distance_reaches_the_target(play):
    metrics, result = play(contact_gradients, Config(iterations=30), video=False)
    speeds = result["exact_speed"]
    np.testing.assert_array_equal(speeds, speeds[0])
    assert result["exact_cost"][-1] == 0.25
    assert metrics["exact_miss"] == 0.5
    assert result["from_distance_cost"][-1] < 1e-6
    assert 0.01 < result["softened_cost"][-1] < 0.1
