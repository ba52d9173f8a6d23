"""Gymnasium's vector interface."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from fphys.envs.vector import FphysVectorEnv
from fphys.errors import UnsupportedError


@pytest.fixture(scope="module")
def poles() -> FphysVectorEnv:
    env = gymnasium.make_vec("fphys.envs:fphys/InvertedPendulum-v5", num_envs=3, max_episode_steps=4)
    assert isinstance(env, FphysVectorEnv)
    return env


def test_what_make_vec_returns_keeps_gymnasiums_contract(poles: FphysVectorEnv):
    assert poles.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and poles.num_envs == 3
    observation, info = poles.reset(seed=1)
    assert poles.observation_space.contains(observation) and isinstance(info, dict)
    again, _ = poles.reset(seed=1)
    assert data_equivalence(observation, again)
    other, _ = poles.reset(seed=2)
    assert not data_equivalence(observation, other)
    poles.action_space.seed(0)
    for k in range(4):
        observation, reward, terminated, truncated, info = poles.step(poles.action_space.sample())
        assert poles.observation_space.contains(observation)
        assert reward.shape == terminated.shape == truncated.shape == (3,) and terminated.dtype == np.bool_
        assert truncated.all() == (k == 3)
    assert info["_final_obs"].all() and len(info["final_obs"]) == 3
    assert not (np.stack(info["final_obs"]) == observation).any()
    np.testing.assert_allclose(info["episode_return"], 4)
    np.testing.assert_array_equal(info["episode_length"], 4)


def test_resets_without_a_seed_go_on_from_the_last_one(poles: FphysVectorEnv):
    poles.reset(seed=3)
    first = [poles.reset()[0].copy() for _ in range(2)]
    assert not data_equivalence(*first)
    poles.reset(seed=3)
    for observation in first:
        np.testing.assert_array_equal(poles.reset()[0], observation)


def test_gymnasiums_wrapper_counts_the_same_returns(poles: FphysVectorEnv):
    env = RecordEpisodeStatistics(poles)
    env.reset(seed=0)
    for _ in range(4):
        *_, info = env.step(np.zeros((3, 1), np.float32))
    np.testing.assert_allclose(info["episode"]["r"], 4)


def test_arrays_that_were_returned_do_not_change(poles: FphysVectorEnv):
    """They share memory with JAX, and the state's memory is used again by the next step."""
    held = [(array, array.copy()) for array in [poles.reset(seed=0)[0]]]
    for _ in range(12):
        *result, info = poles.step(poles.action_space.sample())
        arrays = [*result, *(x for x in info.values() if isinstance(x, np.ndarray) and x.dtype != object)]
        held += [(array, array.copy()) for array in arrays]
    for array, copy in held:
        np.testing.assert_array_equal(array, copy)


def test_only_masked_worlds_are_reset(poles: FphysVectorEnv):
    first, _ = poles.reset(seed=0)
    first = first.copy()
    then, _ = poles.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal((then == first).all(1), [True, False, True])
    with pytest.raises(ValueError, match="reset_mask"):
        poles.reset(options={"reset_mask": np.zeros(3, bool)})


@pytest.mark.parametrize("arrays", ["jax", "torch"])
def test_arrays_on_request(arrays: str):
    env = gymnasium.make_vec("fphys/InvertedPendulum-v5", num_envs=2, arrays=arrays)
    observation, _ = env.reset(seed=0)
    assert type(observation).__module__.startswith("torch" if arrays == "torch" else "jax")
    result = env.step(0 * observation[:, :1])
    assert type(result[1]) is type(observation)


def test_refusals(poles: FphysVectorEnv):
    poles.reset(seed=0)
    with pytest.raises(ValueError, match=r"must be \(3, 1\)"):
        poles.step(np.zeros(3))
    with pytest.raises(TypeError, match="one number seeds"):
        poles.reset(seed=[1, 2, 3])
    for seed, error in ((-1, ValueError), (2**63, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match=f"seed is {seed}, must be"):
            poles.reset(seed=seed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed is given beside reset_mask"):
        poles.reset(seed=1, options={"reset_mask": np.ones(3, bool)})
    with pytest.raises(UnsupportedError, match="make_vec"):
        gymnasium.make("fphys/InvertedPendulum-v5")
    with pytest.raises(ValueError, match="arrays is 'cupy'"):
        gymnasium.make_vec("fphys/InvertedPendulum-v5", num_envs=1, arrays="cupy")
    with pytest.raises(RuntimeError, match="call reset"):
        gymnasium.make_vec("fphys/InvertedPendulum-v5", num_envs=1).step(np.zeros((1, 1)))
