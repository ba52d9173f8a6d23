"""Real data without a download: scikit-learn's handwritten digits."""

import numpy as np

from ..errors import MissingDependencyError
from .source import Arrays


def digits(split: str = "train", seed: int = 0) -> Arrays:
    """1,797 digits of 8 x 8 pixels (E. Alpaydin and C. Kaynak 1998): 80 % for training and 20 % for testing.

    Returns:
        ``image`` float32 (n, 8, 8, 1) from 0 to 1, ``label`` int32 (n,). The split depends on ``seed`` only.

    Raises:
        MissingDependencyError: scikit-learn is not installed. ValueError: unknown split.
    """
    if split not in ("train", "test"):
        raise ValueError(f'split is {split!r}, must be "train" or "test"')
    try:
        from sklearn.datasets import load_digits
    except ImportError as cause:
        raise MissingDependencyError("the digits come with scikit-learn: pip install scikit-learn") from cause
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    cut = round(0.8 * len(labels))
    chosen = order[:cut] if split == "train" else order[cut:]
    return Arrays(
        image=(images[chosen] / 16).astype(np.float32).reshape(-1, 8, 8, 1), label=labels[chosen].astype(np.int32)
    )
