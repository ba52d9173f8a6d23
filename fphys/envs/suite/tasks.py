"""The control suite's tasks by name, and their models."""

import importlib.util
from pathlib import Path
from typing import Any

from ...errors import MissingDependencyError
from .arms import FingerSpin, FingerTurn, Reacher
from .base import SuiteEnv
from .pendulums import Acrobot, Cartpole, Pendulum
from .runners import Cheetah, Hopper, Walker

SUITE: dict[str, tuple[type[SuiteEnv], dict[str, Any]]] = {
    "dm_control/acrobot-swingup": (Acrobot, {}),
    "dm_control/acrobot-swingup_sparse": (Acrobot, {"sparse": True}),
    "dm_control/cartpole-balance": (Cartpole, {"swing_up": False}),
    "dm_control/cartpole-balance_sparse": (Cartpole, {"swing_up": False, "sparse": True}),
    "dm_control/cartpole-swingup": (Cartpole, {}),
    "dm_control/cartpole-swingup_sparse": (Cartpole, {"sparse": True}),
    "dm_control/cheetah-run": (Cheetah, {}),
    "dm_control/finger-spin": (FingerSpin, {}),
    "dm_control/finger-turn_easy": (FingerTurn, {}),
    "dm_control/finger-turn_hard": (FingerTurn, {"radius": 0.03}),
    "dm_control/hopper-hop": (Hopper, {}),
    "dm_control/hopper-stand": (Hopper, {"speed": 0.0}),
    "dm_control/pendulum-swingup": (Pendulum, {}),
    "dm_control/reacher-easy": (Reacher, {}),
    "dm_control/reacher-hard": (Reacher, {"radius": 0.015}),
    "dm_control/walker-run": (Walker, {"speed": 8.0}),
    "dm_control/walker-stand": (Walker, {"speed": 0.0}),
    "dm_control/walker-walk": (Walker, {}),
}
"""The suite's tasks: "dm_control/", domain and task, each with its class and the options that make it this task."""


def suite_asset(file: str) -> Path:
    """A model file of the installed dm_control, which is not imported.

    Raises:
        MissingDependencyError: dm_control is not installed.
    """
    found = importlib.util.find_spec("dm_control")
    if found is None or found.origin is None:
        raise MissingDependencyError(f"{file} comes with dm_control: pip install dm_control")
    return Path(found.origin).parent / "suite" / file
