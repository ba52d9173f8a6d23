import mujoco
import numpy as np
import pytest

import fphys
from fphys.experiments import swing_up
from fphys.experiments.swing_up import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_it_swings_up_and_stands(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, starts=2, iterations=25)
    metrics, result = play(swing_up, config)
    assert result["ctrl"].shape == (250, config.starts, 2)
    last = result["qpos"][-51:]
    assert np.abs(last).max() < 0.1
    assert (np.abs(result["ctrl"]) <= metrics["torque_limit"]).all()
    assert metrics["success"]
    assert metrics["standing"] == config.starts
    assert metrics["gradient"] < 0.05 * metrics["first_gradient"]
    assert stands_in_mujoco(result) == pytest.approx(np.abs(last).max(), abs=1e-4)


def test_without_a_search_it_does_not_stand(play):
    metrics, _ = play(swing_up, Config(starts=2, iterations=0))
    assert not metrics["success"]
    assert metrics["standing"] == 0


def test_a_motion_too_short_to_stand_is_refused(play):
    with pytest.raises(ValueError, match="choose 200 or more"):
        play(swing_up, Config(starts=1, steps=50))


def stands_in_mujoco(result):
    """Largest angle of the last half second when MuJoCo plays the torques."""
    model = mujoco.MjModel.from_xml_path(fphys.asset("double-pendulum"))
    worst = 0.0
    for world, ctrl in enumerate(np.moveaxis(result["ctrl"], 1, 0)):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = result["start_qpos"][world], result["start_qvel"][world]
        for t, data.ctrl[:] in enumerate(ctrl):
            mujoco.mj_step(model, data)
            if t >= len(ctrl) - 51:
                worst = max(worst, np.abs(data.qpos).max())
    return worst
