"""Rigid bodies and matter that push each other: :func:`step`."""

from .exchange import Medium, step
from .particles import MPM, SPH

__all__ = ["MPM", "SPH", "Medium", "step"]
