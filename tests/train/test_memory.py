"""Freed memory stays in the process and is used again."""

import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "fphys" / "train" / "memory.py"
PROGRAM = """
import resource, runpy, sys
import numpy as np
keep = runpy.run_path(sys.argv[1])["keep_memory"]
size = int(sys.argv[2])
def faults():
    np.ones(size, np.int8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        np.ones(size, np.int8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), keep(), faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the switch is glibc's")
@pytest.mark.parametrize("size", [2**26, 5 * 2**28])
def test_pages_are_mapped_once(size: int):
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(FILE), str(size)], capture_output=True, text=True, timeout=120, check=True
    )
    before, kept, after = child.stdout.split()
    assert kept == "True"
    assert int(before) > 100 and int(after) < int(before) / 10
