"""The list of benchmark cases. Each solver adds its own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op
from .arrays import array_cases
from .bridges import bridge_cases
from .case import Case, Workload
from .coupled import coupling_cases
from .crowds import crowd_cases
from .deformables import deformable_cases
from .distances import distance_cases
from .environments import environment_cases
from .mixed import mixed_cases
from .particles_mpm import mpm_cases
from .particles_sph import sph_cases
from .physics import episode_cases, rollout_cases, step_cases
from .scans import scan_cases
from .scenes import scene_cases
from .spread import distributed_cases
from .training import training_cases

Array = jax.Array

_WIDTH = 64  # numbers per world in the bridge's cases


def _relu(launch: Any, x: Any, y: Any) -> None:
    launch(kernels(x.dtype, "relu").relu, dim=x.shape, inputs=[x], outputs=[y])


def _rectified(op: Any, worlds: int) -> Workload:
    x = np.random.default_rng(0).standard_normal((worlds, _WIDTH)).astype(jnp.zeros(0).dtype)

    def validate(y: Array) -> None:
        if not np.array_equal(np.asarray(y), np.maximum(x, 0)):
            raise ValueError("the result is not max(x, 0)")

    return Workload(op, (x,), validate)


CASES: list[Case] = [
    *array_cases(),
    Case(
        "bridge.relu.jax", lambda worlds: _rectified(lambda x: jnp.maximum(x, 0), worlds), 1, "worlds", tags=("bridge",)
    ),
    Case(
        "bridge.relu.warp",
        lambda worlds: _rectified(warp_op(_relu, outputs=lambda x: x), worlds),
        unit="worlds",
        relative_to="bridge.relu.jax",
        tags=("bridge",),
    ),
    *bridge_cases(),
    *step_cases("double-pendulum"),
    *step_cases("franka"),
    *step_cases("ant"),
    *rollout_cases("ant", 100),
    *episode_cases("ant", 100),
    *crowd_cases(),
    *environment_cases(),
    *sph_cases(),
    *mpm_cases(),
    *deformable_cases(),
    *coupling_cases(),
    *training_cases(),
    *mixed_cases(),
    *scene_cases(),
    *scan_cases(),
    *distance_cases(),
    *distributed_cases(),
]
