"""Batches in shuffled order, on grain; where an iterator stands can be saved and set."""

from typing import Any

import numpy as np

from .source import Arrays, Source, Watched


def loader(
    source: Source,
    batch_size: int,
    *,
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
    """Batches of a source's records, stacked: a ``grain.IterDataset``.

    Its iterators have ``get_state`` and ``set_state``, exact in the middle of an epoch whatever is prefetched;
    :func:`fphys.train.fit` saves and sets them. The order depends on ``seed``, the epoch and the source's length only,
    not on workers and threads. Of the first record drawn that holds NaN or infinity a RuntimeWarning names the index.

    Args:
        source: a length, and records by index: :class:`Arrays`, a reader of this package, or your own. Those of
            :class:`Arrays` are gathered a batch at a time.
        batch_size: records in a batch, of this shard.
        shuffle: draw every epoch in a random order of its own (without memory: grain's index shuffle).
        epochs: how many times to go through the source; for ever by default.
        drop_remainder: leave out, at the end of an epoch, records that do not fill a batch (or a round of shards).
        shard: which part of how many to draw, ``(jax.process_index(), jax.process_count())``, say. Parts are disjoint
            in every epoch.
        workers: processes that read. They are spawned: a script needs ``if __name__ == "__main__"``, and the source
            must be picklable.
        threads: threads that read, in each process.
        device: a ``jax.Device`` or ``Sharding`` to copy batches to while others compute; NumPy arrays by default.
        prefetch: batches held ready on the device, or by each worker.

    Raises:
        ValueError: the source is empty, a batch is larger than it, or a number is out of range.
    """
    import grain

    _check(source, batch_size, drop_remainder, shard, workers, threads, prefetch, epochs)
    gathered, watched = isinstance(source, Arrays), Watched(source)
    records = grain.MapDataset.range(len(source)) if gathered else grain.MapDataset.source(watched)  # type: ignore[arg-type]
    records = records.seed(seed)
    records = records.shuffle() if shuffle else records
    index, count = shard
    end = len(source) - len(source) % count if drop_remainder else len(source)
    records = records.slice(slice(index, end, count)).batch(batch_size, drop_remainder=drop_remainder)
    records = records.map(_Gather(watched)) if gathered else records
    read = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads and max(threads, prefetch))
    batches = records.repeat(epochs).to_iter_dataset(read)
    if workers:
        _parse_flags()
        batches = batches.mp_prefetch(
            grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=max(1, prefetch))
        )
    if device is not None:
        batches = grain.experimental.device_put(
            batches, device, cpu_buffer_size=max(1, prefetch), device_buffer_size=max(1, prefetch)
        )
    return batches


class _Gather:
    """Records at an array of indices."""

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
) -> None:
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(f"shard={shard}: needs (index, count) with 0 <= index < count")
    if batch_size < 1 or min(workers, threads, prefetch) < 0 or (epochs is not None and epochs < 1):
        raise ValueError(
            f"batch_size={batch_size}, epochs={epochs}, workers={workers}, threads={threads}, prefetch={prefetch}: "
            "batch_size and epochs must be at least 1, the others at least 0"
        )
    if not len(source):
        raise ValueError(f"the source ({type(source).__name__}) is empty: there is nothing to draw")
    if (held := len(source) // count) < (batch_size if drop else 1):
        of_shard = f" in each of {count} shards" if count > 1 else ""
        raise ValueError(
            f"batch_size={batch_size} is more than the {held} records{of_shard}: no batch would be full; take a "
            "smaller one, or drop_remainder=False"
        )


def _parse_flags() -> None:
    """grain's workers copy absl's flags, which a program that is not absl's never parses."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
