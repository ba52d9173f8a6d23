"""ImageNet's layout: one folder of images per class."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DataError
from .source import Record
from .transforms import read_image

SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")


class ImageFolder:
    """Records ``image`` and ``label`` (int32) from ``folder/CLASS/ANYTHING.jpeg``, classes in alphabetical order.

    Images are read on demand as uint8 (height, width, 3) and passed to ``transform``, which must give them one size if
    they are batched.

    Raises:
        DataError: the folder is missing, has no classes, or a class has no image. On reading: an image is damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], transform: Callable[[np.ndarray], Any] | None = None) -> None:
        self.folder, self.transform = Path(folder), transform
        layout = "laid out as folder/CLASS/IMAGE.jpeg, like ImageNet's train/n01440764/n01440764_10026.JPEG"
        if not self.folder.is_dir():
            raise DataError(f"{self.folder} is not a folder; it must be one {layout}")
        self.classes = tuple(sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir()))
        if not self.classes:
            raise DataError(f"{self.folder} has no class folders; it must be {layout}")
        self.files: list[tuple[Path, int]] = []
        for label, name in enumerate(self.classes):
            found = sorted(p for p in (self.folder / name).rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if not found:
                raise DataError(
                    f"{self.folder / name} holds no image ({', '.join(SUFFIXES)}): add images or remove the class"
                )
            self.files += [(path, label) for path in found]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Record:
        path, label = self.files[index]
        image = read_image(path)
        return {"image": self.transform(image) if self.transform else image, "label": np.int32(label)}

    def __repr__(self) -> str:  # grain compares this when resuming
        return f"ImageFolder({self.folder}: {len(self)} images of {len(self.classes)} classes)"
