import jax
import numpy as np
import pytest

from fphys.experiments import soft_throw
from fphys.experiments.soft_throw import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_ball_bounces_into_the_target_within_a_cell(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, targets=1, iterations=20, duration=0.6)
    metrics, result = play(soft_throw, config)
    assert metrics["success"]
    assert metrics["bounced"] == config.targets
    assert max(metrics["miss_in_cells"]) < 1
    assert min(metrics["first_miss_in_cells"]) > 2
    np.testing.assert_allclose(
        np.linalg.norm(result["x"][-1].mean(1) - result["target"], axis=1) * 24, metrics["miss_in_cells"], atol=1e-9
    )


def test_a_thrown_ball_turns_and_flies_as_a_whole():
    """Spin is no strain: without gravity and floor the body moves rigidly."""
    with jax.enable_x64(True):
        params, state, _ = soft_throw.beginning(Config(targets=1))
        throw = np.array([[0.5, 0.2, 0.3]])
        state, path = soft_throw.fly(params.replace(gravity=0.0), state, throw, 50)
        last, path = np.asarray(state.v), np.asarray(path)
    np.testing.assert_allclose(last.mean(1), throw[:, :2], atol=1e-9)
    size = np.linalg.norm(path[:, 0] - path[:, 0].mean(1, keepdims=True), axis=-1).mean(1)
    np.testing.assert_allclose(size, size[0], rtol=5e-3)
    arm = np.asarray(path[:, 0, 0] - path[:, 0].mean(1))
    turned = np.unwrap(np.arctan2(arm[:, 1], arm[:, 0]))
    assert turned[-1] - turned[0] == pytest.approx(3.0 * 49 * soft_throw.STEP, rel=0.03)
