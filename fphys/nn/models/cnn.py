"""A small convolutional network for digits and similar images."""

from collections.abc import Sequence

from flax import nnx

from ...typing import Array, Float, shaped
from ..layers import Conv2d, Dropout, Flatten, MaxPool2d
from ..linear import Linear


class CNN(nnx.Module):
    """For each width a 3 x 3 convolution, ReLU and pooling by two; then a hidden layer and the output layer."""

    def __init__(
        self,
        image: Sequence[int],
        num_classes: int,
        *,
        widths: Sequence[int] = (32, 64),
        hidden: int = 128,
        dropout: float = 0.0,
        rngs: nnx.Rngs,
    ):
        """Build the network.

        Args:
            image: height, width and channels of the input.
            num_classes: size of the output.
            widths: channels after each convolution.
            hidden: width of the layer before the last.
            dropout: rate before the last layer, when training.
            rngs: for the parameters and the dropout.

        Raises:
            ValueError: the image is too small to be halved once per width.
        """
        height, width, channels = image
        halvings = 2 ** len(widths)
        if min(height, width) < halvings:
            raise ValueError(
                f"image is {height} x {width}, must be at least {halvings} x {halvings}: {len(widths)} widths"
            )
        sizes = [channels, *widths]
        self.features = nnx.List(Conv2d(a, b, 3, padding=1, rngs=rngs) for a, b in zip(sizes, widths, strict=False))
        self.hidden = Linear((height // halvings) * (width // halvings) * sizes[-1], hidden, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.head = Linear(hidden, num_classes, rngs=rngs)

    @shaped
    def __call__(self, x: Float[Array, "batch height width channels"]) -> Float[Array, "batch classes"]:
        """Map images to logits. Gradients flow to ``x`` and the parameters."""
        for convolution in self.features:
            x = MaxPool2d(2)(nnx.relu(convolution(x)))
        return self.head(self.dropout(nnx.relu(self.hidden(Flatten()(x)))))
