"""Environments by name."""

import importlib
import importlib.util
import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MissingDependencyError
from ..model import load
from ..model.assets import asset
from .ant import Ant
from .arms import Pusher, Reacher
from .env import Env
from .expect import expect_options
from .fluid import FluidManipulation
from .franka_reach import FrankaReach
from .hand import ShadowHandManipulate
from .humanoids import Humanoid, HumanoidStandup
from .locomotion import AntLocomotion
from .pendulums import InvertedDoublePendulum, InvertedPendulum
from .planar import HalfCheetah, Hopper, Swimmer, Walker2d
from .quadrotor import QuadrotorHover
from .randomize import WIND, ranges
from .standup import Standup
from .suite import SUITE, SuiteEnv, suite_asset

GYMNASIUM: dict[str, type[Env]] = {
    "Ant-v5": Ant,
    "HalfCheetah-v5": HalfCheetah,
    "Hopper-v5": Hopper,
    "Humanoid-v5": Humanoid,
    "HumanoidStandup-v5": HumanoidStandup,
    "InvertedDoublePendulum-v5": InvertedDoublePendulum,
    "InvertedPendulum-v5": InvertedPendulum,
    "Pusher-v5": Pusher,
    "Reacher-v5": Reacher,
    "Swimmer-v5": Swimmer,
    "Walker2d-v5": Walker2d,
}
"""Gymnasium's tasks, with its names, options and numbers."""

TASKS: dict[str, type[Env]] = {
    "AntLocomotion": AntLocomotion,
    "FluidManipulation": FluidManipulation,
    "FrankaReach": FrankaReach,
    "HumanoidStandup": Standup,
    "QuadrotorHover": QuadrotorHover,
    "ShadowHandManipulate": ShadowHandManipulate,
}
"""fphys's own tasks, with its own models."""


def names() -> list[str]:
    """The names that :func:`make` knows."""
    return sorted([*TASKS, *GYMNASIUM, *SUITE])


def make(name: str, num_envs: int = 1, *, model: Any = None, dtype: Any = None, **options: Any) -> Env:
    """An environment by name.

    Args:
        name: one of :data:`TASKS`, :data:`GYMNASIUM` or :data:`SUITE`, for example "FrankaReach", "Ant-v5" or
            "dm_control/walker-walk"; ``fphys envs`` lists them. Or a class of your own, as "module:Class"; its model is
            ``source``, a path from the module's folder.
        num_envs: worlds side by side.
        model: another mechanism in place of the task's own: anything that :func:`fphys.load` takes.
        dtype: float32 or float64; by default float64 if JAX's x64 is on.
        options: the environment's options, by Gymnasium's names: ``frame_skip``, ``max_episode_steps``,
            ``terminate_when_unhealthy``, ...; ``randomize``, ranges by name, as in ``{"body.mass": (0.8, 1.2)}``
            (:func:`fphys.envs.ranges`), or True for the task's own; ``action_mode``, "ctrl", "position" or
            "velocity", with gains ``kp``, ``kd``.

    Raises:
        ValueError: there is no such environment, module or class. TypeError: it has no such option.
        MissingDependencyError: its model comes with a package that is not installed.
        ModelError, UnsupportedError: as for :func:`fphys.load`.
    """
    kind, own = SUITE[name] if name in SUITE else ((TASKS | GYMNASIUM).get(name) or own_class(name), {})
    with warnings.catch_warnings():
        if model is None:  # humanoid.xml asks for Gauss-Seidel, whose limit Newton's method finds
            warnings.filterwarnings("ignore", ".*solver PGS or CG is read as Newton")
            model = _model_of(name, kind)
        mechanism = load(model, dtype=dtype)
    given = options.get("randomize", ())
    options["randomize"] = ranges(kind.varied if given is True else given or ())
    if kind.control is not Env.control and options.get("action_mode", "ctrl") != "ctrl":
        raise ValueError(f"{name} has actions of its own: leave action_mode out")
    air = np.any(mechanism.opt.density) or np.any(mechanism.opt.viscosity)
    if not air and any(path == WIND for path, *_ in options["randomize"]):
        raise ValueError('randomize: "wind" moves nothing, for the model has no air: give it a density')
    if issubclass(kind, SuiteEnv):
        mechanism = kind.prepared(mechanism)
    env = kind(mechanism, num_envs=num_envs, **{**own, **options})
    expect_options(env)
    return env


def own_class(name: str) -> type[Env]:
    """The class of "module:Class".

    Raises:
        ValueError: there is no such module, or no such subclass of :class:`Env` in it.
    """
    module, colon, wanted = name.partition(":")
    if not colon:
        raise ValueError(f"there is no environment {name!r}: there are {', '.join(names())}, and your own module:Class")
    try:
        kind = getattr(importlib.import_module(module), wanted, None)
    except ModuleNotFoundError as cause:
        raise ValueError(f"{name}: {cause}: is it in the current folder, or installed?") from cause
    if not (isinstance(kind, type) and issubclass(kind, Env)):
        raise ValueError(f"{name}: {module} has no subclass of fphys.envs.Env with the name {wanted!r}")
    return kind


def _model_of(name: str, kind: type[Env]) -> Path:
    """Where the model of an environment is."""
    if name in SUITE:
        return suite_asset(kind.source)
    if name in TASKS:
        return Path(asset(kind.source))
    if name in GYMNASIUM:
        return gymnasium_asset(kind.source)
    if not kind.source:
        raise ValueError(
            f'{name} has no model: give the class `source = "robot.xml"`, a path from its module\'s folder'
        )
    return Path(inspect.getfile(kind)).parent / kind.source


def gymnasium_asset(file: str) -> Path:
    """A model file of the installed Gymnasium."""
    found = importlib.util.find_spec("gymnasium")
    if found is None or found.origin is None:
        raise MissingDependencyError(f"{file} comes with Gymnasium: pip install gymnasium")
    return Path(found.origin).parent / "envs" / "mujoco" / "assets" / file


def register() -> None:
    """Register every environment with Gymnasium, as ``fphys/Ant-v5``, ``fphys/walker-walk`` and so on.

    fphys's own tasks have version 0 there, as in ``fphys/HumanoidStandup-v0``: Gymnasium takes no name with and without
    a version. Calling it again changes nothing.
    """
    from gymnasium.envs.registration import register as add
    from gymnasium.envs.registration import registry

    for name in names():
        own = f"fphys/{name.rpartition('/')[2]}" + "-v0" * (name in TASKS)
        if own not in registry:
            module = "fphys.envs.vector"
            add(own, f"{module}:single_env", vector_entry_point=f"{module}:vector_env", kwargs={"name": name})
