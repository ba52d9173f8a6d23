"""VGG (Simonyan and Zisserman 2015)."""

import os
from collections.abc import Sequence

from flax import nnx

from ...typing import Array, Float, shaped
from ..layers import AdaptiveAvgPool2d, Conv2d, Dropout, Flatten, MaxPool2d
from ..linear import Linear
from ..norms import BatchNorm
from ..weights import Weights, translate
from ..weights import pretrained as _with

_INIT = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")


class VGG(nnx.Module):
    """Groups of 3 x 3 convolutions, each pooled by two; then two hidden layers and the output layer."""

    HEAD = "classifier.layers.6"  # the name of the output layer

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        num_classes: int = 1000,
        *,
        hidden: int = 4096,
        dropout: float = 0.5,
        in_channels: int = 3,
        batch_norm: bool = False,
        rngs: nnx.Rngs,
    ):
        """Args: the widths of each group's convolutions and of the hidden layers; whether convolutions have norms."""
        layers, features = [], in_channels
        for group in groups:
            for width in group:
                layers.append(Conv2d(features, width, 3, padding=1, kernel_init=_INIT, rngs=rngs))
                layers += [BatchNorm(width, rngs=rngs)] if batch_norm else []
                layers.append(nnx.relu)
                features = width
            layers.append(MaxPool2d(2))
        self.features = nnx.Sequential(*layers)
        self.classifier = nnx.Sequential(
            Linear(features * 49, hidden, rngs=rngs),
            nnx.relu,
            Dropout(dropout, rngs=rngs),
            Linear(hidden, hidden, rngs=rngs),
            nnx.relu,
            Dropout(dropout, rngs=rngs),
            Linear(hidden, num_classes, rngs=rngs),
        )

    @shaped
    def __call__(self, x: Float[Array, "batch height width channels"]) -> Float[Array, "batch classes"]:
        """Map images of 224 x 224 to logits. Other sizes are averaged to fit.

        Gradients flow to ``x`` and the parameters.
        """
        return self.classifier(Flatten()(AdaptiveAvgPool2d(7)(self.features(x))))

    @staticmethod
    def convert(weights: Weights) -> Weights:
        """Convert torchvision's names. Flattened images vary fastest in the channel here, slowest there."""
        found = translate(weights, [(r"^(features|classifier)\.", r"\1.layers.")])
        first = found["classifier.layers.0.kernel"]
        image = first.reshape(-1, 7, 7, first.shape[-1]).transpose(1, 2, 0, 3)
        return found | {"classifier.layers.0.kernel": image.reshape(first.shape)}


_GROUPS = {
    "vgg11": ((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2),
    "vgg16": ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3),
}


def vgg11(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> VGG:
    """VGG-11. For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`."""
    model = VGG(_GROUPS["vgg11"], num_classes, rngs=rngs)
    return _with(model, "vgg11", pretrained, new_head=new_head)


def vgg11_bn(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> VGG:
    """VGG-11 with batch normalisation.

    For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`.
    """
    model = VGG(_GROUPS["vgg11"], num_classes, batch_norm=True, rngs=rngs)
    return _with(model, "vgg11_bn", pretrained, new_head=new_head)


def vgg16(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> VGG:
    """VGG-16. For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`."""
    model = VGG(_GROUPS["vgg16"], num_classes, rngs=rngs)
    return _with(model, "vgg16", pretrained, new_head=new_head)


def vgg16_bn(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> VGG:
    """VGG-16 with batch normalisation.

    For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`.
    """
    model = VGG(_GROUPS["vgg16"], num_classes, batch_norm=True, rngs=rngs)
    return _with(model, "vgg16_bn", pretrained, new_head=new_head)
