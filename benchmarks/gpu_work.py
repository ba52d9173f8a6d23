"""What ``benchmarks/gpu.sh`` measures: the work of its parts that are not tests."""

import dataclasses
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_results import lines, note

Put = Callable[[dict[str, Any]], None]
Cases = Iterator[tuple[list[Any], int]]
COUNTED = (".1M.", ".1k.")
"""Sizes of particles whose bytes are counted."""


def work(name: str) -> int:
    """Measure, in this process."""
    import jax

    file, part = Path(os.environ["FPHYS_RESULTS"]), os.environ["FPHYS_PART"]
    small = bool(os.environ.get("FPHYS_STAND_IN"))
    put = lambda line: note(file, {"part": part, **line})  # noqa: E731
    if name in ("profile", "trace"):
        import gpu_trace

        return getattr(gpu_trace, name)(put, small)
    from fphys.bench.measure import QUICK, Effort, measure
    from fphys.bench.report import HEADER, row

    print(HEADER, flush=True)
    put({"row": HEADER})
    known = {(line["case"], line["worlds"]) for line in lines(file) if line.get("part") == part and line.get("valid")}
    wrong = 0
    for cases, worlds in MEASURED[name](small):
        if all((case.name, worlds) in known for case in cases):
            continue
        moved = {case.name: moved_bytes(case, worlds) for case in cases if any(size in case.name for size in COUNTED)}
        results = measure(cases, worlds, QUICK if small else Effort(budget=0.6))
        used = used_bytes()
        for result in results:
            wrong += not result.valid
            print(row(result), flush=True)
            more = {"moved_bytes": moved.get(result.case), "used_bytes": used, "row": row(result)}
            put(dataclasses.asdict(result) | more)
        jax.clear_caches()
    return int(wrong > 0)


def used_bytes() -> int | None:
    """Memory of the GPU that is taken: XLA's, which grows as it must and stays, Warp's, and CUDA's own."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False).stdout.split()
    return int(answer[0]) << 20 if answer and answer[0].isdigit() else None


def moved_bytes(case: Any, worlds: int) -> int:
    """Bytes that the kernels of a case move at least: each launch reads or writes each of its arrays once.

    Operations of XLA, such as sorting, are not counted.
    """
    import jax

    from fphys.bridge import ffi

    workload = case.setup(worlds)
    lowered = jax.jit(workload.fn).lower(*workload.args)
    text = lowered.as_text()  # calls name their plans by numbers
    plans = [held.plan for number, held in ffi.plans().held.items() if str(number) in text]
    return steps(case) * sum(launch_bytes(plan, *launch) for plan in plans for launch in plan.launches)


def steps(case: Any) -> int:
    """Steps of a cloud in a call."""
    from fphys.bench import particles_mpm

    return particles_mpm.STEPS if "mpm" in case.tags else 1


def launch_bytes(plan: Any, launch: Any, adjoint: bool) -> int:
    """Bytes of the arrays of a launch; in an adjoint one, with their adjoints."""
    arrays = {arg for arg in launch.args if arg in plan.values}
    both = [*arrays, *(array for array in arrays if adjoint and array in plan.adjoints)]
    return sum(array.row_bytes * (1 if array.shared else plan.worlds) for array in both)


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
    for worlds in () if small else (8192, 1024):
        yield engines("franka", "fphys", "mujoco_warp"), worlds


def others(small: bool) -> Cases:
    """The same beside MJX, Newton and Genesis, those that are installed, and particles beside Genesis."""
    for engine in ("mjx",) if small else ("mjx", "newton", "genesis"):
        for name in ("ant",) if small else ("ant", "humanoid", "franka"):
            both = engines(name, "fphys", engine)
            if small or len(both) == 2:
                yield both, 4 if small else 8192
    for group in () if small else particles("1M", "step", "step_genesis"):
        if len(group) == 2:
            yield group, 1


def float64(small: bool) -> Cases:
    """As many worlds as others have published figures of, in double precision; then beside MJX in turns."""
    for wanted in (("fphys",),) if small else (("fphys",), ("fphys", "mjx")):
        for name in ("ant",) if small else ("humanoid", "ant"):
            cases = engines(name, *wanted)
            if len(cases) == len(wanted):
                yield cases, 4 if small else 131_072


def engines(name: str, *wanted: str) -> list[Any]:
    from fphys.bench.peers import _rigid

    return [case for case in _rigid(name, "shipped") if case.name.rpartition(".")[2] in wanted]


def matter(small: bool) -> Cases:
    for size in ("1k",) if small else ("1M", "262k", "32k", "4M"):
        yield from ((group, 1) for group in particles(size, "step", "step_grad"))


def particles(size: str, *wanted: str) -> list[list[Any]]:
    """Cases of material points, and of SPH."""
    from fphys.bench import particles_mpm, particles_sph

    mpm = particles_mpm.SIZES | {"4M": (160, 200)}
    sph = particles_sph.SIZES | {"4M": 160}
    both = particles_mpm.mpm_cases({size: mpm[size]}), particles_sph.sph_cases({size: sph[size]})
    return [[case for case in made if case.name.rpartition(".")[2] in wanted] for made in both]


@functools.cache
def known() -> dict[str, Any]:
    from fphys.bench.cases import CASES

    return {case.name: case for case in CASES}


def envs(small: bool) -> Cases:
    """Environments, first the ones whose memory counts; and observations of arms and environments."""
    few, seen = (4, 4) if small else (1024, 4096)
    stepped = [known()[f"env.ant.{name}"] for name in ("bare", "pure")]
    yield stepped, few
    yield from ((group, seen) for group in observed(small))
    if not small:
        yield stepped, 16_384
        yield from ((observations(task), seen) for task in ("cheetah", "humanoid"))


def observed(small: bool) -> list[list[Any]]:
    """Arms, and an ant's joints and links."""
    arms = [case for name, case in known().items() if name.startswith("scene.franka.observe_")]
    return [arms[:1] if small else arms, observations("ant")]


def observations(task: str) -> list[Any]:
    return [known()[f"env.{task}.{name}"] for name in ("joints", "links")]


def bridge(small: bool) -> Cases:
    """Crossings between libraries, and the device's own figures."""
    from fphys.bench.run import groups, select

    named = [case for name, case in known().items() if name.startswith(("device.", "bridge."))]
    for group in groups(select([case for case in named if not (small and "large" in case.tags)], None)):
        if group[0].name.startswith("device."):
            yield group, group[0].worlds[0] if group[0].worlds else 1
        else:
            yield from ((group, worlds) for worlds in ((4,) if small else (1024, 65_536)))


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


def mixed(small: bool) -> Cases:
    """A GPT in float32 and bfloat16; then in float16, and with fewer bits of float32 factors."""
    from fphys.bench.mixed import mixed_cases

    made = mixed_cases("gpt" if small else "gpt1024")
    for kinds in (("bfloat16",), ("float16", "default")):
        wanted = ("float32", *kinds)
        yield [c for c in made if c.name.rpartition(".")[2] in wanted], 4 if small else made[0].worlds[0]


MEASURED: dict[str, Callable[[bool], Cases]] = {
    "rigid": rigid, "peers": peers, "others": others, "float64": float64, "matter": matter, "envs": envs,
    "bridge": bridge, "training": training, "mixed": mixed,
}  # fmt: skip
