"""Records by index."""

import warnings
from typing import Any, Protocol

import jax
import numpy as np

Record = dict[str, Any]


class Source(Protocol):
    """What a loader reads: a sequence of records."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Record: ...


class Arrays:
    """Records that are rows of arrays in memory: ``Arrays(image=images, label=labels)``.

    An index may be an integer or an integer array. A loader gathers a whole batch at once.

    Raises:
        ValueError: no array is given, or their first axes differ. TypeError: an array is masked.
    """

    def __init__(self, **columns: Any) -> None:
        for name, values in columns.items():
            if isinstance(values, np.ma.MaskedArray):
                raise TypeError(f"{name} is masked, records must not be: pass {name}.filled(value)")
        self.columns = {name: np.asarray(values) for name, values in columns.items()}
        sizes = {name: values.shape[0] if values.ndim else None for name, values in self.columns.items()}
        if not sizes or None in sizes.values() or len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes.items()) or "none is given"
            raise ValueError(f"arrays of records must have the same length on the first axis: {listed}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: Any) -> Record:
        return {name: values[index] for name, values in self.columns.items()}

    def __repr__(self) -> str:  # grain compares this when resuming
        return f"Arrays({', '.join(f'{name}={v.dtype}{v.shape}' for name, v in self.columns.items())})"


class Watched:
    """A source that warns, once, when it reads a record with NaN or infinity, and says which one.

    Training goes on: an update that this makes non-finite is skipped and counted (:func:`fphys.train.step`).
    """

    def __init__(self, source: Source) -> None:
        self.source, self.untold = source, [True]  # of several threads, one can take it out

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Record:
        record = self.source[index]
        for path, values in jax.tree_util.tree_leaves_with_path(record) if self.untold else ():
            if not isinstance(values, (np.ndarray, np.floating, float)) or np.asarray(values).dtype.kind != "f":
                continue
            finite = np.isfinite(values)
            if not finite.all():
                where = np.argwhere(~np.atleast_1d(finite))[0].tolist()
                number, within = (index, where) if np.ndim(index) == 0 else (index[where[0]], where[1:])
                name = jax.tree_util.keystr(path) + (str(within) if within and np.ndim(values) else "")
                self._tell(int(number), name, np.asarray(values)[tuple(where) if np.ndim(values) else ()])
                break
        return record

    def _tell(self, number: int, name: str, value: Any) -> None:
        try:
            self.untold.pop()
        except IndexError:  # another thread was first
            return
        warnings.warn(
            f"record {number} of the data ({type(self.source).__name__}) holds {value} at {name}: an update on it that "
            "is not finite is skipped and counted in state.skipped; fix or remove the record. Further such records "
            "are not reported",
            RuntimeWarning,
            stacklevel=2,
        )

    def __repr__(self) -> str:  # grain compares this when resuming
        return repr(self.source)


def check_labels(labels: Any, num_classes: int) -> None:
    """Check that labels are integers from 0 up to, not including, ``num_classes``.

    Under ``jit`` a label that is too large silently gives NaN, and a negative one counts from the end.

    Raises:
        ValueError: a label is not; the message names the first such record.
    """
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise ValueError(f"labels are {labels.dtype}, must be integers from 0 to {num_classes - 1}")
    wrong = np.argwhere((labels < 0) | (labels >= num_classes))
    if len(wrong):
        where = tuple(int(i) for i in wrong[0])
        raise ValueError(
            f"label {labels[where]} of record {where[0]} is out of range ({len(wrong)} are): {num_classes} classes "
            f"have labels from 0 to {num_classes - 1}"
        )
