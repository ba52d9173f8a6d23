"""The binary version of CIFAR-10 (A. Krizhevsky): records of a label and three 32 x 32 colour planes."""

import os
from pathlib import Path

import numpy as np

from .errors import DataError, find
from .source import Arrays, check_labels

_RECORD = 1 + 3 * 32 * 32
_GET = (
    "It is part of the binary version of CIFAR-10, https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz: unpack it "
    "and pass the folder cifar-10-batches-bin"
)


def cifar10(folder: str | os.PathLike[str], split: str = "train") -> Arrays:
    """CIFAR-10: ``image`` uint8 (n, 32, 32, 3), ``label`` int32 (n,).

    Args:
        folder: the folder with ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin``.
        split: "train" (all five) or "test".

    Raises:
        DataError: a file is missing or truncated, or holds a label above 9. ValueError: unknown split.
    """
    if split not in ("train", "test"):
        raise ValueError(f'split is {split!r}, must be "train" or "test"')
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
    records = np.concatenate([_read(find(Path(folder), [name], _GET)) for name in names])
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return Arrays(image=np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), label=records[:, 0].astype(np.int32))


def _read(path: Path) -> np.ndarray:
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % _RECORD:
        raise DataError(
            f"{path} is truncated or not a CIFAR-10 file: {len(content)} bytes do not divide into records of {_RECORD}"
        )
    records = content.reshape(-1, _RECORD)
    try:
        check_labels(records[:, 0], 10)
    except ValueError as cause:
        raise DataError(f"{path} is not a CIFAR-10 file: {cause}") from None
    return records
