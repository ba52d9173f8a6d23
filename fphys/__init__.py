"""fphys: JAX-first functional tensors and differentiable physics.

Pure functions on pytrees: ``model = load(...)``, ``state = init(model, num_worlds)``,
``state = step(model, state, ctrl)``; all of them compose with ``jit``, ``grad``, ``vmap`` and ``scan``.
"""

from . import bridge, control, data, errors, export, math, testing, train
from .model import Model, State, Status, check, init, load, reset, to_mujoco
from .model.assets import asset
from .rigid import derived  # noqa: F401  (registers how derived constants follow)
from .rigid.forward import Info, forward
from .rigid.inverse import bias, energy, inverse, mass_matrix
from .rigid.kinematics import Kinematics, jacobian, kinematics
from .rigid.linearize import linearize
from .rigid.sensor import sensors
from .rigid.soften import contacts_from_distance, softened
from .rigid.step import step
from .rollout import Checkpoint, Full, Truncated, rollout, scan

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "Full",
    "Info",
    "Kinematics",
    "Model",
    "State",
    "Status",
    "Truncated",
    "asset",
    "bias",
    "bridge",
    "check",
    "contacts_from_distance",
    "control",
    "data",
    "energy",
    "errors",
    "export",
    "forward",
    "init",
    "inverse",
    "jacobian",
    "kinematics",
    "linearize",
    "load",
    "mass_matrix",
    "math",
    "reset",
    "rollout",
    "scan",
    "sensors",
    "softened",
    "step",
    "testing",
    "to_mujoco",
    "train",
]
