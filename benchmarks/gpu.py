"""What a GPU is asked first, in the order that tells the most: ``benchmarks/gpu.sh [FOLDER]``.

Each part is a process with a time limit. FOLDER/gpu.jsonl gets a line for each result as it comes, so a run that is cut
short loses nothing, and the next run goes on where this one stopped. Without a GPU every part says so in its place.
"""

import argparse
import collections
import contextlib
import dataclasses
import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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
    Part("speed.matter", 120, "particles", here("matter")),
    Part("speed.peers", 240, "beside MuJoCo Warp, which compiles its own kernels first", here("peers")),
    Part("speed.bridge", 40, "crossings, and what the device can do", here("bridge")),
    Part("speed.training", 240, "training, beside torch, which compiles too", here("training")),
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


def note(file: Path, line: dict[str, Any]) -> None:
    """Append one result; a line is written whole."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


def lines(file: Path) -> list[dict[str, Any]]:
    """All results so far. The last line may have been cut off."""
    found = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


def table(parts: Sequence[Part], found: list[dict[str, Any]], there: bool) -> str:
    """What each part came to, and the speeds."""
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
    return "\n".join(rows)


# Work that is not a test


def work(name: str) -> int:
    """Measure, in this process."""
    import jax

    file, part = Path(os.environ["FPHYS_RESULTS"]), os.environ["FPHYS_PART"]
    small = bool(os.environ.get("FPHYS_STAND_IN"))
    put = lambda line: note(file, {"part": part, **line})  # noqa: E731
    if name == "profile":
        return profile(put, small)
    from fphys.bench.measure import QUICK, Effort, measure
    from fphys.bench.report import HEADER, row

    print(HEADER, flush=True)
    put({"row": HEADER})
    known = {(line["case"], line["worlds"]) for line in lines(file) if line.get("part") == part and line.get("valid")}
    wrong = 0
    for cases, worlds in MEASURED[name](small):
        left = [case for case in cases if (case.name, worlds) not in known]
        if not left:
            continue
        for result in measure(cases, worlds, QUICK if small else Effort(budget=0.6)):
            wrong += not result.valid
            print(row(result), flush=True)
            put({**dataclasses.asdict(result), "row": row(result)})
        jax.clear_caches()
    return int(wrong > 0)


Cases = Iterator[tuple[list[Any], int]]


def rigid(small: bool) -> Cases:
    """In contact: first the sizes that the project is measured by first."""
    for worlds in (4,) if small else (8192, 1024, 65_536, 16_384, 64):
        for name in ("ant",) if small else ("ant", "humanoid", "franka"):
            yield engines(name, "fphys", "fphys_grad"), worlds


def peers(small: bool) -> Cases:
    """The same beside MuJoCo Warp, in turns, if it is installed."""
    for worlds in (4,) if small else (8192, 1024):
        for name in ("ant",) if small else ("humanoid", "ant"):
            yield engines(name, "fphys", "mujoco_warp"), worlds


def engines(name: str, *wanted: str) -> list[Any]:
    from fphys.bench.peers import _rigid

    return [case for case in _rigid(name, "shipped") if case.name.rpartition(".")[2] in wanted]


def matter(small: bool) -> Cases:
    from fphys.bench import particles_mpm, particles_sph

    mpm = particles_mpm.SIZES | {"4M": (160, 200)}
    sph = particles_sph.SIZES | {"4M": 160}
    for size in ("1k",) if small else ("1M", "262k", "32k", "4M"):
        made = [*particles_mpm.mpm_cases({size: mpm[size]}), *particles_sph.sph_cases({size: sph[size]})]
        for kind in ("mpm", "sph"):
            yield [c for c in made if kind in c.tags and c.name.endswith(("step", "step_grad"))], 1


def bridge(small: bool) -> Cases:
    from fphys.bench.cases import CASES
    from fphys.bench.run import groups, select

    chosen = [c for c in CASES if c.name.startswith(("device.", "bridge."))]
    for group in groups(select(chosen, None)):
        for worlds in (1,) if not group[0].worlds else (4,) if small else (1024, 65_536):
            yield group, worlds


def training(small: bool) -> Cases:
    """In float32 on both sides: by default XLA would round factors to ten bits on a GPU, and torch in convolutions."""
    import jax

    from fphys.bench.run import groups
    from fphys.bench.training import PEERS, training_cases

    jax.config.update("jax_default_matmul_precision", "highest")
    if PEERS:
        import torch

        torch.backends.cudnn.allow_tf32 = False
    for group in groups(training_cases()):
        name = group[0].name.split(".")[1]
        if not small or name == "mlp":
            yield [c for c in group if not (small and "torch" in c.name)], 8 if small else group[0].worlds[-1]


MEASURED: dict[str, Callable[[bool], Cases]] = {
    "rigid": rigid, "peers": peers, "matter": matter, "bridge": bridge, "training": training,
}  # fmt: skip


def profile(put: Callable[[dict[str, Any]], None], small: bool) -> int:
    """The longest kernels of a call, from JAX's trace, and how long the GPU was busy."""
    import tempfile

    import jax

    from fphys.bench import particles_mpm, particles_sph
    from fphys.bench.measure import prepare

    cases, worlds = next(rigid(small))
    chosen = [(case, worlds) for case in cases if "fphys" in case.name]
    size = "1k" if small else "1M"
    made = particles_mpm.mpm_cases({size: particles_mpm.SIZES[size]})
    made += particles_sph.sph_cases({size: particles_sph.SIZES[size]})
    chosen += [(case, 1) for case in made if case.name.endswith(("step", "step_grad"))]
    for case, worlds in chosen:
        prepared = prepare(case, worlds)
        prepared.call()
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            with jax.profiler.trace(folder):
                prepared.call()
            seconds = time.perf_counter() - start
            total = kernels(Path(folder))
        ranked, busy = total.most_common(25), sum(total.values())
        put({"case": case.name, "worlds": worlds, "seconds": seconds, "busy": busy, "kernels": ranked})
        print(f"{case.name}, {worlds:,}: {seconds * 1e3:.2f} ms, kernels {busy * 1e3:.2f} ms", flush=True)
        for kernel, took in ranked[:10]:
            print(f"    {took * 1e6:10.1f} us  {kernel}", flush=True)
    return 0


def kernels(folder: Path) -> "collections.Counter[str]":
    """Seconds of each kernel on the GPU's streams in a trace."""
    total: collections.Counter[str] = collections.Counter()
    for file in folder.rglob("*.trace.json.gz"):
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
        devices = {e["pid"] for e in events if e.get("name") == "process_name" and "/device:" in e["args"]["name"]}
        streams = {
            (e["pid"], e["tid"])
            for e in events
            if e.get("name") == "thread_name" and e["pid"] in devices and "Stream" in e["args"]["name"]
        }
        for event in events:
            if event.get("ph") == "X" and (event["pid"], event.get("tid")) in streams:
                total[event["name"]] += event["dur"] * 1e-6
    return total


def heed() -> None:
    """End in order when the process is ended, so that the part that runs ends with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


if __name__ == "__main__":
    heed()
    sys.exit(main())
