"""Bodies that deform: finite elements on meshes."""

from . import fem, mesh

__all__ = ["fem", "mesh"]
