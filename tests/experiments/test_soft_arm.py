import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.experiments import soft_arm
from fphys.experiments.soft_arm import Config

SMALL = Config(targets=2, cells=(5, 2), duration=1.6, iterations=6)


def test_the_arm_reaches_its_targets(play, full):
    config = Config() if full else SMALL
    metrics, result = play(soft_arm, config)
    assert metrics["success"] and metrics["reached"] == config.targets
    ends = result["x"][:, :, np.isclose(result["x"][0, 0, :, 2], result["x"][0, 0, :, 2].min(), atol=0.02)].mean(2)
    away = np.linalg.norm(ends - result["targets"], axis=-1)
    assert away[0].min() > 0.08 and away[-1].max() < soft_arm.BAR + 0.01
    assert result["history/worst"][-1] < 1e-4


def test_without_a_search_it_hangs_down(play):
    metrics, _ = play(soft_arm, dataclasses.replace(SMALL, iterations=0, duration=0.2), video=False)
    assert not metrics["success"] and metrics["reached"] == 0


def test_pressure_works_by_the_length_of_its_chamber():
    """Its forces are the derivative of p A L, in any shape, and no chamber pushes the arm as a whole."""
    with jax.enable_x64(True):
        params = soft_arm.arm(SMALL)
        x = params.mesh.vertices + 0.02 * np.random.default_rng(0).normal(size=(1, *params.mesh.vertices.shape))
        pressure = jnp.array([[1e4, -2e4, 3e3, 0.0]])
        line = soft_arm.chambers(params)
        assert line.shape == (4, 6)

        def work(x):
            return (soft_arm.AREA * pressure * jnp.linalg.norm(jnp.diff(x[:, line], axis=2), axis=-1).sum(2)).sum()

        force = soft_arm.push(params, jnp.asarray(x), pressure)
        np.testing.assert_allclose(force, jax.grad(work)(jnp.asarray(x)), atol=1e-12)
        np.testing.assert_allclose(force.sum(1), 0, atol=1e-12)


def test_chambers_are_lines_of_vertices(play):
    with pytest.raises(ValueError, match=r"--cells is \(5, 3\): the second must be even"):
        play(soft_arm, Config(cells=(5, 3)))
