"""Images of an environment: its bodies, and the particles that it says are there."""

from typing import Any

import jax
import numpy as np

from ..model import State
from .env import Env

Array = jax.Array

WATER = (0.20, 0.48, 0.78)
"""Colour of the particles."""


def pictures(env: Env, states: State, points: dict[str, Array], **drawing: Any) -> np.ndarray:
    """Images of states on a leading time axis, uint8 (time, height, width, 3). No gradient.

    Args:
        points: what ``env.points`` gave at the same times, (time, world, n, 3); NaN where there is none.
        drawing: as for :func:`fphys.render.frames`, whose camera is the environment's by default.

    Raises:
        MissingDependencyError: there is no OpenGL.
    """
    from ..render import Grains, frames

    world = drawing.get("world", 0)
    there = [x for x in map(np.asarray, points.values()) if np.isfinite(x[:, world : world + 1]).all(-1).any()]
    drawn = [Grains(x, env.grain, WATER) for x in there]
    return frames(env.model, states, **{"camera": env.camera, "flexes": drawn} | drawing)
