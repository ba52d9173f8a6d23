"""How worlds are split into blocks: all of them, once, in order; and the threads that run them, awake or asleep."""

import ctypes
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fphys.bridge import driver, workers


@given(st.integers(1, 70_000), st.integers(1, 1 << 24), st.integers(1, 4), st.integers(1, 64))
def test_blocks_cover_every_world_once(worlds: int, bytes_per_world: int, more: int, threads: int):
    patched = workers.num_threads
    workers.num_threads = lambda: threads
    try:
        blocks = workers.num_blocks(worlds, bytes_per_world, more * bytes_per_world)
        parts = workers.shares(worlds, blocks)
    finally:
        workers.num_threads = patched
    assert min(threads, blocks) <= len(parts) <= (threads * workers.PARTS_PER_THREAD if threads > 1 else 1)
    assert len(parts) < threads or len(parts) % threads == 0  # no thread has one more than another
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
    assert len(workers.shares(few, workers.num_blocks(few, 1, 1))) == 1
    assert len(workers.shares(enough, workers.num_blocks(enough, 1, 1))) == 4
    assert (
        len(workers.shares(2, workers.num_blocks(2, workers.BLOCK_BYTES, workers.BLOCK_BYTES))) == 2
    )  # a few large worlds
    assert workers.num_blocks(few, 1, workers.BLOCK_BYTES) == 4  # small worlds with much work


@pytest.mark.parametrize("asked", ["-1", "many", "1.5"])
def test_invalid_thread_counts_are_refused(monkeypatch, asked):
    monkeypatch.setenv("FPHYS_THREADS", asked)
    with pytest.raises(ValueError, match=f"FPHYS_THREADS is '{asked}'"):
        workers.num_threads()


class Clearing:
    """A call whose i-th job clears the i-th row of an array."""

    def __init__(self, rows: int):
        self.array = np.empty((rows, 1000), np.float32)
        self.buffer = (ctypes.c_uint64 * 4)(0, 0, 0, self.array.ctypes.data)
        self.arguments = (ctypes.c_uint64 * 1)(ctypes.addressof(self.buffer))
        size = self.array[0].nbytes
        self.tables = [np.array([1, 0, 0, 1, 0, i * size, 0, size, 0, 0], np.uint64) for i in range(rows)]
        self.jobs = [np.array([1, table.ctypes.data], np.uint64) for table in self.tables]
        self.queue = workers.make_queue([job.ctypes.data for job in self.jobs])
        self.call = driver.Call(ctypes.addressof(self.queue.words), ctypes.addressof(self.arguments), 1, None)

    def run(self, team: workers.Team) -> None:
        self.array.fill(1)
        team.grow(self.queue.helpers)
        driver.load().run(team.table, self.queue.helpers, self.call)
        np.testing.assert_array_equal(self.array, 0)


def test_a_team_does_every_job_before_it_returns():
    team, calls = workers.Team(), [Clearing(3), Clearing(1), Clearing(2)]
    for pause in [0.0] * 200 + [1e-4] * 25 + [2e-4] * 25 + [0.01] * 5:  # its threads are awake, about to sleep, asleep
        time.sleep(pause)
        for call in calls:
            call.run(team)


def test_a_sleeping_team_uses_no_processor():
    team, call = workers.Team(), Clearing(2)
    call.run(team)
    time.sleep(0.1)
    start = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - start < 0.05


def test_an_unclaimed_call_is_taken_back():
    """If a thread has begun the call, the caller waits for its end."""
    native, clearing, box = driver.load(), Clearing(2), driver.Mailbox(driver.ASLEEP)
    driver.make_semaphore(box)
    native.post(box, clearing.call)
    assert box.state == driver.POSTED and box.call.queue == clearing.call.queue
    native.recall(box)
    assert box.state == driver.IDLE and clearing.queue.words[0] == 0  # no job was begun
    box.state = driver.BUSY
    waiting = threading.Thread(target=native.recall, args=(box,))
    waiting.start()
    time.sleep(0.05)
    assert waiting.is_alive()
    box.state = driver.IDLE
    waiting.join(10)
    assert not waiting.is_alive()


def test_many_blocks_are_dealt_into_more_jobs_than_threads(monkeypatch):
    monkeypatch.setenv("FPHYS_THREADS", "2")
    per_job = workers.BLOCKS_PER_PART
    for blocks, jobs in ((2, 2), (2 * per_job, 2), (5 * per_job, 4), (100 * per_job, 2 * workers.PARTS_PER_THREAD)):
        assert len(workers.shares(10**6, blocks)) == jobs


def test_callers_do_their_own_jobs_if_the_team_is_busy():
    team, errors = workers.Team(), []

    def caller() -> None:
        call = Clearing(3)
        try:
            for _ in range(300):
                call.run(team)
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=caller) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads)
