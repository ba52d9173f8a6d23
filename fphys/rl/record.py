"""Pictures of a policy at work."""

from typing import Any

import jax
import numpy as np

from ..envs import Env

Array = jax.Array


def record(env: Env, policy: Any, key: Array, steps: int | None = None, **drawing: Any) -> np.ndarray:
    """Images of the first world under a policy, uint8 (time, height, width, 3); one every action. No gradient.

    Args:
        policy: ``policy(observation) -> action``.
        steps: by default one episode's, at most a thousand.
        drawing: as for :func:`fphys.render.frames`: ``camera``, ``height``, ``width``, ``every``.

    Raises:
        MissingDependencyError: there is no OpenGL.
    """
    from ..render import frames

    env = env.replace(num_envs=1)
    steps = steps or min(env.max_episode_steps or 1000, 1000)

    @jax.jit
    def motion(key: Array) -> Any:
        def act(carry: Any, _: None) -> Any:
            state, observation = carry
            result = env.step(state, policy(observation))
            return result[:2], result[0].physics

        return jax.lax.scan(act, env.reset(key), None, steps)[1]

    return frames(env.model, motion(key), **drawing)
