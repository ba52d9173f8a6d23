"""The first minutes on a GPU: parts in order, with limits, that go on where they stopped, and a rehearsal of them."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))  # where its other files are
spec = importlib.util.spec_from_file_location("fphys_gpu_parts", ROOT / "benchmarks" / "gpu.py")
assert spec is not None and spec.loader is not None
gpu = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = gpu
spec.loader.exec_module(gpu)


def part(name: str, program: str, limit: int = 30) -> "gpu.Part":
    return gpu.Part(name, limit, "a question", (sys.executable, "-c", program))


NOTE = (
    "import json, os; open(os.environ['FPHYS_RESULTS'], 'a').write("
    "json.dumps({'part': os.environ['FPHYS_PART'], 'test': 'it', 'outcome': 'passed'}) + chr(10))"
)


@pytest.fixture
def with_gpu(monkeypatch):
    monkeypatch.setattr(gpu, "device", lambda: {"device": {"platform": "gpu", "kind": "NVIDIA H100"}})


def test_without_a_gpu_each_part_says_so_in_its_place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "device", lambda: {"device": {"platform": "cpu", "kind": "cpu"}})
    assert gpu.main([str(tmp_path)]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("==")]
    assert said == [f"== {p.name} (at most {p.limit} s): no device" for p in gpu.PARTS]
    names = [p.name for p in gpu.PARTS]
    assert names[:4] == ["launch", "ant", "rigid", "transforms"] and names[-1] == "profile"
    assert sum(p.limit for p in gpu.PARTS[:7]) <= 660, "what must be right comes in the first ten minutes or so"


def test_parts_that_are_done_are_skipped_and_the_others_go_on(tmp_path, with_gpu, capsys):
    parts = [part("good", NOTE), part("bad", "raise SystemExit(3)"), part("long", "import time; time.sleep(60)", 1)]
    assert gpu.main([str(tmp_path)], parts) == 1
    found = gpu.lines(tmp_path / "gpu.jsonl")
    assert found[0]["device"]["kind"] == "NVIDIA H100"
    ended = {line["part"]: line["status"] for line in found if "status" in line}
    assert ended == {"good": "passed", "bad": "failed", "long": "out of time"}
    assert "passed (1 passed)" in capsys.readouterr().out
    again = [part("good", "raise SystemExit(1)"), part("bad", "raise SystemExit(1)"), part("long", NOTE)]
    assert gpu.main([str(tmp_path)], again) == 1
    said = capsys.readouterr().out
    assert "good: passed before" in said and "bad: failed before" in said and "long: passed after" in said
    assert gpu.main([str(tmp_path), "--again", "--only", "bad"], [part("bad", NOTE)]) == 0


def test_a_part_that_ran_out_of_time_goes_on_with_the_tests_that_are_left(tmp_path, with_gpu):
    gpu.main([str(tmp_path)], [part("long", f"{NOTE}; import time; time.sleep(60)", 1)])
    left = "import os; assert os.environ['FPHYS_DONE'] == 'it'; raise SystemExit(5)"  # as pytest does with no test left
    assert gpu.main([str(tmp_path)], [part("long", left)]) == 0
    assert gpu.main([str(tmp_path), "--again"], [part("long", left)]) == 1, "all tests again"


LONG = """
import sys
sys.path.insert(0, sys.argv[1])
import gpu
gpu.heed()
gpu.device = lambda: {"device": {"platform": "gpu", "kind": ""}}
work = "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)"
gpu.main([sys.argv[2]], [gpu.Part("long", 60, "", (sys.executable, "-c", work, sys.argv[2] + "/number"))])
"""


def test_a_run_that_is_ended_takes_its_part_along(tmp_path):
    """Else the part would keep the GPU, and its memory, from the next run."""
    run, number = subprocess.Popen([sys.executable, "-c", LONG, ROOT / "benchmarks", tmp_path]), tmp_path / "number"
    while run.poll() is None and not (number.exists() and number.read_text().endswith("\n")):
        time.sleep(0.05)
    run.terminate()
    assert run.wait(timeout=30) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


def test_tests_that_are_done_are_left_out():
    """By their names, in pytest's own collection."""
    one, other = "test_rigid[weld-float32]", "test_rigid[weld-float64]"
    command = [*gpu.checks(gpu.SOLVERS, "--collect-only", "-k", "weld", workers=1)]
    for done, left in (("", {one, other}), (one, {other})):
        environment = gpu.environment() | {"FPHYS_DONE": done, "FPHYS_STAND_IN": "1", "PYTEST_ADDOPTS": ""}
        found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT).stdout
        assert {line.partition("::")[2] for line in found.splitlines() if "::" in line} == left, found


def test_the_script_runs_to_its_end_without_a_gpu(tmp_path):
    """Every part in its place, with its limit; nothing is measured, and nothing is written."""
    environment = os.environ | {"PYTHON": sys.executable, "JAX_PLATFORMS": "cpu"}
    command = [str(ROOT / "benchmarks" / "gpu.sh"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("==")]
    assert said == [f"== {p.name} (at most {p.limit} s): no device" for p in gpu.PARTS]
    assert done.stdout.startswith("no GPU: JAX finds cpu") and not (tmp_path / "gpu.jsonl").exists()


def test_a_package_that_is_missing_is_no_missing_gpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "DEVICE", "import package_of_nobody")
    assert gpu.main([str(tmp_path)]) == 1
    assert "No module named 'package_of_nobody'" in capsys.readouterr().out


def test_no_part_begins_without_time_and_a_cut_line_does_no_harm(tmp_path, with_gpu, capsys):
    (tmp_path / "gpu.jsonl").write_text('{"part": "good", "status": "passed", "seconds": 1, "limit": 3}\n{"part": "la')
    gpu.main([str(tmp_path), "--seconds", "1"], [part("good", NOTE), part("late", NOTE)])
    said = capsys.readouterr().out
    assert "good: passed before" in said and "late (at most 30 s): left for the next run" in said


def rehearse(folder: Path, *only: str) -> list[dict[str, object]]:
    command = [str(ROOT / "benchmarks" / "gpu.sh"), str(folder), "--rehearse", *(["--only", *only] if only else [])]
    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=6000, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return [json.loads(line) for line in (folder / "gpu.jsonl").read_text().splitlines()]


def test_the_first_part_on_the_processor(tmp_path):
    found = rehearse(tmp_path, "launch")
    assert [line["outcome"] for line in found if "test" in line] == ["passed"] * 3
    assert found[-1]["status"] == "passed"


@pytest.mark.slow
def test_every_part_on_the_processor(tmp_path):
    found = rehearse(tmp_path)
    assert [line["part"] for line in found if "status" in line] == [p.name for p in gpu.PARTS]
    measured = {line["part"] for line in found if line.get("valid")}
    assert measured == {p.name for p in gpu.PARTS if p.name.startswith("speed.")}
    assert any("kernels" in line for line in found)
