"""Shuffled batches, built on grain. An iterator's position can be saved and restored."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .position import counted
from .source import Arrays, Record, Source, Watched


def loader(
    source: Source,
    batch_size: int,
    *,
    transform: Callable[[Record, np.random.Generator], Any] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    epochs: int | None = None,
    drop_remainder: bool = True,
    shard: tuple[int, int] = (0, 1),
    workers: int = 0,
    threads: int = 0,
    device: Any = None,
    prefetch: int = 2,
) -> Any:
    """Make a ``grain.IterDataset`` of stacked batches of a source's records.

    Its iterators have ``get_state`` and ``set_state``, exact even in the middle of an epoch and with prefetching.
    :func:`fphys.train.fit` saves and restores them. The order depends only on ``seed``, the epoch and the source's
    length, not on workers and threads, and a position holds with any of them. The first record read that holds NaN
    or infinity causes a RuntimeWarning that names its index.

    Args:
        source: a length, and records by index: :class:`Arrays`, a reader of this package, or your own. Records of
            :class:`Arrays` are gathered a batch at a time unless there is a ``transform``.
        batch_size: records per batch of this shard.
        transform: changes each record at random before it is put into a batch: ``transform(record, rng)`` gives the new
            one. The numbers of its generator follow from ``seed`` and the record's place in the order of all epochs, so
            they are the same in a resumed run, and with any workers and threads. It may keep no state. A TypeError
            names a transform that returns None.
        shuffle: whether to draw every epoch in its own random order (grain's index shuffle, which needs no memory).
        epochs: how often to go through the source; without end by default.
        drop_remainder: whether to drop records at the end of an epoch that do not fill a batch, or a round of shards.
        shard: which part to draw, and of how many, for example ``(jax.process_index(), jax.process_count())``. Parts
            are disjoint in every epoch, and of one length.
        workers: number of processes that read. They are spawned: a script needs ``if __name__ == "__main__"``, and the
            source must be picklable.
        threads: number of threads that read, in each process.
        device: a ``jax.Device`` or ``Sharding`` to copy batches to in the background; NumPy arrays by default.
        prefetch: batches kept ready on the device, or by each worker.

    Raises:
        ValueError: the source is empty, a batch is larger than the source, a number is out of range, or shards would
            have different numbers of records, without ``drop_remainder``.
    """
    import grain

    _check(source, batch_size, drop_remainder, shard, workers, threads, prefetch, epochs, seed)
    gathered, watched = isinstance(source, Arrays) and transform is None, Watched(source)
    records: Any = grain.MapDataset.range(len(source)) if gathered else grain.MapDataset.source(watched)  # type: ignore[arg-type]
    records = records.seed(seed)
    records = records.shuffle() if shuffle else records
    records = records.random_map(_Changed(transform)) if transform else records
    index, count = shard
    end = len(source) - len(source) % count if drop_remainder else len(source)
    records = records.slice(slice(index, end, count)).batch(batch_size, drop_remainder=drop_remainder)
    records = records.map(_Gather(watched)) if gathered else records
    read = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads and max(threads, prefetch))
    records, ahead = records.repeat(epochs), max(1, prefetch)

    def after(drawn: int) -> Any:
        batches = records.slice(slice(drawn, None)).to_iter_dataset(read)
        if workers:
            _parse_flags()
            batches = batches.mp_prefetch(
                grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=ahead)
            )
        if device is None:
            return batches
        return grain.experimental.device_put(batches, device, cpu_buffer_size=ahead, device_buffer_size=ahead)

    return counted(after)


class _Changed:
    """A transform whose None is an error: grain would leave the record out."""

    def __init__(self, transform: Callable[[Record, np.random.Generator], Any]) -> None:
        self.transform = transform

    def __call__(self, record: Record, rng: np.random.Generator) -> Any:
        changed = self.transform(record, rng)
        if changed is None:
            name = getattr(self.transform, "__qualname__", repr(self.transform))
            raise TypeError(f"transform {name} returned None, must return the new record: is its return forgotten?")
        return changed


class _Gather:
    """The records at an array of indices."""

    def __init__(self, source: Watched) -> None:
        self.source = source

    def __call__(self, indices: np.ndarray) -> Any:
        return self.source[indices]


def _check(
    source: Source,
    batch_size: int,
    drop: bool,
    shard: tuple[int, int],
    workers: int,
    threads: int,
    prefetch: int,
    epochs: int | None,
    seed: int,
) -> None:
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(f"shard={shard}: needs (index, count) with 0 <= index < count")
    if batch_size < 1 or min(workers, threads, prefetch, seed) < 0 or (epochs is not None and epochs < 1):
        raise ValueError(
            f"batch_size={batch_size}, epochs={epochs}, workers={workers}, threads={threads}, prefetch={prefetch}, "
            f"seed={seed}: batch_size and epochs must be at least 1, the others at least 0"
        )
    if not drop and len(source) % count:
        raise ValueError(
            f"the {len(source)} records do not divide evenly among {count} shards, so that processes would train on "
            "batches of different sizes: leave drop_remainder=False away, or leave out records"
        )
    if not len(source):
        raise ValueError(f"the source ({type(source).__name__}) is empty: it has no records to draw")
    if (held := len(source) // count) < (batch_size if drop else 1):
        of_shard = f" in each of {count} shards" if count > 1 else ""
        raise ValueError(
            f"batch_size={batch_size} is more than the {held} records{of_shard}: no batch would be full; use a "
            "smaller one, or drop_remainder=False"
        )


def _parse_flags() -> None:
    """grain's workers copy absl's flags, which only an absl program parses."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
