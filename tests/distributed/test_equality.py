"""PPO, SHAC, supervised training and an identification: several devices and processes find what one device finds."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..conftest import QUICK

PROGRAM = str(Path(__file__).with_name("equality.py"))
LAUNCH = """
import sys
from fphys import distributed
distributed.launch([sys.executable, *sys.argv[2:]], int(sys.argv[1]), silence=200)  # the machine may be busy
"""


def run(path: Path, devices: int = 1, processes: int = 1) -> dict[str, Any]:
    """What the program finds on so many devices of each process."""
    flags = f"--xla_force_host_platform_device_count={devices}{QUICK}"
    launch = [] if processes == 1 else ["-c", LAUNCH, str(processes)]
    command = [sys.executable, *launch, PROGRAM, str(path)]
    env = os.environ | {"XLA_FLAGS": flags, "NPROC": "32"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(np.load(path))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("one") / "found.npz")


@pytest.mark.parametrize(
    ("devices", "processes"),
    [(4, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 1), (1, 2), (1, 4)))],
)
def test_gradients_and_learning_are_those_of_one_device(
    one: dict[str, Any], tmp_path: Path, devices: int, processes: int
):
    """Gradients to 1e-6 and 1e-12. Twenty updates of one seed are apart by rounding, which learning amplifies."""
    many = run(tmp_path / "found.npz", devices, processes)
    assert int(many["devices"]) == devices * processes
    for name in ("ppo", "shac"):
        rows = np.abs(many[name] - one[name]) / np.abs(one[name]).max(0)
        assert rows[0].max() <= 1e-6 and rows.max() <= 1e-4, (name, rows.max(1))
        assert one[name][:, 3].sum() >= 8  # episodes begin and end on the way
    for name in ("identification", "fit"):
        for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-12)):
            ours, theirs = many[f"{name} {dtype}"], one[f"{name} {dtype}"]
            assert ours.dtype == dtype and np.abs(theirs).max() > 1e-3
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())
