"""DeepMind's control suite, from the models of the installed dm_control: see :data:`SUITE`."""

from .arms import Finger, FingerSpin, FingerTurn, Reacher
from .base import SuiteEnv, tolerance
from .pendulums import Acrobot, Cartpole, Pendulum
from .runners import Cheetah, Hopper, Walker
from .tasks import SUITE, suite_asset

__all__ = [
    "SUITE",
    "Acrobot",
    "Cartpole",
    "Cheetah",
    "Finger",
    "FingerSpin",
    "FingerTurn",
    "Hopper",
    "Pendulum",
    "Reacher",
    "SuiteEnv",
    "Walker",
    "suite_asset",
    "tolerance",
]
