"""Stable-Baselines3: ``PPO("MlpPolicy", sb3_env(make("Ant-v5", num_envs=64))).learn(1_000_000)``."""

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ..errors import MissingDependencyError
from .env import Env
from .vector import FphysVectorEnv

Indices = int | Sequence[int] | None


def sb3_env(env: Env | FphysVectorEnv) -> Any:
    """An environment, or its vector interface, as ``stable_baselines3.common.vec_env.VecEnv``.

    Observations, rewards and the actions' bounds are float32 NumPy arrays that SB3 may write to, whatever the precision
    of the simulation. A finished world restarts in the same step. Its info then has ``terminal_observation``; the
    ``episode`` that SB3's Monitor would give, return "r", length "l" and seconds "t"; and, as every info has,
    ``TimeLimit.truncated``. Infos have the terms of the reward by name, too, and the fault bits ``status``.

    ``seed`` seeds all worlds at the next reset. The worlds share one frozen environment: ``get_attr`` gives each the
    same value, ``env_method`` is called once, and ``set_attr`` is refused.

    Raises:
        MissingDependencyError: Stable-Baselines3 is not installed.
        ValueError: the vector interface gives other than NumPy arrays.
    """
    vector = env if isinstance(env, FphysVectorEnv) else FphysVectorEnv(env)
    if vector.arrays != "numpy":
        raise ValueError(f'arrays is {vector.arrays!r}, must be "numpy": Stable-Baselines3 computes with NumPy')
    return _kind()(vector)


class SharedWorlds:
    """The methods of a ``VecEnv`` whose worlds are stepped by one call."""

    num_envs: int
    render_mode: str | None
    _seeds: list[int | None]

    def __init__(self, vector: FphysVectorEnv) -> None:
        self.vector = vector
        shape = vector.single_observation_space.shape
        given: tuple[Any, ...] = vector.num_envs, spaces.Box(-np.inf, np.inf, shape, np.float32), _actions(vector)
        super().__init__(*given)

    def reset(self) -> np.ndarray:
        """Begin an episode in every world: observations, float32, shape (world, n)."""
        self._started = np.full(self.num_envs, time.time())
        observation, _ = self.vector.reset(seed=self._seeds[0])
        self._reset_seeds()  # type: ignore[attr-defined]
        return _single(observation)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions, shape (world, action), for :meth:`step_wait`."""
        self._action = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """One step of all worlds: observations (world, n), rewards and ends (world,), and an info of each world.

        Raises:
            RuntimeError: before :meth:`reset`. ValueError: the actions have another shape.
        """
        observation, reward, terminated, truncated, info = self.vector.step(self._action)
        names = [name for name in info if f"_{name}" in info and not name.startswith(("final_", "episode_"))]
        rows = zip(*(info[name].tolist() for name in names), (truncated & ~terminated).tolist())
        infos = [dict(zip([*names, "TimeLimit.truncated"], row)) for row in rows]
        done = terminated | truncated
        for i in np.flatnonzero(done):
            now = time.time()
            seconds, self._started[i] = now - self._started[i], now
            infos[i]["terminal_observation"] = _single(info["final_obs"][i])
            total, length = float(info["episode_return"][i]), int(info["episode_length"][i])
            infos[i]["episode"] = {"r": total, "l": length, "t": seconds}
        return _single(observation), _single(reward), done, infos

    def close(self) -> None:
        """Close the vector interface."""
        self.vector.close()

    def get_images(self) -> list[np.ndarray]:
        """An image of the first world, uint8 (height, width, 3), in a list.

        Raises:
            RuntimeError: before :meth:`reset`. MissingDependencyError: no OpenGL.
        """
        return list(self.vector.render())

    def get_attr(self, name: str, indices: Indices = None) -> list[Any]:
        """What the vector interface, or else the environment, has by this name, once for each world of ``indices``.

        Raises:
            AttributeError: neither has it.
        """
        owner = self.vector if hasattr(self.vector, name) else self.vector.env
        return [getattr(owner, name)] * len(self._get_indices(indices))

    def set_attr(self, name: str, value: Any, indices: Indices = None) -> None:
        """Refused: the environment is frozen.

        Raises:
            TypeError: always; the message says how to make another environment.
        """
        raise TypeError(f"an environment is frozen: make another one, sb3_env(env.replace({name}=...))")

    def env_method(self, name: str, *args: Any, indices: Indices = None, **options: Any) -> list[Any]:
        """Call a method once, with ``args`` and ``options``, and give its result once for each world of ``indices``."""
        found = self.get_attr(name, indices)
        return [found[0](*args, **options)] * len(found) if found else []

    def env_is_wrapped(self, wrapper_class: Any, indices: Indices = None) -> list[bool]:
        """Whether it does what the wrapper does: only SB3's Monitor, whose infos it gives."""
        from stable_baselines3.common.monitor import Monitor

        return [wrapper_class is Monitor] * len(self._get_indices(indices))

    def _get_indices(self, indices: Indices) -> Sequence[int]:
        every = range(self.num_envs)
        return every if indices is None else [indices] if isinstance(indices, int) else indices


@functools.cache
def _kind() -> type[Any]:
    try:
        from stable_baselines3.common.vec_env import VecEnv
    except ImportError as cause:
        raise MissingDependencyError(
            "Stable-Baselines3 is not installed: pip install stable-baselines3 torch==2.13.0"
        ) from cause
    return type("FphysVecEnv", (SharedWorlds, VecEnv), {"__doc__": sb3_env.__doc__, "__module__": __name__})


def _actions(vector: FphysVectorEnv) -> spaces.Box:
    spec = vector.env.action_spec
    return spaces.Box(spec.low.astype(np.float32), spec.high.astype(np.float32), dtype=np.float32)


def _single(x: Any) -> np.ndarray:
    """A copy in float32."""
    return np.array(x, np.float32)
