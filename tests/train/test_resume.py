"""Training resumes bit for bit from where it was saved, no matter when it was killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).with_name("program.py")


def start(folder: Path, steps: int) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-W", "error", str(PROGRAM), str(folder), str(steps)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout and child.stdout.readline() == "started\n"
    return child


def finish(child: "subprocess.Popen[str]") -> str:
    out, _ = child.communicate(timeout=300)
    assert child.returncode == 0
    return out


def newest(folder: Path) -> int:
    return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=0) if folder.exists() else 0


def test_killed_at_random_moments_it_ends_with_the_same_parameters(tmp_path, full):
    kills, steps = (20, 600) if full else (3, 90)
    begun = time.perf_counter()
    whole = finish(start(tmp_path / "whole", steps))
    seconds = time.perf_counter() - begun
    rng = random.Random(os.urandom(8))
    folder = tmp_path / "killed"
    reached = []
    for _ in range(kills):
        before = newest(folder)
        child = start(folder, steps)
        deadline = time.monotonic() + 300
        while newest(folder) <= before and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)  # at least one checkpoint further each time, so that the loop ends
        time.sleep(rng.uniform(0, 0.5 * seconds / kills))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        reached.append(newest(folder))
    assert reached == sorted(reached) and reached[0] > 0
    assert finish(start(folder, steps)) == whole
    assert not list(folder.glob(".*.part"))
