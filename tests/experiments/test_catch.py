import jax
import numpy as np
import pytest

from fphys.experiments import catch
from fphys.experiments.catch import Config

CAUGHT = np.linspace(0.3, 1.0, 3)[:, None] * [0.65, 0.1, 0.1, 0.0, 0.0]
"""Points of a path on which the ball meets the cloth."""


@pytest.mark.slow
def test_the_cloth_catches_the_ball(play):
    """In full size: most of the time is compiling."""
    metrics, result = play(catch, Config())
    assert metrics["first_from_middle"] > 0.5  # it falls past the cloth that is not moved
    assert metrics["success"] and metrics["beside_middle"] < catch.BAR and metrics["ball_speed"] < catch.SLOW
    held, moved = result["holders"], np.ptp(result["holders"], axis=0)
    assert np.ptp(held[-100:], axis=0).max() < 1e-9 and 0.05 < moved.max() < 1.5  # they stand still again
    assert metrics["largest_acceleration"] < 10  # m/s^2


def test_the_gradient_agrees_with_differences():
    with jax.enable_x64(True):
        scene, now = catch.beginning(Config())
        points = jax.numpy.asarray(CAUGHT)
        (_, off), slope = catch.slopes(scene, now, points)
        assert off < 0.3  # the ball is on the cloth
        ahead, found = slope / np.linalg.norm(slope), float(np.linalg.norm(slope))
        errors = []
        for h in (1e-8, 1e-7, 1e-6):
            sides = [float(catch.slopes(scene, now, points + s * h * ahead)[0][0]) for s in (1, -1)]
            errors.append(abs((sides[0] - sides[1]) / (2 * h) / found - 1))
            if errors[-1] < 1e-4:
                break
        assert errors[-1] < 1e-4, errors


def test_a_cloth_has_a_vertex_in_its_middle():
    with pytest.raises(ValueError, match="--cells is 10: it must be a multiple of four"):
        Config(cells=10)
    with jax.enable_x64(True):
        scene, now = catch.beginning(Config(cells=4))
        x = np.asarray(now[1].x[0])
        assert abs(x[len(x) // 2, :2]).max() < 0.01 and x[len(x) // 2, 2] < catch.HIGH - 0.05  # it hangs
        held = np.asarray(catch.holders(scene, catch.first_guess(), 3))
        np.testing.assert_allclose(held[-1], x[list(scene.cloth.params.pinned)], atol=1e-12)
