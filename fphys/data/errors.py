"""Errors of data on disk."""

from collections.abc import Iterable
from pathlib import Path

from ..errors import FphysError


class DataError(FphysError, ValueError):
    """A data file or folder is missing, truncated or in another format; the message says which, and what to do."""


def find(folder: Path, names: Iterable[str], get: str) -> Path:
    """The first file of ``names`` that exists in ``folder``; ``get`` says where to download it."""
    names = list(names)
    for name in names:
        if (folder / name).is_file():
            return folder / name
    there = "is not a folder" if not folder.is_dir() else "holds neither" if len(names) > 1 else "does not hold"
    needed = f"; it must hold {' or '.join(names)}" if not folder.is_dir() else f" {' nor '.join(names)}"
    raise DataError(f"{folder} {there}{needed}. {get}")
