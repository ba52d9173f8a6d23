"""Gymnasium's vector interface: ``gymnasium.make_vec("fphys/Ant-v5", num_envs=4096)``."""

from typing import Any, Literal

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..bridge.dlpack import to_torch
from ..errors import UnsupportedError
from ..model.arguments import whole_number
from .env import Env, EnvState, Info, Spec
from .make import make
from .pictures import pictures

Array = jax.Array
Arrays = Literal["numpy", "jax", "torch"]


class FphysVectorEnv(VectorEnv):
    """Worlds of an :class:`fphys.envs.Env`, stepped by one compiled call, as Gymnasium's vector environment.

    A finished world restarts in the same step (``AutoresetMode.SAME_STEP``): ``info["final_obs"]`` then holds the last
    observation of its episode, ``info["episode_return"]`` its return and ``info["episode_length"]`` its steps.

    Args:
        env: the environment.
        arrays: what observations, rewards and flags are: "numpy" arrays, read-only and not copied on a CPU; "jax"
            arrays; or "torch" tensors that share their memory.
        render_mode: None or "rgb_array": ``render()`` then draws the first world.

    Raises:
        ValueError: ``arrays`` or ``render_mode`` is something else.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, env: Env, arrays: Arrays = "numpy", render_mode: str | None = None) -> None:
        if arrays not in ("numpy", "jax", "torch"):
            raise ValueError(f'arrays is {arrays!r}, must be "numpy", "jax" or "torch"')
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f'render_mode is {render_mode!r}, must be None or "rgb_array"')
        self.env, self.arrays, self.render_mode = env, arrays, render_mode
        self.num_envs = env.num_envs
        self.single_action_space = box(env.action_spec)
        self.single_observation_space = box(env.observation_spec)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.metadata = {**self.metadata, "render_fps": round(1 / float(env.dt[0]))}
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step, donate_argnums=0)
        self._restart = jax.jit(env.restart)
        self._state: EnvState | None = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every world, or in those of ``options["reset_mask"]``, bool (num_envs,).

        Args:
            seed: an int from 0 to 2**63 - 1, for all worlds. Without it, random numbers go on from the last one, or
                from those of the operating system if there was none.

        Raises:
            ValueError: the seed is out of range or beside a mask, or the mask does not fit. TypeError: the seed is not
                one whole number.
        """
        mask = (options or {}).get("reset_mask")
        if mask is not None and seed is not None:
            raise ValueError("seed is given beside reset_mask, which goes on with each world's own key: leave out one")
        if mask is not None and self._state is not None:
            mask = np.asarray(mask)
            if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
                raise ValueError(f"reset_mask must be bool of shape ({self.num_envs},), with a true value")
            self._state, observation = self._restart(self._state, mask)
            return self._out(observation), {}
        if isinstance(seed, list | tuple):
            raise TypeError("seed is a list: one number seeds all worlds, each with a key of its own")
        if seed is None:
            seed = int(self.np_random.integers(2**63))
        elif 0 <= whole_number("seed", seed) < 2**63:
            self._np_random, self._np_random_seed = np_random(int(seed))
        else:
            raise ValueError(f"seed is {seed}, must be from 0 to 2**63 - 1")
        self._state, observation = self._reset(jax.random.key(seed))
        return self._out(observation), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act in every world. Finished worlds begin their next episode within the same step.

        Args:
            actions: NumPy, JAX or torch arrays, shape (num_envs, ``*single_action_space.shape``).

        Returns:
            Observations (num_envs, n); rewards, and where episodes terminated or were truncated, (num_envs,); infos.

        Raises:
            RuntimeError: before :meth:`reset`. ValueError: another shape.
        """
        if self._state is None:
            raise RuntimeError("call reset before step")
        self._state, *results, info = self._step(self._state, self._in(actions))
        done = np.asarray(results[2]) | np.asarray(results[3])
        return (*map(self._out, results), self._infos(info, done))  # type: ignore[return-value]

    def render(self) -> tuple[np.ndarray, ...]:
        """The first world, uint8 (height, width, 3), in a tuple.

        Raises:
            RuntimeError: before :meth:`reset`. MissingDependencyError: no OpenGL.
        """
        if self._state is None:
            raise RuntimeError("call reset before render")
        now = jax.tree.map(lambda x: x[None], (self._state.physics, self.env.points(self._state)))
        return (pictures(self.env.of(self._state), *now)[0],)

    def _in(self, actions: Any) -> Any:
        """Actions as they are passed to the compiled call, which takes NumPy's arrays faster than ``jnp.asarray``."""
        wanted, real = self.action_space.shape, self.action_space.dtype
        if hasattr(actions, "detach"):
            actions = actions.detach().cpu().numpy()
        if np.shape(actions) != wanted:
            raise ValueError(f"actions have shape {np.shape(actions)}, must be {wanted}")
        return actions.astype(real) if isinstance(actions, Array) else np.asarray(actions, real)

    def _out(self, x: Array) -> Any:
        if self.arrays == "numpy":
            return np.asarray(x)
        return x if self.arrays == "jax" else to_torch(x)

    def _infos(self, info: Info, done: np.ndarray) -> dict[str, Any]:
        every = np.ones(self.num_envs, bool)
        out: dict[str, Any] = {}
        for name, value in info.terms.items():
            out[name], out[f"_{name}"] = self._out(value), every
        out["status"], out["_status"] = self._out(info.status), every
        if done.any():
            final = np.full(self.num_envs, None, dtype=object)
            values = np.asarray(info.final_obs)
            for i in np.flatnonzero(done):
                final[i] = values[i]
            out["final_obs"], out["_final_obs"] = final, done
            out["final_info"], out["_final_info"] = dict(out), done
            out["episode_return"], out["_episode_return"] = np.asarray(info.episode.total), done
            out["episode_length"], out["_episode_length"] = np.asarray(info.episode.length), done
        return out


def box(spec: Spec) -> spaces.Box:
    """Gymnasium's space of an action or observation."""
    return spaces.Box(spec.low.astype(spec.dtype), spec.high.astype(spec.dtype), spec.shape, spec.dtype)


def vector_env(name: str, num_envs: int = 1, arrays: Arrays = "numpy", **options: Any) -> FphysVectorEnv:
    """What ``gymnasium.make_vec`` calls."""
    render_mode = options.pop("render_mode", None)
    return FphysVectorEnv(make(name, num_envs, **options), arrays, render_mode)


def single_env(name: str, **options: Any) -> Any:
    """What ``gymnasium.make`` calls.

    Raises:
        UnsupportedError: always; it says what to call.
    """
    raise UnsupportedError(
        f"{name} is a vector environment, whose worlds are stepped by one call: gymnasium.make_vec(..., num_envs=1)"
    )
