"""What is wrong with data on disk."""

from collections.abc import Iterable
from pathlib import Path

from ..errors import FphysError


class DataError(FphysError, ValueError):
    """A file or folder of data is missing, truncated or of another format; the text says which, and what to do."""


def find(folder: Path, names: Iterable[str], get: str) -> Path:
    """The first of the files ``names`` that is in ``folder``; ``get`` says where they come from."""
    names = list(names)
    for name in names:
        if (folder / name).is_file():
            return folder / name
    there = "is no folder" if not folder.is_dir() else "holds neither" if len(names) > 1 else "does not hold"
    needed = f"; needed is {' or '.join(names)}" if not folder.is_dir() else f" {' nor '.join(names)}"
    raise DataError(f"{folder} {there}{needed}. {get}")
