"""Batches whose position is the number of those drawn, whatever reads them."""

from collections.abc import Callable
from typing import Any


def counted(after: Callable[[int], Any]) -> Any:
    """A ``grain.IterDataset`` of batches, whose iterators count those drawn.

    Args:
        after: ``after(n)`` is a dataset of the same batches without the first n. It may read ahead, with any workers.
    """
    import grain

    class Iterator(grain.DatasetIterator[Any]):
        def __init__(self) -> None:
            super().__init__()
            self._drawn, self._batches = 0, None

        def __next__(self) -> Any:
            self._assert_not_closed()
            batch = next(self._begun())
            self._drawn += 1
            return batch

        def get_state(self) -> dict[str, Any]:
            return {"next_index": self._drawn}  # as grain's own iterators have it, where nothing reads ahead

        def set_state(self, state: dict[str, Any]) -> None:
            _expect_position(state)
            self._end()
            self._drawn = int(state["next_index"])

        def start_prefetch(self) -> None:
            self._begun().start_prefetch()

        def close(self) -> None:
            super().close()
            self._end()

        def _begun(self) -> Any:
            if self._batches is None:
                self._batches = iter(after(self._drawn))
            return self._batches

        def _end(self) -> None:
            if self._batches is not None:
                self._batches.close()
            self._batches = None

    class Batches(grain.IterDataset[Any]):
        def __iter__(self) -> Iterator:
            return Iterator()

    return Batches()


def _expect_position(state: Any) -> None:
    if not isinstance(state, dict) or set(state) != {"next_index"}:
        held = ", ".join(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ValueError(
            f"the position of the data has {held}, must have next_index, the number of batches drawn: it is of other "
            "data, or of workers or a device in an earlier fphys. Resume with the data it was saved with, or start in "
            "another folder"
        )
