"""What the tasks of DeepMind's control suite share: soft indicators, random joints, and when quantities are read.

Y. Tassa et al., "DeepMind Control Suite", 2018; S. Tunyasuvunakool et al., "dm_control: Software and tasks for
continuous control", 2020. After a step, dm_control computes positions and velocities of the new state. Forces, for
example those on touch sensors, are those of the last solve, which is one time step older. So ``measure`` reads the
former, and ``look`` the latter.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ...math import rotation
from ...model import Model, State
from ...model.structure import JointType
from ...rigid.last import LastSolve
from ...rigid.sensor import sensors
from ...rigid.tree.kinematics import motions
from ...tree import pytree
from ..env import Env

Array = jax.Array

_SIGMOIDS: dict[str, Callable[[Array, float], Array]] = {
    "gaussian": lambda d, v: jnp.exp(d**2 * np.log(v).item()),
    "hyperbolic": lambda d, v: 1 / jnp.cosh(d * np.arccosh(1 / v).item()),
    "long_tail": lambda d, v: 1 / (d**2 * (1 / v - 1) + 1),
    "reciprocal": lambda d, v: 1 / (d * (1 / v - 1) + 1),
    "cosine": lambda d, v: (1 + jnp.cos(jnp.minimum(d * np.arccos(2 * v - 1).item(), np.pi))) / 2,
    "linear": lambda d, v: jnp.maximum(1 - d * (1 - v), 0),
    "quadratic": lambda d, v: jnp.maximum(1 - d**2 * (1 - v), 0),
    "tanh_squared": lambda d, v: 1 - jnp.tanh(d * np.arctanh(np.sqrt(1 - v)).item()) ** 2,
}
"""Decrease from 1 at distance 0 to v at distance 1."""


def tolerance(
    x: Array,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> Array:
    """1 where x lies within bounds, decreasing with the distance from them.

    Args:
        x: of any shape; bounds and margin are in its unit.
        bounds: inclusive; they may be infinite.
        margin: distance at which the value is ``value_at_margin``; with 0, the value is 0 outside.
        sigmoid: "gaussian", "hyperbolic", "long_tail", "reciprocal", "cosine", "linear", "quadratic", "tanh_squared".

    Returns:
        The shape of x, between 0 and 1 [1]. Gradients flow to x where the value decreases.

    Raises:
        ValueError: the bounds are in the wrong order, or the margin is negative. KeyError: no such sigmoid.
    """
    low, high = bounds
    if low > high or margin < 0:
        raise ValueError(f"bounds are {bounds}, margin is {margin}: the lower bound is first, and the margin positive")
    if margin == 0:
        return ((x >= low) & (x <= high)).astype(x.dtype)
    outside = jnp.maximum(jnp.maximum(low - x, x - high), 0) / margin
    return _SIGMOIDS[sigmoid](outside, value_at_margin)


@pytree
class SuiteEnv(Env):
    """Base class of the suite's tasks: 1000 steps, no other end, rewards between 0 and 1."""

    @classmethod
    def prepared(cls, model: Model) -> Model:
        """The model as the task changes it. By default it stays as it is."""
        return model

    def random_joints(self, key: Array) -> Array:
        """Positions of slides and hinges of one world, shape (nq,) [m or rad], no two of them related.

        Limited joints are uniform within their range, free hinges within a turn; free slides stay at the reference.
        """
        s, model = self.model.structure, self.model
        limited, hinge = np.isin(np.arange(s.joint.type.size), s.limit.joint), s.joint.type == JointType.HINGE
        rest, bounds = model.qpos0[0], model.joint.range[0]
        low = jnp.where(limited, bounds[:, 0], jnp.where(hinge, -np.pi, rest))
        high = jnp.where(limited, bounds[:, 1], jnp.where(hinge, np.pi, rest))
        return jax.random.uniform(key, rest.shape, rest.dtype, low, high)

    def turns(self, physics: State) -> Array:
        """Axes of the bodies' frames as columns, in world axes, shape (world, body, 3, 3)."""
        return rotation(motions(self.model, physics).quat)

    def velocity_along_x(self, physics: State) -> Array:
        """Of the centre of mass [m/s], shape (world,)."""
        return sensors(self.model, physics, names=["torso_subtreelinvel"])[:, 0]

    def touch(self, last: LastSolve, ctrl: Array, *names: str) -> Array:
        """Forces on touch sensors [N], on a logarithmic scale: log(1 + f), shape (world, sensor)."""
        return jnp.log1p(sensors(self.model, last.state, ctrl, names=names))
