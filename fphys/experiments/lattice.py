"""Where the particles of an experiment begin."""

from collections.abc import Sequence

import numpy as np


def lattice(lower: Sequence[float], upper: Sequence[float], spacing: float) -> np.ndarray:
    """Centres of the cells of a lattice that fill a box, shape (n, dim)."""
    axes = [low + spacing * (np.arange(round((high - low) / spacing)) + 0.5) for low, high in zip(lower, upper)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
