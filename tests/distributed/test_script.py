"""The script of the guide, unchanged, on one core, several devices, in two processes, and with Ray."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "devices.md"
LAUNCH = "import sys; from fphys import distributed; distributed.launch([sys.executable, 'script.py'], 2)"


@pytest.mark.extra("ray")
def test_one_script_finds_the_same_everywhere(tmp_path: Path, environment: dict[str, str], full: bool):
    (tmp_path / "script.py").write_text(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
    found = {}
    for name, command, told in (
        ("one", ["script.py"], {}),
        ("four devices", ["script.py"], {"JAX_NUM_CPU_DEVICES": "4"}),
        ("two processes", ["-c", LAUNCH], {}),
        ("two actors", ["script.py"], {"ACTORS": "2"}),
    ):
        if name == "four devices" and not full:  # test_equality.py has them
            continue
        options = {"cwd": tmp_path, "env": os.environ | environment | told, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *command], timeout=200, check=False, **options)
        assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
        found[name] = [float(number) for number in done.stdout.splitlines()[-1].split(" -> ")]  # gloo prints, too
    for values in found.values():  # they are printed to six digits
        assert values == pytest.approx(found["one"], rel=0, abs=2e-6), found
    assert found["one"][1] < 0.9 * found["one"][0]
