"""Models and batches of the benchmarks of training, the same for fphys and for torch."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .. import nn

IMAGE, TOKENS, LENGTH, WIDE = 28, 128, 64, 128  # pixels along an edge; vocabulary, positions and features
PHOTO, PATCH = 224, 16  # pixels along the edge of a photograph and of a patch
BLOCKS = {"gpt": (WIDE, 1, 4), "gpt384": (384, 6, 6), "vit_tiny": (192, 12, 3)}  # features, blocks, heads
LARGE = ("resnet18", "vit_tiny", "gpt384")

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": lambda rngs: nn.models.MLP(IMAGE**2, (512, 512), 10, rngs=rngs),
    "cnn": lambda rngs: nn.models.CNN((IMAGE, IMAGE, 1), 10, rngs=rngs),
    "lstm": lambda rngs: nn.models.LSTMLanguageModel(TOKENS, features=WIDE, hidden=WIDE, num_layers=1, rngs=rngs),
    "gpt": lambda rngs: _gpt("gpt", rngs),
    "resnet18": lambda rngs: nn.models.resnet18(10, rngs=rngs),
    "vit_tiny": lambda rngs: nn.models.ViT(PHOTO, PATCH, 10, **_blocks("vit_tiny"), rngs=rngs),
    "gpt384": lambda rngs: _gpt("gpt384", rngs),
}


def _gpt(name: str, rngs: Any) -> nn.Module:
    return nn.models.GPT2(TOKENS, LENGTH, **_blocks(name), dropout=0.0, rngs=rngs)


def _blocks(name: str) -> dict[str, int]:
    return dict(zip(("features", "depth", "num_heads"), BLOCKS[name], strict=True))


def rate(name: str) -> float:
    """The learning rate. At 1e-3 a ResNet's loss vanishes in one step, and a ViT's rises before it falls."""
    return {"resnet18": 1e-5, "vit_tiny": 1e-4}.get(name, 1e-3)


def built(name: str) -> tuple[Any, Any, Any]:
    """``module, params, aux`` of a model, in float32 and the same at each call."""
    with jax.enable_x64(False):
        return nn.init(MODELS[name], jax.random.key(0))


def batch(name: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels to learn: shapes (size, ...) float32 and (size,), or (size, LENGTH) int32 each."""
    rng = np.random.default_rng(0)
    if name in ("lstm", "gpt", "gpt384"):
        text = rng.integers(0, TOKENS, (size, LENGTH + 1)).astype(np.int32)
        return text[:, :-1], text[:, 1:]
    shape = (size, PHOTO, PHOTO, 3) if name in LARGE else (size, IMAGE, IMAGE, 1)
    images = rng.random(shape, np.float32)
    return images.reshape(size, -1) if name == "mlp" else images, rng.integers(0, 10, size).astype(np.int32)
