"""Models and batches of the benchmarks of training, the same for fphys and for torch."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .. import nn

RATE = 1e-3
IMAGE, TOKENS, LENGTH, WIDE = 28, 128, 64, 128  # pixels along an edge; vocabulary, positions and features

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": lambda rngs: nn.models.MLP(IMAGE**2, (512, 512), 10, rngs=rngs),
    "cnn": lambda rngs: nn.models.CNN((IMAGE, IMAGE, 1), 10, rngs=rngs),
    "lstm": lambda rngs: nn.models.LSTMLanguageModel(TOKENS, features=WIDE, hidden=WIDE, num_layers=1, rngs=rngs),
    "gpt": lambda rngs: nn.models.GPT2(TOKENS, LENGTH, features=WIDE, depth=1, num_heads=4, dropout=0.0, rngs=rngs),
}


def built(name: str) -> tuple[Any, Any, Any]:
    """``module, params, aux`` of a model, in float32 and the same at each call."""
    with jax.enable_x64(False):
        return nn.init(MODELS[name], jax.random.key(0))


def batch(name: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels to learn: shapes (size, ...) float32 and (size,), or (size, LENGTH) int32 each."""
    rng = np.random.default_rng(0)
    if name in ("lstm", "gpt"):
        text = rng.integers(0, TOKENS, (size, LENGTH + 1)).astype(np.int32)
        return text[:, :-1], text[:, 1:]
    images = rng.random((size, IMAGE, IMAGE, 1), np.float32)
    return images if name == "cnn" else images.reshape(size, -1), rng.integers(0, 10, size).astype(np.int32)
