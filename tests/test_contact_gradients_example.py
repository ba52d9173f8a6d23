"""The example that compares contact gradients gives the results in docs/contact-gradients.md."""

import runpy
from pathlib import Path

import numpy as np

EXAMPLE = Path(__file__).parents[1] / "examples" / "contact_gradients.py"


def test_only_the_gradient_from_distance_reaches_the_target():
    found = runpy.run_path(str(EXAMPLE))["main"](iterations=30)
    speeds, costs = found["exact"]
    np.testing.assert_array_equal(speeds, speeds[0])
    assert costs[-1] == 0.25
    assert found["from distance"][1][-1] < 1e-6
    assert 0.01 < found["softened"][1][-1] < 0.1
