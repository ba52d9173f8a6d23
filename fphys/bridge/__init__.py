"""Bridges: Warp launches as JAX operations (the only part of fphys that imports Warp)."""

from . import flags
from .op import WarpOp, reverse_only, warp_op
from .precision import kernels
from .profile import stage_times
from .workers import num_parts

__all__ = ["WarpOp", "flags", "kernels", "num_parts", "reverse_only", "stage_times", "warp_op"]
