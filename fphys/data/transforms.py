"""Image transforms on the host, on channels-last arrays. Values equal those of torchvision on PIL images."""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DataError


def read_image(path: str | os.PathLike[str]) -> np.ndarray:
    """An image file as RGB, uint8 (height, width, 3). Grey values of 16 bits are scaled to 8.

    Raises:
        DataError: the file is missing, truncated or not an image.
    """
    from PIL import Image

    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        with Image.open(path) as image:
            if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would cut off at 255
                grey = (np.asarray(image).astype(np.int64).clip(0, 65535) * 255 + 32767) // 65535
                return np.repeat(grey.astype(np.uint8)[..., None], 3, -1)
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as cause:
        raise DataError(f"{path} is truncated or not an image ({cause}): replace or remove it") from cause


@dataclasses.dataclass(frozen=True)
class Compose:
    """Apply transforms one after the other."""

    transforms: Sequence[Callable[[Any], Any]]  # Each maps one image; applied in this order.

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


@dataclasses.dataclass(frozen=True)
class Resize:
    """Resize uint8 images (height, width, channels) bilinearly, with antialiasing when shrinking.

    ``size`` is the height and width, or the length of the shorter side. The longer side then follows, rounded down.

    Raises:
        ValueError: ``size`` is something else. TypeError: the image is not an array of three axes.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        _settle_size(self)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        from PIL import Image

        height, width = _image(image).shape[:2]
        if not isinstance(self.size, int):
            new = self.size[0], self.size[1]
        elif width <= height:
            new = int(self.size * height / width), self.size
        else:
            new = self.size, int(self.size * width / height)
        if new == (height, width):
            return image
        single = image.shape[2] == 1
        picture = Image.fromarray(image[..., 0] if single else image)
        resized = np.asarray(picture.resize((new[1], new[0]), Image.Resampling.BILINEAR))
        return resized[..., None] if single else resized


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop:
    """Cut a random window and resize it to ``size``, as torchvision's transform of this name (Szegedy 2015).

    Called with an image and the generator that :func:`loader` gives to its ``transform``. The window's area is a random
    share of the image's, its width over height is log-uniform; after ten windows that do not fit, the largest central
    one is taken.

    Raises:
        ValueError: ``size`` is not one or two whole numbers, or ``scale`` or ``ratio`` is out of range. TypeError: the
            image is not an array of three axes.
    """

    size: int | Sequence[int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _settle_size(self)
        if not (0 < self.scale[0] <= self.scale[1] <= 1 and 0 < self.ratio[0] <= self.ratio[1]):
            raise ValueError(f"scale={self.scale}, ratio={self.ratio}: must be positive and rising, scale at most 1")

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        high, wide = _image(image).shape[:2]
        top, left, height, width = self.window(high, wide, rng)
        return Resize(_pair(self.size))(image[top : top + height, left : left + width])

    def window(self, height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Top, left, height and width [pixels] of a random window of an image of this height and width."""
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(*np.log(self.ratio)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
        return (height - h) // 2, (width - w) // 2, h, w


@dataclasses.dataclass(frozen=True)
class CenterCrop:
    """Cut ``size`` from the middle: height and width, or a square's side. Smaller images are padded with black.

    Raises:
        ValueError: ``size`` is something else. TypeError: the image is not an array of three axes.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        _settle_size(self)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        wanted = _pair(self.size)
        lack = [max(want - have, 0) for want, have in zip(wanted, _image(image).shape)]
        if any(lack):
            image = np.pad(image, [*((n // 2, (n + 1) // 2) for n in lack), (0, 0)])
        top, left = (round((have - want) / 2) for want, have in zip(wanted, image.shape))
        return image[top : top + wanted[0], left : left + wanted[1]]


@dataclasses.dataclass(frozen=True)
class ToTensor:
    """Convert uint8 from 0 to 255 into float32 from 0 to 1; other types are unchanged.

    Channels stay last, as flax expects. ``channels_first=True`` gives torch's order.

    Raises:
        TypeError: the image is not an array of three axes.
    """

    channels_first: bool = False

    def __call__(self, image: np.ndarray) -> np.ndarray:
        scaled = image.astype(np.float32) / np.float32(255) if _image(image).dtype == np.uint8 else image
        return np.ascontiguousarray(scaled.transpose(2, 0, 1)) if self.channels_first else scaled


@dataclasses.dataclass(frozen=True)
class Normalize:
    """(image - mean) / std, with one mean and one std per channel, or one for all channels.

    Raises:
        ValueError: mean and std have different numbers of channels, or the image has another; or a std is zero.
            TypeError: the image is not floating-point.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]
    channels_first: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, tuple(np.ravel(getattr(self, name)).tolist()))
        means, stds = np.size(self.mean), np.size(self.std)
        if 1 not in (means, stds) and means != stds:
            raise ValueError(f"mean has {means} numbers and std {stds}, must have the same: one for each channel")
        if 0 in np.ravel(self.std):
            raise ValueError(f"std={self.std} holds a zero: a channel cannot be divided by it")

    def __call__(self, image: np.ndarray) -> np.ndarray:
        channels = image.shape[-3:-2] if self.channels_first else image.shape[-1:]
        given = max(np.size(self.mean), np.size(self.std))
        if given != 1 and channels != (given,):
            raise ValueError(f"Normalize is for {given} channels, the image {image.shape} has {(*channels, 0)[0]}")
        if image.dtype.kind != "f":
            raise TypeError(f"Normalize was given {image.dtype}, needs floating point: put ToTensor() before it")
        shape = (-1, 1, 1) if self.channels_first else (-1,)
        mean, std = (np.asarray(values, image.dtype).reshape(shape) for values in (self.mean, self.std))
        return (image - mean) / std


IMAGENET = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet (red, green, blue), for torchvision's and Hugging Face's weights."""


def _settle_size(transform: Any) -> None:
    """Replace the ``size`` of a frozen dataclass by an int or a tuple of two."""
    size = np.asarray(transform.size)
    if size.dtype.kind not in "iu" or size.shape not in ((), (2,)) or size.min() < 1:
        name = type(transform).__name__
        raise ValueError(f"{name}(size={transform.size!r}): size must be one or two whole numbers, 1 or more")
    found = size.tolist()
    object.__setattr__(transform, "size", found if size.ndim == 0 else tuple(found))


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _image(image: np.ndarray) -> np.ndarray:
    if getattr(image, "ndim", 0) != 3:
        raise TypeError(f"an image is an array (height, width, channels), not {getattr(image, 'shape', type(image))}")
    return image
