"""The benchmark's printed table and JSON file."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from .measure import Result

_PACKAGES = (
    *("fphys", "jax", "jaxlib", "warp-lang", "numpy", "torch", "mujoco", "mujoco-warp", "genesis-world", "gymnasium"),
    *("envpool", "brax"),
)
_ROW = "{case:36} {worlds:>7} {median:>10} {spread:>19} {rate:>15} {compile:>9} {memory:>10}  {ratio}"
HEADER = _ROW.format(
    case="case", worlds="worlds", median="median", spread="quartiles", rate="rate", compile="compile",
    memory="memory", ratio="ratio",
)  # fmt: skip


def row(result: Result) -> str:
    """One line of the table."""
    if not result.valid or result.median_s is None or result.q1 is None or result.q3 is None:
        first = (result.error or "").splitlines()[0] if result.error else ""
        return f"{result.case:36} {result.worlds:>7,} INVALID {first}"
    return _ROW.format(
        case=result.case,
        worlds=f"{result.worlds:,}",
        median=seconds(result.median_s),
        spread=f"{seconds(result.q1)} - {seconds(result.q3)}",
        rate=f"{prefixed(result.steps_per_s or 0.0)}{result.unit}/s",
        compile=seconds(result.compile_s or 0.0),
        memory=f"{prefixed(result.bytes['total'])}B" if result.bytes else "",
        ratio=_ratio(result),
    ).rstrip()


def stage_rows(result: Result, most: int = 15) -> str:
    """The longest stages of a case, one line each: their time in one call, over all threads, and their share."""
    times = result.stages or {}
    total = sum(times.values())
    ranked = sorted(times.items(), key=lambda item: -item[1])[:most]
    return "\n".join(f"    {seconds(time):>10} {time / total:6.1%}  {stage}" for stage, time in ranked)


def _ratio(result: Result) -> str:
    agreed = "" if result.accuracy is None else f"{result.accuracy:.1%} agree  "
    if result.sent is not None:
        size, number = sum(size * count for _, size, count in result.sent), sum(count for *_, count in result.sent)
        agreed += f"{prefixed(size)}B in {number} messages  "
    return agreed + _compared(result)


def _compared(result: Result) -> str:
    if result.relative_to is None:
        return ""
    if result.ratio is None:
        return f"? x {result.relative_to}"
    target = f" (target <= {result.target:g})" if result.target is not None else ""
    return f"{result.ratio:.2f} x {result.relative_to}{target}"


def seconds(value: float) -> str:
    """A time with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def prefixed(value: float) -> str:
    """A number with three digits and its decimal prefix."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "


def write_json(
    path: str | os.PathLike[str], results: Sequence[Result], complete: bool, more: dict[str, Any] | None = None
) -> None:
    """Write the results so far. A reader finds the old file or the new one, never a partial file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    report = environment() | {"complete": complete} | (more or {})
    report |= {"results": [dataclasses.asdict(result) for result in results]}
    draft = path.with_name(f".{path.name}.part")
    draft.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def environment() -> dict[str, Any]:
    """Device, versions, precision and date, without which a figure means nothing."""
    device = jax.devices()[0]
    return {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "driver": _driver() if device.platform == "gpu" else None,
            "cpu": _cpu(),
            "cores": os.cpu_count(),
        },
        "precision": "float64" if jax.config.read("jax_enable_x64") else "float32",
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
