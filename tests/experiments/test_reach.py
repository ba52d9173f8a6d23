import jax
import mujoco
import numpy as np
import pytest

import fphys
from fphys.experiments import reach
from fphys.experiments.reach import Config


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_it_reaches_random_targets(play, full, seed):
    config = Config(seed=seed) if full else Config(seed=seed, targets=3, timestep=0.01)
    metrics, result = play(reach, config)
    limit = [87.0] * 4 + [12.0] * 3
    assert (np.abs(result["ctrl"]) <= limit).all()
    assert metrics["success"]
    assert (result["distance"][-1] < 0.01).sum() >= (19 if full else 3)
    assert (miss_in_mujoco(config, result) < 0.01).sum() >= (19 if full else 3)
    assert np.abs(result["qvel"][-1]).max() < 0.02
    assert metrics["largest_speed_of_limit"] < 1
    assert metrics["beyond_joint_range"] == 0


def test_without_a_search_it_does_not_reach(play):
    metrics, _ = play(reach, Config(targets=3, timestep=0.01, iterations=0))
    assert not metrics["success"]
    assert metrics["reached"] == 0


def test_the_motors_limits_hold():
    """A path too fast for the motors is not followed."""
    with jax.enable_x64(True):
        model = reach.franka(0.005)
        state = reach.beginning(model, np.zeros((1, 3)))
        points = jax.numpy.full((reach.FREE, 1, 7), 2.0)
        states, torque = jax.jit(reach.follow, static_argnums=3)(model, state, points, 40)
        assert (np.abs(torque) / np.asarray(reach.limits(model))).max() == 1.0
        wanted = np.asarray(model.key.qpos[0]) + 2.0  # where the path ends
        assert np.abs(np.asarray(states.qpos[-1, 0]) - wanted).max() > 0.1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pd_brings_the_arm_to_zero(seed):
    with jax.enable_x64(True):
        model = fphys.load(fphys.asset("franka"), disable=("limit",))
        low, high = reach.ranges(model)
        qpos = np.random.default_rng(seed).uniform(low, high, (20, 7))
        settle = jax.jit(reach.settle, static_argnums=2)
        states = settle(model, fphys.init(model, 20, qpos=qpos), 1500)
        np.testing.assert_allclose(states.time[-1], 3.0)
        assert float(np.abs(states.qpos[-1]).max()) < 1e-2
        assert float(np.abs(states.qpos[250]).max()) > 1e-2
        fphys.check(jax.tree.map(lambda x: x[-1], states))


def miss_in_mujoco(config, result):
    """Distances at the end when MuJoCo plays the torques from the ready pose."""
    model = mujoco.MjModel.from_xml_path(fphys.asset("franka"))
    model.opt.timestep = config.timestep
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT.value
    miss = []
    for world, ctrl in enumerate(np.moveaxis(result["ctrl"], 1, 0)):
        data = mujoco.MjData(model)
        mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
        for data.ctrl[:] in ctrl:
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        miss.append(np.linalg.norm(data.site("end_effector").xpos - result["target"][world]))
    return np.array(miss)
