"""fphys: JAX-first functional tensors and differentiable physics.

Pure functions on pytrees: ``model = load(...)``, ``state = init(model, num_worlds)``,
``state = step(model, state, ctrl)``; all of them compose with ``jit``, ``grad``, ``vmap`` and ``scan``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import bridge, control, errors, identify, math, testing, units, worlds
from .model import Model, State, Status, check, init, load, reset, to_mujoco
from .model.assets import asset
from .rigid import derived  # noqa: F401  (registers how derived constants follow)
from .rigid.forward import Info, forward
from .rigid.inverse import bias, energy, inverse, mass_matrix
from .rigid.linearize import difference, linearize
from .rigid.sensor import sensors
from .rigid.soften import contacts_from_distance, softened
from .rigid.step import step
from .rigid.tree.kinematics import Kinematics, jacobian, kinematics
from .rollout import Checkpoint, Full, Truncated, rollout, scan

if TYPE_CHECKING:
    from . import (
        coupling,
        data,
        deformables,
        distributed,
        envs,
        export,
        losses,
        metrics,
        nn,
        optim,
        particles,
        render,
        rl,
        scene,
        tensor,
        train,
        typing,
    )
    from .scene import Scene

__version__ = "0.1.0"

_LATER = (
    *("coupling", "data", "deformables", "distributed", "envs", "export", "losses", "metrics", "nn", "optim"),
    *("particles", "render", "rl", "scene", "tensor", "train", "typing"),
)
"""Rooms that are imported when they are first used: flax and optax take as long to import as all the rest."""

__all__ = [
    "Checkpoint",
    "Full",
    "Info",
    "Kinematics",
    "Model",
    "Scene",
    "State",
    "Status",
    "Truncated",
    "asset",
    "bias",
    "bridge",
    "check",
    "contacts_from_distance",
    "control",
    "coupling",
    "data",
    "deformables",
    "difference",
    "distributed",
    "energy",
    "envs",
    "errors",
    "export",
    "forward",
    "identify",
    "init",
    "inverse",
    "jacobian",
    "kinematics",
    "linearize",
    "load",
    "losses",
    "mass_matrix",
    "math",
    "metrics",
    "nn",
    "optim",
    "particles",
    "render",
    "reset",
    "rl",
    "rollout",
    "scan",
    "scene",
    "sensors",
    "softened",
    "step",
    "tensor",
    "testing",
    "to_mujoco",
    "train",
    "typing",
    "units",
    "worlds",
]


def __getattr__(name: str) -> Any:
    if name == "Scene":
        return importlib.import_module(".scene", __name__).Scene
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
