"""Mechanisms and their states: load, initialise, reset, check."""

from ..worlds import Status
from .init import check, init, reset
from .load import load, to_mujoco
from .model import Model
from .state import State

__all__ = ["Model", "State", "Status", "check", "init", "load", "reset", "to_mujoco"]
