"""What an action means: the actuators' controls, or target positions or velocities of the joints that they move."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..control import pd
from ..errors import UnsupportedError
from ..model import Model, State

Array = jax.Array
Mode = Literal["ctrl", "position", "velocity"]

_JOINT, _FIXED = 0, 0  # mjtTrn, mjtGain


def bounds(model: Model, mode: Mode) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of each action: controls in the actuators' units, positions [m or rad] or velocities [m/s or rad/s]."""
    s, nu = model.structure, model.structure.nu
    inf = np.full(nu, np.inf)
    if mode == "ctrl":
        limited, leaf = np.asarray(s.actuator.ctrllimited), np.asarray(model.actuator.ctrlrange)[0]
    elif mode == "position":
        joint = moved_joints(model)
        limited, leaf = np.isin(joint, s.limit.joint), np.asarray(model.joint.range)[0, joint]
    elif mode == "velocity":
        return -inf, inf
    else:
        raise ValueError(f'action_mode is {mode!r}, must be "ctrl", "position" or "velocity"')
    return np.where(limited, leaf[:, 0], -inf), np.where(limited, leaf[:, 1], inf)


def control(model: Model, state: State, action: Array, mode: Mode, kp: float, kd: float) -> Array:
    """Controls of motors for an action. Targets are followed by u = kp (target - q) - kd v, over the motor's gear.

    Velocities are followed by u = kd (target - v). Gradients flow to state, action and gears.
    """
    if mode == "ctrl":
        return action
    s, joint = model.structure, moved_joints(model)
    q, v = state.qpos[:, s.joint.qpos[joint]], state.qvel[:, s.joint.dof[joint]]
    force = pd(action, q, v, kp, kd) if mode == "position" else kd * (action - v)
    ctrl = force / model.actuator.gear[..., 0]
    low, high = (model.actuator.ctrlrange[..., i] for i in (0, 1))
    return jnp.where(s.actuator.ctrllimited[None], jnp.clip(ctrl, low, high), ctrl)


def neutral(model: Model, state: State, mode: Mode) -> Array:
    """The action that asks for nothing, shape (world, nu): 0, or as a target position where the joint is."""
    if mode == "position":
        return state.qpos[:, model.structure.joint.qpos[moved_joints(model)]]
    return jnp.zeros((len(state.qpos), model.structure.nu), state.qpos.dtype)


def moved_joints(model: Model) -> np.ndarray:
    """The joint of each actuator, (nu,).

    Raises:
        UnsupportedError: an actuator is not a motor on a hinge or slide.
    """
    a, joint = model.structure.actuator, model.structure.joint
    single = (a.transmission == _JOINT) & (a.gain == _FIXED) & (a.dynamics == 0) & (a.bias == 0)
    single &= joint.type[np.where(a.transmission == _JOINT, a.target, 0)] >= 2  # slide or hinge
    if not single.all():
        names = ", ".join(model.names("actuator")[i] or str(i) for i in np.flatnonzero(~single))
        raise UnsupportedError(f"positions and velocities as actions need motors on hinges and slides, not {names}")
    return np.asarray(a.target)
