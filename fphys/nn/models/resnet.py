"""Residual networks (He 2016), with the stride on the middle convolution as in torchvision."""

import os
import re
from collections.abc import Sequence

import jax
from flax import nnx

from ...typing import Array, Float, shaped
from ..layers import Conv2d, MaxPool2d
from ..linear import Linear
from ..norms import BatchNorm
from ..weights import Rule, Weights, translate
from ..weights import pretrained as _with

_INIT = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")


def _conv(a: int, b: int, size: int, stride: int, rngs: nnx.Rngs) -> Conv2d:
    return Conv2d(a, b, size, stride, size // 2, use_bias=False, kernel_init=_INIT, rngs=rngs)


def _norm(features: int, rngs: nnx.Rngs) -> BatchNorm:
    return BatchNorm(features, rngs=rngs)


class BasicBlock(nnx.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, in_features: int, width: int, stride: int, *, rngs: nnx.Rngs):
        self.conv1, self.bn1 = _conv(in_features, width, 3, stride, rngs), _norm(width, rngs)
        self.conv2, self.bn2 = _conv(width, width, 3, 1, rngs), _norm(width, rngs)
        self.downsample = _shortcut(in_features, width, stride, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (batch, height, width, in_features) to (batch, height / stride, width / stride, ``width``), rounded up.

        Gradients flow to ``x`` and the parameters.
        """
        y = nnx.relu(self.bn1(self.conv1(x)))
        return nnx.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nnx.Module):
    """1 x 1 to fewer channels, 3 x 3, then 1 x 1 to four times as many, and a shortcut."""

    expansion = 4

    def __init__(self, in_features: int, width: int, stride: int, *, rngs: nnx.Rngs):
        self.conv1, self.bn1 = _conv(in_features, width, 1, 1, rngs), _norm(width, rngs)
        self.conv2, self.bn2 = _conv(width, width, 3, stride, rngs), _norm(width, rngs)
        self.conv3, self.bn3 = _conv(width, 4 * width, 1, 1, rngs), _norm(4 * width, rngs)
        self.downsample = _shortcut(in_features, 4 * width, stride, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (batch, height, width, in_features) to (batch, height / stride, width / stride, 4 ``width``), rounded up.

        Gradients flow to ``x`` and the parameters.
        """
        y = nnx.relu(self.bn1(self.conv1(x)))
        y = nnx.relu(self.bn2(self.conv2(y)))
        return nnx.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _shortcut(a: int, b: int, stride: int, rngs: nnx.Rngs) -> nnx.Sequential:
    """The shortcut: empty if the shapes agree."""
    return nnx.Sequential(_conv(a, b, 1, stride, rngs), _norm(b, rngs)) if a != b or stride > 1 else nnx.Sequential()


class ResNet(nnx.Module):
    """A stem that divides the size by four, four groups of blocks, the mean over the image, and the output layer."""

    HEAD = "fc"  # the name of the output layer

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        num_classes: int = 1000,
        *,
        widths: Sequence[int] = (64, 128, 256, 512),
        in_channels: int = 3,
        rngs: nnx.Rngs,
    ):
        """Args: the block class; how many blocks, and how wide, in each of the four groups."""
        self.conv1, self.bn1 = _conv(in_channels, widths[0], 7, 2, rngs), _norm(widths[0], rngs)
        features = widths[0]
        groups = []
        for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks = nnx.List([])
            for number in range(depth):
                blocks.append(block(features, width, 2 if index and not number else 1, rngs=rngs))
                features = width * block.expansion
            groups.append(blocks)
        self.layer1, self.layer2, self.layer3, self.layer4 = groups
        self.fc = Linear(features, num_classes, rngs=rngs)

    @shaped
    def __call__(self, x: Float[Array, "batch height width channels"]) -> Float[Array, "batch classes"]:
        """Map images to logits. Gradients flow to ``x`` and the parameters."""
        x = MaxPool2d(3, 2, 1)(nnx.relu(self.bn1(self.conv1(x))))
        for blocks in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in blocks:
                x = block(x)
        return self.fc(x.mean((1, 2)))

    @staticmethod
    def convert(weights: Weights) -> Weights:
        """Convert torchvision's or Hugging Face's names."""
        return translate(weights, [*(_HUGGING_FACE if "classifier.1.weight" in weights else ()), *_TORCHVISION])


def _convolution(match: re.Match[str]) -> str:
    stage, block, number, kind = match.groups()
    return f"layer{int(stage) + 1}.{block}.{'conv' if kind == 'convolution' else 'bn'}{int(number) + 1}"


_TORCHVISION: list[Rule] = [(r"downsample\.(\d)", r"downsample.layers.\1")]
_HUGGING_FACE: list[Rule] = [
    (r"^resnet\.embedder\.embedder\.convolution", "conv1"),
    (r"^resnet\.embedder\.embedder\.normalization", "bn1"),
    (r"^resnet\.encoder\.stages\.(\d)\.layers\.(\d+)\.layer\.(\d)\.(convolution|normalization)", _convolution),
    (r"^resnet\.encoder\.stages\.(\d)", lambda match: f"layer{int(match[1]) + 1}"),
    (r"\.layers\.(\d+)\.shortcut\.convolution", r".\1.downsample.0"),
    (r"\.layers\.(\d+)\.shortcut\.normalization", r".\1.downsample.1"),
    (r"^classifier\.1", "fc"),
]


def resnet18(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> ResNet:
    """ResNet-18. For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`."""
    return _with(ResNet(BasicBlock, (2, 2, 2, 2), num_classes, rngs=rngs), "resnet18", pretrained, new_head=new_head)


def resnet34(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> ResNet:
    """ResNet-34. For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`."""
    return _with(ResNet(BasicBlock, (3, 4, 6, 3), num_classes, rngs=rngs), "resnet34", pretrained, new_head=new_head)


def resnet50(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> ResNet:
    """ResNet-50. For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`."""
    return _with(ResNet(Bottleneck, (3, 4, 6, 3), num_classes, rngs=rngs), "resnet50", pretrained, new_head=new_head)
