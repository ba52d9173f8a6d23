"""Checks for differentiable, world-batched operations: gradients, transforms, order of convergence."""

from .grads import check_grads
from .order import check_order
from .transforms import check_transforms

__all__ = ["check_grads", "check_order", "check_transforms"]
