"""Several devices and machines: worlds spread over a mesh by XLA, processes joined by ``jax.distributed``."""

from .sharding import everywhere, gradient, local, mesh, split, total

__all__ = ["everywhere", "gradient", "local", "mesh", "split", "total"]
