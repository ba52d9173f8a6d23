"""Where scalars go while something trains: TensorBoard, Weights & Biases, a file of JSON lines, or your own class."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from .errors import MissingDependencyError

__all__ = ["JsonLines", "Logger", "TensorBoard", "WandB"]


class Logger(Protocol):
    """Takes the scalars of one step after another. Any object with these two methods will do."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record scalars by name."""
        ...

    def close(self) -> None:
        """Write what is not written yet."""
        ...


class TensorBoard:
    """Event files in a folder, for ``tensorboard --logdir``. The file is made with the first scalar."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._writer: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record scalars."""
        if self._writer is None:
            import tensorboardX

            self._writer = tensorboardX.SummaryWriter(str(self.folder), write_to_disk=True)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is not written yet."""
        if self._writer is not None:
            self._writer.close()


class JsonLines:
    """A file with a line for each step, ``{"step": 10, "loss": 0.5}``; it is added to if it exists.

    Each line is written at once, so that a run that dies leaves all of its lines. NaN and infinities are null, which
    JSON has no numbers for.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a line."""
        row = {"step": int(step)} | {n: value if math.isfinite(value) else None for n, value in values.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=float) + "\n")  # of NumPy or JAX, too

    def close(self) -> None:
        """Nothing is left to write."""


class WandB:
    """A run of Weights & Biases; the options are those of ``wandb.init``, such as project, name and config.

    Raises:
        MissingDependencyError: wandb is not installed.
    """

    def __init__(self, **options: Any) -> None:
        try:
            import wandb  # type: ignore[import-not-found]
        except ImportError as cause:
            raise MissingDependencyError("this logger needs wandb: pip install wandb") from cause
        self._run = wandb.init(**options)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record scalars."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
