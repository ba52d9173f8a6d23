"""Bridges: Warp launches as JAX operations (the only part of fphys that imports Warp)."""

from .op import WarpOp, reverse_only, warp_op
from .precision import kernels
from .profile import stage_times

__all__ = ["WarpOp", "kernels", "reverse_only", "stage_times", "warp_op"]
