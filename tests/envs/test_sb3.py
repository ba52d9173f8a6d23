"""The worlds of Stable-Baselines3: what its own DummyVecEnv gives for Gymnasium's pole at the same states."""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from fphys import envs
from fphys.envs.sb3 import sb3_env
from fphys.errors import MissingDependencyError

WORLDS, LIMIT = 3, 9
pytestmark = pytest.mark.extra("stable_baselines3")


@pytest.fixture(scope="module")
def poles() -> Any:
    return sb3_env(envs.make("InvertedPendulum-v5", WORLDS, max_episode_steps=LIMIT))


class Placed(gymnasium.Wrapper):
    """Gymnasium's pole, whose episodes begin where those of a world of ours do."""

    def __init__(self, poles: Any, world: int) -> None:
        super().__init__(gymnasium.make("InvertedPendulum-v5", max_episode_steps=LIMIT))
        self.poles, self.world = poles, world

    def reset(self, **options: Any) -> Any:
        _, info = self.env.reset(**options)
        pole: Any = self.unwrapped
        state = self.poles.vector._state
        pole.set_state(np.asarray(state.qpos[self.world]), np.asarray(state.qvel[self.world]))
        return pole._get_obs(), info


def test_the_worlds_are_those_of_a_dummy_vec_env(poles: Any):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    poles.seed(0)
    first = poles.reset()
    dummy = DummyVecEnv([lambda i=i: Monitor(Placed(poles, i)) for i in range(WORLDS)])
    np.testing.assert_allclose(dummy.reset(), first, rtol=1e-6)
    poles.action_space.seed(1)
    ends = []
    for _ in range(30):
        action = np.stack([poles.action_space.sample() for _ in range(WORLDS)])
        observation, reward, done, infos = poles.step(action)
        wanted = dummy.step(action)
        assert observation.dtype == reward.dtype == np.float32 and observation.flags.writeable
        np.testing.assert_allclose(observation, wanted[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reward, wanted[1], rtol=1e-6)
        np.testing.assert_array_equal(done, wanted[2])
        for info, other in zip(infos, wanted[3]):
            assert info.keys() >= other.keys()
            assert info["TimeLimit.truncated"] == other["TimeLimit.truncated"]
            if "episode" in other:
                ends.append(info["TimeLimit.truncated"])
                np.testing.assert_allclose(info["terminal_observation"], other["terminal_observation"], rtol=1e-5)
                assert info["episode"]["l"] == other["episode"]["l"] and info["episode"]["t"] > 0
                assert info["episode"]["r"] == pytest.approx(other["episode"]["r"], abs=1e-6)
    assert {True, False} == set(ends)  # truncated and terminated
    held = observation.copy()
    poles.step(action)
    np.testing.assert_array_equal(held, observation)


def test_seeds_and_attributes(poles: Any):
    from stable_baselines3.common.monitor import Monitor

    poles.seed(3)
    first = poles.reset()
    second = poles.reset()
    assert not np.array_equal(first, second)  # a seed is used once
    poles.seed(3)
    for observation in (first, second):
        np.testing.assert_array_equal(observation, poles.reset())
    assert poles.get_attr("max_episode_steps") == [LIMIT] * WORLDS and poles.get_attr("render_mode", 1) == [None]
    assert poles.env_is_wrapped(Monitor) == [True] * WORLDS
    assert poles.env_is_wrapped(gymnasium.wrappers.TimeLimit, [0, 2]) == [False, False]
    with pytest.raises(TypeError, match=r"env\.replace\(frame_skip"):
        poles.set_attr("frame_skip", 3)


def test_ppo_learns_from_them_and_logs_their_returns(poles: Any, tmp_path: Path):
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import configure

    agent = PPO("MlpPolicy", poles, n_steps=16, batch_size=24, n_epochs=1, seed=0, device="cpu")
    agent.set_logger(configure(str(tmp_path), ["json"]))
    agent.learn(2 * 16 * WORLDS)
    assert agent.num_timesteps == 2 * 16 * WORLDS
    seen = [episode["r"] for episode in agent.ep_info_buffer]
    agent.logger.close()
    logged = json.loads((tmp_path / "progress.json").read_text().splitlines()[-1])
    assert len(seen) >= 9 and logged["rollout/ep_rew_mean"] == pytest.approx(np.mean(seen))


def test_what_is_refused(poles: Any, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match="arrays is 'jax'"):
        sb3_env(envs.vector.FphysVectorEnv(poles.vector.env, "jax"))
    envs.sb3._kind.cache_clear()
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    with pytest.raises(MissingDependencyError, match="pip install stable-baselines3"):
        sb3_env(poles.vector)
