"""What a GPU is asked first, in the order that tells the most: ``benchmarks/gpu.sh [FOLDER]``.

Each part is a process with a time limit. FOLDER/gpu.jsonl gets a line for each result as it comes, so a run that is cut
short loses nothing, and the next run goes on where this one stopped. Without a GPU every part says so in its place.
"""

import argparse
import collections
import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_bars import rows as bars
from gpu_results import lines, note

ROOT = Path(__file__).resolve().parents[1]
DEVICE = "import json; from fphys.bench.report import environment; print(json.dumps(environment()))"
PATIENCE = 20  # times the limit of a GPU is that of a processor, which compiles its kernels and may be busy
LEAST = 20  # seconds: a part that would have fewer is left for the next run
NOTHING_LEFT = 5  # pytest's exit code where no test is run
WORKERS = min(6, (os.cpu_count() or 1) // 2) if importlib.util.find_spec("xdist") else 0
"""Processes that share the tests of a part: XLA takes longer to compile them than a GPU to run them."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One step: a process, and the seconds that it may take."""

    name: str
    limit: int
    asks: str
    command: tuple[str, ...]


def checks(*arguments: str, workers: int = WORKERS) -> tuple[str, ...]:
    """Tests for a GPU. A warning of libraries in other versions than ours is no failure there."""
    shared = ("-n", str(workers)) if workers > 1 else ()
    return (sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-W", "default", *shared, *NO_CACHE, *arguments)


def here(work: str) -> tuple[str, ...]:
    return (sys.executable, str(Path(__file__).resolve()), "--work", work)


NO_CACHE = ("-p", "no:cacheprovider")
BRIDGE, SOLVERS, CUDA = (f"tests/gpu/test_gpu_{name}.py" for name in ("bridge", "solvers", "cuda"))
IN_ORDER = ("env", "XLA_FLAGS=--xla_gpu_deterministic_ops=true")
IN_DOUBLE = ("env", "JAX_ENABLE_X64=1")
PARTS = (
    Part("launch", 60, "does one kernel run on XLA's stream", checks(BRIDGE, "-k", "not transforms", workers=1)),
    Part("ant", 60, "is an ant's step the processor's", checks(SOLVERS, "-k", "test_an_ant")),
    Part("rigid", 160, "are rigid states and gradients", checks(SOLVERS, "-k", "test_rigid")),
    Part("transforms", 60, "jit, vmap, scan, grad", checks(BRIDGE, SOLVERS, "-k", "transforms or depends")),
    Part("matter", 140, "MPM, SPH, FEM, XPBD, coupling, tasks", checks(SOLVERS, "-k", "test_matter")),
    Part("repeats", 60, "do ten runs repeat", checks(SOLVERS, "-k", "repeat")),
    Part("ordered", 60, "do they bit for bit, if they are told to", (*IN_ORDER, *checks(SOLVERS, "-k", "repeat"))),
    Part("cuda", 120, "what goes wrong on CUDA alone", checks(CUDA)),
    Part("speed.rigid", 150, "worlds of ants, humanoids and arms", here("rigid")),
    Part("speed.matter", 140, "particles", here("matter")),
    Part("speed.envs", 180, "environments and their memory, and observations", here("envs")),
    Part("speed.peers", 240, "beside MuJoCo Warp, which compiles its own kernels first", here("peers")),
    Part("speed.bridge", 90, "crossings, and what the device can do, beside the processor", here("bridge")),
    Part("trace", 60, "does a scan wait, record or allocate, and how long is the GPU idle", here("trace")),
    Part("speed.float64", 90, "131,072 worlds in double precision", (*IN_DOUBLE, *here("float64"))),
    Part("speed.training", 240, "training, beside torch, which compiles too", here("training")),
    Part("speed.mixed", 180, "training in float32, bfloat16 and float16", here("mixed")),
    Part("speed.others", 240, "beside MJX, Newton and Genesis, those that are installed", here("others")),
    Part("profile", 60, "which kernels take the time", here("profile")),
)


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    """Run the parts that are not done. Returns 1 if one failed or ran out of time, otherwise 0."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description=__doc__)
    parser.add_argument("folder", nargs="?", default="build/gpu", help="of gpu.jsonl")
    parser.add_argument("--rehearse", action="store_true", help="on the processor, in reduced sizes")
    parser.add_argument("--only", nargs="+", default=[part.name for part in parts], metavar="PART")
    parser.add_argument("--again", action="store_true", help="also the parts that are done")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="that this run may take in all")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        from gpu_work import work

        return work(given.work)
    end = time.monotonic() + given.seconds
    file = Path(given.folder).resolve() / "gpu.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    found = device()
    platform = found["device"]["platform"]
    if given.rehearse:
        print("REHEARSAL on the processor: its figures say nothing about a GPU", flush=True)
    elif platform != "gpu":
        print(f"no GPU: JAX finds {found['device']['kind'] or platform}", flush=True)
    else:
        note(file, found)
    for part in (part for part in parts if part.name in given.only):
        before = [] if given.again else [line for line in lines(file) if line.get("part") == part.name]
        done = {line["test"] for line in before if line.get("outcome") == "passed"}
        status = next((line["status"] for line in reversed(before) if "status" in line), None)
        if status in ("passed", "failed"):
            print(f"== {part.name}: {status} before", flush=True)
        elif platform != "gpu" and not given.rehearse:
            print(f"== {part.name} (at most {part.limit} s): no device", flush=True)
        elif end - time.monotonic() < LEAST:
            print(f"== {part.name} (at most {part.limit} s): left for the next run", flush=True)
        else:
            limit = part.limit * (PATIENCE if given.rehearse else 1)
            run(part, file, min(limit, end - time.monotonic()), given.rehearse, done)
    print(table(parts, lines(file), platform == "gpu" or given.rehearse), flush=True)
    last = {line["part"]: line["status"] for line in lines(file) if "status" in line}
    return int(platform == FAILED or any(last.get(name) not in (None, "passed") for name in given.only))


FAILED = "none"
"""In place of a platform, if JAX, Warp or fphys cannot be imported."""


def device() -> dict[str, Any]:
    """Device, driver and versions; a process of its own asks, so that this one does not take the memory."""
    command = [sys.executable, "-c", DEVICE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment())
        said = done.stderr.strip() or "nothing"
    except subprocess.TimeoutExpired:
        return {"device": {"platform": FAILED, "kind": "nothing within two minutes"}}
    if done.returncode:
        return {"device": {"platform": FAILED, "kind": said.splitlines()[-1]}}
    return json.loads(done.stdout.splitlines()[-1])


def environment() -> dict[str, str]:
    """This process's, in which fphys is that of this checkout."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def run(part: Part, file: Path, limit: float, rehearse: bool, done: set[str]) -> None:
    """Run a part, without the tests that are done, and note how it ended."""
    print(f"== {part.name} (at most {limit:.0f} s): {part.asks}", flush=True)
    own = {"FPHYS_PART": part.name, "FPHYS_RESULTS": str(file), "FPHYS_DONE": "\n".join(done)}
    if rehearse:
        own |= {"FPHYS_STAND_IN": "1", "JAX_PLATFORMS": "cpu"}
    start = time.monotonic()
    process = subprocess.Popen(part.command, env=environment() | own, cwd=ROOT, start_new_session=True)
    try:
        code = process.wait(timeout=limit)
        status = "passed" if code == 0 or (done and code == NOTHING_LEFT) else "failed"
    except subprocess.TimeoutExpired:
        code, status = None, "out of time"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own children, too
        process.wait()
    seconds = round(time.monotonic() - start, 1)
    note(file, {"part": part.name, "status": status, "code": code, "seconds": seconds, "limit": part.limit})
    print(f"== {part.name}: {status} after {seconds:.0f} s", flush=True)


def table(parts: Sequence[Part], found: list[dict[str, Any]], there: bool) -> str:
    """What each part came to, the speeds, and the bars."""
    rows = ["", f"{'part':16} {'limit':>6} {'took':>6}  result"]
    for part in parts:
        own = [line for line in found if line.get("part") == part.name]
        ended: dict[str, Any] = next((line for line in reversed(own) if "status" in line), {})
        outcomes = collections.Counter({line["test"]: line["outcome"] for line in own if "test" in line}.values())
        result = ended.get("status", "not run" if there else "no device")
        counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        took = f"{ended['seconds']:.0f} s" if ended else ""
        rows.append(f"{part.name:16} {part.limit:>4} s {took:>6}  {result}{f' ({counted})' if counted else ''}")
    rows += [f"  failed: {line['test']}" for line in found if line.get("outcome") == "failed"]
    rows += [line["row"] for line in found if "row" in line]
    return "\n".join([*rows, "", *bars(found, there)])


def heed() -> None:
    """End in order when the process is ended, so that the part that runs ends with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


if __name__ == "__main__":
    heed()
    sys.exit(main())
