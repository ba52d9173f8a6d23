"""Training resumes bit for bit from where it was saved, no matter when it was killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def start(program: str, folder: Path, steps: int) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-W", "error", str(HERE / program), str(folder), str(steps)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout and child.stdout.readline() == "started\n"
    return child


def finish(child: "subprocess.Popen[str]") -> str:
    out, _ = child.communicate(timeout=300)
    assert child.returncode == 0
    return out


def newest(folder: Path) -> int:
    """The sum of the newest checkpoints' numbers, of all folders below."""
    saved: dict[str, int] = {}
    for path, _, files in os.walk(folder):  # unlike rglob, it passes over folders renamed while it looks
        parent, name = os.path.split(path)
        if name.isdecimal() and "manifest.json" in files:
            saved[parent] = max(saved.get(parent, 0), int(name))
    return sum(saved.values())


@pytest.mark.parametrize("program", ["program.py", pytest.param("rl_program.py", marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_same_parameters(program: str, tmp_path: Path, full: bool):
    kills, steps = (20, 600) if full else (3, 90)
    begun = time.perf_counter()
    whole = finish(start(program, tmp_path / "whole", steps))
    seconds = time.perf_counter() - begun
    rng = random.Random(os.urandom(8))
    folder = tmp_path / "killed"
    reached = []
    for _ in range(kills):
        before = newest(folder)
        with start(program, folder, steps) as child:
            deadline = time.monotonic() + 300
            while newest(folder) <= before and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)  # at least one checkpoint further each time, so that the loop ends
            time.sleep(rng.uniform(0, 0.5 * seconds / kills))
            child.send_signal(signal.SIGKILL)
        reached.append(newest(folder))
    assert reached == sorted(reached) and reached[0] > 0
    assert finish(start(program, folder, steps)) == whole
    assert not list(folder.rglob(".*.part"))
