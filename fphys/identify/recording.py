"""Recorded motions: CSV files with the columns ``time``, ``ctrl*``, ``qpos*`` and ``qvel*``."""

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import FphysError


class RecordingError(FphysError, ValueError):
    """A recording cannot be read; the text names file, line and column."""


class Recording(NamedTuple):
    """A motion that was measured at evenly spaced times, in NumPy arrays. Read one with :func:`read`."""

    time: np.ndarray  # Times [s], shape (rows,).
    ctrl: np.ndarray  # Controls [the actuators' units], shape (rows, nu); those of a row act until the next.
    qpos: np.ndarray  # Positions [m or rad], shape (rows, nq).
    qvel: np.ndarray  # Velocities [m/s or rad/s], shape (rows, nv).

    @property
    def interval(self) -> float:
        """Time between rows [s]."""
        return float(self.time[-1] - self.time[0]) / (len(self.time) - 1)

    @property
    def x(self) -> np.ndarray:
        """(qpos, qvel), shape (rows, nq + nv)."""
        return np.concatenate([self.qpos, self.qvel], axis=1)


def read(path: str | os.PathLike[str], nu: int, nq: int, nv: int) -> Recording:
    """Read a recording from a CSV file.

    The first line names the columns, in any order: ``time`` [s], and ``ctrl0``, ..., ``qpos0``, ..., ``qvel0``, ... for
    each control, position and velocity of the model. Times are evenly spaced. The controls of a row act from that row
    to the next.

    Args:
        path: the file.
        nu, nq, nv: numbers of controls, positions and velocities, as ``model.structure`` has them.

    Raises:
        RecordingError: the file cannot be read as such a table; the text names file, line and column.
            FileNotFoundError: there is no such file.
    """
    groups = {"ctrl": nu, "qpos": nq, "qvel": nv}
    wanted = ["time", *(f"{group}{i}" for group, count in groups.items() for i in range(count))]
    text = Path(path).read_bytes().decode("utf-8-sig", errors="replace")
    rows = csv.reader(text.splitlines())
    try:
        names = [name.strip() for name in next(rows, [])]
        _check_names(path, names, wanted)
        lines, values = [], []
        for cells in rows:
            if cells:  # a line without anything in it is passed over
                lines.append(rows.line_num)
                values.append(_numbers(path, rows.line_num, names, cells))
    except csv.Error as cause:
        raise RecordingError(f"{path}, line {rows.line_num}: {cause}") from cause
    if len(values) < 3:
        raise RecordingError(f"{path}, line {len(values) + 1}: {len(values)} rows of numbers: at least 3 are needed")
    table = np.asarray(values)[:, [names.index(name) for name in wanted]]
    _check_times(path, lines, table[:, 0])
    return Recording(table[:, 0], *np.split(table[:, 1:], [nu, nu + nq], axis=1))


def _check_names(path: str | os.PathLike[str], names: Sequence[str], wanted: Sequence[str]) -> None:
    if not any(names):
        raise RecordingError(f"{path}, line 1: empty; it must name the columns: {','.join(wanted)}")
    for i, name in enumerate(names, 1):
        if name not in wanted:
            raise RecordingError(f"{path}, line 1, column {i}: {name!r} is none of the model's: {', '.join(wanted)}")
        if name in names[: i - 1]:
            raise RecordingError(f"{path}, line 1, column {i}: {name} is there twice")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise RecordingError(f"{path}, line 1: no column {', '.join(missing)}; the model needs {', '.join(wanted)}")


def _numbers(path: str | os.PathLike[str], line: int, names: Sequence[str], cells: Sequence[str]) -> list[float]:
    if len(cells) != len(names):
        where = f"column {names[len(cells)]}: missing" if len(cells) < len(names) else f"column {len(names) + 1}"
        raise RecordingError(f"{path}, line {line}, {where}: {len(cells)} values for {len(names)} columns")
    values = []
    for name, cell in zip(names, cells, strict=True):
        try:
            values.append(float(cell))
        except ValueError:
            raise RecordingError(f"{path}, line {line}, column {name}: {cell.strip()!r} is not a number") from None
        if not math.isfinite(values[-1]):
            raise RecordingError(f"{path}, line {line}, column {name}: {cell.strip()} is not finite")
    return values


def _check_times(path: str | os.PathLike[str], lines: Sequence[int], time: np.ndarray) -> None:
    gaps = np.diff(time)
    expected = float(np.median(gaps))
    for line, gap in zip(lines[1:], gaps):
        if gap <= 0:
            raise RecordingError(f"{path}, line {line}, column time: not later than the row before")
        if abs(gap - expected) > 0.01 * expected:
            raise RecordingError(
                f"{path}, line {line}, column time: {gap:.6g} s after the row before, the others {expected:.6g} s: "
                "resample the recording evenly"
            )
