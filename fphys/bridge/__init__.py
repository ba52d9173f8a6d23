"""Bridges: Warp launches as JAX operations (only this package imports Warp); arrays and gradients to other tools."""

from . import dlpack, flags, genesis, torch
from .interrupts import interruptible
from .op import WarpOp, by_platform, reverse_only, warp_op, worldwise
from .precision import kernels
from .profile import stage_times
from .spread import alongside, custom_vjp
from .workers import num_parts

__all__ = [
    "WarpOp",
    "alongside",
    "by_platform",
    "custom_vjp",
    "dlpack",
    "flags",
    "genesis",
    "interruptible",
    "kernels",
    "num_parts",
    "reverse_only",
    "stage_times",
    "torch",
    "warp_op",
    "worldwise",
]
