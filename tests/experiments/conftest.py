"""Experiments run as users run them: JAX as it comes, a folder for each run."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest


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

    def run(module: Any, config: Any, video: bool = True) -> tuple[dict, Any]:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        with Run(name, root=tmp_path, config=config, quiet=True) as record:
            record.metrics(**module.main(config, record))
        files = {file.name for file in record.path.iterdir()}
        assert files >= {"metrics.json", f"{name}.png", *(["result.npz", f"{name}.mp4"] if video else [])}
        if getattr(config, "iterations", 0):
            assert any(file.startswith("events.") for file in files)
        content = json.loads((record.path / "metrics.json").read_text())
        assert content["status"] == "ok"
        if not video and not record.history and "result.npz" not in files:
            return content["metrics"], {}
        with np.load(record.path / "result.npz") as result:
            return content["metrics"], dict(result)

    return run
