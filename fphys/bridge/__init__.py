"""Bridges: Warp launches as JAX operations (the only part of fphys that imports Warp)."""

from .op import WarpOp, reverse_only, warp_op
from .precision import kernels

__all__ = ["WarpOp", "kernels", "reverse_only", "warp_op"]
