"""Bodies that deform: finite elements, and position-based dynamics, on meshes."""

from . import fem, mesh, pbd, rod

__all__ = ["fem", "mesh", "pbd", "rod"]
