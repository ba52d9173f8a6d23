"""Where the tests of this folder run, what they compare with, and where their results go.

FPHYS_STAND_IN=1  take the bridge's way to a GPU on the processor (``stand_in.py``), where there is no GPU, with kernels
                  that run as a GPU runs them (``threads.py``)
FPHYS_EXPECTED    a folder with what a processor made of the scenes (``scenes.py``)
FPHYS_RESULTS     a file that gets a line of JSON for each test, when the test ends
FPHYS_DONE        names of tests that are left out, a line each

With FPHYS_RESULTS, a process ends with the test that killed CUDA's context: no later call could succeed in it.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from ..conftest import programs
from . import threads
from .stand_in import standing_in

STAND_IN = bool(os.environ.get("FPHYS_STAND_IN"))
if STAND_IN:
    threads.compile_as_for_a_gpu(programs().with_name("kernels"))


@pytest.fixture
def gpu() -> Any:
    return jax.devices("cpu" if STAND_IN else "gpu")[0]


@pytest.fixture
def cpu() -> Any:
    return jax.devices("cpu")[0]


@pytest.fixture
def cuda() -> None:
    """For what needs CUDA itself."""
    if STAND_IN:
        pytest.skip("needs CUDA itself")


@pytest.fixture
def on_gpu() -> Callable[[], Any]:
    """A context in which operations go to the GPU, or to what stands in for it."""
    return standing_in if STAND_IN else contextlib.nullcontext


@pytest.fixture
def runs() -> Callable[[int], Iterator[int]]:
    """So many runs on a GPU, whose threads come as they like; three with the stand-in, whose threads come in order,
    backwards, and shuffled."""

    def count(on_a_gpu: int) -> Iterator[int]:
        for run in threads.ORDERS if STAND_IN else range(on_a_gpu):
            if STAND_IN:
                threads.order(run)
            yield run

    return count


@pytest.fixture
def expected(cpu: Any, record_property: Any, tmp_path: Path) -> Callable[[str, str], tuple[Any, Any]]:
    """A scene by name and precision, and what a processor made of it, elsewhere, or here: then it is kept."""
    from . import scenes

    def get(name: str, dtype: str) -> tuple[Any, Any]:
        scene, folder = scenes.SCENES[name](dtype), os.environ.get("FPHYS_EXPECTED")
        if not folder and not STAND_IN:
            return scene, scenes.result(scene, cpu)
        folder = folder or str(tmp_path)
        if STAND_IN and not (scenes.path(folder, name, dtype).exists() and scenes.is_current(folder, name, dtype)):
            elsewhere(folder, name, dtype)
        if not scenes.path(folder, name, dtype).exists():
            scenes.save(folder, name, dtype)
        if not scenes.is_current(folder, name, dtype):
            record_property("expected", "of other sources")
        return scenes.load(folder, name, dtype, scene)

    return get


def elsewhere(folder: str, name: str, dtype: str) -> None:
    """Let another process write what a processor makes of a scene: this one's kernels are not a processor's."""
    own = {key: value for key, value in os.environ.items() if key != "WARP_CACHE_PATH"}
    command = [sys.executable, "-m", "tests.gpu.scenes", folder, name, dtype]
    subprocess.run(command, env=own, cwd=Path(__file__).parents[2], check=True, stdout=subprocess.DEVNULL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is done: a part that ran out of time goes on where it stopped."""
    done = os.environ.get("FPHYS_DONE", "").splitlines()
    config.hook.pytest_deselected(items=[item for item in items if item.name in done])
    items[:] = [item for item in items if item.name not in done]


def is_dead() -> bool:
    """Whether CUDA's context is lost."""
    try:
        return int(jax.device_put(1) + 1) != 2
    except Exception:
        return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[Any]:
    report = yield
    file = os.environ.get("FPHYS_RESULTS")
    if file and (report.when == "call" or report.outcome != "passed"):
        line = {
            "part": os.environ.get("FPHYS_PART"),
            "test": item.name,
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
        }
        line |= dict(report.user_properties)
        if report.failed:
            line["error"] = str(report.longrepr)[-2000:]
        with Path(file).open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
    if file and report.failed and not STAND_IN and is_dead():
        print(f"{item.name} has killed CUDA's context: {report.longrepr}", file=sys.__stderr__, flush=True)
        os._exit(1)
    return report
