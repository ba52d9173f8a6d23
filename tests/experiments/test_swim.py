import jax
import numpy as np
import pytest

from fphys.experiments import swim


def wave(lag: float) -> np.ndarray:
    """A gait whose joints bend by half a radian, each by a phase later than the one in front."""
    phase = -lag * np.arange(swim.LINKS - 1)
    return 0.5 * np.stack([np.cos(phase), np.sin(phase)], -1)


def test_a_wave_to_the_tail_swims_forwards_and_one_to_the_head_backwards():
    with jax.enable_x64(True):
        scene, now = swim.beginning()
        config = swim.Config(beats=2)
        speed = jax.jit(lambda gait: swim.speed(swim.swim(scene, now, config, gait)[1].qpos, config))
        forwards, backwards = float(speed(wave(0.7))), float(speed(wave(-0.7)))
    assert forwards == pytest.approx(0.289, abs=0.01) and backwards == pytest.approx(-0.047, abs=0.01)


@pytest.mark.slow
def test_the_first_gait_is_played(play):
    """In reduced size without a search: for one gradient, compiling takes half a minute."""
    metrics, result = play(swim, swim.Config(beats=1, iterations=0))
    assert metrics["outside"] == 0
    assert metrics["lengths_per_second"] == metrics["first_lengths_per_second"] == pytest.approx(0.095, abs=0.005)
    assert np.ptp(result["qpos"][:, 0, 3:], axis=0).min() > 0.01  # all joints bend


@pytest.mark.slow
def test_the_eel_learns_to_swim(play):
    metrics, _ = play(swim, swim.Config())
    assert metrics["success"] and metrics["lengths_per_second"] > swim.BAR
    assert metrics["first_lengths_per_second"] < 0.5 * swim.BAR
    assert metrics["waves_of_the_body"] > 0.2  # a wave that runs to the tail


def test_no_joint_is_to_bend_more_than_the_amplitude():
    with jax.enable_x64(True):
        aims = swim.aims(swim.Config(amplitude=0.4), 100.0 * swim.first_gait())
    assert 0.35 < np.abs(aims).max() < 0.4 + 1e-12
