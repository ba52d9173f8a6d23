"""Experiments run as users run them: JAX as it comes, a folder for each run."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STILL = ("scaling", "autoencode", "classify", "dqn", "generate-text", "train-resnet", "classify-image")
"""Experiments in which nothing moves."""
UNIT = re.compile(r"\[[^\]]+\]")
NUMBERS = re.compile(
    "iteration|step|part of|chamber|time$|found /|Poisson|return|nats|stands|rate|accuracy|loss|m/s|probability|class"
)
"""What a label may say instead of a unit."""


@pytest.fixture(autouse=True)
def jax_as_it_comes() -> Iterator[None]:
    import jax

    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def play(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, full: bool) -> Callable[..., tuple[dict, Any]]:
    """``play(module, config)``: run an experiment; what metrics.json holds of it, and its result.npz.

    ``video=False`` for those that leave no video, and a result only if something was logged.
    """
    from fphys.experiments import film
    from fphys.runs import Run

    if not full:
        monkeypatch.setattr(film, "FPS", 2.0)

    plot = Run.plot

    def labelled(record: Any, name: str, figure: Any) -> Any:
        checked = (lambda axes: (figure(axes), says_what(axes))) if callable(figure) else figure
        drawn = plot(record, name, checked)
        for axes in [] if callable(figure) else figure.get_axes():
            says_what(axes)
        return drawn

    monkeypatch.setattr(Run, "plot", labelled)

    def run(module: Any, config: Any, video: bool = True) -> tuple[dict, Any]:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        with Run(name, root=tmp_path, config=config, quiet=True) as record:
            record.metrics(**module.main(config, record))
        files = {file.name for file in record.path.iterdir()}
        assert files >= {"metrics.json", f"{name}.png", *(["result.npz", f"{name}.mp4"] if video else [])}
        if getattr(config, "iterations", 0):
            assert any(file.startswith("events.") for file in files)
        if name not in STILL:
            opens(record.path, searched=getattr(config, "iterations", 1) > 0)
        content = json.loads((record.path / "metrics.json").read_text())
        assert content["status"] == "ok"
        if not video and not record.history and "result.npz" not in files:
            return content["metrics"], {}
        with np.load(record.path / "result.npz") as result:
            return content["metrics"], dict(result)

    return run


def says_what(axes: Any) -> None:
    """Both axes of a plot say what they show and its unit, and no title has a unit that belongs there."""
    drawn = axes.lines or axes.collections or axes.patches
    if not axes.axison or not drawn or axes.get_label() == "<colorbar>":
        return
    below = [other.get_xlabel() for other in axes.get_shared_x_axes().get_siblings(axes)]
    beside = [other.get_ylabel() for other in axes.get_shared_y_axes().get_siblings(axes)]
    assert not UNIT.search(axes.get_title()), f"a unit is in the title {axes.get_title()!r}: label the axis"
    for labels in (below, beside):
        assert any(UNIT.search(text) or NUMBERS.search(text) for text in labels), f"an axis has only {labels}"


FED = {"pour", "nozzle"}
"""Experiments whose particles are not all there from the start."""


def opens(folder: Path, searched: bool) -> None:
    """``fphys view FOLDER`` shows the run, with nothing else given: in time, in every world; what was found moves."""
    from fphys import view

    if importlib.util.find_spec("viser") is None:
        return
    with np.load(folder / "result.npz") as result:
        found = dict(result)
    viewer = view.view(str(folder), None, 0)
    try:
        shown = viewer.motion
        moved = np.concatenate([shown.pos, shown.particles], 1)
        time = found["time"]
        assert len(moved) == len(time) > 1 and shown.timestep == pytest.approx((time[-1] - time[0]) / (len(time) - 1))
        there = np.isfinite(moved)
        assert np.isfinite(shown.pos).all() and (there.all() or folder.parent.name in FED)
        way = moved.max(0, where=there, initial=-np.inf) - moved.min(0, where=there, initial=np.inf)
        assert way.max() > 1e-3 or not searched
        worlds = next(found[name].shape[1] for name in ("qpos", "x") if name in found)
        assert (viewer.world.max == worlds - 1 and not viewer.world.disabled) or worlds == 1
        for world in range(1, worlds):
            viewer.world.value = world
            assert viewer.motion is not shown
        viewer.show(len(time) - 1)
    finally:
        viewer.stop()
