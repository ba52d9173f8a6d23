"""Rigid bodies and matter that push each other: :func:`step`."""

from .exchange import Medium, step
from .meshes import PBD
from .particles import MPM, SPH

__all__ = ["MPM", "PBD", "SPH", "Medium", "step"]
