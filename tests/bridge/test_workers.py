"""How worlds are split into blocks: all of them, once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from fphys.bridge import workers


@given(st.integers(1, 70_000), st.integers(1, 1 << 24), st.integers(1, 64))
def test_blocks_cover_every_world_once(worlds: int, bytes_per_world: int, threads: int):
    patched = workers.num_threads
    workers.num_threads = lambda: threads
    try:
        blocks = workers.num_blocks(worlds, bytes_per_world)
        parts = workers.shares(worlds, blocks)
    finally:
        workers.num_threads = patched
    assert 1 <= len(parts) <= threads
    number = start = largest = 0
    for run in (run for part in parts for run in part):
        assert (run.number, run.start) == (number, start) and run.size >= 1 and run.count >= 1
        number, start, largest = number + run.count, start + run.count * run.size, max(largest, run.size)
    assert (number, start) == (blocks, worlds)
    assert largest == 1 or (largest - 1) * bytes_per_world <= workers.BLOCK_BYTES
    assert max(len(part) for part in parts) <= 2


def test_work_is_shared_where_it_is_worth_a_thread(monkeypatch):
    monkeypatch.setenv("FPHYS_THREADS", "4")
    few, enough = workers.WORLDS_PER_THREAD, 4 * workers.WORLDS_PER_THREAD
    assert len(workers.shares(few, workers.num_blocks(few, 1))) == 1
    assert len(workers.shares(enough, workers.num_blocks(enough, 1))) == 4
    assert len(workers.shares(2, workers.num_blocks(2, workers.BLOCK_BYTES))) == 2  # few worlds, each of them large
