"""The models and recordings that come with fphys; ``docs/assets.md`` gives the source of their figures."""

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .guard import is_text


def asset(name: str) -> str:
    """Path of one of our own models, for :func:`fphys.load`: ``asset("franka")``."""
    return _find("model", name, _room().glob("*.xml"), _room().glob("*.urdf"))


def located(source: Any) -> Any:
    """The path of a model that is given by its asset's name, if there is no such file; anything else as it is."""
    named = isinstance(source, str) and not is_text(source) and not Path(source).suffix and not os.path.exists(source)
    if not named:
        return source
    try:
        return asset(source)
    except ModelError as cause:
        raise ModelError(f"there is no file {source!r}, and {cause}") from None


def recording(name: str) -> str:
    """Path of one of our own recorded motions, a CSV file: ``recording("double-pendulum")``."""
    return _find("recording", name, (_room() / "recordings").glob("*.csv"))


def trained(name: str) -> str:
    """Path of one of our own trained policies, for :func:`fphys.rl.load_policy`: ``trained("ant")``."""
    return _find("policy", name, (_room() / "policies").glob("*.safetensors"))


def _room() -> Path:
    return Path(str(files("fphys") / "assets"))


def _find(kind: str, name: str, *globs: Iterable[Path]) -> str:
    found = {path.stem: str(path) for paths in globs for path in paths}
    if name not in found:
        raise ModelError(f"no {kind} called {name!r} comes with fphys: choose one of {', '.join(sorted(found))}")
    return found[name]
