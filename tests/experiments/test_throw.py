import mujoco
import numpy as np
import pytest

from fphys.experiments import throw
from fphys.experiments.throw import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_ball_bounces_off_the_wall_onto_the_target(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, targets=3, iterations=40)
    metrics, result = play(throw, config)
    assert metrics["success"]
    assert metrics["hit"] >= (8 if full else 3)
    assert metrics["off_the_wall"] == config.targets
    assert min(metrics["first_miss"]) > 0.1
    place, bounced = landing_in_mujoco(result)
    assert bounced.all()
    np.testing.assert_allclose(np.linalg.norm(place - result["target"][:, :2], axis=1), result["miss"], atol=1e-6)


def test_without_a_search_it_misses(play):
    metrics, result = play(throw, Config(targets=2, iterations=0))
    assert not metrics["success"]
    assert metrics["miss"] == metrics["first_miss"]
    np.testing.assert_array_equal(result["velocity"], result["first_velocity"])


def landing_in_mujoco(result):
    """Where each ball first touches the floor, and whether it had touched the wall, when MuJoCo throws it."""
    model = mujoco.MjModel.from_xml_string(throw.SCENE)
    model.opt.tolerance = 0
    wall = model.geom("wall").id
    places, bounced = [], []
    for velocity in result["velocity"]:
        data, wall_touched = mujoco.MjData(model), False
        data.qvel[:3] = velocity
        while data.qpos[2] > throw.RADIUS and data.time < 2:
            before = data.qpos.copy()
            mujoco.mj_step(model, data)
            wall_touched |= any(wall in pair for pair in data.contact.geom)
        part = (before[2] - throw.RADIUS) / (before[2] - data.qpos[2])
        places.append(before[:2] + part * (data.qpos[:2] - before[:2]))
        bounced.append(wall_touched)
    return np.array(places), np.array(bounced)
