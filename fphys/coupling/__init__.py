"""Rigid bodies and matter that push each other: :func:`step`."""

from .exchange import Medium, step
from .meshes import FEM, PBD
from .particles import MPM, SPH

__all__ = ["FEM", "MPM", "PBD", "SPH", "Medium", "step"]
