"""The motion of a policy at work, and pictures of it."""

from typing import Any

import jax
import numpy as np

from ..envs import Env
from ..envs.expect import expected_action
from ..envs.pictures import pictures
from ..model import State
from .numbers import expect_steps

Array = jax.Array


def motion(env: Env, policy: Any, key: Array, steps: int | None = None) -> State:
    """States of one world under a policy, one every action; arrays of shape (time, 1, ...). Traceable.

    Args:
        policy: ``policy(observation) -> action``.
        steps: by default one episode's, at most a thousand.

    Returns:
        The states after each action, an episode's last one before the next begins. Gradients flow through the steps.

    Raises:
        ValueError: ``steps`` is below 1.
    """
    return seen(env, policy, key, steps)[0]


def seen(env: Env, policy: Any, key: Array, steps: int | None = None) -> tuple[State, dict[str, Array]]:
    """:func:`motion`, and what is drawn besides bodies: ``env.points``, (time, 1, n, 3). Traceable."""
    steps = expect_steps(steps) or min(env.max_episode_steps or 1000, 1000)
    env = env.replace(num_envs=1)

    def act(carry: Any, _: None) -> Any:
        state, observation = carry
        action = expected_action(env, policy(observation), state.history)
        last, observation, _reward, terminated, truncated, _info = env._acted(state, action)
        return env._next(last, observation, terminated | truncated), (last.physics, env.points(last))

    return jax.lax.scan(act, env.reset(key), None, steps)[1]


def record(env: Env, policy: Any, key: Array, steps: int | None = None, **drawing: Any) -> np.ndarray:
    """Images of one world under a policy, uint8 (time, height, width, 3); one every action. No gradient.

    Args:
        policy, steps: as for :func:`motion`.
        drawing: as for :func:`fphys.render.frames`: ``camera``, ``height``, ``width``, ``every``.

    Raises:
        MissingDependencyError: there is no OpenGL. ValueError: ``steps`` is below 1.
    """
    return pictures(env, *jax.jit(lambda key: seen(env, policy, key, steps))(key), **drawing)
