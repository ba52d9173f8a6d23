"""Where the tests of this folder run, what they compare with, and where their results go.

FPHYS_STAND_IN=1  take the bridge's way to a GPU on the processor (``stand_in.py``), where there is no GPU
FPHYS_EXPECTED    a folder with what a processor made of the scenes (``scenes.py``)
FPHYS_RESULTS     a file that gets a line of JSON for each test, when the test ends
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from .stand_in import standing_in

STAND_IN = bool(os.environ.get("FPHYS_STAND_IN"))


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
def expected(cpu: Any) -> Callable[[str, str], tuple[Any, Any]]:
    """A scene by name and precision, and what a processor made of it, here or elsewhere."""
    from . import scenes

    def get(name: str, dtype: str) -> tuple[Any, Any]:
        scene, folder = scenes.SCENES[name](dtype), os.environ.get("FPHYS_EXPECTED")
        if folder and scenes.path(folder, name, dtype).exists():
            return scenes.load(folder, name, dtype, scene)
        return scene, scenes.result(scene, cpu)

    return get


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
    return report
