"""Data: indexed sources, batch loaders built on grain, file readers, and transforms.

A *source* has a length and returns a record, a dict of NumPy arrays, for an index. :func:`loader` makes batches of it.
"""

from . import augment
from .cifar import cifar10
from .digits import digits
from .errors import DataError
from .folder import ImageFolder
from .idx import mnist, read_idx
from .loader import loader
from .source import Arrays, Source, check_labels
from .transforms import IMAGENET, CenterCrop, Compose, Normalize, RandomResizedCrop, Resize, ToTensor, read_image

__all__ = [
    "IMAGENET",
    "Arrays",
    "CenterCrop",
    "Compose",
    "DataError",
    "ImageFolder",
    "Normalize",
    "RandomResizedCrop",
    "Resize",
    "Source",
    "ToTensor",
    "augment",
    "check_labels",
    "cifar10",
    "digits",
    "loader",
    "mnist",
    "read_idx",
    "read_image",
]
