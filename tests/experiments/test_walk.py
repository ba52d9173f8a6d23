import mujoco
import numpy as np
import pytest

import fphys
from fphys.experiments import walk
from fphys.experiments.walk import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_it_walks_without_falling(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, worlds=2, duration=1.2, iterations=25)
    metrics, result = play(walk, config)
    assert metrics["success"]
    assert min(metrics["speed"]) >= 0.5
    assert metrics["stands"] == config.worlds
    assert result["qpos"][..., 2].min() > 0.2
    way, lowest = walk_in_mujoco(config, result)
    assert way >= 0.5 * 4.0
    assert lowest > 0.2


def test_without_a_search_it_steps_on_the_spot(play):
    metrics, result = play(walk, Config(worlds=1, iterations=0))
    assert not metrics["success"]
    assert metrics["stands"] == 1
    assert abs(result["qpos"][-1, 0, 0]) < 0.3
    assert np.abs(np.diff(result["qpos"][:, 0, 9], axis=0)).max() > 1e-3


def walk_in_mujoco(config, result):
    """Way in 4 s and lowest height of the trunk when MuJoCo walks the gait from the first world's start."""
    model = mujoco.MjModel.from_xml_path(fphys.asset("quadruped"))
    model.opt.timestep = config.timestep
    data, lowest = mujoco.MjData(model), np.inf
    data.qpos[:], data.qvel[:] = result["start"][0], result["start_qvel"][0]
    home, gait = data.qpos[7:].copy(), result["gait"]
    leg_phase, mirror = np.pi * np.array([0, 1, 1, 0]), np.array([1, -1, 1, -1])
    for _ in range(round(4.0 / config.timestep)):
        phase = 2 * np.pi * config.frequency * data.time + leg_phase
        basis = np.stack([np.ones(4), np.cos(phase), np.sin(phase), np.cos(2 * phase), np.sin(2 * phase)])
        angles = np.stack([gait[leg // 2] @ basis[:, leg] for leg in range(4)])
        angles[:, 0] *= mirror
        goal = home + min(data.time / 0.2, 1.0) * angles.ravel()
        data.ctrl[:] = walk.STIFFNESS * (goal - data.qpos[7:]) - walk.DAMPING * data.qvel[6:]
        mujoco.mj_step(model, data)
        lowest = min(lowest, data.qpos[2])
    return data.qpos[0], lowest
