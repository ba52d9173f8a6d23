"""Several processes on this machine: start them, watch them, and start again from the newest checkpoint."""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from .processes import BEAT, COORDINATOR, ENDS, LOOPBACK, PROCESSES, PULSE, RANK, WORKS, ProcessError

SILENCE = 20.0
"""Seconds without a sign of life after which a process counts as hung."""
TO_SAVE = 20.0
"""Seconds that processes have to end after Ctrl-C, which each of them gets."""


def launch(command: Sequence[str], processes: int, *, restarts: int = 0, silence: float = SILENCE) -> None:
    """Run a command in several processes of a group, until all have ended well.

    They are new processes, never forks. Each calls :func:`fphys.distributed.initialize`, which finds its rank in the
    environment. Rank 0 writes to standard output, all to standard error. If one fails, all are ended.

    Args:
        command: the program and its arguments.
        processes: how many, at least one.
        restarts: how often all are started again after a failure. The command must go on from its newest checkpoint.
        silence: seconds without a sign of life after which a process counts as hung. If another has ended, three times
            that without work count, too: then it waits for a message that never comes.

    Raises:
        ProcessError: once more than ``restarts``, a process failed, died or hung, or ended while others wait for it;
            the message names its rank.
        ValueError: there are fewer processes than one, or fewer restarts than none.
    """
    if processes < 1 or restarts < 0:
        raise ValueError(f"processes is {processes}, restarts is {restarts}: at least 1 process and 0 restarts")
    for remaining in range(restarts, -1, -1):
        try:
            return _once(command, processes, silence)
        except ProcessError as error:
            if not remaining:
                raise
            print(f"{error}. All processes start again from the newest checkpoint ({remaining} left)", file=sys.stderr)


def _once(command: Sequence[str], processes: int, silence: float) -> None:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        address = f"{LOOPBACK}:{probe.getsockname()[1]}"
    running: list[subprocess.Popen[bytes]] = []
    pulses = selectors.DefaultSelector()
    try:
        for rank in range(processes):
            ours, theirs = os.pipe()
            environ = {COORDINATOR: address, PROCESSES: str(processes), RANK: str(rank), PULSE: str(theirs)}
            running.append(
                subprocess.Popen(
                    command,
                    env=os.environ | environ,
                    pass_fds=[theirs],
                    stdout=None if rank == 0 else subprocess.DEVNULL,
                )
            )
            os.close(theirs)
            pulses.register(ours, selectors.EVENT_READ, rank)
        _watch(running, pulses, silence)
    except KeyboardInterrupt:
        _wait(running, TO_SAVE)
        raise
    finally:
        for process in running:
            process.kill()  # also one that is stopped
        for process in running:
            process.wait()
        for key in list(pulses.get_map().values()):
            os.close(key.fd)
        pulses.close()


def _watch(running: list[subprocess.Popen[bytes]], pulses: selectors.BaseSelector, silence: float) -> None:
    """Return when all have ended well; raise when one has not, or is silent."""
    begun = first = time.monotonic()  # first: when the first one joined
    heard: dict[int, float] = {}  # when each was last heard; ranks are silent until they join
    worked: dict[int, float] = {}  # when each last said that it works, or another that it ends
    ended = set[int]()
    while any(process.poll() is None for process in running):
        for key, _ in pulses.select(BEAT / 10):
            if said := os.read(key.fd, 4096):
                now = time.monotonic()
                first = first if heard else now
                heard[key.data] = now
                if WORKS in said:
                    worked[key.data] = now
                if ENDS in said:
                    ended.add(key.data)
                    worked = dict.fromkeys(worked, now)
            else:
                os.close(key.fd)
                pulses.unregister(key.fd)
        _expect_well(running)
        now = time.monotonic()
        for rank, process in enumerate(running):
            if process.poll() is None and rank in heard and now - heard[rank] > silence:
                wrong = f"has not answered for {now - heard[rank]:.0f} s: it hangs"
            elif process.poll() is None and rank not in heard and heard and now - first > 2 * silence:
                wrong = f"has not joined {now - first:.0f} s after the first: it hangs before distributed.initialize"
            else:
                continue
            raise ProcessError(f"rank {rank} of {len(running)} {wrong}; all were ended")
        going = [rank for rank, process in enumerate(running) if process.poll() is None and rank not in ended]
        if ended and going and all(now - worked.get(rank, now) > 3 * silence for rank in going):
            raise ProcessError(
                f"{_ranks(sorted(ended))} of {len(running)} ended, and {_ranks(going)} waits for a message, or for "
                f"something else without work, for {3 * silence:.0f} s: all must take as many steps. All were ended"
            )
        if not heard and now - begun > 10 * silence:
            raise ProcessError(
                f"no process joined in {now - begun:.0f} s: the program must call distributed.initialize"
            )
    _expect_well(running)


def _ranks(ranks: list[int]) -> str:
    return f"rank {', '.join(map(str, ranks))}"


def _expect_well(running: list[subprocess.Popen[bytes]]) -> None:
    """Raise if a process has failed. A signal is named first: the others fail because their peer is gone."""
    failed = [(process.returncode, rank) for rank, process in enumerate(running) if process.poll()]
    if failed:
        code, rank = min(failed)
        raise ProcessError(f"rank {rank} of {len(running)} {_ending(code)}; all were ended")


def _ending(code: int) -> str:
    if code >= 0:
        return f"failed with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _wait(running: list[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    while any(process.poll() is None for process in running) and time.monotonic() < end:
        time.sleep(BEAT / 10)
