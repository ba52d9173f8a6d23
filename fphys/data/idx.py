"""The IDX format of MNIST (Y. LeCun): a big-endian magic number, the sizes, then the elements."""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np

from .errors import DataError, find
from .source import Arrays, check_labels

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GET = (
    "MNIST's four files (train-images-idx3-ubyte and so on, .gz or not) are available at "
    "https://ossci-datasets.s3.amazonaws.com/mnist/: put them into that folder"
)


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file, gzipped (``.gz``) or not, in native byte order.

    Raises:
        DataError: the file is missing, truncated, too long, or not an IDX file.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except FileNotFoundError:
        raise DataError(f"{path} does not exist. {_GET}") from None
    except (EOFError, zlib.error, OSError) as cause:
        raise DataError(f"{path} cannot be read: truncated or damaged ({cause}). Download it again. {_GET}") from cause
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise DataError(f"{path} is not an IDX file: it begins with {content[:4]!r}, not two zeros and a known type")
    dtype, ndim = np.dtype(_DTYPES[content[2]]), content[3]
    if len(content) < 4 + 4 * ndim:
        raise DataError(f"{path} is truncated within its header: {len(content)} bytes. {_GET}")
    shape = struct.unpack(f">{ndim}I", content[4 : 4 + 4 * ndim])
    wanted = 4 + 4 * ndim + math.prod(shape) * dtype.itemsize
    if len(content) != wanted:
        what = "truncated" if len(content) < wanted else "too long"
        raise DataError(f"{path} is {what}: shape {shape} of {dtype.name} takes {wanted} bytes, it has {len(content)}")
    values = np.frombuffer(content, dtype, offset=4 + 4 * ndim).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def mnist(folder: str | os.PathLike[str], split: str = "train", num_classes: int = 10) -> Arrays:
    """MNIST or a data set in its layout (Fashion-MNIST): ``image`` uint8 (n, height, width, 1), ``label`` int32 (n,).

    Args:
        folder: the folder with ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-...``, ``.gz`` or not.
        split: "train" or "test".

    Raises:
        DataError: a file is missing or truncated, or images and labels do not match. ValueError: unknown split.
    """
    if split not in ("train", "test"):
        raise ValueError(f'split is {split!r}, must be "train" or "test"')
    prefix = "train" if split == "train" else "t10k"
    names = [f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"]
    found = [find(Path(folder), (name, f"{name}.gz"), _GET) for name in names]
    images, labels = map(read_idx, found)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise DataError(f"{found[0]} has {images.dtype}{images.shape}, images must be uint8 (n, height, width)")
    if labels.shape != images.shape[:1]:
        raise DataError(f"{found[1]} has labels of shape {labels.shape} for {len(images)} images in {found[0].name}")
    try:
        check_labels(labels, num_classes)
    except ValueError as cause:
        raise DataError(f"{found[1]}: {cause}") from None
    return Arrays(image=images[..., None], label=labels.astype(np.int32))
