import jax
import mujoco
import numpy as np
import pytest

import fphys
from fphys.experiments import push
from fphys.experiments.push import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_arm_pushes_the_box_to_the_goal(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, goals=2, timestep=0.01, iterations=6)
    metrics, result = play(push, config)
    assert metrics["success"]
    assert metrics["reached"] == config.goals
    assert (result["miss"][0] > 0.05).all(), "the box has to be moved"
    assert (result["miss"][-1] < 0.02).all()
    assert (result["turn"][-1] < np.radians(5)).all()
    assert (np.abs(result["torque"]) <= [87.0] * 4 + [12.0] * 3).all()
    miss, turn = off_in_mujoco(config, result)
    assert (miss < 0.02).all()
    assert (turn < 5).all()


@pytest.mark.slow
def test_without_a_search_it_fails(play):
    metrics, _ = play(push, Config(goals=2, timestep=0.01, iterations=0))
    assert not metrics["success"]


def off_in_mujoco(config, result):
    """Distances [m] and angles [degrees] from the goals when MuJoCo plays the torques."""
    with jax.enable_x64(True):
        scene = push.beginning(config.timestep, push.goals(config))
    miss, turn = [], []
    for world, torque in enumerate(np.moveaxis(result["torque"], 1, 0)):
        with jax.enable_x64(True):
            model, data = fphys.to_mujoco(scene.model, scene.state, world)
        for data.ctrl[:] in torque:
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        box = data.body("box")
        miss.append(np.linalg.norm(box.xpos[:2] - result["goal"][world]))
        facing = np.arctan2(box.xmat[3], box.xmat[0]) - result["goal_angle"][world]
        turn.append(np.degrees(abs((facing + np.pi) % (2 * np.pi) - np.pi)))
    return np.array(miss), np.array(turn)
