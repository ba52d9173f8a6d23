"""Rigid bodies and matter that push each other: :func:`step`."""

from .exchange import Medium, step
from .meshes import FEM, PBD
from .particles import MPM, SPH
from .surfaces import Surface

__all__ = ["FEM", "MPM", "PBD", "SPH", "Medium", "Surface", "step"]
